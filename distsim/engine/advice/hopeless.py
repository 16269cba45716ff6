"""Which changes of a job cannot make it fit, told from those that were tried: states that are too large for a GPU stay
so beside changes that leave them as they are, or only move them from GPU to GPU."""

from collections.abc import Callable, Iterable

from distsim.arrays import Number
from distsim.engine.advice.change import Change
from distsim.engine.footprint.one_copy import least_states
from distsim.engine.jobs.resolve import Setup
from distsim.formulas.schedule_forms import VERSIONS

SAME_STATES = {"micro_batch", "sequence parallel", "loss", "mlp_tiles", "recompute"}
"""Families that leave weights, gradients and optimizer states as they are."""
SAME_COPY = {"tp", "pp", "cp", "ep", "zero"}
"""Families that move them between the GPUs of a job, which still hold one copy of each."""


def same_states(setup: Setup) -> set[str]:
    """Families of changes that leave a job's states as they are; but some schedules keep versions of weights for
    micro-batches, and a framework may offload by default where whole layers are recomputed."""
    versions = {"micro_batch"} if setup.layout.schedule in VERSIONS else set[str]()
    return SAME_STATES - versions - ({"recompute"} if setup.framework.defaults.get("offload") else set())


class Hopeless:
    """Bytes that are left of a GPU beside the states of changed jobs, at the most."""

    def __init__(self, setup: Setup, changed: Callable[[tuple[Change, ...]], Setup | None]) -> None:
        self.same = same_states(setup)
        self.changed = changed
        """The job with some changes, None where it is no valid layout."""
        self.states_leave: dict[frozenset[Change], Number] = {}
        """By the changes that alter the states of the first stage."""
        self.copy_leaves: dict[frozenset[Change], Number] = {}
        """By the changes that alter one copy of all states, or the GPUs that share it."""

    def leaves(self, combined: tuple[Change, ...]) -> Number:
        """What is left with some changes, as far as it is known: 0 or more says nothing."""
        left = self.states_leave.get(_but(combined, self.same), 0)
        return left if left < 0 else self._beside_copy(combined)

    def learn(self, combined: tuple[Change, ...], left: Number) -> None:
        """Keep what the first stage's states leave with some changes."""
        self.states_leave[_but(combined, self.same)] = left

    def _beside_copy(self, combined: tuple[Change, ...]) -> Number:
        """What one copy of all states leaves; asked of no more than one change of it, which many combinations have."""
        others = _but(combined, self.same | SAME_COPY)
        if len(others) > 1 or len(others) == len(combined):
            return 0
        if others not in self.copy_leaves:
            setup = self.changed(tuple(others))
            self.copy_leaves[others] = 0 if setup is None else setup.accelerator.capacity - least_states(setup)
        return self.copy_leaves[others]


def _but(combined: Iterable[Change], families: set[str]) -> frozenset[Change]:
    """The changes of other families."""
    return frozenset(change for change in combined if change.family not in families)
