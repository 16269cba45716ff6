"""distsim: bytes, traffic, time and cost of a distributed training run, before a GPU is rented."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from distsim.engine.advice.faster import advise as advise
    from distsim.engine.collective import collective as collective
    from distsim.engine.jobs.models import load_model as load_model
    from distsim.engine.memory import memory as memory
    from distsim.engine.pipeline import pipeline as pipeline
    from distsim.engine.planner import plan as plan
    from distsim.engine.search import search as search
    from distsim.engine.step import step as step
    from distsim.engine.traffic import comm as comm
    from distsim.engine.validate import validate as validate
    from distsim.errors import DistsimError as DistsimError
    from distsim.specs.job import Job as Job

# Public names live where they are made; they are imported when first used, so that `import distsim` stays cheap.
_PUBLIC = {
    "DistsimError": "distsim.errors",
    "Job": "distsim.specs.job",
    "load_model": "distsim.engine.jobs.models",
    "memory": "distsim.engine.memory",
    "comm": "distsim.engine.traffic",
    "step": "distsim.engine.step",
    "search": "distsim.engine.search",
    "plan": "distsim.engine.planner",
    "validate": "distsim.engine.validate",
    "advise": "distsim.engine.advice.faster",
    "pipeline": "distsim.engine.pipeline",
    "collective": "distsim.engine.collective",
}

__all__ = sorted(_PUBLIC)


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'distsim' has no attribute {name!r}")
    return getattr(importlib.import_module(_PUBLIC[name]), name)


def __dir__() -> list[str]:
    """Public names, which editors and notebooks complete before they are imported."""
    return [*__all__, "__version__"]
