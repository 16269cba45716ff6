"""A simulation of torch's caching allocator, and the allocations of a nanotron step on its first stage.

Rules of CUDACachingAllocator.cpp for large blocks: sizes are multiples of 512 bytes; a request takes the smallest free
block that is large enough, which is split when more than 1 MiB would be left; free neighbours merge; where none is
large enough, 20 MiB are reserved for less than 10, and multiples of 2 MiB for more.
"""

from __future__ import annotations

import bisect
from dataclasses import dataclass, field
from typing import NamedTuple

from distsim.units import MIB

SMALL, SEGMENT = MIB, 20 * MIB
Place = tuple[int, int]


@dataclass
class _Block:
    size: int
    before: int | None = None
    after: int | None = None
    free: bool = True


@dataclass
class Allocator:
    """Blocks in segments; ``reserved`` is what was taken from the driver, which nothing gives back."""

    reserved: int = 0
    segments: list[dict[int, _Block]] = field(default_factory=list)
    free: list[tuple[int, int, int]] = field(default_factory=list)

    def take(self, size: float) -> Place | None:
        """A place for so many bytes; small ones come from another pool and are not counted."""
        wanted = -(-int(size) // 512) * 512
        if wanted <= SMALL:
            return None
        found = bisect.bisect_left(self.free, (wanted, -1, -1))
        if found < len(self.free):
            _, segment, offset = self.free.pop(found)
        else:
            whole = SEGMENT if wanted < SEGMENT // 2 else -(-wanted // (2 * MIB)) * 2 * MIB
            segment, offset = len(self.segments), 0
            self.segments.append({0: _Block(whole)})
            self.reserved += whole
        blocks = self.segments[segment]
        block = blocks[offset]
        block.free = False
        if block.size - wanted > SMALL:
            rest = offset + wanted
            blocks[rest] = _Block(block.size - wanted, offset, block.after)
            if block.after is not None:
                blocks[block.after].before = rest
            block.after, block.size = rest, wanted
            bisect.insort(self.free, (blocks[rest].size, segment, rest))
        return segment, offset

    def give(self, *places: Place | None) -> None:
        """Blocks back to the pool, merged with free neighbours."""
        for place in places:
            if place is None:
                continue
            segment, offset = place
            blocks = self.segments[segment]
            block = blocks[offset]
            assert not block.free
            block.free = True
            if block.after is not None and blocks[block.after].free:
                self._merge(segment, offset, block.after)
            if block.before is not None and blocks[block.before].free:
                offset = block.before
                self._merge(segment, offset, place[1])
            bisect.insort(self.free, (blocks[offset].size, segment, offset))

    def _merge(self, segment: int, first: int, second: int) -> None:
        blocks = self.segments[segment]
        for one in (first, second):
            entry = (blocks[one].size, segment, one)
            if entry in self.free:
                self.free.remove(entry)
        gone = blocks.pop(second)
        blocks[first].size += gone.size
        blocks[first].after = gone.after
        if gone.after is not None:
            blocks[gone.after].before = first


class Step(NamedTuple):
    """A job on its first stage, without tensor parallelism."""

    layers: int
    hidden: int
    ffn: int
    vocab: int
    sequences: int
    tokens: int
    in_flight: int
    micro_batches: int
    replicas: int
    zero: int
    has_head: bool
    tied: bool


class _Stage:
    """Allocations of forward and backward, in the order of nanotron's models/llama.py."""

    def __init__(self, step: Step, pool: Allocator) -> None:
        self.step, self.pool = step, pool
        tokens = step.sequences * step.tokens
        self.wide, self.inner = tokens * step.hidden * 2, tokens * step.ffn * 2
        self.logits = tokens * step.vocab

    def forward(self) -> tuple[Place | None, list[list[Place | None]]]:
        """The stage's output, and what each layer keeps, its input last."""
        pool, e, f, kept = self.pool, self.wide, self.inner, []
        x = pool.take(e)
        for _ in range(self.step.layers):
            norm, qkv, queries, joined = pool.take(e), pool.take(3 * e), pool.take(3 * e), pool.take(2 * e)
            pairs = pool.take(2 * e)
            pool.give(joined)
            core, projected = pool.take(e), pool.take(e)
            pool.give(qkv)
            middle = pool.take(e)
            pool.give(projected)
            normed, up, active, product = pool.take(e), pool.take(2 * f), pool.take(f), pool.take(f)
            down, after = pool.take(e), pool.take(e)
            pool.give(down)
            kept.append([norm, queries, pairs, core, middle, normed, up, active, product, x])
            x = after
        return x, kept

    def backward(self, x: Place | None, kept: list[list[Place | None]]) -> None:
        """The loss where the stage has one, all layers, the embedding; gradients of weights go at the end."""
        pool, e, h, step = self.pool, self.wide, self.step.hidden, self.step
        weights: list[Place | None] = []
        flow = pool.take(e) if not step.has_head else self._loss(weights)
        for layer in reversed(kept):
            flow = self._layer(flow, layer, weights)
        pool.give(x)
        table = pool.take(2 * step.vocab * h)
        if step.has_head and step.tied:
            both = pool.take(2 * step.vocab * h)
            pool.give(table, weights.pop(0))
            table = both
        pool.give(flow, table, *weights)

    def _loss(self, weights: list[Place | None]) -> Place | None:
        pool, e = self.pool, self.wide
        norm, narrow = pool.take(e), pool.take(2 * self.logits)
        wide = pool.take(4 * self.logits)
        pool.give(narrow)
        exponentials = pool.take(4 * self.logits)
        pool.give(wide)
        gradient = pool.take(2 * self.logits)
        pool.give(exponentials)
        inner = pool.take(e)
        weights.append(pool.take(2 * self.step.vocab * self.step.hidden))
        pool.give(gradient, norm)
        flow = pool.take(e)
        pool.give(inner)
        return flow

    def _layer(self, flow: Place | None, layer: list[Place | None], weights: list[Place | None]) -> Place | None:
        pool, e, f, h, w = self.pool, self.wide, self.inner, self.step.hidden, self.step.ffn
        norm, queries, pairs, core, middle, normed, up, active, product, x = layer
        one = pool.take(f)
        weights.append(pool.take(2 * w * h))
        pool.give(product)
        two, three = pool.take(f), pool.take(f)
        pool.give(one)
        four = pool.take(f)
        pool.give(two, active)
        five = pool.take(2 * f)
        pool.give(four, three, up)
        six = pool.take(e)
        weights.append(pool.take(4 * w * h))
        pool.give(five, normed)
        flow = self._residual(flow, six, middle)
        seven = pool.take(e)
        weights.append(pool.take(2 * h * h))
        parts, sums = [pool.take(e) for _ in range(3)], pool.take(2 * e)
        pool.give(sums, core, seven)
        joined = pool.take(2 * e)
        pool.give(*parts[1:])
        again = pool.take(2 * e)
        pool.give(joined, pairs)
        stacked = pool.take(3 * e)
        pool.give(parts[0], again)
        copied = pool.take(3 * e)
        pool.give(stacked, queries)
        eight = pool.take(e)
        weights.append(pool.take(6 * h * h))
        pool.give(copied, norm)
        flow = self._residual(flow, eight, None)
        pool.give(x)
        return flow

    def _residual(self, flow: Place | None, inner: Place | None, kept: Place | None) -> Place | None:
        pool = self.pool
        out = pool.take(self.wide)
        pool.give(inner, kept)
        total = pool.take(self.wide)
        pool.give(out, flow)
        return total


def reserved_bytes(step: Step, workspaces: float, steps: int = 3) -> int:
    """What the allocator has reserved after some steps: 1F1B, fp32 accumulation, Adam, ZeRO 0 or 1."""
    pool = Allocator()
    stage, h = _Stage(step, pool), step.hidden
    tables = 1 + (step.has_head and not step.tied)
    sizes = [3 * h * h, h * h, 2 * step.ffn * h, step.ffn * h] * step.layers + [step.vocab * h] * tables
    shards = step.replicas if step.zero else 1
    for size in sizes:
        pool.take(2 * size)
        pool.take(4 * size / shards)
        if step.replicas > 1 and not step.zero:
            pool.take(2 * size)
    pool.take(4 * sum(sizes))
    pool.take(workspaces)
    for number in range(steps):
        _passes(step, stage)
        for size in sizes if not number else ():
            pool.take(4 * size / shards)
            pool.take(4 * size / shards)
        if step.zero and step.replicas > 1:
            parts = [pool.take(2 * sum(sizes) / step.replicas) for _ in range(step.replicas + 1)]
            pool.give(pool.take(2 * sum(sizes)), *parts)
    return pool.reserved


def _passes(step: Step, stage: _Stage) -> None:
    """The first stage under 1F1B, with as many micro-batches as its steady state needs."""
    count = min(step.micro_batches, step.in_flight + 2)
    waiting = [stage.forward() for _ in range(min(count, step.in_flight) - 1)]
    for _ in range(count - len(waiting)):
        waiting.append(stage.forward())
        stage.backward(*waiting.pop(0))
    while waiting:
        stage.backward(*waiting.pop(0))
