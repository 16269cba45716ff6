"""ZeRO++ of a measured run: the parts that its cells name, where its layout has them."""

from __future__ import annotations

from dataclasses import replace

from distsim.engine.jobs.resolve import Setup
from distsim.engine.jobs.zeropp import zeropp_of
from distsim.errors import DistsimError
from distsim.interop.runs import Run
from distsim.interop.runs.sharding import zeropp_parts


def compressed(run: Run, setup: Setup) -> Setup:
    """The setup with the parts of ZeRO++ that its run names and its layout can have."""
    parts = zeropp_parts(run)
    return setup if not parts or _lacking(setup, parts) else _with(setup, parts)


def _with(setup: Setup, parts: str) -> Setup:
    return replace(setup, job=setup.job.model_copy(update={"zeropp": parts}))


def _lacking(setup: Setup, parts: str) -> str:
    """Why a layout has no such parts; nothing where it does."""
    try:
        zeropp_of(_with(setup, parts), parts)
    except DistsimError as error:
        return error.problem.replace("--", "")
    return ""


def assumed_zeropp(run: Run, setup: Setup) -> str:
    """Parts that are named and left out."""
    parts = zeropp_parts(run)
    why = parts and _lacking(setup, parts)
    return f"{parts} of ZeRO++ ignored: {why}" if why else ""
