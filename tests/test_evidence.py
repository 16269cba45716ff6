"""Measured runs replayed: conversions, reasons for skipping, and bars on the error of peak memory."""

from __future__ import annotations

import json
import math
import statistics
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from distsim import catalog
from distsim.cli.app import run as command
from distsim.engine.evidence import quantile, replay
from distsim.engine.fitting.write import score
from distsim.engine.jobs.placement import by_compute, embedding_as_layer
from distsim.engine.jobs.resolve import Setup, resolve
from distsim.engine.memory import memory_of
from distsim.engine.runs.layout import assumed_layout, possible_degrees
from distsim.engine.runs.memory import held_by
from distsim.engine.runs.setup import setup_of
from distsim.engine.runs.trained import checkpointed, trained_whole
from distsim.engine.steps.intervals import _around
from distsim.engine.validate import shipped_runs
from distsim.errors import DistsimError
from distsim.interop.runs import Run, measured_step_seconds, read_runs
from distsim.interop.runs.peaks import measured_peak_bytes
from distsim.specs.job import Job
from distsim.units import GIB

RUNS = read_runs(shipped_runs())


def _run(**cells: object) -> Run:
    return Run({name: str(value) for name, value in cells.items()}, 2)


A_RUN = {"model": "llama-2-7b", "seq_len": 4096, "micro_batch": 1, "global_batch": 64, "precision": "bf16",
         "gpu": "a100-sxm4-80gb", "n_gpus": 8, "dp": 8}  # fmt: skip


@pytest.mark.parametrize(
    ("cells", "taken"),
    [({"framework": "colossal"}, "fsdp"), ({"framework": "mine", "tp": 8, "dp": 1}, "megatron-lm"),
     ({"framework": "mine", "gpu": "tpu-v5p"}, "maxtext"), ({"framework": "mine", "gpu": "trn1-neuroncore"}, "neuronx"),
     ({"framework": "mine", "lora_rank": 8, "finetune_kind": "lora"}, "huggingface")],
)  # fmt: skip
def test_software_without_a_profile_is_timed_like_the_nearest_and_says_so(cells: dict[str, Any], taken: str) -> None:
    unknown = replay(_run(**{**A_RUN, "pp": 1, "tp": 1, **cells}))
    same = replay(_run(**{**A_RUN, "pp": 1, "tp": 1, **cells, "framework": taken}))
    assert unknown.predicted_seconds == same.predicted_seconds
    assert unknown.assumed.split("; ")[0].endswith(f"timed like {taken}")
    assert "timed like" not in same.assumed and not same.reason


@pytest.mark.parametrize(
    ("gpus", "accumulate", "batch", "degrees"),
    [(16, 1, 8, (2, 1, 1)), (384, 256, 1536, (8, 8, 1)), (64, 1, 2, (8, 1, 4)), (8, 1, 8, None), (8, 3, 8, None)],
)
def test_batch_and_accumulation_tell_the_size_of_a_replica(
    gpus: int, accumulate: int, batch: int, degrees: tuple[int, int, int] | None
) -> None:
    cells = {**A_RUN, "n_gpus": gpus, "grad_accum": accumulate, "global_batch": batch, "zero_stage": 1}
    run = _run(**{**cells, "framework": "nemo", "dp": "", "micro_batch": ""})
    if degrees is None:
        assert possible_degrees(run) == [{}]
        return
    layout = setup_of(run).layout
    assert (layout.tp, layout.pp, layout.cp) == degrees
    assert layout.micro_batches * layout.dp == batch
    assert "from batch and accumulation" in assumed_layout(run, layout)
    assert assumed_layout(_run(**{**cells, "framework": "nemo", "tp": 1}), layout) == ""


def test_fine_tuning_splits_weights_only_as_far_as_memory_needs() -> None:
    """One B200 holds 70B frozen in 16 bits, an H100 does not."""
    cells = {"model": "llama-2-70b", "framework": "nemo-mlperf", "seq_len": 8192, "n_gpus": 16, "grad_accum": 1,
             "global_batch": 2, "precision": "bf16", "finetune_kind": "lora", "lora_rank": 16}  # fmt: skip
    large, small = (setup_of(_run(**cells, gpu=gpu)).layout for gpu in ("b200-sxm", "h100-sxm"))
    assert (large.tp, large.cp) == (1, 8)
    assert small.tp > 1 and small.tp * small.cp == 8


def _setup(**options: Any) -> Setup:
    job: dict[str, Any] = {"model": "llama-3-8b", "gpu": "h100-sxm", "seq": 8192, "micro_batch": 1, "global_batch": 8}
    return resolve(Job(**{**job, "gpus": 8, **options}))


def test_what_notes_and_years_tell_of_the_loss() -> None:
    cells = {"model": "llama-3-8b", "gpu": "h100-sxm", "n_gpus": 8, "framework": "huggingface", "seq_len": 8192,
             "micro_batch": 1, "zero_stage": 3}  # fmt: skip
    losses = {"Liger kernel": "with-head", "Cut Cross Entropy plugin": "cut", "without cut cross entropy": "eager"}
    assert {notes: setup_of(_run(**cells, notes=notes)).kernels.loss for notes in losses} == losses
    own = {"chunked_nll, packed": ("with-head", 256), "chunked loss": ("with-head", 256),
           "without chunked loss": ("eager", 0)}  # fmt: skip
    found = {notes: setup_of(_run(**cells, notes=notes)).kernels for notes in own}
    assert {notes: (one.loss, one.loss_chunk_tokens) for notes, one in found.items()} == own
    compiled = held_by(_run(notes="flags: --cross-entropy-loss-fusion=True"), _setup(framework="megatron-lm"), 2026)
    assert compiled.kernels.loss_transit_bytes == 6
    titan = _setup(framework="torchtitan", zero=3, compile=True)
    dated = {"2024": "eager", "2025-01": "eager", "2025": "fused", "2025-04": "fused"}
    assert {year: held_by(_run(year=year), titan, 2025).kernels.loss for year in dated} == dated
    assert held_by(_run(), _setup(framework="torchtitan", zero=3), 2025.0).kernels.loss_chunks == 1


@pytest.mark.parametrize(
    ("notes", "chunks"),
    [("sequential technique: + Compile (cumulative)", 1), ("sequential technique: Baseline (cumulative)", 1),
     ("sequential technique: + Chunked Cross Entropy (cumulative)", 8), ("batch 2, packed", 8),
     ("sequential technique: + 8-bit AdamW (cumulative)", 8)],
)  # fmt: skip
def test_chunked_losses_of_torchtune(notes: str, chunks: int) -> None:
    for kind in ("full", ""):  # its recipes do nothing but fine-tune, whether a row says so or not
        run = _run(notes=notes, finetune_kind=kind)
        assert held_by(run, _setup(framework="torchtune", zero=3), 2024).kernels.loss_chunks == chunks


def test_float8_of_torchtune_takes_the_memory_of_bf16() -> None:
    """pytorch/ao docs, float8 fine-tuning of Llama 3.2 3B: 30.01 GiB reserved, 30.09 in bf16."""
    cells = {"model": "llama-3.2-3b", "gpu": "h100-sxm", "n_gpus": 4, "framework": "torchtune", "seq_len": 2048,
             "micro_batch": 4, "zero_stage": 3, "compile": 1, "recompute": "full"}  # fmt: skip
    narrow, wide = (memory_of(setup_of(_run(**cells, precision=one))).worst for one in ("fp8", "bf16"))
    assert setup_of(_run(**cells, precision="fp8")).precision.math == "fp8"
    assert float(narrow.peak) == pytest.approx(float(wide.peak), rel=0.02)


def test_a_chunked_loss_saves_what_is_in_transit_and_a_fused_one_all_logits() -> None:
    setup = _setup(framework="torchtitan", zero=3)
    logits = 8192 * 128256

    def held(**kernels: Any) -> float:
        found = memory_of(replace(setup, kernels=setup.kernels.model_copy(update=kernels))).worst.moments
        return float(next(one.total for one in found if one.name == "loss backward"))

    whole = held()
    saved = whole - held(loss_chunks=8, loss_keeps_chunks=True)
    more = whole - held(loss_chunks=8)
    assert more - saved == pytest.approx(logits * 4 * 7 / 8, rel=0.01)
    assert 0 < saved < more


def test_whole_fine_tuning_keeps_no_master_copy() -> None:
    setup = _setup(framework="huggingface")
    assert trained_whole(_run(finetune_kind="full"), setup).precision.name == "pure-bf16"
    assert trained_whole(_run(finetune_kind="full", year=2025), setup).optimizer.name == "adamw-foreach"
    assert trained_whole(_run(finetune_kind="full"), setup).optimizer.name == "adamw"  # fused since transformers 5
    assert trained_whole(_run(finetune_kind="full", notes='method "Full-parameter"'), setup) is setup
    assert trained_whole(_run(), setup) is setup
    run = _run(finetune_kind="full", notes='method "Full-parameter"')
    scripted = held_by(run, checkpointed(run, setup), 2024)
    assert (scripted.precision.name, scripted.recompute) == ("bf16", "full")
    assert checkpointed(_run(finetune_kind="full"), setup).recompute == "full"
    assert checkpointed(_run(finetune_kind="full", recompute="none"), setup) is setup
    assert checkpointed(_run(), setup) is setup


def test_loops_of_ones_own_are_no_scripts_that_fine_tune() -> None:
    """They compute nothing again unless they say so, and an update that a row calls fused is."""
    setup = _setup(framework="huggingface")
    mine = _run(finetune_kind="full", notes="own training loop over a transformers model")
    assert checkpointed(mine, setup) is setup
    fused = _run(finetune_kind="full", optimizer="adamw-fused", year=2025)
    assert trained_whole(fused, setup).optimizer.name == "adamw" != trained_whole(
        _run(finetune_kind="full", optimizer="adamw", year=2025), setup).optimizer.name  # fmt: skip


def test_only_replays_know_states_of_software() -> None:
    run = next(run for run in RUNS if run.text("framework") == "nanotron")
    replayed = replay(run)
    assert replayed.setup is not None
    assert replayed.setup.kernels == catalog.load("frameworks", "nanotron").kernels


def test_samples_of_varying_length_leave_blocks_that_fit_none() -> None:
    """Missing in 40 runs of ms-swift: the logits of four to five samples of mean length, whatever the model is."""
    for model in ("qwen-1_8b-chat", "qwen-7b-chat", "qwen-14b-chat", "yi-6b-chat", "yi-34b-chat"):
        rows = [r for r in RUNS if r.source == "modelscope/ms-swift" and r.text("model") == model]
        rows = [r for r in rows if r.text("finetune_kind") == "lora"]
        errors = [abs(e) for r in rows if (e := replay(r, strange=True).memory_error) is not None]
        assert statistics.median(errors) < 0.12, model


def test_exchanges_are_held_while_the_host_runs_ahead() -> None:
    """Not where it waits for each of them, not with one tensor parallel rank, and never more than a layer has."""
    options: dict[str, Any] = {"model": "llama-7b", "gpu": "h100-sxm", "gpus": 8, "framework": "nanotron", "seq": 4096,
                               "micro_batch": 1, "global_batch": 32, "zero": 1,
                               "precision": "bf16-fp32-grads"}  # fmt: skip
    whole = 4096 * 4096 * 2
    buffers = {tp: memory_of(resolve(Job(**options, tp=tp))).worst.categories["buffers"] for tp in (1, 2, 8)}
    assert buffers[1] == pytest.approx(200e6)
    for tp in (2, 8):
        assert buffers[tp] == pytest.approx(200e6 + (50 + 2) * whole)
    setup = resolve(Job(**options, tp=8))
    stalled = setup.kernels.model_copy(update=setup.framework.states["stalled"])
    waits = memory_of(replace(setup, kernels=stalled)).worst.categories["buffers"]
    assert waits == pytest.approx(200e6 + 2 * whole)
    single = memory_of(resolve(Job(**options | {"global_batch": 1}, tp=8))).worst.categories["buffers"]
    assert single == pytest.approx(200e6 + (26 + 2) * whole)


def test_ties_of_work_close_a_stage_or_wait_for_the_next_layer() -> None:
    model = resolve(Job(model="llama-7b", gpu="h100-sxm", gpus=8)).model  # its 32 layers, and a head of 1 / 4 of one
    tied = model.model_copy(update={"layers": 16, "vocab": 4 * (4 * model.hidden + 3 * model.ffn)})  # a head of four
    assert by_compute(tied, 4, closes_ties=False) == (6, 5, 5, 0)
    assert by_compute(tied, 4) == (5, 5, 5, 1)
    assert by_compute(tied, 2, closes_ties=False) == (11, 5)
    assert by_compute(tied, 2) == (10, 6)


def test_fsdp2_keeps_shards_beside_what_it_gathers() -> None:
    """As torch 2.13's FSDPMemTracker counts without resharding, and while gradients are not reduced: shards of
    3.74 GiB, unsharded parameters of 14.96 and gradients of 29.92."""
    parameters = 8_030_261_248
    for framework in ("torchtitan", "fsdp"):
        categories = memory_of(_setup(framework=framework, zero=2)).worst.categories
        assert categories["parameters"] == pytest.approx(parameters * 4 / 8)
        assert categories["buffers"] == pytest.approx(parameters * 2)
    staged = resolve(Job(model="llama-3-8b", gpu="h100-sxm", seq=8192, micro_batch=1, global_batch=16, gpus=8, pp=2,
                         framework="torchtitan", zero=3))  # fmt: skip
    received = 8192 * 4096 * 2  # of each of 4 micro-batches; the one whose input the last stage keeps counts there
    for stage, buffers in zip(memory_of(staged).stages, (4, 3), strict=True):
        gathered = stage.categories["parameters"] * 4 * (2 + 4) / 4
        assert stage.categories["buffers"] == pytest.approx(gathered + buffers * received)


def test_notes_name_the_software_and_the_micro_batch_of_a_run() -> None:
    """torchao's table, and torchtitan's pipelines, whose memory no other reading explains."""
    for name, bar in (("titan-0060", 0.1), ("titan-0013", 0.15), ("titan-0015", 0.05), ("titan-0017", 0.05)):
        error = replay(next(run for run in RUNS if run.id == name), strange=True).memory_error
        assert error is not None and abs(error) < bar, name


def test_narrow_products_of_torchtitan_change_what_is_kept_and_no_state() -> None:
    def worst(precision: str) -> Any:
        return memory_of(
            _setup(framework="torchtitan", gpu="b200-sxm", zero=3, recompute="selective", precision=precision)
        ).worst

    plain, fp8, fp4 = worst("fsdp-bf16"), worst("fp8"), worst("nvfp4")
    assert fp8.categories == pytest.approx(plain.categories)
    assert plain.saved.per_layer - fp4.saved.per_layer == 8192 * (4096 + 1024 + 14336 + 4096) * 2  # q, v, gate, down


def test_throughput_becomes_step_time_exactly() -> None:
    assert measured_step_seconds(_run(step_time_s=2.5), 64, 2048, 8) == 2.5
    assert measured_step_seconds(_run(tokens_per_s_per_gpu=1000), 64, 2000, 8) == 64 * 2000 / 8000
    assert measured_step_seconds(_run(samples_per_s=16), 64, 2048, 8) == 4
    assert measured_step_seconds(_run(), 64, 2048, 8) is None


def test_memory_units() -> None:
    assert measured_peak_bytes(_run(mem_peak_gb_per_gpu=2, mem_kind="reserved")) == 2 * GIB
    assert measured_peak_bytes(_run(mem_peak_gb_per_gpu=2, mem_kind="allocated GB (XLA)")) == 2e9
    assert measured_peak_bytes(_run(mem_peak_gb_per_gpu="")) is None


@pytest.mark.parametrize(
    ("cells", "word"),
    [
        ({"model": "llama-7b", "gpu": "h100-sxm", "seq_len": 2048}, "framework"),
        ({"model": "llama-7b", "framework": "nemo", "gpu": "h100-sxm", "seq_len": 2048}, "n_gpus"),
        ({"model": "llama-7b", "framework": "nemo", "n_gpus": 8, "seq_len": 2048}, "gpu"),
        ({"model": "what", "framework": "nemo", "gpu": "h100-sxm", "n_gpus": 8, "seq_len": 2048}, "layers"),
        ({"model": "llama-7b", "framework": "nemo", "gpu": "h100-sxm", "n_gpus": 8, "seq_len": 2048, "tp": 1}, "blank"),
    ],
)
def test_a_skipped_row_names_its_cell(cells: dict[str, object], word: str) -> None:
    assert word in replay(_run(**cells)).reason


def test_layers_are_placed_whole() -> None:
    model = catalog.load("models", "llama-7b")
    for stages in (2, 3, 4, 7, 8, 16):
        for place in (by_compute, embedding_as_layer):
            counts = place(model, stages, 1)
            assert len(counts) == stages
            assert sum(counts) == model.layers
    # 72 items (70 layers, embedding, head) on 12 stages: the outer stages hold one layer less, as BLOOM's did
    bloom = model.model_copy(update={"layers": 70})
    assert embedding_as_layer(bloom, 12, 1) == (5, *[6] * 10, 5)


def test_validate_prints_json_to_stdout(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "mine.csv"
    file.write_text(
        "id,model,framework,gpu,n_gpus,seq_len,tp,pp,dp,micro_batch,global_batch,mem_peak_gb_per_gpu,mem_kind\n"
        "a,llama-7b,megatron-core,a100-sxm4-80gb,8,2048,8,1,1,1,8,20,allocated\n"
        "b,llama-7b,megatron-core,,8,2048,8,1,1,1,8,20,allocated\n"
    )
    assert command(["validate", str(file), "--json", "--by", "framework"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["schema"] == "distsim.validate/1"
    first, second = data["rows"]
    assert first["status"] == "ok"
    assert first["memory_error"] == pytest.approx(first["predicted"]["peak_memory"] / (20 * GIB) - 1)
    assert second["status"] == "skipped"
    assert "gpu" in second["reason"]
    assert data["summary"]["rows"] == 1
    assert data["by"]["megatron-core"]["skipped"] == 1


@pytest.mark.parametrize("text", ["", "a,b\n1,2\n", "id,model\n", "\x00\x01"])
def test_a_file_that_is_no_table_of_runs_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "runs.csv"
    file.write_text(text)
    with pytest.raises(DistsimError):
        read_runs(file)
    assert command(["validate", str(file)]) == 2


def test_quantile() -> None:
    assert quantile([3, 1, 2], 0.5) == 2
    assert quantile([1], 0.9) == 1
    assert quantile(range(1, 11), 0.9) == 10 and quantile(range(1, 12), 0.9) == 10


def test_runs_that_are_fitted_are_scored_as_runs_that_are_replayed() -> None:
    """By one definition of a 90th percentile, wherever it is told."""
    errors = [error / 100 for error in range(1, 21)]
    examples = [SimpleNamespace(source="one") for _ in errors]
    assert score(examples, np.log1p(errors)).p90 == pytest.approx(quantile(errors, 0.9))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("words", "year"),
    [
        ('docs "26.04.01 NeMo Container / Pre-Training"', 2026.25), ("container NeMo 24.07, DGX", 2024.5),
        ("example output (tag v25.10)", 2025.75), ("NeMo container 25.07, Megatron-Bridge 0.1", 2025.5),
        ("nvcr.io/nvidia/nemo:25.04", 2025.25), ("run of 2025-10-03", None), ("NeMo 25.13", None),
        ("Megatron-LM CI golden values (dev env): median after step 5 (19 values); x", 2025.5),
        ("Megatron-LM CI golden values (dev env): median after step 5 (95 values); x", None),
        ("MP mode PURE precision label bf16; x", 2023 + 4 / 12), ("MP mode DEFAULT precision label amp_bf16", None),
    ],
)  # fmt: skip
def test_releases_are_dated_to_the_month(words: str, year: float | None) -> None:
    from distsim.interop.runs.release import release_year

    assert release_year(_run(notes=words)) == year


def test_a_misspelt_usual_option_is_named() -> None:
    from distsim.errors import DistsimError
    from distsim.specs.framework import Framework

    with pytest.raises(DistsimError, match="did you mean recompute"):
        Framework.read({"name": "mine", "usual": {"recomput": "full"}, "source": {"other": "me"}}, where="mine.toml")


def test_an_interval_reaches_below_by_what_was_predicted_too_slow() -> None:
    around = _around(10.0, {"over": math.log(1.25), "under": math.log(1.5)}, "")
    assert (around.low, around.high) == pytest.approx((8.0, 15.0))


def test_a_publisher_is_a_cluster_only_within_a_document() -> None:
    """What it publishes where nothing was measured yet is as uncertain as anybody's runs; its tables are not."""
    row = next(run for run in RUNS if (run.text("source") or "").startswith("NVIDIA-NeMo/Megatron-Bridge docs/"))
    widths = {}
    for source in (f"{row.source} docs/performance.md", f"{row.source} elsewhere/card.yaml", "somebody notes"):
        found = replay(replace(row, cells={**row.cells, "id": "new", "source": source})).interval
        assert found is not None
        widths[source.split()[1]] = found["high"] / found["low"]
    assert widths["docs/performance.md"] < 0.8 * widths["notes"]
    assert widths["elsewhere/card.yaml"] == pytest.approx(widths["notes"], rel=1e-12)
