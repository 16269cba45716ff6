"""Changes that are passed over unseen, as states are known to be too large with them, would not have helped."""

from __future__ import annotations

from typing import Any

import pytest

import distsim
from distsim import catalog
from distsim.engine.advice import trials
from distsim.engine.advice.changes import changes
from distsim.engine.advice.hopeless import SAME_COPY, SAME_STATES, Hopeless, same_states
from distsim.engine.advice.mend import Mended, mend
from distsim.engine.footprint.one_copy import least_states
from distsim.engine.jobs.resolve import Setup, resolve
from distsim.engine.memory import memory_of
from distsim.errors import DistsimError
from distsim.specs.job import Job

JOBS: dict[str, dict[str, Any]] = {
    "dense": {"model": "llama-70b", "gpus": 8, "gpu": "a100-sxm4-40gb", "zero": 0, "micro_batch": 8},
    "experts": {"model": "kimi-k2", "gpus": 64, "gpu": "h200-sxm"},
    "deepspeed": {"model": "llama-70b", "gpus": 8, "gpu": "h100-sxm", "framework": "deepspeed", "micro_batch": 4},
    "adapters": {"model": "qwen2.5-72b", "gpus": 8, "framework": "axolotl", "gpu": "a100-sxm4-80gb"},
    "fp8": {"model": "llama-70b", "gpus": 32, "gpu": "gb200", "precision": "fp8", "micro_batch": 32},
    "nothing fits": {"model": "gpt3-175b", "gpu": "t4", "gpus": 1, "seq": 1_000_000},
    "versions": {"model": "llama-7b", "gpus": 4, "gpu": "v100-sxm2-16gb", "pp": 4, "schedule": "pipedream",
                 "micro_batch": 8, "global_batch": 8},
}  # fmt: skip


def told(found: Mended) -> tuple[Any, ...]:
    near = None if found.nearest is None else found.nearest.to_dict()
    return [one.to_dict() for one in found.fitting], near, found.tried


@pytest.mark.parametrize("job", JOBS.values(), ids=JOBS)
def test_what_is_passed_over_would_not_have_fitted(job: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    report, asked = distsim.memory(**job), list[Setup]()
    computed = trials.memory_unless

    def counted(setup: Setup, hopeless: Any) -> Any:
        asked.append(setup)
        return computed(setup, hopeless)

    monkeypatch.setattr(trials, "memory_unless", counted)
    found, fewer = mend(report), len(asked)
    monkeypatch.setattr(Hopeless, "leaves", lambda self, combined: 0)
    assert told(found) == told(mend(report))
    assert fewer < len(asked) - fewer


@pytest.mark.parametrize("job", JOBS.values(), ids=JOBS)
def test_no_layout_holds_less_than_its_share_of_one_copy(job: dict[str, Any]) -> None:
    """Of changes to the layout alone one copy stays what it is; of those that leave states, states do."""
    setup = resolve(Job.read(job))
    least, own = least_states(setup), memory_of(setup, [0]).stages[0].states
    seen = set[str]()
    for change in changes(setup):
        if change.family not in SAME_STATES | SAME_COPY:
            continue
        try:
            changed = resolve(Job.read({**job, **change.fields}))
            after = memory_of(changed)
        except DistsimError:
            continue
        seen.add(change.family)
        assert least_states(changed) == pytest.approx(least, rel=1e-3), change  # vocabularies are filled up for tp
        assert after.peak >= least, change
        if change.family in same_states(setup):
            assert after.stages[0].states == own, change
    assert seen


def test_evenly_shared_states_are_one_copy() -> None:
    setup = resolve(Job.read({"model": "llama-7b", "gpus": 8, "zero": 3}))
    held = memory_of(setup).stages[0].states
    assert held.parameters + held.gradients + held.optimizer == pytest.approx(least_states(setup), rel=1e-3)


def test_what_may_alter_states_does_not_pass_for_what_leaves_them() -> None:
    versions = resolve(Job.read(JOBS["versions"]))
    assert "micro_batch" not in same_states(versions) and "recompute" in same_states(versions)
    framework = catalog.load("frameworks", "megatron-core")
    offloads = framework.model_copy(update={"defaults": {**framework.defaults, "offload": "activations"}})
    assert "recompute" not in same_states(resolve(Job.read(JOBS["dense"]), {"framework": offloads}))
