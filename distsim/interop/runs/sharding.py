"""What cells of a measured run say is sharded, and over how many ranks: words of DeepSpeed, torch, Megatron and JAX."""

from __future__ import annotations

import re

from distsim.interop.runs.denials import BEFORE, affirmed
from distsim.interop.runs.hits import hit
from distsim.interop.runs.table import Run
from distsim.specs.layout import SHARDS_ALL

_NUMBERED = re.compile(r"(?:\bz|zero)[\s_=:-]*(?:stage)?[\s_=:-]*([0-3])(?!\d)|\bstage[\s_=:-]*([0-3])(?!\d)", re.I)
_ZERO = re.compile(r"(?:\bz|zero)[\s_=:-]*(?:stage)?[\s_=:-]*([0-3])(?![\d.]\d|\d)", re.I)
"""The same in names of software, whose versions and stages of training are no stages of ZeRO."""
_WORDS = tuple(
    (re.compile(words, re.IGNORECASE), stage) for words, stage in (
        (r"no[ _-]?(?:t )?(?:shard|fsdp)|(?:no|without) distributed.optimizer|^(?:ddp|none|no|off|false)$|\bFSDP=1\b",
         0),
        (r"shard[ _-]grad[ _-]op|shard_zero2|optim_grads(?!_params)|reshard\w*[\s=:]*(?:never|false)\b", 2),
        (r"(?:full|hybrid)[ _-]shard|optim_grads_params|zero-?infinity|zero\+\+|\bhsdp|\bdp_shard|dp_replicate",
         SHARDS_ALL),
        (r"^(?:megatron-?fsdp )?optim$|distributed.optimizer", 1),
        (r"(?=fsdp)" + BEFORE + r"(?:\b|(?<=_))fsdp(?:\d\b|v\d\b|\b|=)|fully.?sharded", SHARDS_ALL),
    )
)  # fmt: skip
"""What they shard and the stage of ZeRO that does as much; FSDP alone shards everything (torch's FULL_SHARD, JAX's
axis), if it has more than one rank. Megatron-FSDP's data_parallel_sharding_strategy: optim, optim_grads,
optim_grads_params."""
_DDP = re.compile(r"(?<![a-z])ddp|distributed.?data.?parallel", re.IGNORECASE)
HYBRID = re.compile(r"\bhsdp|hybrid[ _-]shard|\bdp_(?:shard|replicate)", re.IGNORECASE)
"""Shards in groups, copies across them: within a node where nobody says more (torch's ShardingStrategy)."""
_TORCH = re.compile(
    r"fsdp|(?:full|hybrid)[ _-]shard|shard[ _-]grad|\bhsdp|reshard|fully.?sharded|\bdp_(?:shard|replicate)",
    re.IGNORECASE,
)
"""Words of torch's way to shard, not of DeepSpeed's."""
_SIZE = r"\w*(?:[\s=:-]+(?:group|size|degree|of|over|in))*[\s=:-]*(\d{1,9})"
_GROUP = re.compile(
    rf"(?:shard(?!_zero)|group){_SIZE}|\bhsdp[\s=:(-]*(\d{{1,9}})(?![\s-]*(?:repl|cop|x))", re.IGNORECASE
)
_COPIES = re.compile(rf"replicat{_SIZE}|(\d{{1,9}})[\s-]*(?:replica|cop(?:y|ies))", re.IGNORECASE)

_REDUCED = r"\b(?:all-?reduce|reduce-?scatter|reductions?|reduce[sd]?|synchroni[sz]\w*)\b[^;,]{0,30}\b"
_MICRO = "micro-?(?:batch|step)"
_EACH = re.compile(_REDUCED + rf"(?:in|after|for|at) (?:every|each) {_MICRO}", re.IGNORECASE)
_ONCE = re.compile(_REDUCED + r"once (?:(?:a|per) (?:optimizer )?step|after accumulation)", re.IGNORECASE)
_LAST = re.compile(
    rf"{_REDUCED}(?:only )?(?:until|before|after|at|in|for) (?:only )?the last {_MICRO}"
    r"|\baccumulat\w+\b[^;,.]{0,40}\bwithout (?:gradient )?(?:synchroni[sz]\w+|reduc\w+)",
    re.IGNORECASE,
)
_SWITCH = r"no_sync(?:\(\))?(?: context)?"
_SWITCHED = re.compile(r"\brequires_gradient_sync\b\W{0,3}false|" + affirmed(_SWITCH), re.IGNORECASE)
_DENIED = re.compile(rf"\b(?:no|not|never|without)\b[^;,.]{{0,30}}(?:{_SWITCH})", re.IGNORECASE)
"""torch's: DistributedDataParallel.no_sync and FSDPModule.set_requires_gradient_sync."""


def reduces_once(run: Run) -> bool | None:
    """Whether gradients are said to be reduced once a step, or in each micro-batch; None where notes say neither."""
    notes = run.notes
    if hit(_EACH, notes) or hit(_DENIED, notes):
        return False
    return True if any(hit(words, notes) for words in (_ONCE, _LAST, _SWITCHED)) else None


def stage_in(words: str) -> int | None:
    """The ZeRO stage that words name or shard as much as; None where they name none."""
    if found := _NUMBERED.search(words):
        return int(found[1] or found[2])
    return _worded(words)


def _worded(words: str) -> int | None:
    return next((stage for pattern, stage in _WORDS if pattern.search(words)), None)


def stated_stage(run: Run) -> int | None:
    """The ZeRO stage of a run's cells: its own, the kind of FSDP, or what the framework's name holds (where that is not
    of replicas too)."""
    cell = run.number("zero_stage")
    if cell is not None:
        return int(cell)
    if kind := run.text("fsdp_kind"):
        return stage_in(kind)
    name = run.text("framework") or ""
    if found := _ZERO.search(name):
        return int(found[1])
    return None if _DDP.search(name) else _worded(name)


def by_torch(run: Run) -> bool:
    """Whether a run's cells name torch's FSDP as what shards."""
    return any(_TORCH.search(run.text(name) or "") for name in ("fsdp_kind", "framework"))


def _hybrid(run: Run) -> str:
    """The words of groups that share one copy, of whichever cell has them."""
    cells = (run.text("fsdp_kind") or "", run.text("framework") or "")
    return next((cell for cell in cells if HYBRID.search(cell)), "")


def _told(words: str) -> tuple[int, int]:
    """Copies and ranks that share one, as words say; 0 where they do not."""
    copies, group = (
        next((int(size) for found in pattern.finditer(words) for size in found.groups() if size), 0)
        for pattern in (_COPIES, _GROUP)
    )
    return copies, group


def hybrid_group(run: Run, dp: int, node: int) -> int | None:
    """Ranks of ``dp`` that share one copy where cells name groups: as told, else those in a ``node``."""
    words = _hybrid(run)
    if not words:
        return None
    copies, group = _told(words)
    size = group or (dp // copies if copies else node)
    return size if 1 <= size < dp and dp % size == 0 else None


def assumed_sharding(run: Run, zero: int, group: int, sharers: int) -> str:
    """What is taken for granted of shards: words that nobody understands, and groups whose size is not told."""
    kind, words = run.text("fsdp_kind"), _hybrid(run)
    if kind and run.number("zero_stage") is None and stage_in(kind) is None:
        return f"fsdp_kind {kind[:40]!r} is not understood: taken as ZeRO {zero}"
    if not words or not zero or sharers == 1:
        return ""
    if not any(_told(words)):
        return f"ranks that share a copy are not told: taken as {group}" + (
            ", those of a node" if group < sharers else ""
        )
    return (
        f"{words[:40]!r} does not divide {sharers} ranks: shards over all" if _left_whole(words, group, sharers) else ""
    )


def _left_whole(words: str, group: int, sharers: int) -> bool:
    """Whether groups that are told were not taken, since they do not divide the ranks."""
    copies, size = _told(words)
    return group >= sharers and (size < sharers if size else copies > 1)


def contradicted_sharding(run: Run) -> str:
    """A kind of FSDP that names another stage than ``zero_stage``; FSDP alone names none exactly."""
    kind, cell = run.text("fsdp_kind") or "", run.number("zero_stage")
    named = None if re.fullmatch(r"[\w-]*fsdp\d?", kind, re.IGNORECASE) else stage_in(kind)
    return (
        ""
        if cell is None or named in (None, int(cell))
        else f"fsdp_kind {kind[:40]!r} contradicts zero_stage {cell:g}, which counts"
    )
