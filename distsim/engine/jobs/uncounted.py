"""Notes on options that a job states and that an answer does not depend on."""

from distsim.engine.jobs.dispatch import dispatcher_note
from distsim.engine.jobs.exchange import TRAFFIC_ONLY, Exchange
from distsim.engine.jobs.no_effect import loss_note
from distsim.engine.jobs.reference import pair_note
from distsim.specs.flags import flag
from distsim.specs.job import Job
from distsim.specs.layout import Layout

TIMED_ONLY = ("gpu_power", "cuda_graphs", "expert_overlap", "tp_comm_overlap", "dp_comm_overlap")
"""Options that neither memory nor traffic depends on, but for memory on graphs of whole steps, tiles of tensor parallel
products and, in pipelines, experts' exchanges beside another micro-batch."""
CONTEXT_MODES = (
    f"{flag('cp_mode')} ring and all_to_all take the same memory; all_gather also holds keys and values of all ranks"
)


def memory_notes(
    job: Job, layout: Layout, exchange: Exchange | None, waiting: bool = False, by_mode: bool = False,
    tiles: bool = False, passes: bool = False,
) -> list[str]:  # fmt: skip
    """A note for each option that a job states and that memory does not depend on; ``waiting`` where gradients do,
    ``by_mode`` where ranks that trade heads for tokens hold more than those that pass keys on, ``tiles`` where products
    that run beside exchanges have buffers for them, ``passes`` where more is in flight beside experts' exchanges."""
    held = {
        "expert_imbalance": True,
        "expert_dispatcher": True,  # its buffers
        "zeropp": exchange is not None and "hpz" in exchange.zeropp,  # its copy of the parameters
        "compress": exchange is not None and exchange.compress in ("1bit", "powersgd"),  # what is not yet sent
        "cp_mode": by_mode or job.cp_mode == "all_gather",  # keys and values of all ranks
        "no_sync": waiting,  # gradients that wait
    }
    stated = [name for name in TRAFFIC_ONLY if getattr(job, name) is not None and not held.get(name)]
    return [
        *(
            CONTEXT_MODES if name == "cp_mode" else f"{flag(name, getattr(job, name))} affects traffic, not memory"
            for name in stated
        ),
        *filter(None, [dispatcher_note(job, layout), loss_note(job, layout), pair_note(job, layout.micro_batch)]),
        *timed_notes(job, "memory", tiles, passes),
    ]


def timed_notes(job: Job, counted: str, tiles: bool = False, passes: bool = False) -> list[str]:
    """A note for each option that a job states and that what is ``counted`` does not depend on, only time."""
    held = {"cuda_graphs"} if counted == "memory" and job.cuda_graphs == "iteration" else set()
    held |= ({"tp_comm_overlap"} if tiles else set()) | ({"expert_overlap"} if passes else set())
    stated = [name for name in TIMED_ONLY if getattr(job, name) is not None and name not in held]
    return [f"{flag(name, getattr(job, name))} affects time, not {counted}" for name in stated]
