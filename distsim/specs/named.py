"""The job that a library function is called with: a whole one, or a model by any of its names and options."""

import os
from collections.abc import Mapping
from typing import Any, Protocol

from distsim.errors import DistsimError
from distsim.specs.job import Job
from distsim.specs.model import Model


class HasSpec(Protocol):
    """A model as ``load_model`` has it."""

    @property
    def spec(self) -> Model:
        """Its description."""


Named = str | os.PathLike[str] | Model | HasSpec
"""What names a model: a preset, a file, its spec, or a loaded model."""


def job_of(job: Job | Named | None, options: Mapping[str, Any]) -> Job:
    """The job that a library function is called with: a whole Job, or its options, where the model may come first
    without a keyword. None means not stated."""
    options = {name: value for name, value in options.items() if value is not None}
    if isinstance(job, (str, os.PathLike, Model)) or isinstance(getattr(job, "spec", None), Model):
        if "model" in options:
            raise DistsimError(f"the model is given twice: {job!r} and {options['model']!r}", "keep one of them")
        return Job(**{**options, "model": job})
    if job is None:
        if "model" not in options:
            raise DistsimError(
                "no model named", "give one first or as model=, e.g. llama-7b", "see: distsim show models"
            )
        return Job(**options)
    if not isinstance(job, Job):
        kind = type(job).__name__
        raise DistsimError(f"{kind} is not a Job", "give a distsim.Job, or options: 'llama-7b', gpus=8, zero=2")
    if options:
        raise DistsimError(f"a Job and {', '.join(options)} are given", "state all options in one of the two")
    return job
