"""What frameworks with modules of their own keep for backward, how they attend, and how they did before.

The oracle: the packages' own modules on torch 2.13 fake tensors in bf16, three layers (Qwen 3 30B: two) of the model's
sizes; saved bytes are the distinct storages that pass ``saved_tensors_hooks``, of a middle layer (torchtune: the mean
of all) and of the final norm, the output layer and the loss together. litgpt takes its loss of 128 rows at a time.
Attention of torchtitan is a stand-in that keeps what flex attention does.
"""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest

import distsim
from distsim import catalog
from distsim.engine.footprint.saved import saved_of
from distsim.engine.jobs import resolve as resolving
from distsim.engine.jobs.models import LoadedModel
from distsim.engine.jobs.resolve import Setup, resolve
from distsim.engine.jobs.stages import build_stages
from distsim.engine.memory import memory_of
from distsim.engine.runs.profile import framework_of
from distsim.engine.runs.setup import setup_of
from distsim.engine.traffic import comm_of
from distsim.errors import DistsimError
from distsim.interop.runs import Run
from distsim.specs.job import Job

RECORDED = list(csv.DictReader((Path(__file__).parent / "oracles" / "torch_frameworks.csv").open()))
PRECISION = {"litgpt": "pure-bf16"}
BLOOM: dict[str, Any] = {"model": "bloom-7b1", "gpu": "h100-sxm", "gpus": 8, "zero": 3, "seq": 2048, "micro_batch": 4}


def _short(monkeypatch: pytest.MonkeyPatch, name: str, fused: bool = False, **options: Any) -> Setup:
    """A job with the first three layers of a model; ``fused`` makes queries, keys and values in one product."""
    model = catalog.load("models", name)
    monkeypatch.setattr(resolving, "load_model", lambda _: LoadedModel(model.model_copy(update={"layers": 3})))
    job = Job(**{"model": name, "gpu": "h100-sxm", "gpus": 1, **options})
    if not fused:
        return resolve(job)
    framework = catalog.load("frameworks", job.framework)
    kernels = framework.kernels.model_copy(update={"qkv_matrices": 1})
    return resolve(job, {"framework": framework.model_copy(update={"kernels": kernels})})


@pytest.mark.parametrize("row", RECORDED, ids=lambda row: "/".join(list(row.values())[:6]))
def test_saved_bytes_of_packages(row: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    batch = int(row["micro_batch"])
    setup = _short(
        monkeypatch, row["model"], fused=row["recompute"] == "selective", framework=row["framework"],
        seq=int(row["seq"]), micro_batch=batch, global_batch=batch, recompute=row["recompute"],
        precision=PRECISION.get(row["framework"]),
    )  # fmt: skip
    saved = saved_of(setup, build_stages(setup)[0])
    assert saved.per_layer == pytest.approx(float(row["layer"]), rel=0.005)
    if row["head"]:
        assert saved.head_and_loss == pytest.approx(float(row["head"]), rel=0.005)


@pytest.mark.parametrize(
    ("seq", "forward", "backward"), [(2048, 3201384960, 4135399424), (8192, 12805513728, 11229523968)]
)
def test_a_chunked_loss_has_all_logits_and_two_gradients_of_the_head(
    seq: int, forward: float, backward: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torchtune 0.6.1, three layers of Llama 3 8B, CEWithChunkedOutputLoss: bytes above weights and states, until the
    head's backward is done. Fake tensors are never added to in place: one of their three gradients of the weight is
    taken off."""
    stage = memory_of(_short(monkeypatch, "llama-3-8b", framework="torchtune", seq=seq, loss="chunked")).worst
    states = stage.categories["parameters"] + stage.categories["optimizer"]
    moments = {one.name: one.total - states for one in stage.moments}
    assert moments["loss"] == pytest.approx(forward, rel=0.005)
    assert moments["loss backward"] == pytest.approx(backward, rel=0.005)


def test_a_frozen_head_has_no_gradients_beside_a_chunked_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    options: dict[str, Any] = {"framework": "torchtune", "seq": 2048, "loss": "chunked", "lora_rank": 8}
    head = build_stages(_short(monkeypatch, "llama-3-8b", **options))[0].head
    assert head is not None
    chunk = 2048 / 8 * 128256 * 4
    assert sum(tensor.size_bytes for tensor in head.operations[-1].transient_backward) == 2 * chunk


@pytest.mark.parametrize("framework", ["huggingface", "deepspeed"])
def test_models_without_an_attention_kernel_are_composed(framework: str) -> None:
    """BloomForCausalLM of transformers supports neither sdpa nor flash attention; its scores take 100 GiB here."""
    usual, eager = (distsim.memory(**BLOOM, **more) for more in ({"framework": framework},
                    {"framework": framework, "attention": "eager"}))  # fmt: skip
    assert usual.worst.peak == eager.worst.peak and not usual.fits
    assert any("has no kernel for it" in note for note in usual.setup.notes)
    with pytest.raises(DistsimError, match="huggingface has no attention kernel for bloom-7b1"):
        distsim.memory(**BLOOM, framework=framework, attention="flash")
    assert distsim.memory(**BLOOM).fits  # Megatron's own modules know one


def test_attention_is_composed_by_default_where_a_kernel_is_another_package() -> None:
    """Gemma2ForCausalLM of transformers supports flash attention alone; prime-rl and Automodel ask for it."""

    def setup(framework: str, **options: Any) -> Setup:
        return resolve(Job(model="gemma-2-9b", gpu="h100-sxm", gpus=8, framework=framework, seq=2048, **options))

    usual, asked = setup("huggingface"), setup("huggingface", attention="flash")
    assert (usual.layout.attention, asked.layout.attention) == ("eager", "flash")
    assert any("--attention flash uses a kernel from another package" in note for note in usual.notes)
    assert any("only kernels of other packages" in note for note in asked.notes)
    assert setup("prime-rl").layout.attention == setup("nemo-automodel").layout.attention == "flash"
    assert not any("attention of" in note for note in setup("huggingface", attention="eager").notes)


def test_scores_with_a_soft_cap_are_composed_in_litgpt() -> None:
    job: dict[str, Any] = {"gpu": "h100-sxm", "gpus": 1, "framework": "litgpt", "seq": 2048}
    assert resolve(Job(model="gemma-2-2b", **job)).layout.attention == "eager"
    assert resolve(Job(model="gemma-7b", **job)).layout.attention == "flash"


def test_torchtitan_repeats_a_recomputed_layer_to_its_end() -> None:
    """Since August 2025: the reduce-scatters of attention and MLP are issued again; older runs left out the last."""
    job: dict[str, Any] = {"model": "llama-3-8b", "framework": "torchtitan", "gpu": "h100-sxm", "gpus": 16, "tp": 8,
                           "zero": 3, "seq": 8192, "recompute": "full"}  # fmt: skip

    def again(year: str) -> float:
        framework = framework_of(Run({"framework": "torchtitan", "year": year}, 2))
        rows = comm_of(resolve(Job(**job), {"framework": framework})).to_dict()["collectives"]
        found = [row for row in rows if row["op"] == "reduce_scatter" and "recomputed" in row["purpose"]]
        return float(sum(row["calls"] for row in found))

    assert [again(year) for year in ("2025-05", "2025-12", "2026")] == [32, 64, 64]


@pytest.mark.parametrize(
    ("year", "early", "kernel"),
    [("2025-05", True, "sdpa"), ("2025-12", False, "sdpa"), ("2026-02", False, "own"), ("2026-08", False, "flex")],
)
def test_older_releases_of_torchtitan(year: str, early: bool, kernel: str) -> None:
    cells = {"framework": "torchtitan", "year": year, "model": "llama-3-8b", "gpu": "h100-sxm", "n_gpus": "8",
             "seq_len": "8192", "micro_batch": "1", "step_time_s": "1"}  # fmt: skip
    found = setup_of(Run(cells, 2)).kernels
    assert (found.recompute_stops_early, found.attention_kernel) == (early, kernel)


def test_mpt_ran_a_kernel_of_its_own_in_older_releases_of_llm_foundry() -> None:
    """attn_impl triton, whose output nobody puts back among padding."""
    cells = {"framework": "llm-foundry", "model": "mpt-7b", "gpu": "h100-sxm", "n_gpus": "8", "seq_len": "2048",
             "micro_batch": "1", "step_time_s": "1"}  # fmt: skip
    for year, kernel, copied in (("2023", "triton", False), ("2026", "flash-2", True)):
        found = setup_of(Run({**cells, "year": year}, 2)).kernels
        assert (found.attention_kernel, found.attention_output_copy) == (kernel, copied)


def test_gathered_logits_leave_each_rank_the_gradient_of_its_own_rows_of_the_head() -> None:
    """128,256 / 8 rows of 16,384 numbers in 16 bits, two of them; a chunked loss lowers no peak to raise it."""
    job: dict[str, Any] = {"model": "llama-3.1-405b", "gpu": "b200-sxm", "gpus": 1024, "framework": "torchtitan",
                           "tp": 8, "cp": 8, "seq": 4096, "global_batch": 1024}  # fmt: skip
    found = {parallel: resolve(Job(**job, loss="chunked", loss_parallel=parallel)) for parallel in (False, True)}
    for setup in found.values():
        head = build_stages(setup)[0].head
        assert head is not None
        one = next(one for one in head.operations[-1].transient_backward if one.name == "loss.weight_gradients")
        assert one.size_bytes <= 2 * 128256 / 8 * 16384 * 2
    assert memory_of(found[False]).peak <= distsim.memory(**job).peak
