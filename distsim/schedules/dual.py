"""The eight phases that DualPipe and DualPipeV share, for one stage with two chunks (direction 0 and 1)."""

from __future__ import annotations

from distsim.schedules.action import Action


class DualStage:
    """Collects a stage's actions; counts micro-batches per direction and queues postponed weight gradients."""

    def __init__(self, chunks: tuple[int, int]) -> None:
        self.chunks = chunks
        self.actions: list[Action] = []
        self._forwards = [0, 0]
        self._backwards = [0, 0]
        self._due: list[Action] = []
        self._paid = 0

    def run(self, lone: int, depth: int, turns: int, steady: int, apart: bool) -> None:
        """``lone`` forwards, ``depth + 1`` pairs of forwards, ``turns`` split backwards, ``steady`` fused pairs, then
        the drain. ``apart``: the first forward and backward of the steady phase are not fused, because the forward
        would wait for the backward's neighbour (the innermost stages)."""
        for _ in range(lone):
            self._forward(0)
        for _ in range(depth + 1):
            self._forward(0)
            self._forward(1)
        for _ in range(turns):
            self._backward(1, split=True)
            self._weight()
            self._forward(1)
        for i in range(steady):
            if apart and i == 0:
                self._forward(0)
                self._backward(1)
            else:
                self._fused(0, 1)
            self._fused(1, 0)
        for _ in range(turns):
            self._backward(1)
            self._fused(1, 0)
        self._drain(depth, turns)

    def _drain(self, depth: int, turns: int) -> None:
        """The second half of the last backwards is split, so that weight gradients fill what is left."""
        for i in range(depth + 1):
            middle = (depth + 1) // 2
            self._backward(1, split=i > middle or (i == middle and depth % 2 == 1))
            self._backward(0, split=i >= middle)
        for _ in range(turns):
            self._weight()
            self._backward(0, split=True)
        for _ in range(depth + 1):
            self._weight()

    def _forward(self, direction: int) -> None:
        self.actions.append(("F", self.chunks[direction], self._next(self._forwards, direction)))

    def _backward(self, direction: int, split: bool = False) -> None:
        chunk, i = self.chunks[direction], self._next(self._backwards, direction)
        self.actions.append(("I" if split else "B", chunk, i))
        if split:
            self._due.append(("W", chunk, i))

    def _fused(self, forward: int, backward: int) -> None:
        i, j = self._next(self._forwards, forward), self._next(self._backwards, backward)
        self.actions.append(("FB", self.chunks[forward], i, self.chunks[backward], j))

    def _weight(self) -> None:
        self.actions.append(self._due[self._paid])
        self._paid += 1

    @staticmethod
    def _next(counts: list[int], direction: int) -> int:
        counts[direction] += 1
        return counts[direction] - 1
