"""Is an order complete, and where does it block? Errors name the action and its stage."""

from __future__ import annotations

from collections.abc import Sequence

from distsim.errors import DistsimError
from distsim.schedules.action import Action, Schedule
from distsim.schedules.text import show


def check_complete(schedule: Schedule, micro: int | None) -> int:
    """Every chunk runs every micro-batch forward once and backward once, whole or as both halves, on its own stage and
    in a possible order. Returns the number of micro-batches over all chains."""
    counts = [_count(schedule.orders, chain) for chain in schedule.chains]
    if micro is not None and sum(counts) != micro:
        raise DistsimError(
            f"the order runs {sum(counts)} micro-batches, not {micro}", "leave the number out, or complete the order"
        )
    chain_of = {chunk: count for chain, count in zip(schedule.chains, counts, strict=True) for chunk in chain}
    done = {kind: [bytearray(chain_of.get(c, 0)) for c in range(len(schedule.placement))] for kind in "FBIW"}
    for stage, order in enumerate(schedule.orders):
        for action in order:
            for kind, chunk, i in _parts(action):
                _place(kind, chunk, i, stage, schedule, done)
    for chunk in chain_of:
        _missing(chunk, done, schedule.placement[chunk])
    return sum(counts)


def _parts(action: Action) -> tuple[Action, ...]:
    if action[0] == "FB":
        return ("F", action[1], action[2]), ("B", action[3], action[4])
    return (action,)


def _count(orders: Sequence[Sequence[Action]], chain: Sequence[int]) -> int:
    members = set(chain)
    parts = (part for order in orders for action in order for part in _parts(action))
    found: list[int] = [part[2] for part in parts if part[1] in members]
    if not found:
        raise DistsimError(f"no stage runs chunks {', '.join(map(str, chain))}")
    most = max(found) + 1
    if most > len(found):
        raise DistsimError(
            f"micro-batch {most - 1} appears, but there are only {len(found)} actions", "count micro-batches from 0"
        )
    return most


def _place(kind: str, chunk: int, i: int, stage: int, schedule: Schedule, done: dict[str, list[bytearray]]) -> None:
    name = show((kind, chunk, i))
    if not 0 <= chunk < len(schedule.placement):
        raise DistsimError(
            f"stage {stage}: {name} names chunk {chunk}, but there are {len(schedule.placement)} chunks (0 to "
            f"{len(schedule.placement) - 1})"
        )
    home = schedule.placement[chunk]
    if home != stage:
        raise DistsimError(
            f"stage {stage}: {name} belongs to stage {home}, where chunk {chunk} is placed",
            "give --placement with the stage of each chunk if it sits elsewhere",
        )
    if not done["F"][chunk]:
        raise DistsimError(f"stage {stage}: {name}: chunk {chunk} is in no chain", "name every chunk in --chains")
    if done[kind][chunk][i]:
        raise DistsimError(f"stage {stage}: {name} appears twice")
    needs = {"F": "", "B": "F", "I": "F", "W": "I"}[kind]
    if needs and not done[needs][chunk][i]:
        raise DistsimError(f"stage {stage}: {name} comes before {show((needs, chunk, i))}, which it needs")
    if (kind == "B" and done["I"][chunk][i]) or (kind == "I" and done["B"][chunk][i]):
        raise DistsimError(f"stage {stage}: chunk {chunk} runs micro-batch {i} backward both whole and in halves")
    done[kind][chunk][i] = 1


def _missing(chunk: int, done: dict[str, list[bytearray]], stage: int) -> None:
    for i in range(len(done["F"][chunk])):
        if not done["F"][chunk][i]:
            raise DistsimError(f"stage {stage}: {show(('F', chunk, i))} is missing")
        if not done["B"][chunk][i] and not done["I"][chunk][i]:
            whole, first, second = (show((kind, chunk, i)) for kind in "BIW")
            raise DistsimError(f"stage {stage}: {whole} is missing (or its halves {first} and {second})")
        if not done["B"][chunk][i] and not done["W"][chunk][i]:
            raise DistsimError(f"stage {stage}: {show(('W', chunk, i))} is missing")


def explain_deadlock(schedule: Schedule, position: Sequence[int]) -> DistsimError:
    """Which action waits for which, around the cycle; ``position`` is the action at which each stage is stuck."""
    waits = {}
    for stage, order in enumerate(schedule.orders):
        if position[stage] < len(order):
            waits[stage] = _awaited(schedule, stage, position)
    stage = next(iter(waits))
    path: list[int] = []
    while stage not in path:
        path.append(stage)
        stage = schedule.placement[waits[stage][1]]
    lines = []
    for at in path[path.index(stage) :]:
        action = schedule.orders[at][position[at]]
        owner = schedule.placement[waits[at][1]]
        stuck = show(schedule.orders[owner][position[owner]])
        lines.append(
            f"stage {at} waits at {show(action)} for {show(waits[at])}, which stage {owner} runs only after {stuck}"
        )
    return DistsimError("the order deadlocks: these stages wait for each other in a cycle", *lines)


def _awaited(schedule: Schedule, stage: int, position: Sequence[int]) -> Action:
    """The action of another stage that the stuck one waits for and that has not run."""
    for kind, chunk, i in _parts(schedule.orders[stage][position[stage]]):
        chain = next(chain for chain in schedule.chains if chunk in chain)
        at = chain.index(chunk) + (-1 if kind == "F" else 1)
        if kind == "W" or not 0 <= at < len(chain):
            continue
        before = chain[at]
        owner = schedule.placement[before]
        kinds = "F" if kind == "F" else "BI"
        for action in schedule.orders[owner][position[owner] :]:
            for part in _parts(action):
                if part[1] == before and part[2] == i and part[0] in kinds:
                    return part
    raise AssertionError("a stage is stuck although nothing it waits for is missing")
