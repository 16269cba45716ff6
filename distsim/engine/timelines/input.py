"""What a user says about a pipeline, checked and put into seconds per chunk."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from numbers import Real
from types import NoneType
from typing import Any

from distsim import keywords
from distsim.engine.timelines.wiring import Costs, Transfers
from distsim.errors import DistsimError
from distsim.schedules import registry
from distsim.schedules.action import Action, Orders, Schedule

Time = float | Sequence[float]

MOST_ACTIONS = 4_000_000  # about 1 GB of Python objects
MOST_STAGES = 16_384  # more than any model has layers, so a slip
LONGEST = 1e15  # sums of longer times lose what tells them apart


def schedule_name(schedule: str | None, chunks: int | None) -> str:
    """The schedule, or the usual one of so many chunks; refuses what is no name."""
    if not isinstance(schedule, (str, NoneType)):
        raise DistsimError(f"schedule is {schedule!r}", "name one, e.g. 1f1b")
    return schedule or registry.usual(chunks)


def bounds(memory_limit: Any, group: Any, weight_memory: Any) -> dict[str, Any]:
    """What only some schedules take; counts must be whole numbers, and who reads one knows its range."""
    for name, value in (("memory_limit", memory_limit), ("group", group)):
        if value is not None:
            keywords.whole(name, value, None)
    return {"memory_limit": memory_limit, "group": group, "weight_memory": weight_memory}


def ways(p2p: str, overlap: Any, contention: Any) -> Transfers:
    """How messages travel, without their delays."""
    if not isinstance(p2p, str) or p2p not in ("async", "rendezvous"):
        raise DistsimError(f"p2p is {p2p!r}", "it is async (pure delay) or rendezvous (both ends must have posted)")
    blocking, exclusive = not keywords.switch("overlap", overlap), keywords.switch("contention", contention)
    found = Transfers(rendezvous=p2p == "rendezvous", blocking=blocking, exclusive=exclusive)
    if found.rendezvous:
        refuse_ways("p2p rendezvous takes no {}", "there receivers wait for their transfers; use p2p async", found)
    return found


def refuse_ways(problem: str, hint: str, stated: Transfers) -> None:
    """Refuses blocking sends and busy links where something else says when messages travel."""
    refuse(problem, hint, blocking=stated.blocking or None, contention=stated.exclusive or None)


def lines(order: Any) -> list[str]:
    """The lines of a given order, which is a text or a list of them."""
    found = order.splitlines() if isinstance(order, str) else order
    if not isinstance(found, (list, tuple)) or not all(isinstance(line, str) for line in found):
        raise DistsimError(f"the order is {order!r}", "give a text or a list with one line per stage, e.g. 0F0 0B0")
    return list(found)


def _chunks(values: Any, name: str) -> list[int]:
    """Whole numbers from 0 on, of any kind of list."""
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise DistsimError(f"{name} is {values!r}", "give a list of whole numbers")
    return [keywords.whole(name, value, 0) for value in values]


def refuse(problem: str, hint: str, **values: Any) -> None:
    """Refuses what was given although it would have no effect."""
    named = [name.replace("_", " ") for name, value in values.items() if value is not None]
    if named:
        raise DistsimError(problem.format(" or ".join(named)), hint)


def whole_number(value: Any, name: str, example: str) -> int:
    """A count of at least 1."""
    count = keywords.integer(value)
    if count is None:
        raise DistsimError(f"{name} is {value!r}, not a whole number", f"try {example}")
    if count < 1:
        raise DistsimError(f"{name} is {count}", f"a pipeline has at least 1; try {example}")
    return count


def check_size(stages: int, micro: int, chunks: int, splits: bool) -> None:
    """Refuses what would not fit into memory, before anything is built."""
    actions = stages * micro * chunks * (3 if splits else 2)
    if stages > MOST_STAGES or actions > MOST_ACTIONS:
        most = max(1, MOST_ACTIONS * micro // actions)
        raise DistsimError(
            f"{stages} stages x {micro} micro-batches x {chunks} chunks are {actions:,} actions; at most "
            f"{MOST_ACTIONS:,} on {MOST_STAGES:,} stages are simulated",
            f"try {most:,} micro-batches; longer runs follow from the closed forms" if stages <= MOST_STAGES else "",
        )


def stated_chunks(chunks: int | None, placement: Sequence[int] | None, stages: int | None) -> int | None:
    """Chunks of each stage, as stated or as the ``placement`` of a given order has them."""
    if chunks is not None or placement is None or not isinstance(stages, int) or stages < 1:
        return chunks
    return max(1, len(_chunks(placement, "placement")) // stages)


def per_chunk(value: Time, schedule: Schedule, name: str) -> list[float]:
    """Seconds per chunk from one number for a whole stage, a list per stage, or a list per chunk in model order."""
    placement, stages = schedule.placement, len(schedule.orders)
    if not isinstance(value, Iterable):
        _check_time(value, name)
        return [float(value) / schedule.chunks] * len(placement)
    values = list(value)
    for one in values:
        _check_time(one, name)
    values = [float(one) for one in values]
    if len(values) == len(placement):
        return values
    if len(values) == stages:
        if len(schedule.chains) > 1:  # a list per stage of the model, which both directions run
            return [values[chunk % stages] / schedule.chunks for chunk in range(len(placement))]
        return [values[stage] / schedule.chunks for stage in placement]
    chunked = len(placement) != stages
    lengths = f", {stages} (per stage) or {len(placement)} (per chunk)" if chunked else f" or {stages} (per stage)"
    raise DistsimError(f"{name} lists {len(values)} times", f"give 1{lengths}")


def is_time(value: Any) -> bool:
    """Whether it is a number of a time that a simulation can add up."""
    return not isinstance(value, bool) and isinstance(value, Real) and 0 <= float(value) <= LONGEST


def _check_time(value: Any, name: str) -> None:
    if not is_time(value):
        raise DistsimError(f"{name} is {value!r}, which is not a time", f"give a number from 0 to {LONGEST:g}")


def costs(
    schedule: Schedule, forward: Time | None, backward: Time | None, input_gradient: Time | None,
    weight_gradient: Time | None, fused_time: Time | None = None, loss: float = 0.0,
) -> Costs:  # fmt: skip
    """Times per chunk. Forward, input and weight gradient default to 1; a given backward is split in equal halves where
    neither half is given, and a missing backward is the sum of its halves."""
    ahead = per_chunk(1 if forward is None else forward, schedule, "forward")
    whole = None if backward is None else per_chunk(backward, schedule, "backward")
    first = None if input_gradient is None else per_chunk(input_gradient, schedule, "input gradient")
    second = None if weight_gradient is None else per_chunk(weight_gradient, schedule, "weight gradient")
    unit = per_chunk(1, schedule, "unit")
    if first is None:
        first = unit if whole is None else _rest(whole, second)
    if second is None:
        second = unit if whole is None else _rest(whole, first if input_gradient is not None else None)
    if whole is None:
        whole = [a + b for a, b in zip(first, second, strict=True)]
    _check_time(loss, "loss")
    for chain in schedule.chains:
        ahead[chain[-1]] += float(loss)
    if not any(ahead) and not any(whole):
        raise DistsimError("forward and backward are 0 on every stage: there is nothing to time",
                           "leave them out for 1 and 2, or give a time")  # fmt: skip
    fused = None if fused_time is None else per_chunk(fused_time, schedule, "fused time")
    return Costs(ahead, whole, first, second, fused)


def _rest(whole: list[float], part: list[float] | None) -> list[float]:
    if part is None:
        return [one / 2 for one in whole]
    if any(a < b for a, b in zip(whole, part, strict=True)):
        raise DistsimError("one half of the backward is longer than the whole", "give both halves, or no backward")
    return [a - b for a, b in zip(whole, part, strict=True)]


def hops(value: Time, schedule: Schedule) -> float | list[float]:
    """One delay for all links, or a list per link: one of every stage, the last one from the last stage to the first,
    which may be left out where nothing wraps around."""
    stages, wraps = len(schedule.orders), wraps_around(schedule)
    if isinstance(value, str) or not isinstance(value, Iterable):
        _check_time(value, "hop")
        return float(value)
    links = list(value)
    for one in links:
        _check_time(one, "hop")
    links = [float(one) for one in links]
    if len(links) == stages - 1 and (not wraps or stages == 2):
        return [*links, links[0] if stages == 2 else 0.0]
    if len(links) != stages:
        raise DistsimError(
            f"hop lists {len(links)} delays for {stages} stages",
            f"give one number, or {stages}: link r joins stages r and r+1, the last link stages {stages - 1} and 0"
            + ("" if wraps else f" (or {stages - 1} without it)"),
        )
    return links


def wraps_around(schedule: Schedule) -> bool:
    """Whether anything goes from the last stage to the first directly."""
    ends = {0, len(schedule.orders) - 1}
    return len(ends) > 1 and any(
        {schedule.placement[a], schedule.placement[b]} == ends for chain in schedule.chains for a, b in pairwise(chain)
    )


def given_order(
    orders: Orders, stages: int | None, chunks: int | None, placement: Sequence[int] | None,
    chains: Sequence[Sequence[int]] | None,
) -> Schedule:  # fmt: skip
    """A schedule from orders that the user wrote. Without ``placement`` chunk c sits on stage c mod the stages."""
    count = len(orders)
    if stages is not None and whole_number(stages, "stages", "--stages 4") != count:
        raise DistsimError(f"the order has {count} lines for {stages} stages", "write one line per stage")
    named = [part for order in orders for a in order for part in ((a[1], a[3]) if a[0] == "FB" else (a[1],))]
    if chains is not None and (isinstance(chains, str) or not isinstance(chains, Iterable)):
        raise DistsimError(f"chains are {chains!r}", "give lists of chunks, e.g. [[0, 1], [2, 3]]")
    linked = [_chunks(chain, "chains") for chain in (() if chains is None else chains)]
    size = max([*named, *(chunk for chain in linked for chunk in chain), count - 1], default=0) + 1
    if size > MOST_STAGES:
        raise DistsimError(f"the order names chunk {size - 1}", f"at most {MOST_STAGES} chunks are simulated")
    places = [c % count for c in range(size)] if placement is None else _chunks(placement, "placement")
    if len(places) < size or any(not 0 <= place < count for place in places):
        raise DistsimError(
            f"the placement {','.join(map(str, places))} does not place {size} chunks on {count} stages",
            f"give {size} stages from 0 to {count - 1}, one per chunk",
        )
    linked = linked or [list(range(len(places)))]
    members = [chunk for chain in linked for chunk in chain]
    if len(set(members)) != len(members) or any(not 0 <= chunk < len(places) for chunk in members):
        raise DistsimError(f"the chains name chunks twice, or chunks outside 0 to {len(places) - 1}")
    whole = chunks if chunks is not None else max(1, len(places) // (count * len(linked)))
    return Schedule("order", orders, places, linked, whole_number(whole, "chunks", "--chunks 1"), [1] * count)


def split_fused(orders: Sequence[Sequence[Action]]) -> Orders:
    """Orders in which the halves of fused blocks run one after the other, each publishing at its own end."""
    return [
        [part for a in order for part in ([("F", a[1], a[2]), ("B", a[3], a[4])] if a[0] == "FB" else [a])]
        for order in orders
    ]
