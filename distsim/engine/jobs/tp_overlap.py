"""Tensor parallel exchanges beside the products that take or give what they carry: whether a job's run so.

Two ways are known: tiles of userbuffers (Megatron's --tp-comm-overlap), which the fitted numbers of frameworks that
have them hold, and pieces that torch's compiler cuts (torchtitan's enable_async_tensor_parallel).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from distsim.arrays import Number
from distsim.engine.jobs.graphs import ABLE
from distsim.errors import DistsimError
from distsim.last import for_last

if TYPE_CHECKING:
    from distsim.engine.jobs.resolve import Setup
    from distsim.specs.framework import Framework
    from distsim.specs.job import Job

ON, OFF = "--tp-comm-overlap", "--no-tp-comm-overlap"


def with_overlap(job: Job, framework: Framework, compiled: bool) -> Framework:
    """The framework with or without such exchanges, as a job asks for; raises DistsimError where it has none."""
    rules, update = framework.traffic, dict[str, Any]()
    if job.tp_comm_overlap is None:
        return framework
    if job.tp_comm_overlap:
        if rules.tp_tiles == "none" and not framework.supports.tp_pieces:
            raise DistsimError(
                f"the profile {framework.name} does not overlap tensor parallel communication with matrix products",
                f"leave {ON} out, or name another framework, e.g. {ABLE}",
            )
        if framework.supports.tp_pieces and not compiled:
            source = framework.source.get("supports.tp_pieces", "")
            raise DistsimError(
                f"{framework.name} overlaps tensor parallel communication with matrix products only if compiled",
                f"add --compile, or leave {ON} out", f"source: {source}",
            )  # fmt: skip
        update = {"tp_in_pieces": True} if framework.supports.tp_pieces else {"tp_tiles": "fitted"}
    else:
        update = {"tp_in_pieces": False, **({"tp_tiles": "off"} if rules.tp_tiles == "fitted" else {})}
    return framework.model_copy(update={"traffic": rules.model_copy(update=update)})


@for_last  # each exchange of a setup asks
def without_tiles(setup: Setup) -> Number:
    """Whether tensor parallel exchanges stand apart from products where those of the framework's fitted runs do not:
    userbuffers send tiles of sharded sequences between GPUs of one NVLink domain (NVIDIA/Megatron-LM arguments.py,
    --tp-comm-overlap needs --sequence-parallel)."""
    tiles = setup.framework.traffic.tp_tiles
    if tiles != "fitted":
        return tiles == "off"
    return (setup.accelerator.link is None) | (setup.layout.sequence_parallel == 0) | (_domains(setup) > 1)


def _domains(setup: Setup) -> Number:
    from distsim.engine.networks.spread import spread  # memory has no use for it

    layout = setup.layout
    return spread(layout.tp, 1, layout.gpus, setup.cluster.domain, setup.cluster.gpus_per_node)[0]


def overlapped(setup: Setup) -> bool:
    """Whether tensor parallel exchanges of one layout run beside products."""
    if setup.layout.tp == 1:
        return False
    tiles = setup.framework.traffic.tp_tiles == "fitted" and not without_tiles(setup)
    return tiles or setup.framework.traffic.tp_in_pieces


def _why_apart(setup: Setup) -> str:
    """Why they do not, of a framework that has tiles."""
    if setup.framework.traffic.tp_tiles == "off":
        return "as asked for"
    if setup.accelerator.link is None:
        return f"{setup.accelerator.name} has no direct links between accelerators"
    if not setup.layout.sequence_parallel:
        return "sequence parallelism is off"
    return f"tp {setup.layout.tp} spans {_domains(setup)} NVLink domains"


def overlap_words(setup: Setup) -> str:
    """What is assumed, in a sentence; nothing without tensor parallelism."""
    rules, apart = setup.framework.traffic, "tensor parallel communication does not overlap with matrix products"
    if setup.layout.tp == 1:
        return ""
    if rules.tp_in_pieces:
        return "tensor parallel communication overlaps with matrix products in pieces (async tensor parallelism)"
    if rules.tp_tiles == "none":
        more = f"; {ON} changes that" if setup.framework.supports.tp_pieces else ""
        return f"{apart}: {setup.framework.name} runs it so{more}"
    if without_tiles(setup):
        return f"{apart}: {_why_apart(setup)}"
    fitted = f"in the runs that {setup.framework.name} was fitted to"
    why = fitted if setup.job.tp_comm_overlap is None else "asked for"
    return (
        f"tensor parallel communication overlaps with matrix products in tiles (userbuffers), as {why}; "
        f"{OFF} turns that off"
    )


def overlap_note(setup: Setup) -> str:
    """What a job that states it has to know: where it has no effect."""
    stated = setup.job.tp_comm_overlap
    if stated is None:
        return ""
    if setup.layout.tp == 1:
        return f"{ON if stated else OFF} has no effect with tp 1"
    return f"{ON} has no effect: {_why_apart(setup)}" if stated and not overlapped(setup) else ""
