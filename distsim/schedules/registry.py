"""The named schedules: where each lives, how it places chunks, how many chunks it takes, and who described it."""

import functools
import importlib
from collections.abc import Sequence
from typing import Any, NamedTuple

from distsim.errors import DistsimError
from distsim.schedules import action
from distsim.schedules.action import Schedule
from distsim.schedules.names import plain, schedule_meant


class Kind(NamedTuple):
    """One named schedule. ``least`` and ``most`` bound the chunks per stage (``most`` None: any number)."""

    module: str
    title: str
    source: str
    placement: str = "looped"
    least: int = 1
    most: int | None = 1
    default_chunks: int = 1
    function: str = "order"
    splits: bool = False
    fused: str | None = None
    options: tuple[str, ...] = ()


_ZB = "Qi et al. 2023, arXiv:2401.10241"
_MEMORY = "Qi et al. 2024, arXiv:2405.15362"
_MEGATRON = "Narayanan et al. 2021, arXiv:2104.04473"

SCHEDULES: dict[str, Kind] = {
    "naive": Kind("naive", "one micro-batch at a time", "Huang et al. 2019, arXiv:1811.06965"),
    "gpipe": Kind("gpipe", "all forwards, then all backwards", "Huang et al. 2019, arXiv:1811.06965"),
    "1f1b": Kind("one_f_one_b", "one forward, one backward, with flush", _MEGATRON),
    "pipedream": Kind("pipedream", "asynchronous 1F1B, stashed weights", "Narayanan et al. 2019, SOSP"),
    "pipedream-2bw": Kind("pipedream_2bw", "1F1B, double-buffered weights", "Narayanan et al. 2021, arXiv:2006.09503"),
    "interleaved-1f1b": Kind("interleaved_1f1b", "1F1B over several chunks per stage", _MEGATRON, "looped", 1, None, 2),
    "interleaved-1f1b-megatron": Kind(
        "interleaved_1f1b", "1F1B over chunks, in Megatron's groups", _MEGATRON, "looped", 1, None, 2, "megatron_order",
        options=("group",),
    ),
    "interleaved-1f1b-overlap": Kind(
        "interleaved_1f1b", "1F1B over chunks, forward/backward overlap", _MEGATRON, "looped", 1, None, 2,
        "overlapped_order", fused="atomic", options=("group",),
    ),
    "looped-bfs": Kind("looped_bfs", "breadth-first over several chunks", "Lamy-Poirier 2023, arXiv:2211.05953",
                       "looped", 1, None, 2),
    "zb-h1": Kind("zb_h1", "split backward in 1F1B's memory", _ZB, splits=True),
    "zb-h2": Kind("zb_h2", "split backward, no bubble, 2x memory", _ZB, splits=True),
    "zb-auto": Kind("zb_auto", "split backward, fitted to times and memory", _ZB, splits=True,
                    options=("limit", "times", "kept")),
    "interleaved-zb": Kind("interleaved_zb", "interleaved 1F1B, split backward", _ZB, "looped", 1, None, 2,
                           splits=True),
    "zb-v": Kind("zb_v", "V of two chunks, split backward", _ZB, "wave", 2, 2, 2, splits=True),
    "v-half": Kind("v_half", "V of two chunks, half the memory", _MEMORY, "wave", 2, 2, 2, splits=True),
    "v-min": Kind("v_min", "V of two chunks, a third of the memory", _MEMORY, "wave", 2, 2, 2, splits=True),
    "1f1b-v": Kind("one_f_one_b_v", "V of two chunks, two thirds of the memory", _MEMORY, "wave", 2, 2, 2),
    "dualpipe": Kind("dualpipe", "two directions, forward/backward overlap", "DeepSeek-AI 2024, arXiv:2412.19437",
                     "bidirectional", splits=True, fused="atomic"),
    "dualpipe-v": Kind("dualpipe_v", "DualPipe folded into a V", "DeepSeek-AI 2025, DualPipe repository",
                       "wave", 2, 2, 2, splits=True, fused="atomic"),
    "chimera": Kind("chimera", "two directions", "Li and Hoefler 2021, arXiv:2107.06925", "bidirectional"),
    "hanayo": Kind("hanayo", "waves over several chunks", "Liu et al. 2023, arXiv:2308.15762", "wave", 2, None, 2),
}  # fmt: skip


def find(name: str) -> Kind:
    """The schedule of that name."""
    kind = SCHEDULES.get(plain(name))
    if kind is None:
        raise DistsimError(
            f"unknown pipeline schedule {name!r}", schedule_meant(name, SCHEDULES), f"schedules: {', '.join(SCHEDULES)}"
        )
    return kind


def usual(chunks: Any) -> str:
    """The schedule that runs where none is named: of several chunks per stage the one that interleaves them."""
    return "interleaved-1f1b" if isinstance(chunks, int) and chunks > 1 else "1f1b"


def chunks_for(name: str, chunks: int | None) -> int:
    """Chunks per stage: the given number, if the schedule can take it, or the schedule's usual one."""
    kind = find(name)
    if chunks is None:
        return kind.default_chunks
    if chunks < kind.least or (kind.most is not None and chunks > kind.most):
        need = f"{kind.least}" if kind.least == kind.most else f"at least {kind.least}"
        looped = "interleaved-1f1b takes any number of chunks" if chunks > 1 else ""
        raise DistsimError(
            f"schedule {name} cannot take {chunks} chunk{'s' * (chunks != 1)} per stage", f"it takes {need}", looped
        )
    return chunks


def build(name: str, stages: int, micro: int, chunks: int | None = None, **options: Any) -> Schedule:
    """The orders of a named schedule. ``options`` are those of its ``Kind``; others are refused."""
    kind = find(name)
    name = plain(name)
    count = chunks_for(name, chunks)
    given = {key: value for key, value in options.items() if value is not None}
    for key in given:
        if key not in kind.options:
            raise DistsimError(f"schedule {name} has no option {key!r}")
    module = importlib.import_module(f"distsim.schedules.{kind.module}")
    both = kind.placement == "bidirectional"
    rounds = None
    if not given and "times" not in kind.options:
        from distsim.schedules import repeats  # a job without a pipeline builds no schedule

        if stages * micro * count > repeats.MANY_ACTIONS:
            rounds = _in_rounds(name, stages, micro, count)
    orders = getattr(module, kind.function)(stages, micro, count, **given) if rounds is None else list(rounds)
    placement = getattr(action, kind.placement)(stages, count)
    chains = [list(range(stages)), list(range(stages, 2 * stages))] if both else [list(range(stages * count))]
    versions = module.weight_versions(stages, micro) if hasattr(module, "weight_versions") else [1] * stages
    return Schedule(name, orders, placement, chains, count, versions)


@functools.lru_cache(maxsize=8)
def _in_rounds(name: str, stages: int, micro: int, count: int) -> Sequence[Sequence[action.Action]] | None:
    """The orders of a schedule, told by the blocks that repeat in them; None where none do. Kept, since what is held
    against a step mostly has its schedule."""
    from distsim.schedules import repeats

    kind = find(name)
    make = getattr(importlib.import_module(f"distsim.schedules.{kind.module}"), kind.function)
    directions = 1 + (kind.placement == "bidirectional")
    return repeats.by_rounds(lambda few: make(stages, few, count), stages, micro, directions)
