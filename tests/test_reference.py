"""A frozen reference model beside the one that trains.

The oracle: transformers 5.24 models on torch 2.13 fake tensors, recorded as tests/test_saved_tensors.py says, in a step
of DPO: log-probabilities of both answers by the model, by the reference without gradients while all that the first
keeps is alive, then the loss of their differences. They are cross entropies of fp32 logits, or TRL's gathered logits
less log-sum-exp (``selective``).
"""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from shell import piped

import distsim
from distsim.engine.jobs.resolve import resolve
from distsim.engine.memory import memory_of
from distsim.errors import DistsimError
from distsim.report.search import command
from distsim.specs.job import Job
from tests.recordings import PRECISION

ROWS = list(csv.DictReader((Path(__file__).parent / "oracles" / "torch_reference.csv").open()))
HELD = 0.0025
"""Of the peak: the last hidden states of a reference under peft are 0.2% of one."""
JOB: dict[str, Any] = {"gpu": "h100", "gpus": 8, "framework": "deepspeed", "zero": 3, "seq": 2048, "micro_batch": 2}
PIPELINED: dict[str, Any] = {"pp": 4, "zero": 1, "framework": "megatron-core", "global_batch": 64}
ADAPTERS: dict[str, Any] = {**JOB, "lora_rank": 16}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: "-".join(filter(None, map(row.get, ("model", "lora", "loss")))))
def test_as_pytorch_allocates(row: dict[str, str]) -> None:
    adapters = {"lora_rank": 16, "lora_targets": "q,v"} if row["lora"] else {}
    job = Job(
        model=row["model"], gpu="h200", gpus=1, framework="huggingface", seq=int(row["seq"]),
        micro_batch=int(row["micro_batch"]), precision=PRECISION[row["dtype_scheme"]], recompute=row["recompute"],
        reference=row["reference"], loss=row["loss"] or None, **adapters,
    )  # fmt: skip
    (stage,) = memory_of(resolve(job)).stages
    parts = sum(size for name, size in stage.categories.items() if name != "framework")
    assert parts == pytest.approx(int(row["peak_bytes"]), rel=HELD)


def _parameters(**options: Any) -> float:
    return float(distsim.memory("llama-3-8b", **options).worst.categories["parameters"])


@pytest.mark.parametrize("zero", [0, 2, 3])
def test_a_copy_is_held_as_the_weights_are(zero: int) -> None:
    own = _parameters(**{**JOB, "zero": zero})
    assert _parameters(**{**JOB, "zero": zero}, reference="copy") == pytest.approx(2 * own, rel=1e-6)


def test_the_base_needs_no_weights_and_no_gather_that_is_there() -> None:
    assert _parameters(**ADAPTERS, reference="base") == _parameters(**ADAPTERS)
    kept = {**ADAPTERS, "zero": 2}
    plain, beside = distsim.comm("llama-3-8b", **kept), distsim.comm("llama-3-8b", **kept, reference="base")
    assert beside.wire_bytes_per_rank == plain.wire_bytes_per_rank


def test_adapters_are_no_part_of_a_copy() -> None:
    base = _parameters(**{**JOB, "lora_rank": 16, "reference": "base"})
    wide = _parameters(**{**JOB, "lora_rank": 256, "reference": "base"})
    assert _parameters(**{**JOB, "lora_rank": 256, "reference": "copy"}) - wide == pytest.approx(
        _parameters(**{**JOB, "lora_rank": 16, "reference": "copy"}) - base
    )


@pytest.mark.parametrize("degrees", [{}, {"tp": 4, "zero": 1, "framework": "megatron-core"}, PIPELINED], ids=str)
def test_it_exchanges_what_a_forward_does(degrees: dict[str, Any]) -> None:
    job = {**JOB, **degrees}
    plain, beside = distsim.comm("llama-3-8b", **job), distsim.comm("llama-3-8b", **job, reference="copy")
    forward = sum(row.wire_bytes_per_rank for row in plain.stages[0] if row.phase == "forward")
    more = sum(row.wire_bytes_per_rank for row in beside.stages[0]) - sum(
        row.wire_bytes_per_rank for row in plain.stages[0]
    )
    assert forward > 0 and more == pytest.approx(forward)
    assert all(row.phase == "forward" for row in beside.stages[0] if row.purpose.endswith(", reference"))


def test_it_takes_the_time_of_a_forward() -> None:
    """A third of a step that computes: 2 N of 6 N, or of the 4 N and what adapters take."""
    job = {**JOB, "micro_batch": 8, "zero": 1}
    plain, beside = distsim.step("llama-3-8b", **job), distsim.step("llama-3-8b", **job, reference="copy")
    assert 1.28 < beside.breakdown["compute"] / plain.breakdown["compute"] < 1.36
    assert beside.mfu is not None and plain.mfu is not None
    assert beside.mfu * beside.seconds == pytest.approx(4 / 3 * plain.mfu * plain.seconds, rel=1e-6)
    tuned = {**job, "lora_rank": 16}
    less, more = distsim.step("llama-3-8b", **tuned), distsim.step("llama-3-8b", **tuned, reference="base")
    assert 1.3 < more.breakdown["compute"] / less.breakdown["compute"] < 1.5


def test_a_pipeline_runs_it_ahead() -> None:
    """Every stage forwards each micro-batch twice, and nothing of the model that trains is kept meanwhile."""
    job = {**JOB, **PIPELINED}
    plain, beside = distsim.step("llama-3-8b", **job), distsim.step("llama-3-8b", **job, reference="copy")
    assert 1.28 < beside.seconds / plain.seconds < 1.36
    more = beside.memory.peak - plain.memory.peak
    assert more == pytest.approx(2 * plain.memory.worst.states.dense_parameters, rel=1e-3)


def test_searches_take_it() -> None:
    """Every layout of a search costs what ``step`` and ``memory`` say of it, and its command names the reference."""
    job = {"gpu": "h100", "gpus": 8, "global_batch": 32, "seq": 2048, "framework": "fsdp", "reference": "copy"}
    for one in distsim.search("llama-3-8b", **job).best:
        assert "--reference copy" in command(one)
        again = distsim.step(Job(**{**job, "model": "llama-3-8b", **one.options}))
        assert one.seconds == pytest.approx(again.seconds) and one.report.memory.peak == again.memory.peak


@pytest.mark.parametrize(
    ("options", "words"),
    [({"reference": "base"}, "--reference base is the model without its adapters, but there are none"),
     ({"reference": "teacher"}, "reference 'teacher' is not one of the choices")],
)  # fmt: skip
def test_a_reference_that_is_not_there_is_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(DistsimError, match=words):
        distsim.memory("llama-3-8b", **JOB, **options)


def test_none_is_no_reference() -> None:
    assert distsim.step("llama-3-8b", **JOB, reference="none").seconds == distsim.step("llama-3-8b", **JOB).seconds


PAIRED: dict[str, Any] = {"model": "llama-3-8b", "gpu": "h100-sxm", "gpus": 8, "framework": "huggingface", "zero": 3,
                          "seq": 2048, "loss": "selective"}  # fmt: skip
SPLIT = "split a pair of answers: 2 answers are 1 pair"


@pytest.mark.parametrize("reference", ["copy", "none"])
@pytest.mark.parametrize("micro_batch", [None, 1, 2, 3])
def test_half_a_pair_of_answers_is_told(reference: str, micro_batch: int | None) -> None:
    job = {**PAIRED, "reference": reference, "micro_batch": micro_batch}
    told = reference == "copy" and micro_batch != 2
    for asked in (distsim.memory, distsim.comm, distsim.step):
        notes = [note for note in asked(**job).to_dict()["notes"] if SPLIT in note]
        assert len(notes) == told and all("--micro-batch 2" in note for note in notes)


def test_searches_and_plans_try_whole_pairs_unless_asked_otherwise() -> None:
    words = [word for name, value in PAIRED.items() if name not in ("model", "zero")
             for word in (f"--{name}", str(value))]  # fmt: skip
    asked = ["llama-3-8b", *words, "--reference", "copy", "--json"]
    plan = ["--tokens", "1B", "--provider", "nebius"]
    for more, even in (([], True), (["--micro-batch", "1"], False)):
        found = json.loads(piped("search", *asked, "--top", "20", "--all-ranks", "--global-batch", "64", *more).stdout)
        planned = json.loads(piped("plan", *asked, *plan, *more).stdout)
        sizes = {one["layout"]["micro_batch"] for one in (*found["layouts"], *planned["options"])}
        assert all(size % 2 == 0 for size in sizes) is even and sizes
        for answer in (found, planned):
            assert any(SPLIT in note for note in answer["notes"]) is not even


def test_advice_keeps_pairs_whole() -> None:
    from distsim.engine.advice.changes import changes
    from distsim.engine.advice.quicker import changes as quicker

    setup = resolve(distsim.Job(**PAIRED, reference="copy", micro_batch=6, global_batch=96))
    sizes = {one.shown["micro_batch"] for one in changes(setup) if one.family == "micro_batch"}
    sizes |= {options["micro_batch"] for _, _, options in quicker(setup) if "micro_batch" in options}
    assert sizes and all(size % 2 == 0 for size in sizes)
