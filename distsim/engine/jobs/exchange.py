"""Choices of how ranks exchange what they must: resolved from a job and its framework, and refused where they clash."""

import math
from typing import Any, NamedTuple

from distsim.arrays import Number, minimum, where
from distsim.engine.jobs.layout import refuse_imbalance
from distsim.engine.jobs.resolve import Setup
from distsim.engine.jobs.tuning import reduced_in
from distsim.errors import DistsimError
from distsim.formulas.traffic import DTYPE_BYTES
from distsim.last import for_last
from distsim.specs.cuts import traded_heads
from distsim.specs.flags import flag
from distsim.specs.layout import Layout
from distsim.specs.rules import divisors, listed, trades_heads
from distsim.units import parse

TRAFFIC_ONLY = (
    "profile",
    "cp_mode", "compress", "zeropp", "sync", "sync_every", "sync_gbps", "servers", "expert_imbalance", "clip",
    "no_sync", "tp_mode", "tp_depth", "expert_dispatcher",
)  # fmt: skip
"""Job options that change what crosses the links, and but for what uncounted.py knows nothing else."""
COMPRESSIONS = ("fp16", "bf16", "1bit", "powersgd-r4")
"""Ways to compress gradients, as they are typed."""


class Exchange(NamedTuple):
    """How gradients, parameters and activations travel."""

    tp_mode: str = "1d"
    tp_depth: int = 1
    """Layers of a 2.5D grid."""
    compress: str = "none"
    compress_rank: int = 0
    zeropp: frozenset[str] = frozenset()
    sync: str = "allreduce"
    sync_every: int = 1
    sync_bytes_per_second: float = 0.0
    """Rate of the slow link that the ranks of a replica share; 0 means the cluster's network."""
    servers: int = 0
    """Parameter servers beside the workers; 0 means that each worker serves its share."""
    expert_imbalance: float | None = None
    """As stated; None: messages are the mean's, and time has its own usual share (engine/kernels/expert_load.py)."""
    clip: bool = True
    no_sync: Number = True
    """True (or an array of it) where only the last micro-batch reduces gradients."""

    @property
    def plain(self) -> bool:
        """Whether replicas agree on gradients as they are, by collectives of every step."""
        return not self.zeropp and self.compress == "none" and self.sync == "allreduce"

    def syncs(self, micro_batches: Number) -> Number:
        """How often gradients are reduced per step."""
        return where(self.no_sync, 1, micro_batches)

    def to_dict(self) -> dict[str, Any]:
        """By the names of the job options."""
        compress = f"{self.compress}-r{self.compress_rank}" if self.compress_rank else self.compress
        return {
            "tp_mode": self.tp_mode, "compress": compress, "zeropp": sorted(self.zeropp), "sync": self.sync,
            "sync_every": self.sync_every, "servers": self.servers, "expert_imbalance": self.expert_imbalance,
            "clip": self.clip, "no_sync": self.no_sync,
        }  # fmt: skip


def _zeropp(setup: Setup) -> frozenset[str]:
    """The parts of ZeRO++ that a job states."""
    if not setup.job.zeropp:
        return frozenset()
    from distsim.engine.jobs.zeropp import zeropp_of

    return zeropp_of(setup, setup.job.zeropp)


@for_last
def exchange_of(setup: Setup) -> Exchange:
    """The choices of a resolved job; raises DistsimError for one that makes no sense there."""
    job, rules, layout = setup.job, setup.framework.traffic, setup.layout
    _check_tensor_mode(setup)
    _check_context_mode(setup)
    _check_no_sync(setup)
    compress, rank = _compression(setup)
    _check_sync(setup)
    _check_imbalance(setup)
    usual = {"never": False, "always": True, "unsharded": layout.zero < 2}[rules.no_sync]
    if rules.no_sync_keeps_gathered and setup.kernels.graphs == "iteration":
        usual = usual | (layout.zero == 2)
    return Exchange(
        job.tp_mode or "1d", job.tp_depth or 1, compress, rank, _zeropp(setup), job.sync or "allreduce",
        job.sync_every or 1, parse(f"{job.sync_gbps or 0} Gb/s", "B/s"), job.servers or 0, job.expert_imbalance,
        _stated(setup, "clip", rules.clip), _stated(setup, "no_sync", usual) | reduces_last(setup),
    )  # fmt: skip


def _check_imbalance(setup: Setup) -> None:
    """Raise DistsimError for an imbalance that one rank cannot have; a search has arrays of degrees, and leaves out
    those with which none can (engine/layouts/meshes.py)."""
    stated, ep = setup.job.expert_imbalance, setup.layout.ep
    if stated is None or not isinstance(ep, int):
        return
    if ep == 1:
        raise DistsimError(f"--expert-imbalance {stated:g} has no effect with ep 1", "add --ep 2 or more")
    refuse_imbalance(setup.model, stated, ep, f"on {ep} ranks, the busiest rank has at most")


def reduces_last(setup: Setup) -> Number:
    """Whether stages of a pipeline reduce gradients after the last backward and drop gathered layers no sooner,
    whatever was asked for: torch.distributed.pipelining stage.py, which turns both off for each backward."""
    return (setup.layout.pp > 1) & (setup.framework.traffic.gathered_in_pipeline != "each")


def gathers_once(setup: Setup, exchange: Exchange) -> Number:
    """Whether layers that ZeRO gathers stay so from a step's first micro-batch to its last: in pipelines of torch,
    unless forward drops them, and where software that puts off the reduction of gradients keeps them."""
    layout, rules = setup.layout, setup.framework.traffic
    kept = (layout.zero == 2) | ((layout.zero >= 3) & (rules.gathered_in_pipeline == "step"))
    put_off = exchange.no_sync & rules.no_sync_keeps_gathered & (layout.micro_batches > 1)
    return kept & reduces_last(setup) | ((layout.zero == 2) & put_off)


def gathers(setup: Setup, exchange: Exchange) -> tuple[Number, Number]:
    """How often a step gathers a layer for forward, and once more for backward, where ZeRO does so layer by layer. What
    forward drops but backward leaves is gathered for each backward, and for forward while the pipeline fills."""
    layout, kept = setup.layout, gathers_once(setup, exchange)
    forward = where(kept, 1, where(reduces_last(setup), minimum(layout.micro_batches, layout.pp), layout.micro_batches))
    return forward, where(layout.zero >= 3, where(kept, 0, layout.micro_batches), 0)


def reduces_each(setup: Setup, exchange: Exchange) -> Number:
    """1 where each micro-batch's backward hides a reduction of its own, 0 where the last one's hides the only one; a
    stage of a pipeline sends what others wait for before it reduces."""
    layout = setup.layout
    each = where(exchange.syncs(layout.micro_batches) == layout.micro_batches, 1, 0)
    several = where(layout.micro_batches > 1, 1, 0) * where(gathers_once(setup, exchange), 0, 1)
    inside = where((layout.micro_batches > 1) | (layout.pp == 1), 1, 0)
    return where(layout.zero >= 3, each * inside, each * several)


def whole_reductions(setup: Setup, exchange: Exchange) -> Number:
    """How often a step reduces gradients that no shard is left of: whole ones, and those of shards between replicas."""
    return 1 if setup.framework.traffic.replicas_reduce_once else exchange.syncs(setup.layout.micro_batches)


def _stated(setup: Setup, name: str, otherwise: Number) -> Number:
    """A switch from the job, else from the framework's defaults, else the framework's habit."""
    value = getattr(setup.job, name)
    if value is None:
        value = setup.framework.defaults.get(name)
    return otherwise if value is None else bool(value)


def grid_side(tp: int, mode: str, depth: int = 1) -> int:
    """Ranks along one side of a 2D, 2.5D or 3D grid; 0 where tp ranks make no such grid."""
    side = round(tp ** (1 / 3)) if mode == "3d" else math.isqrt(tp // depth)
    size = side**3 if mode == "3d" else side * side * depth
    return side if size == tp else 0


def _check_tensor_mode(setup: Setup) -> None:
    job, tp = setup.job, setup.layout.tp
    mode, depth = job.tp_mode or "1d", job.tp_depth or 1
    if job.tp_depth is not None and mode != "2.5d":
        raise DistsimError(f"--tp-depth {job.tp_depth} has no effect with --tp-mode {mode}", "add --tp-mode 2.5d")
    if mode == "1d":
        return
    if tp == 1:
        raise DistsimError(f"--tp-mode {mode} has no effect with tp 1", "add --tp with the number of ranks in one grid")
    if job.sequence_parallel:
        raise DistsimError(
            f"--sequence-parallel goes with --tp-mode 1d, not with --tp-mode {mode}", "leave one of the two out"
        )
    if not grid_side(tp, mode, depth):
        shape = {
            "2d": "a square (4, 9, 16 …)",
            "2.5d": f"{depth} square{'s' * (depth > 1)} (--tp-depth x q x q)",
            "3d": "a cube (8, 27, 64 …)",
        }
        raise DistsimError(f"--tp {tp} ranks do not form {shape[mode]} for --tp-mode {mode}", f"use {shape[mode]}")


def _check_no_sync(setup: Setup) -> None:
    zero, framework = setup.layout.zero, setup.framework
    most = framework.supports.no_sync_zero
    if setup.job.no_sync and isinstance(zero, int) and zero > most:  # a search leaves such stages out
        found = framework.source.get("supports.no_sync_zero")
        raise DistsimError(
            f"{framework.name} cannot defer the gradient reduction with ZeRO {zero}",
            f"leave --no-sync out, or use --zero {most} or less", *([f"source: {found}"] if found else []),
        )  # fmt: skip


def _check_context_mode(setup: Setup) -> None:
    layout, stated = setup.layout, setup.job.cp_mode
    if not isinstance(layout.cp, int):  # a search leaves out what does not divide
        return
    if stated is not None and layout.cp == 1:
        raise DistsimError(f"--cp-mode {stated} has no effect with cp 1", "add --cp 2 or more")
    if trades_heads(setup.model, layout.cp_mode, layout.tp, layout.cp):
        return
    heads = traded_heads(setup.model, layout.tp)
    own = "" if stated else f"; {setup.framework.name} uses all-to-all unless --cp-mode names another"
    raise DistsimError(
        f"all-to-all over {layout.cp} context parallel ranks does not divide {heads} "
        f"head{'s' * (heads != 1)} per tensor parallel rank{own}",
        f"valid degrees: {listed(divisors(heads))}",
    )


def _trades(setup: Setup) -> bool:
    """Whether context parallel ranks of one layout trade heads for tokens."""
    layout = setup.layout
    return isinstance(layout.cp, int) and layout.cp > 1 and layout.cp_mode == "all_to_all"


def _compression(setup: Setup) -> tuple[str, int]:
    text, layout = setup.job.compress or "none", setup.layout
    if text == "none":
        return "none", 0
    kind, _, rank = text.partition("-r")
    if kind not in (*COMPRESSIONS, "powersgd") or (kind == "powersgd") != rank.isdigit() or rank == "0":
        from distsim.other_choices import choice_meant

        told = f"compressions: none, {', '.join(COMPRESSIONS)} (any rank)"
        raise DistsimError(f"unknown gradient compression {text!r}", choice_meant(text, COMPRESSIONS), told)
    if layout.zero:
        raise DistsimError(
            f"--compress {text} needs whole gradients on each rank, but zero is {layout.zero}", "use --zero 0"
        )
    _check_replicas(layout, f"--compress {text}")
    if kind == "1bit" and not setup.optimizer.one_bit:
        raise DistsimError(
            f"--compress 1bit is made for adam, adamw and lamb, not for {setup.optimizer.name}",
            "use --optimizer adamw or --compress powersgd-r4",
        )
    if kind in DTYPE_BYTES and DTYPE_BYTES[kind] >= DTYPE_BYTES[wide := reduced_in(setup)]:
        mend = "leave it out, or use --precision amp-bf16, whose gradients are fp32"
        raise DistsimError(f"--compress {text} has no effect: gradients are already sent in {wide}", mend)
    if kind == "powersgd" and int(rank) > setup.model.hidden:
        raise DistsimError(
            f"--compress {text} compresses nothing: {setup.model.name} has a hidden size of {setup.model.hidden}",
            "typical ranks are 1 to 32, e.g. --compress powersgd-r4",
        )
    return kind, int(rank or 0)


def _check_replicas(layout: Layout, option: str) -> None:
    if layout.dp * layout.cp == 1:
        raise DistsimError(f"{option} has no effect with one data parallel rank", "add --gpus or leave it out")


def _check_sync(setup: Setup) -> None:
    job, layout = setup.job, setup.layout
    sync = job.sync or "allreduce"
    for name, wanted in (("sync_every", "local-sgd"), ("sync_gbps", "local-sgd"), ("servers", "parameter-server")):
        if getattr(job, name) is not None and sync != wanted:
            typed = f"{flag(name)} {getattr(job, name):g}"
            raise DistsimError(f"{typed} has no effect with --sync {sync}", f"add --sync {wanted}")
    if sync == "allreduce":
        return
    _check_replicas(layout, f"--sync {sync}")
    if sync == "parameter-server" and layout.zero:
        raise DistsimError(f"a parameter server holds the states itself, but zero is {layout.zero}", "use --zero 0")
    if sync == "local-sgd" and layout.zero and layout.zero_group == layout.dp * layout.cp:
        raise DistsimError(
            f"--sync local-sgd needs replicas, but ZeRO {layout.zero} shards over all {layout.zero_group} ranks",
            "add --zero-group with the ranks of one replica, or --zero 0",
        )
    if job.compress not in (None, "none"):
        raise DistsimError(
            f"--compress {job.compress} and --sync {sync} cannot be combined", "leave one of the two out"
        )


def stated_exchange(setup: Setup) -> Exchange | None:
    """The choices of a job that states any, or may not have those of its framework, checked; None where it states none,
    which costs nothing."""
    stated = any(getattr(setup.job, name) is not None for name in TRAFFIC_ONLY)
    return exchange_of(setup) if stated or _trades(setup) else None
