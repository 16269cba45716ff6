"""Peak memory of a measured run, in the way in which its source counts it."""

from __future__ import annotations

from dataclasses import replace

from distsim.engine.likeness import correction_of
from distsim.engine.memory import memory_of
from distsim.engine.resolve import Setup
from distsim.interop.run_tuning import lengths_of
from distsim.interop.runs import Run
from distsim.specs.timing import STATE_NAMES


def peak_of_run(run: Run, setup: Setup, year: float) -> float:
    """Predicted peak in bytes of the rank that the framework reports, for the longest sample."""
    lengths = None if run.count("seq_len") else lengths_of(run)
    longest = setup.layout.with_(seq=lengths.longest) if lengths else setup.layout
    report = memory_of(replace(in_its_state(run, setup, year), layout=longest))
    ranks = {"first": report.stages[0], "last": report.stages[-1], "largest": report.worst}
    return float(ranks[setup.framework.memory_rank].counted(counts_of(run, setup)))


def counts_of(run: Run, setup: Setup) -> str:
    """What the run's figure counts: as its row says, else as its framework prints it."""
    kind = (run.text("mem_kind") or "").lower()
    return next((word for word in ("allocated", "reserved") if word in kind), setup.framework.memory_counts)


def in_its_state(run: Run, setup: Setup, year: float) -> Setup:
    """The setup with what its framework kept in the state of software that all other runs give this one."""
    states = setup.framework.states
    if not states:
        return setup
    state = correction_of(setup, run.id, year, run.source).state
    return replace(setup, kernels=setup.kernels.model_copy(update=states.get(STATE_NAMES[state], {})))
