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


def checksum(resolved: Mapping[str, Any]) -> str:
    """Of a resolved job, so that changes are noticed."""
    import json
    import zlib

    return f"{zlib.crc32(json.dumps(resolved, sort_keys=True).encode()):08x}"
