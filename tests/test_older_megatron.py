"""Megatron of 2021 to 2023 and its relatives: fused softmaxes and what they ask for, ZeRO 3 under Megatron's layers,
Omni-Path, and rows whose layout is told in part."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import distsim
from distsim.catalog import load
from distsim.engine.evidence import assumed_of
from distsim.engine.jobs.kin import kin_of
from distsim.engine.jobs.profile import kernels_for
from distsim.engine.jobs.resolve import Setup, resolve
from distsim.engine.jobs.stages import build_stages
from distsim.engine.kernels.launches import launches
from distsim.engine.kernels.passes import moved_bytes
from distsim.engine.kernels.softmax_passes import composed_softmax
from distsim.engine.memory import memory_of
from distsim.engine.runs.layout import possible_degrees
from distsim.engine.runs.profile import framework_of
from distsim.engine.runs.setup import setup_of
from distsim.engine.validate import shipped_runs
from distsim.interop.runs import Run, read_runs
from distsim.interop.runs.offloads import offloaded
from distsim.interop.runs.software_notes import framework_name
from distsim.layers.ledger import Operation
from distsim.specs.job import Job

PUBLISHED = Path(__file__).parent.parent / "presets" / "runs" / "published.csv"
A_LAYER: dict[str, Any] = {
    "model": "megatron-1.7b", "gpu": "a100-sxm4-80gb", "gpus": 8, "tp": 8, "micro_batch": 1, "global_batch": 1,
    "seq": 1024, "attention": "eager", "framework": "megatron-deepspeed", "precision": "fp16",
}  # fmt: skip


def _run(**cells: object) -> Run:
    return Run({name: str(value) for name, value in cells.items()}, 2)


def _softmax(**options: Any) -> tuple[Setup, Operation]:
    setup = resolve(Job.read({**A_LAYER, **options}))
    block = build_stages(setup)[0].layers[0][0]
    return setup, next(one for one in block.operations if one.name == "attention.softmax")


@pytest.mark.parametrize(
    ("micro_batch", "tp", "seq", "composed"),
    [(1, 8, 1024, 1), (2, 8, 1024, 1), (4, 8, 1024, 0), (1, 2, 1024, 0), (4, 1, 1024, 0), (4, 1, 2052, 1)],
)
def test_a_fused_softmax_takes_four_matrices_of_scores_at_once(
    micro_batch: int, tp: int, seq: int, composed: int
) -> None:
    """24 heads: one rank of eight has three, so that only four sequences make a multiple of four."""
    setup, softmax = _softmax(micro_batch=micro_batch, global_batch=micro_batch, tp=tp, gpus=tp, seq=seq)
    assert composed_softmax(setup) == composed
    n = softmax.shape[0]
    forward, backward = moved_bytes(setup, softmax)
    assert (forward / n, backward / n) == ((42, 58) if composed else (9, 11))
    assert launches(setup, softmax).kernels == ((5, 6) if composed else (1, 1))


def test_no_fused_softmax_of_megatrons_takes_fp32() -> None:
    """Scale, mask and softmax are kernels of their own then, without casts: 25 bytes a score forward, where one kernel
    has eight."""
    setup, softmax = _softmax(precision="tf32", micro_batch=4, global_batch=4)
    assert composed_softmax(setup) == 1
    moved = [each / softmax.shape[0] for each in moved_bytes(setup, softmax)]
    assert moved == [8 + 9 + 8 + 9, 9 + 12 + 12 + 9 + 8]  # forward scale, mask, softmax, dropout
    assert launches(setup, softmax).kernels == (3, 4)


def test_arrays_of_layouts_take_either_kernel() -> None:
    setup, softmax = _softmax()
    many = setup.layout.with_(micro_batch=np.array([1, 2, 4, 8]))
    found = composed_softmax(resolve(Job.read(A_LAYER))), composed_softmax(_with(setup, many))
    assert found[0] == 1 and list(found[1]) == [1, 1, 0, 0]
    assert list(launches(_with(setup, many), softmax).kernels[0]) == [5, 5, 1, 1]


def _with(setup: Setup, layout: Any) -> Setup:
    from dataclasses import replace

    return replace(setup, layout=layout)


def test_other_software_composes_as_its_profile_says() -> None:
    setup, _ = _softmax(framework="huggingface", tp=1, gpus=1)
    assert composed_softmax(setup) == 0


def priors(name: str) -> dict[str, float]:
    return dict(kin_of(load("frameworks", name)).prior)


def test_zero_3_under_megatron_fetches_as_deepspeed_did() -> None:
    for year in ("-2021", ""):
        under, alone = priors(f"megatron-deepspeed{year}"), priors(f"deepspeed{year}")
        assert under["gather_factor"] == alone["gather_factor"] and under["data_factor"] < alone["data_factor"]


def test_gradients_that_nothing_hides_take_what_nccl_takes() -> None:
    """The profiles that reduce after the last micro-batch are those that start above the family's factor."""
    for name in ("megatron-2021", "megatron-deepspeed-2021", "megatron-deepspeed-2022", "megatron-deepspeed"):
        assert not load("frameworks", name).traffic.overlap_gradients and priors(name)["data_factor"] > 1
    assert load("frameworks", "megatron-lm").traffic.overlap_gradients
    assert "data_factor" not in priors("megatron-lm")


def test_nccl_reaches_a_part_of_omni_path() -> None:
    """As many bits per second by InfiniBand take a third of the time."""
    common: dict[str, Any] = {"op": "all_reduce", "gpu": "a100-sxm4-80gb", "gpus": 64, "gpus_per_node": 8,
                              "bytes": 2**30, "internode_gbps_per_gpu": 50}  # fmt: skip
    slow, fast = (distsim.collective(network=kind, **common).seconds for kind in ("omnipath", "ib-hdr"))
    assert slow == pytest.approx(fast / 0.35, rel=0.1)


PARTLY: dict[str, Any] = {"model": "gpt3-175b", "layers": 96, "seq_len": 2048, "gpu": "h100-sxm", "tp": 8,
                          "global_batch": 1152, "precision": "bf16"}  # fmt: skip


def test_stages_that_nobody_tells_are_the_fewest_that_fit_and_are_no_evidence() -> None:
    run = _run(**PARTLY, framework="megatron-lm", n_gpus=96)
    setup = setup_of(run)
    y = setup.layout
    assert y.tp * y.pp * y.dp == 96 and y.pp > 1 and memory_of(setup).fits
    assert not memory_of(setup_of(_run(**PARTLY, framework="megatron-lm", n_gpus=96, pp=y.pp // 2))).fits
    assert f"fewest stages that fit, pp {y.pp}" in assumed_of(run, setup)


@pytest.mark.parametrize("cells", [{"pp": 1}, {"dp": 12}, {"zero_stage": 1}, {"framework": "torchtitan"}, {"tp": 1}])
def test_layouts_that_are_told_or_sharded_stay_as_they_are(cells: dict[str, Any]) -> None:
    run = _run(**{**PARTLY, "framework": "megatron-lm", "n_gpus": 96, **cells})
    assert possible_degrees(run, framework_of(run)) == [{}]


def test_hugging_face_models_on_deepspeed_among_megatrons_tables() -> None:
    notes = "section: HF + Deepspeed Zero 3 + Full Offload; date 05-28"
    run = _run(framework="megatron-deepspeed", year=2021, notes=notes, zero_stage=3)
    assert framework_name(run) == "deepspeed" and framework_of(run).name == "deepspeed-2021"
    assert offloaded(run) == "optimizer,parameters"
    assert offloaded(_run(notes=notes, offload="optimizer cpu")) == "optimizer"
    assert offloaded(_run(offload="params cpu", fsdp_kind="FULL_SHARD")) == "optimizer,parameters", "torch moves both"
    assert framework_name(_run(framework="megatron-deepspeed", notes="section: Megatron")) == "megatron-deepspeed"


def test_single_node_times_of_vtrain_are_sums() -> None:
    """With layers, slots, micro-batches and the optimizer's share of a stage as unknowns, runs of one width, tp, batch
    and number of stages add up to a few parts in a million. Machines repeat to about one in a hundred, as the rows of
    several nodes do: only those are fitted as Megatron-DeepSpeed's."""
    groups: dict[tuple[str, ...], list[Run]] = {}
    for row in read_runs(PUBLISHED):
        if "ground_truth" in (row.text("source") or ""):
            one_node = "single" in (row.text("source") or "")
            assert framework_of(row).name == ("vtrain" if one_node else "megatron-deepspeed")
            if one_node and row.count("dp") == 1:
                key = tuple(row.text(cell) or "" for cell in ("hidden", "tp", "micro_batch", "pp"))
                groups.setdefault(key, []).append(row)
    tested = 0
    for rows in groups.values():
        y = {cell: np.array([float(row.number(cell) or 1) for row in rows]) for cell in ("layers", "grad_accum", "pp")}
        seconds = np.array([row.number("step_time_s") or 0.0 for row in rows])
        depth, micro = y["layers"] / y["pp"], y["grad_accum"]
        parts = np.stack([(micro + y["pp"] - 1) * depth, micro, np.ones(len(rows)), depth], 1) / seconds[:, None]
        if len(rows) >= 7 and np.linalg.matrix_rank(parts) == 4:
            found = np.linalg.lstsq(parts, np.ones(len(rows)), rcond=None)[0]
            assert abs(parts @ found - 1).max() < 5e-6
            tested += 1
    assert tested >= 8


def test_a_profile_for_replays_says_so() -> None:
    for name, told in (("vtrain", True), ("megatron-deepspeed", False)):
        notes = distsim.memory(model="gpt2", gpus=1, framework=name).setup.notes
        assert any("vtrain only reproduces published calculations" in note for note in notes) is told


def test_only_stage_3_ran_deepspeed_as_it_was() -> None:
    """What stages 1 and 2 exchange after backward is the same since; in 2021 parameters were gathered one by one."""
    cells = {"gpu": "v100-sxm2-32gb", "n_gpus": "16", "model": "gpt2", "seq_len": "1024", "micro_batch": "2",
             "precision": "fp16", "framework": "deepspeed", "step_time_s": "1", "year": "2021"}  # fmt: skip
    names = {stage: framework_of(Run({**cells, "zero_stage": stage}, 2)).name for stage in ("", "0", "1", "3")}
    assert names == {"": "deepspeed", "0": "deepspeed", "1": "deepspeed", "3": "deepspeed-2021"}


def test_deepspeed_runs_the_modules_of_transformers() -> None:
    """T5 has a bias on its scores, Llama norms of plain operations and fp32 logits; where the source says so, GPT has
    the fused kernels of Megatron-DeepSpeed."""
    deepspeed = load("frameworks", "deepspeed")
    t5, llama = (kernels_for(deepspeed, load("models", name)) for name in ("t5-base", "llama-7b"))
    assert (t5.attention_mask, llama.norm, llama.loss) == ("bias", "eager", "eager")
    azure = next(run for run in read_runs(shipped_runs()) if run.id == "ds_azure_175b_s1024_128_mb2")
    gpt = setup_of(azure).kernels
    assert (gpt.loss_kernel, gpt.softmax_kernel, gpt.activation) == ("vocab-parallel", "one", "fused")


BEFORE: dict[str, Any] = {"model": "megatron-1.7b", "seq_len": 1024, "gpu": "v100-sxm2-32gb", "n_gpus": 8, "tp": 2,
                          "dp": 4, "micro_batch": 2, "global_batch": 8, "precision": "fp16",
                          "framework": "megatron-lm"}  # fmt: skip


@pytest.mark.parametrize(
    ("cells", "profile"),
    [({"year": 2022}, "megatron-2021"), ({"year": 2021, "sequence_parallel": 0}, "megatron-2021"),
     ({"year": 2022, "sequence_parallel": 0}, "megatron-lm"), ({"year": 2022, "zero_stage": 1}, "megatron-lm"),
     ({"year": 2022, "recompute": "selective"}, "megatron-lm"), ({"year": 2023}, "megatron-lm"), ({}, "megatron-lm")],
)  # fmt: skip
def test_rows_of_2022_that_name_nothing_newer_ran_the_software_before(cells: dict[str, Any], profile: str) -> None:
    """Sequence parallelism and the sharded optimizer came in the middle of that year, and are off unless asked for."""
    run = _run(**BEFORE, **cells)
    assert framework_of(run).name == profile
    y = setup_of(run).layout
    if profile == "megatron-2021":
        assert (y.zero, y.sequence_parallel) == (0, 0)


def test_gradients_of_2021_are_widened_before_the_step() -> None:
    """fp16 gradients in one buffer, and a copy in fp32 of all of them: 20 bytes per parameter."""
    job = {"model": "megatron-1.7b", "gpu": "v100-sxm2-32gb", "gpus": 8, "tp": 8, "micro_batch": 1, "global_batch": 1,
           "seq": 256, "precision": "fp16", "recompute": "full", "framework": "megatron-2021"}  # fmt: skip
    stage = memory_of(resolve(Job.read(job))).worst
    step = next(moment for moment in stage.moments if moment.name == "optimizer step")
    assert step.total == pytest.approx(stage.categories["parameters"] / 2 * 20, rel=1e-6)


@pytest.mark.parametrize(("framework", "year", "etp"), [("megatron-core", 2024, 2), ("megatron-core", 2025, 1),
                                                        ("nemo", 2024, 2), ("megatron-lm", 2026, 2)])  # fmt: skip
def test_experts_were_cut_as_tensor_parallelism_cut_the_rest(framework: str, year: int, etp: int) -> None:
    cells = {"model": "mixtral-8x7b", "seq_len": 2048, "gpu": "h100-sxm", "n_gpus": 16, "tp": 2, "pp": 1, "ep": 4,
             "micro_batch": 1, "global_batch": 128, "precision": "bf16", "year": year}  # fmt: skip
    assert setup_of(_run(**cells, framework=framework)).layout.etp == etp
    assert setup_of(_run(**cells, framework=framework, etp=1)).layout.etp == 1


def test_decoders_that_tell_classes_have_no_logits_over_a_vocabulary() -> None:
    """So notes say; a vocabulary's matrix is then neither tied nor multiplied by, and a loss costs nothing."""
    cells = {"family": "gpt", "layers": 24, "hidden": 2048, "heads": 16, "vocab": 28996, "seq_len": 2048, "pp": 8,
             "gpu": "v100-sxm2-16gb", "n_gpus": 8, "micro_batch": 1, "global_batch": 96, "framework": "megatron-lm",
             "recompute": "full", "year": 2022}  # fmt: skip
    told, plain = (setup_of(_run(**cells, notes=notes)).model for notes in ("a classification head", "a head"))
    assert told.output.predicts == "sequence-classes" and plain.output.over_vocabulary
    assert told.layers == plain.layers and not told.tied_embeddings


@pytest.mark.parametrize("framework", ["megatron-deepspeed", "deepspeed"])
@pytest.mark.parametrize("year", ["2021", "2022", "2024"])
def test_deepspeed_splits_no_sequence_unless_told(framework: str, year: str) -> None:
    """--sequence-parallel is a flag of Microsoft's Megatron-DeepSpeed since 2023, off by default; BigScience's fork has
    none, and DeepSpeed itself neither."""
    cells = {"id": "a", "model": "gpt3-13b", "gpu": "a100-sxm4-80gb", "n_gpus": "8", "tp": "4", "seq_len": "2048",
             "micro_batch": "1", "global_batch": "16", "precision": "fp16"}  # fmt: skip
    cells |= {"framework": framework, "year": year}
    assert setup_of(Run(cells, 2)).layout.sequence_parallel == 0
    assert setup_of(Run({**cells, "sequence_parallel": "1"}, 2)).layout.sequence_parallel == 1
