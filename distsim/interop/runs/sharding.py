"""What cells of a measured run say is sharded, and over how many ranks: words of DeepSpeed, torch, Megatron and JAX."""

from __future__ import annotations

import re

from distsim.interop.runs.denials import BEFORE, affirmed
from distsim.interop.runs.hits import hit
from distsim.interop.runs.sharding_groups import assumed_groups, grouped_words
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
        (r"(?:full|hybrid)[ _-]shard|optim_grads_params|zero-?infinity|zero\+\+|\bmics(?![a-z])|\bhp-?z\b|\bhsdp|"
         r"\bdp_shard|dp_replicate", SHARDS_ALL),
        (r"^(?:megatron-?fsdp )?optim$|distributed.optimizer", 1),
        (r"(?=fsdp)" + BEFORE + r"(?:\b|(?<=_))fsdp(?:\d+(?:\b|x)|v\d\b|\b|=)|fully.?shard", SHARDS_ALL),
    )
)  # fmt: skip
"""What they shard and the stage of ZeRO that does as much; FSDP alone shards everything (torch's FULL_SHARD, JAX's
axis), if it has more than one rank. Megatron-FSDP's data_parallel_sharding_strategy: optim, optim_grads,
optim_grads_params."""
_REPLICATED = re.compile(
    r"\b(?:no|without|not using) distributed[- _]optimizer\b(?! or )|"
    r"\b(?:use[-_])?distributed[- _]optimizer(?:[ =:]+| is )(?:off|false|disabled|not (?:used|set|enabled))\b",
    re.IGNORECASE,
)
"""Notes of Megatron's runs whose ranks all keep all of the optimizer's states."""
_DDP = re.compile(r"(?<![a-z])ddp|distributed.?data.?parallel", re.IGNORECASE)
_TORCH = re.compile(
    r"fsdp|(?:full|hybrid)[ _-]shard|shard[ _-]grad|\bhsdp|reshard|fully.?sharded|\bdp_(?:shard|replicate)",
    re.IGNORECASE,
)
"""Words of torch's way to shard, not of DeepSpeed's."""
_REDUCED = r"\b(?:all-?reduce|reduce-?scatter|reductions?|reduce[sd]?|synchroni[sz]\w*)\b[^;,]{0,30}\b"
_MICRO = "micro-?(?:batch|step)"
_EACH = re.compile(_REDUCED + rf"(?:in|after|for|at) (?:every|each) {_MICRO}", re.IGNORECASE)
_ONCE = re.compile(_REDUCED + r"once (?:(?:a|per) (?:optimizer )?step|after accumulation)", re.IGNORECASE)
_LAST = re.compile(
    rf"{_REDUCED}(?:only )?(?:until|before|after|at|in|for) (?:only )?the last {_MICRO}"
    r"|\baccumulat\w+\b[^;,.]{0,40}\bwithout (?:gradient )?(?:synchroni[sz]\w+|reduc\w+)",
    re.IGNORECASE,
)
_SWITCH = r"(?:no_sync(?:\(\))?(?: context)?|defer_fsdp_grad_sync)"
_SWITCHED = re.compile(r"\brequires_gradient_sync\b\W{0,3}false|(?<!whether )" + affirmed(_SWITCH), re.IGNORECASE)
_DENIED = re.compile(
    rf"\b(?:no|not|never|without)\b[^;,.]{{0,30}}{_SWITCH}|"
    r"\bdefer_fsdp_grad_sync\b\W{0,3}(?:is )?(?:false|off)\b",
    re.IGNORECASE,
)
"""torch's: DistributedDataParallel.no_sync and FSDPModule.set_requires_gradient_sync; NeMo Automodel's own."""


def reduces_once(run: Run) -> bool | None:
    """Whether gradients are said to be reduced once a step, or in each micro-batch; None where notes say neither."""
    notes = run.notes
    if hit(_EACH, notes) or hit(_DENIED, notes):
        return False
    return True if any(hit(words, notes) for words in (_ONCE, _LAST, _SWITCHED)) else None


_OWN = re.compile(
    affirmed(r"(?:own (?:data[ -]parallelism|DDP)|(?:data[ -]parallelism|DDP) by hand)\b(?![^;.]*\b(?:bucket|flat))"),
    re.IGNORECASE,
)


def reduces_in_place(run: Run) -> bool:
    """Whether replicas are said to reduce each gradient where it lies, by a loop of their own: without the flat copies
    that buckets are, torch's DDP or others'."""
    return hit(_OWN, run.notes) is not None


_ZEROPP = re.compile(r"zero(?:[ _-]?3)?\+\+", re.IGNORECASE)
_PARTS = tuple(
    (name, re.compile(words, re.IGNORECASE)) for name, words in (
        ("qwz", r"\bq-?wz\b|quantized_weights"), ("hpz", r"\bhp-?z(?![a-z])(?!\W*1\b)|hpz_partition_size\W*(?!1\b)\d"),
        ("qgz", r"\bq-?gz\b|quantized_gradients"),
    )
)  # fmt: skip
"""DeepSpeed's names for the parts of ZeRO++ (arXiv:2306.10209; runtime/zero/config.py)."""


def zeropp_parts(run: Run) -> str:
    """The parts of ZeRO++ that cells name, all where they name it alone; nothing where they name none."""
    words = " ".join(run.text(name) or "" for name in ("fsdp_kind", "framework", "zero_stage"))
    named = [name for name, pattern in _PARTS if pattern.search(words)]
    return ",".join(named or ([name for name, _ in _PARTS] if _ZEROPP.search(words) else []))


_SECOND = re.compile(r"fsdp[\s-]?2|fully_shard", re.IGNORECASE)
"""FSDP2, under which peft has no policy that wraps adapters (accelerate's utils/fsdp_utils.py,
fsdp2_prepare_auto_wrap_policy, knows layers' classes and sizes)."""
_WHOLE = re.compile(
    r"\b(?:no|without)(?: an?| any)?(?: auto)?[-_ ]?wrap(?:ping)?[-_ ]polic(?:y|ies)\b|"
    r"\bwhole model (?:as|in|is) one (?:FSDP )?unit\b",
    re.IGNORECASE,
)
"""FSDP1 of a model alone, without an auto_wrap_policy."""
_WRAPS = re.compile(
    affirmed(r"wrap(?:s|ped|ping)? (?:per|by|each|every) (?:decoder |transformer )?(?:layer|block)"), re.IGNORECASE
)
"""Notes of units that are layers and nothing else."""


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
    if cell is not None and cell >= 0 and cell == int(cell):
        return int(cell)
    if kind := run.text("fsdp_kind"):
        return stage_in(kind)
    if hit(_REPLICATED, run.notes):
        return 0
    name = run.text("framework") or ""
    if found := _ZERO.search(name):
        return int(found[1])
    return None if _DDP.search(name) else _worded(name)


def by_torch(run: Run) -> bool:
    """Whether a run's cells name torch's FSDP as what shards."""
    return any(_TORCH.search(run.text(name) or "") for name in ("fsdp_kind", "framework"))


def by_torchs_second(run: Run) -> bool:
    """Whether they name FSDP2."""
    return any(_SECOND.search(run.text(name) or "") for name in ("fsdp_kind", "framework"))


def wraps_layers(run: Run) -> bool:
    """Whether notes tell of units that are layers and nothing else."""
    return hit(_WRAPS, run.notes) is not None


def wraps_nothing(run: Run) -> bool:
    """Whether notes tell of a whole model that is one unit."""
    return hit(_WHOLE, run.notes) is not None


def assumed_sharding(run: Run, zero: int, group: int, sharers: int) -> str:
    """What is taken for granted of shards: words that nobody understands, and groups whose size is not told."""
    kind, words = run.text("fsdp_kind"), grouped_words(run, sharers)
    if kind and run.number("zero_stage") is None and stage_in(kind) is None:
        return f"fsdp_kind {kind[:40]!r} is not understood: assumed ZeRO {zero}"
    return assumed_groups(words, group, sharers) if words and zero and sharers > 1 else ""


def contradicted_sharding(run: Run) -> str:
    """A kind of FSDP that names another stage than ``zero_stage``; FSDP alone names none exactly."""
    kind, cell = run.text("fsdp_kind") or "", run.number("zero_stage")
    named = None if re.fullmatch(r"[\w-]*fsdp\d?", kind, re.IGNORECASE) else stage_in(kind)
    return (
        ""
        if cell is None or named in (None, int(cell))
        else f"fsdp_kind {kind[:40]!r} contradicts zero_stage {cell:g}, which is used"
    )
