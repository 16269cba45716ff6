"""What every family must hold: exact counts, ranks that hold the whole together, longer sequences that cost more."""

from __future__ import annotations

from typing import Any

import distsim
from distsim.engine.jobs.models import load_model
from distsim.engine.jobs.resolve import Setup, resolve
from distsim.engine.jobs.stages import build_stages
from distsim.engine.steps.report import StepReport
from distsim.interop.huggingface import Reading, read_config
from distsim.specs.job import Job


def counted(row: dict[str, Any], preset: str | None = None) -> Reading:
    """The configuration as read, whose parameters are exact, as those of its ``preset`` are, if it has one; no key is
    left over that could matter."""
    reading = read_config(row["config"])
    loaded = load_model(reading.model)
    assert loaded.parameters == row["parameters"] == sum(loaded.parts().values())
    assert not reading.unused
    if preset:
        assert load_model(preset).parameters == row["parameters"]
    return reading


def one_gpu(model: Any, **options: Any) -> Setup:
    """A job of transformers' modules in bf16 on one GPU, where ``options`` do not say otherwise."""
    usual = {"gpu": "h100-sxm", "gpus": 1, "framework": "huggingface", "precision": "pure-bf16"}
    return resolve(Job(model=model, **{**usual, **options}))


def shared_and_whole(setup: Setup) -> tuple[float, float]:
    """Elements of parameters of the first stage that tensor parallel ranks share, and that each of them holds whole."""
    found = {True: 0.0, False: 0.0}
    for parameter, times in build_stages(setup)[0].parameters:
        found[parameter.tensor_parallel] += parameter.elements * times
    return found[True], found[False]


def longer_costs_more(model: Any, seq: int = 4096, **options: Any) -> StepReport:
    """The step: shorter than with sequences twice as long, at a credible utilisation, with traffic."""
    short, long = (distsim.step(model=model, seq=tokens, **options) for tokens in (seq, 2 * seq))
    assert 0 < short.seconds < long.seconds
    assert 0 < short.mfu < 0.75
    assert distsim.comm(model=model, seq=seq, **options).wire_bytes_per_rank > 0
    return short
