"""Buckets of whole parameters, in which Megatron reduces gradients and gathers what it has updated (NVIDIA/Megatron-LM
core/distributed/distributed_data_parallel.py and param_and_grad_buffer.py).

Each model chunk has buffers of its own. Parameters fill a bucket from the last one on, until it has as many elements as
asked for; only the first chunk of the first stage has more than one bucket, since nothing waits for the others'
reductions. Weights that two stages share have a bucket of their own where each rank gets a part of them, which chunks
behind a stage's first reduce in one call with all else.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from distsim.arrays import PLAIN, Number, ceil_div, each, maximum, nothing, where
from distsim.engine.footprint.stored import Stored, block_tensors, gradient_order
from distsim.engine.jobs.chunks_held import chunk_ends
from distsim.engine.jobs.resolve import Setup
from distsim.engine.jobs.stages import Stage
from distsim.last import for_equal, for_parts_of_last
from distsim.layers.mtp import SHARED_EMBEDDING
from distsim.layers.names import EMBEDDING_WEIGHT, HEAD_WEIGHT

WAYS = ("1f1b", "interleaved-1f1b")
"""Megatron's schedules, with one chunk a stage and with more."""


def parameter_buckets(setup: Setup, stage: Stage, names: frozenset[str], *, owned: bool) -> Number:
    """How many buckets a stage has for its parameters of these names; ``owned`` where each of the ranks that share them
    has a part. Experts' are as large as all others, however few ranks share them."""
    known, asked = _known(setup, stage), (names, _shared(setup) if owned else ())
    if asked not in known:
        known[asked] = _count(setup, stage, *asked)
    return known[asked]


@for_parts_of_last
def _known(setup: Setup, stage: Stage) -> dict[tuple[frozenset[str], tuple[str, ...]], Number]:
    """Counts of a stage's buckets by names and those of them that two stages share: most are asked for twice, for
    gradients that all ranks get and for those that go to their owners."""
    return {}


def _count(setup: Setup, stage: Stage, names: frozenset[str], shared: tuple[str, ...]) -> Number:
    rules, layout, vpp = setup.framework.traffic, setup.layout, setup.layout.vpp
    limit = maximum(rules.bucket_elements, rules.bucket_elements_per_rank * layout.dp * layout.cp)
    several = rules.overlap_gradients and not (rules.first_stage_buckets and stage.index > 0)
    found: Number = 0
    for chunks in {int(vpp)} if isinstance(vpp, (int, float)) else {int(one) for one in vpp.ravel()}:
        first, *others = _chunks(setup, stage, chunks)
        apart = [one for one in _tensors(first) if one.name in names and one.name in shared]
        if several:
            count = buckets_filled(
                [(one.elements, one.rows if one.group == "expert" else 0)
                 for one in gradient_order(setup, first) if one.name in names and one not in apart], limit,
            )  # fmt: skip
        else:
            count = int(_has(first, names - {one.name for one in apart}))
        count = count + len(apart) + sum(_has(chunk, names) for chunk in others)
        found = found + where(vpp == chunks, count, 0)
    return found


def _tensors(stage: Stage) -> Iterator[Stored]:
    """The tensors of embedding and head, and of each kind of layer."""
    blocks = (stage.layers[kind][0] for kind in sorted({*stage.order}))
    return itertools.chain.from_iterable(map(block_tensors, (stage.embedding, stage.head, *blocks)))


def _has(stage: Stage, names: frozenset[str]) -> bool:
    """Whether a stage has parameters of these names."""
    return bool(names) and any(one.name in names for one in _tensors(stage))


def _shared(setup: Setup) -> tuple[str, ...]:
    """The names of weights that the first stage and another both have."""
    model = setup.model
    if setup.layout.pp == 1 or not (model.tied_embeddings or model.mtp_trained):
        return ()
    copies = (HEAD_WEIGHT,) if model.tied_embeddings else (SHARED_EMBEDDING,)
    return (EMBEDDING_WEIGHT, *copies, *((SHARED_EMBEDDING,) if setup.mtp_chunk is not None else ()))


def _chunks(setup: Setup, stage: Stage, vpp: int) -> Iterator[Stage]:
    """The chunks of a stage, each as a stage of its own; two copies of a model are two."""
    if stage.mirror is not None:
        yield from (stage, stage.mirror)
        return
    schedule = setup.layout.schedule if isinstance(setup.layout.schedule, str) else WAYS[vpp > 1]
    ends = chunk_ends(setup, stage, schedule, vpp)
    for place, (first, last) in enumerate(itertools.pairwise(ends)):
        yield replace(
            stage, order=stage.order[first:last], embedding=None if place else stage.embedding,
            head=stage.head if place == len(ends) - 2 else None,
        )  # fmt: skip


def buckets_filled(tensors: Sequence[tuple[Number, Number]], limit: Number) -> Number:
    """How many buckets tensors fill in this order, each of which closes with the parameter that brings it to ``limit``
    elements. Of a tensor its elements are given and how many stacked experts it has, of which each is a parameter; 0
    where it is one itself. Of arrays of layouts each limit is counted once, as there are few."""
    if all(isinstance(size, PLAIN) for tensor in tensors for size in tensor):
        return each(partial(_counted, tuple(tensors)), limit)
    return _filled(tensors, limit)


def _filled(tensors: Iterable[tuple[Number, Number]], limit: Number) -> Number:
    filled: Number = 0
    count: Number = 0
    for elements, parts in tensors:
        if nothing(parts):
            filled = filled + elements
            closes = filled >= limit
            count, filled = count + closes, where(closes, 0, filled)
            continue
        one = elements / parts
        wanted = maximum(ceil_div(limit - filled, one), 1)  # until the open bucket closes
        closes, whole = parts >= wanted, maximum(ceil_div(limit, one), 1)
        left = where(closes, parts - wanted, parts)
        more = where(closes, left // whole, 0)
        count = count + where(closes, 1, 0) + more
        filled = where(closes, (left - more * whole) * one, filled + parts * one)
    return count + where(filled > 0, 1, 0)


_counted = for_equal(1024)(_filled)
