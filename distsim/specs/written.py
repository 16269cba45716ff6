"""A job as answers state it: what it was resolved to, and the options that determine that."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from distsim.specs.job import Job

STATED, CHECKSUM = "stated", "checksum"
"""What an answer's ``job`` has in addition to the resolved fields."""


def as_written(job: Job, resolved: Mapping[str, Any]) -> dict[str, Any]:
    """What a job was resolved to, with the options it states and a checksum that reveals changes."""
    return {**resolved, STATED: stated_of(job), CHECKSUM: checksum(resolved)}


def stated_of(job: Job) -> dict[str, Any]:
    """The options that a job states, as plain data."""
    return job.model_dump(mode="json", include=set(job.model_fields_set), exclude_none=True)


def options_of(job: Job) -> dict[str, Any]:
    """The options that a job states beside its model, to be typed again."""
    return {name: getattr(job, name) for name in type(job).model_fields
            if name in job.model_fields_set and name != "model"}  # fmt: skip


def model_word(job: Job) -> str:
    """A job's model as it is typed in a shell."""
    from shlex import quote

    return quote(job.model if isinstance(job.model, str) else job.model.name)


def checksum(resolved: Mapping[str, Any]) -> str:
    """Of a resolved job, so that changes are noticed."""
    import json
    import zlib

    return f"{zlib.crc32(json.dumps(resolved, sort_keys=True).encode()):08x}"
