"""How many ranks share one sharded copy, and how many copies there are, as cells of measured runs say."""

from __future__ import annotations

import re
from typing import NamedTuple

from distsim.interop.runs.hits import hit
from distsim.interop.runs.table import Run

HYBRID = re.compile(r"\bhsdp|hybrid[ _-]shard|\bdp_(?:shard|replicate)|\bmics(?![a-z])", re.IGNORECASE)
"""Shards in groups, copies across them: within a node where nobody says more (torch's ShardingStrategy; MiCS of
DeepSpeed, arXiv:2205.00119)."""
_NUMBER = r"(\d{1,9})(?!\d)"
_SIZE = rf"\w*(?:[\s=:-]+(?:group|size|degree|of|over|in))*[\s=:-]*{_NUMBER}"
_COPIED = r"replica|cop(?:y|ies)"
_GROUPS = (
    re.compile(rf"{_NUMBER}[\s-]*shards\b", re.IGNORECASE),
    re.compile(rf"(?:shard(?!_zero)|group){_SIZE}", re.IGNORECASE),
    re.compile(rf"\b(?:hsdp|mics)[\s=:(-]*{_NUMBER}(?![\s-]*(?:{_COPIED}|[x×*]|node))", re.IGNORECASE),
)
_COPIES = (
    re.compile(rf"{_NUMBER}[\s-]*(?:{_COPIED})(?!t)", re.IGNORECASE),
    re.compile(rf"(?:replicat|replicas?\b){_SIZE}", re.IGNORECASE),
)
_FSDP = r"(?<![a-wyz])fsdp(?:[\s=:(_-]+(?=\d)|(?=\d{2})|(?=[3-9]))" + _NUMBER
"""Shards of FSDP, whose versions are 1 and 2."""
_DP = rf"(?<![a-wyz])(?:d?dp|hsdp)[\s=:(_-]*{_NUMBER}"
_BETWEEN = r"[\s,;/)]*(?:[x×*+]|and|with)?[\s(]*"
_AXES = (
    re.compile(rf"{_FSDP}{_BETWEEN}(?:dcn[\s_-]*)?{_DP}", re.IGNORECASE),
    re.compile(rf"{_DP}{_BETWEEN}(?:ici[\s_-]*)?{_FSDP}", re.IGNORECASE),
)
"""An axis of shards beside one of copies, in either order."""
_MESH = re.compile(
    rf"\bhsdp\b[\s=:(-]*{_NUMBER}\s*[x×*]\s*{_NUMBER}|\bmesh[\s=:]*[(\[]?\s*{_NUMBER}\s*[,x×*]\s*{_NUMBER}",
    re.IGNORECASE,
)
"""torch's mesh of two axes: copies, then shards (init_device_mesh of ("dp_replicate", "dp_shard"))."""

_AXIS = re.compile(r"\bici_fsdp_parallelism=(\d+)|\bFSDP=(\d+)", re.IGNORECASE)
_INSTANCES = "multi_dist_optimizer_instances"
"""Tests of Megatron-LM whose optimizer is sharded twice over (--num-distributed-optimizer-instances 2)."""
_WITHIN_SLICE = ("within slice", "ici_fsdp_parallelism=-1")
"""How sources say that shards stay in one domain of fast links (a TPU slice), with replicas across."""
_COPIES_NAMED = re.compile(r"\bhsdp\b|hybrid|replica", re.IGNORECASE)


class Groups(NamedTuple):
    """Copies, and ranks that share one; 0 where words do not say."""

    copies: int = 0
    size: int = 0
    mesh: bool = False
    """Whether two numbers stand without a word for which is which."""


def groups_in(words: str) -> Groups:
    """What words say of groups."""
    for pattern, order in zip(_AXES, ((0, 1), (1, 0)), strict=True):
        if found := pattern.search(words):
            size, copies = (int(found.groups()[place]) for place in order)
            return Groups(copies, size)
    size, copies = _first(_GROUPS, words), _first(_COPIES, words)
    if not (size or copies) and (found := _MESH.search(words)):
        copies, size = (int(number) for number in found.groups() if number)
        return Groups(copies, size, copies != size)
    return Groups(copies, size)


def _first(patterns: tuple[re.Pattern[str], ...], words: str) -> int:
    return next((int(found[1]) for pattern in patterns if (found := pattern.search(words))), 0)


def grouped_words(run: Run, ranks: int) -> str:
    """The cell that names groups which share one copy; of copies and shards of FSDP those that make ``ranks``."""
    cells = (run.text("fsdp_kind") or "", run.text("framework") or "")
    return next((cell for cell in cells if HYBRID.search(cell) or _make(groups_in(cell), ranks)), "")


def _make(told: Groups, ranks: int) -> bool:
    return told.copies * told.size == ranks


def hybrid_group(run: Run, dp: int, node: int) -> int | None:
    """Ranks of ``dp`` that share one copy where cells name groups: as told, else those in a ``node``."""
    words = grouped_words(run, dp)
    if not words:
        return None
    told = groups_in(words)
    size = told.size or (dp // told.copies if told.copies else node)
    return size if 1 <= size < dp and dp % size == 0 else None


def assumed_groups(words: str, group: int, sharers: int) -> str:
    """What is taken for granted of groups: their size where it is not told, and where it does not fit."""
    told = groups_in(words)
    if not (told.copies or told.size):
        return f"size of the sharding group is unknown: assumed {group}" + (", one node" if group < sharers else "")
    if group >= sharers and (told.size < sharers if told.size else told.copies > 1):
        return f"{words[:40]!r} does not divide {sharers} ranks: sharded over all"
    return f"{words[:40]!r}: read as {told.copies} copies of {group} shards" if told.mesh else ""


def _said(run: Run) -> str:
    return f"{run.text('fsdp_kind') or ''} {run.notes}"


def stays_in_slice(run: Run) -> bool:
    """Whether cell or notes say that shards stay in one domain of fast links."""
    return any(words in _said(run).lower() for words in _WITHIN_SLICE)


def shards_twice(run: Run) -> bool:
    """Whether the model's name is that of a test whose optimizer is sharded twice over."""
    return _INSTANCES in (run.text("model") or "")


def fsdp_axis(run: Run) -> int:
    """Ranks along an axis of shards that cell or notes name; 0 where they name none."""
    found = hit(_AXIS, _said(run))
    return int(next(filter(None, found.groups()))) if found else 0


def names_copies(run: Run) -> bool:
    """Whether cell or notes tell of copies beside shards."""
    return hit(_COPIES_NAMED, _said(run)) is not None
