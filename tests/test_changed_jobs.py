"""Jobs as programs make them: the model first, another job instead of a change, and errors of distsim's own."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest

import distsim
from distsim.specs.job import Job
from distsim.specs.model import Model

JOB: Any = distsim.Job


def test_the_model_may_stand_first_as_for_the_commands() -> None:
    job = JOB("llama-7b", gpus=8, zero=2)
    assert job == Job(model="llama-7b", gpus=8, zero=2)
    assert distsim.memory(job).peak == distsim.memory("llama-7b", gpus=8, zero=2).peak


def _assigned() -> None:
    JOB("llama-7b").tp = 4


def _deleted() -> None:
    del JOB("llama-7b").tp


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: JOB("llama-7b", 8), "Job takes the model alone without its name, not 8"),
        (lambda: JOB("llama-7b", model="gpt2"), "model is given twice: 'llama-7b' and 'gpt2'"),
        (lambda: JOB(None), "field 'model' is missing\n  it takes a name or a file"),
        (lambda: Job(model=None), "field 'model' is missing\n  it takes a name or a file"),
        (lambda: Job(model={"layers": 2}), "field 'model.name' is missing"),
        (_assigned, "a job does not change, so tp cannot be set\n  make another with: job.changed(tp=…)"),
        (_deleted, "a job does not change, so tp stays"),
        (lambda: JOB("llama-7b").changed(tpp=2), "unknown field 'tpp'\n  did you mean tp"),
    ],
)
def test_what_is_wrong_is_told_as_everything_else(make: Callable[[], Any], told: str) -> None:
    with pytest.raises(distsim.DistsimError) as raised:
        make()
    assert told in str(raised.value) and "Input should" not in str(raised.value)


def test_another_job_states_what_is_changed() -> None:
    job = JOB("llama-7b", gpus=8, tp=2, framework="torchtitan")
    assert job.changed(tp=4, framework=None) == Job(model="llama-7b", gpus=8, tp=4)
    assert not job.changed(framework=None).names_framework and job.tp == 2
    for same in (copy.deepcopy(job), pickle.loads(pickle.dumps(job)), job.changed()):
        assert same == job and same.model_fields_set == job.model_fields_set


def test_a_loaded_model_stays_when_a_job_changes() -> None:
    job = JOB(distsim.load_model("gpt2"), gpus=2)
    assert isinstance(job.model, Model) and job.changed(tp=2).model == job.model
