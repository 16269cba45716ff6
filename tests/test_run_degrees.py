"""Degrees that measured runs leave blank: what replicas leave, what fits, and that it is told and nothing to fit to."""

from __future__ import annotations

import time
from typing import Any

import pytest

from distsim.engine.evidence import Replay, assumed_of, replay
from distsim.engine.fitting.runs import examples_of
from distsim.engine.memory import memory_of
from distsim.engine.runs.setup import setup_of
from distsim.interop.runs import Run

ROW = {"id": "a", "source": "made up", "model": "llama-2-70b", "gpu": "h100-sxm", "n_gpus": 256, "seq_len": 4096,
       "micro_batch": 1, "global_batch": 1024, "framework": "megatron-core", "step_time_s": 50}  # fmt: skip
SMALL = {"model": "llama-3.2-1b", "gpu": "a100-sxm4-80gb", "n_gpus": 8, "micro_batch": 2, "global_batch": 16,
         "step_time_s": 4}  # fmt: skip


def _run(**cells: Any) -> Run:
    return Run({name: str(value) for name, value in {**ROW, **cells}.items()}, 2)


def _replay(**cells: Any) -> Replay:
    found = replay(_run(**cells))
    assert found.setup is not None, found.reason
    return found


def _degrees(found: Replay) -> dict[str, int]:
    assert found.setup is not None
    y = found.setup.layout
    return {"tp": y.tp, "pp": y.pp, "ep": y.ep, "dp": y.dp}


@pytest.mark.parametrize(
    ("cells", "degrees", "told"),
    [
        ({"tp": 8, "dp": 8}, (8, 4, 8), "pp is blank: assumed pp 4"),
        ({"pp": 4, "dp": 8}, (8, 4, 8), "tp is blank: assumed tp 8"),
        ({"dp": 8}, (8, 4, 8), "tp and pp are blank: assumed tp 8, pp 4, what n_gpus and dp leave"),
        ({"dp": 32}, (8, 1, 32), "tp is blank: assumed tp 8, what n_gpus and dp leave"),
        ({"dp": 8, "gpus_per_node": 4, "gpu": "a100-sxm4-80gb"}, (4, 8, 8), "assumed tp 4, pp 8"),
        ({"tp": 8, "pp": 2, "dp": 8}, (8, 2, 16), "dp 8 contradicts"),
        ({"model": "mixtral-8x7b", "n_gpus": 64, "tp": 1, "dp": 8, "ep": 8}, (1, 1, 64), "dp 8 contradicts"),
        ({"model": "llama-3-8b", "framework": "torchtitan", "n_gpus": 64, "pp": 1, "dp": 8}, (8, 1, 8), "assumed tp"),
        ({"model": "llama-3-8b", "framework": "torchtitan", "n_gpus": 64, "pp": 1, "dp": 8, "fsdp_kind": "HSDP"},
         (1, 1, 64), "dp 8 contradicts"),
        ({"model": "llama-3-8b", "framework": "maxtext", "n_gpus": 64, "dp": 8}, (1, 1, 64), "dp 8 contradicts"),
        ({"model": "llama-3.2-1b", "framework": "huggingface", "n_gpus": 64, "dp": 8}, (1, 1, 64), "dp 8 contradicts"),
    ],
    ids=str,
)  # fmt: skip
def test_what_replicas_leave(cells: dict[str, Any], degrees: tuple[int, int, int], told: str) -> None:
    """A blank degree was 1, and the dp of the row thrown away. Axes of meshes, replicas of HSDP and of experts are
    other counts by that name."""
    found = _replay(**cells)
    assert (*(_degrees(found)[name] for name in ("tp", "pp", "dp")),) == degrees
    assert told in found.assumed


@pytest.mark.parametrize(
    ("cells", "told"),
    [
        ({"framework": "megatron-lm"}, "tp is blank: assumed tp 8, the first that can fit"),
        ({"framework": "nanotron"}, "tp and pp are blank"),
        ({"pp": 4}, "tp is blank: assumed tp 4"),
        ({"global_batch": 32}, "tp is blank: assumed tp 8"),
        ({"model": "mixtral-8x7b", "n_gpus": 64}, "ep"),
        ({"model": "mixtral-8x7b", "n_gpus": 64, "tp": 1, "pp": 1, "dp": 64, "recompute": "full"}, "ep is blank"),
        ({"model": "deepseek-v3", "gpu": "h200-sxm", "n_gpus": 512, "global_batch": 4096}, "ep"),
    ],
    ids=str,
)
def test_blank_layouts_are_the_first_that_fit(cells: dict[str, Any], told: str) -> None:
    found = _replay(**cells)
    assert told in found.assumed and found.setup is not None and memory_of(found.setup).fits
    assert max(_degrees(found)["tp"], _degrees(found)["ep"]) > 1
    assert found.setup.recompute == cells.get("recompute", "none")
    assert assumed_of(found.run, found.setup) == found.assumed


def test_layouts_that_fit_or_are_told_stay_as_they_are() -> None:
    for cells in ({"model": "llama-3-8b"}, {"zero_stage": 3}, {"tp": 1, "pp": 1}, {"framework": "fsdp"}):
        found = _replay(**cells)
        assert _degrees(found) == {"tp": 1, "pp": 1, "ep": 1, "dp": 256}
        assert "assumed tp" not in found.assumed and "assumed pp" not in found.assumed, cells


def test_degrees_are_those_that_would_fit_if_no_recomputation_told_does() -> None:
    """70B at 32,768 tokens with nothing computed again fits nowhere: the states alone ask for two stages."""
    found = _replay(seq_len=32768, n_gpus=32, global_batch=32, recompute="none", step_time_s=500)
    assert _degrees(found)["tp"] == 8 and found.setup is not None and found.setup.recompute == "none"
    assert "assumed tp 8, pp 2" in found.assumed and "needs more memory" in found.assumed


@pytest.mark.parametrize("framework", ["torch-ddp", "huggingface", "axolotl", "unsloth", "litgpt", "torch-compile"])
def test_trainers_have_a_replica_on_every_gpu(framework: str) -> None:
    found = _replay(**SMALL, framework=framework)
    assert _degrees(found)["dp"] == 8
    assert found.assumed == "tp, pp and dp are blank: assumed dp 8"
    assert not examples_of([found.run])[0]
    assert "layout is unknown" in replay(_run(**SMALL, framework="alpa")).reason


@pytest.mark.parametrize("framework", ["torchtune", "prime-rl", "fsdp"])
def test_trainers_that_always_shard_do(framework: str) -> None:
    found = _replay(**SMALL, framework=framework)
    assert _degrees(found)["dp"] == 8 and found.setup is not None and found.setup.layout.zero == 3


def test_replicas_that_do_not_fit_are_shards() -> None:
    """Adapters of the same model fit, and replicas by name stay replicas."""
    big = {**SMALL, "model": "llama-2-13b"}
    assert "assumed ZeRO 3" in _replay(**big, framework="litgpt").assumed
    for cells in ({"finetune_kind": "lora", "lora_rank": 16}, {"zero_stage": 0}, {"fsdp_kind": "DDP"}):
        found = _replay(**big, framework="huggingface", **cells)
        assert found.setup is not None and found.setup.layout.zero == 0, cells
    assert "ZeRO" not in _replay(**big, framework="torch-ddp").assumed


def test_what_degrees_do_not_mend_is_said_at_once() -> None:
    began = time.process_time()
    assert replay(_run(n_gpus=4096, seq_len="")).reason == "seq_len is blank"
    assert time.process_time() - began < 0.5


def test_what_ran_computed_as_much_again_as_it_needed() -> None:
    """Nothing said of recomputation: layers are computed again as far as the job needs to fit, and that is told."""
    cells = {"tp": 8, "pp": 2, "seq_len": 32768, "n_gpus": 64, "global_batch": 64, "step_time_s": 60}
    found, stated = _replay(**cells), _replay(**cells, recompute="none")
    assert found.setup is not None and stated.setup is not None
    assert memory_of(found.setup).fits and not memory_of(stated.setup).fits
    assert 0 < found.setup.layout.recompute_layers < 40 and stated.setup.recompute == "none"
    assert f"recompute is blank: assumed {found.setup.layout.recompute_layers} of 40 layers" in found.assumed
    assert "recompute is blank" not in stated.assumed and "needs more memory" in stated.assumed
    denied = _replay(**cells, notes="no activation checkpointing")
    assert "recompute is blank" not in denied.assumed and "needs more memory" in denied.assumed


def test_nearly_fitting_rows_and_those_of_recipes_stay_as_they_are() -> None:
    """Predicted peaks err by an eighth; recipes of a framework say themselves what is computed again; and where scores
    in memory are but assumed, as of Megatron-LM of 2023, their kernel may be what is left out."""
    older = {"seq_len": 16384, "framework": "megatron-lm", "year": 2023}
    assert "recompute is blank" in _replay(**{"tp": 8, "pp": 4, "n_gpus": 64, "global_batch": 64, **older},
                                           attention="eager").assumed  # fmt: skip
    for cells in ({}, {"seq_len": 16384, "framework": "nemo"}, older):
        found = _replay(**{"tp": 8, "pp": 4, "n_gpus": 64, "global_batch": 64, **cells})
        assert found.setup is not None and found.setup.recompute != "full" and "recompute is blank" not in found.assumed


def test_trainers_in_plain_torch_compute_all_layers_again_or_none() -> None:
    """Checkpointing is a switch there; recipes for 8-bit products say nothing of a job in 16 bits. What was measured of
    a peak does not tell what is predicted for it."""
    big = {"model": "llama-7b", "framework": "fsdp", "gpu": "a100-sxm4-80gb", "n_gpus": 8, "micro_batch": 16,
           "global_batch": 128, "seq_len": 2048, "step_time_s": 9.8, "year": "2023-10"}  # fmt: skip
    found = _replay(**big)
    assert found.setup is not None and found.setup.recompute == "full" and found.setup.layout.recompute_layers == 32
    assert "recompute is blank: assumed all layers" in found.assumed
    less = {**big, "micro_batch": 6, "global_batch": 48, "mem_kind": "allocated"}
    small = {**big, "micro_batch": 2, "global_batch": 16}
    for stated in ({}, {"mem_peak_gb_per_gpu": 78}, {"mem_peak_gb_per_gpu": 22}):
        assert "recompute is blank" in _replay(**less, **stated).assumed
        assert "recompute is blank" not in _replay(**small, **stated).assumed


ALPA = {"model": "GPT 1.3B", "family": "gpt", "layers": "24", "hidden": "2048", "heads": "32", "vocab": "51200",
        "seq_len": "1024", "gpu": "v100-sxm2-16gb", "n_gpus": "4", "global_batch": "1024", "precision": "fp16",
        "framework": "alpa", "year": "2022"}  # fmt: skip


@pytest.mark.parametrize(
    ("cells", "layout"),
    [
        ({}, (1, 2, 2, 4, 1)),
        ({"cp": "1"}, (1, 2, 2, 4, 1)),
        ({"pp": "1"}, (1, 1, 4, 4, 1)),
        ({"tp": "1", "notes": "Alpa inter-op (pipeline) only"}, (1, 4, 1, 4, 1)),
        ({"micro_batch": "4"}, (1, 2, 2, 4, 1)),
        ({"tp": "2", "pp": "2"}, (2, 2, 1, 1, 0)),
    ],
    ids=["its search", "without context parallelism", "without pipelines", "pipelines alone", "the batch told", "told"],
)
def test_a_layout_that_nobody_states_is_the_publishers(cells: dict[str, str], layout: tuple[int, ...]) -> None:
    """Alpa's 1.3B on four GPUs (alpa-projects/alpa benchmark/alpa, suite_auto_gpt.py and exp_intra_only.py)."""
    found = replay(Run({**ALPA, **cells}, 2))
    assert found.setup is not None, found.reason
    y = found.setup.layout
    assert (y.tp, y.pp, y.dp, y.micro_batch, y.zero) == layout
    assert ("as alpa chose it" in found.assumed) == (layout[-1] == 1)


def test_a_layout_that_nobody_chose_is_still_missing() -> None:
    assert "the layout is unknown" in replay(Run({**ALPA, "n_gpus": "8"}, 2)).reason


@pytest.mark.parametrize(
    ("cells", "seq", "told"),
    [
        ({"model": "gpt3-6.7b", "framework": "neuronx-nemo", "gpu": "trn1-neuroncore", "n_gpus": 512, "tp": 8, "pp": 1,
          "year": 2023}, 2048, "seq_len is blank: assumed 2,048, as in its scripts"),
        ({"model": "tinyllama-1.1b", "framework": "litgpt", "n_gpus": 8}, 2048, "as in its scripts"),
        ({"model": "llama-2-7b", "notes": "script example: seq 1024, vocab 50432", "tp": 8, "pp": 1}, 1024, ""),
        ({"model": "llama-2-7b", "tp": 8, "pp": 1}, None, "seq_len is blank"),
        ({"model": "llama-2-7b", "tp": 8, "notes": "seq 1024", "finetune_kind": "full"}, None, "seq_len is blank"),
    ],
    ids=["Neuron", "litgpt", "notes", "nobody tells", "a cap"],
)  # fmt: skip
def test_what_a_blank_length_is(cells: dict[str, Any], seq: int | None, told: str) -> None:
    found = replay(_run(**{"seq_len": "", "micro_batch": 1, "global_batch": 1024, **cells}))
    assert (found.setup and found.setup.layout.seq) == seq
    assert told in (found.assumed or found.reason)
    assert seq is None or bool(told) == ("seq_len" in found.assumed)


def test_blank_gpus_are_the_product_of_the_degrees() -> None:
    """Tensor parallelism alone (huggingface/nanotron scripts/scaling_benchmarks.py, tp_mbs_configs)."""
    cells = {"n_gpus": "", "global_batch": "", "model": "llama-3.2-1b", "framework": "nanotron", "seq_len": ""}
    found = _replay(**cells, tp=4, micro_batch=9)
    assert _degrees(found) == {"tp": 4, "pp": 1, "ep": 1, "dp": 1}
    assert "n_gpus is blank: assumed 4" in found.assumed and "seq_len is blank: assumed 4,096" in found.assumed
    assert "n_gpus is blank" in replay(_run(**cells, tp="")).reason


@pytest.mark.parametrize(
    ("gpus", "cells", "layout"),
    [(2, {"tp": "1", "pp": "1", "dp": "2", "zero_stage": "2"}, (1, 2, 4, 2)), (8, {"pp": "1"}, (8, 1, 8, 0))],
    ids=["its replicas", "its sharding"],
)
def test_a_script_fills_batch_and_length(gpus: int, cells: dict[str, str], layout: tuple[int, ...]) -> None:
    """Alpa's weak scaling, whose table names no network and no batch (exp_weak_scaling_2d.py): 8 sequences at once."""
    row = {"model": f"GPT weak scaling {gpus} GPU", "family": "gpt", "gpu": "v100-sxm2-32gb", "n_gpus": str(gpus),
           "precision": "fp16", "framework": "alpa", "year": "2021", "step_time_s": "0.5", **cells}  # fmt: skip
    found = replay(Run(row, 2))
    assert found.setup is not None, found.reason
    y = found.setup.layout
    assert (y.tp, y.dp, y.micro_batch, y.zero) == layout and y.micro_batches == 1 and y.seq == 1024
    assert found.setup.recompute == "none" and "seq_len is blank: assumed 1,024" in found.assumed
    assert "batch is blank: assumed" in found.assumed


def test_experts_are_whole_where_ranks_are_too_few_to_cut_them() -> None:
    """Megatron-LM cuts experts over tp unless told; 32 ranks of a stage hold no 16 parts of 4."""
    cells = {"model": "qwen3-30b-a3b", "gpu": "h100-sxm", "n_gpus": "128", "tp": "4", "pp": "4", "seq_len": "4096",
             "micro_batch": "1", "global_batch": "64", "framework": "megatron-lm", "year": "2025"}  # fmt: skip
    assert setup_of(Run({**cells, "ep": "8"}, 2)).layout.etp == 4
    assert setup_of(Run({**cells, "ep": "16"}, 2)).layout.etp == 1
    assert setup_of(Run({**cells, "ep": "8", "etp": "1"}, 2)).layout.etp == 1
    launched = {**cells, "framework": "Megatron-LM (Pai-Megatron-Patch 2b201af)", "ep": "8"}
    assert setup_of(Run(launched, 2)).layout.etp == 1  # whose scripts state it
    assert setup_of(Run({**launched, "year": "2024"}, 2)).layout.etp == 4


def test_chunks_and_rates_that_nobody_has_are_refused() -> None:
    """nanotron splits layers over stages alone, and a network of 1e9 Gb/s is a slip of a unit."""
    cells = {"id": "a", "model": "llama-3.2-1b", "gpu": "h100-sxm", "n_gpus": "16", "seq_len": "2048", "pp": "4",
             "micro_batch": "1", "global_batch": "64", "step_time_s": "5", "year": "2025"}  # fmt: skip
    found = replay(Run({**cells, "vpp": "3", "framework": "nanotron"}, 2))
    assert found.reason == "vpp 3: nanotron has no schedule that interleaves chunks"
    assert not replay(Run({**cells, "vpp": "2", "framework": "megatron-core"}, 2)).reason
    for gpu in ("h100-sxm", "rtx-4080"):
        found = replay(Run({**cells, "gpu": gpu, "internode_gbps_per_gpu": "1e9", "framework": "megatron-core"}, 2))
        assert found.reason == "internode_gbps_per_gpu 1e+09 exceeds 1,000,000: a typo?"


@pytest.mark.parametrize("more", [{"fsdp_kind": "FSDP within slice"}, {"fsdp_kind": "HSDP"}, {"framework": "prime-rl"}])
def test_tensor_parallelism_beyond_a_node_leaves_one_rank_of_it_to_shard(more: dict[str, str]) -> None:
    cells = {"id": "a", "model": "llama-3.1-8b", "gpu": "a100-sxm4-80gb", "n_gpus": "64", "seq_len": "2048", "tp": "16",
             "zero_stage": "3", "micro_batch": "1", "global_batch": "4", "framework": "torchtitan", **more}  # fmt: skip
    assert replay(Run({**cells, "step_time_s": "5", "year": "2025"}, 2)).setup is not None


@pytest.mark.parametrize("more", [{"zero_stage": 1}, {}, {"pp": 2}], ids=str)
def test_a_slip_in_the_batch_tells_of_no_more_stages(more: dict[str, int]) -> None:
    """129 for 128 had made a pipeline of four stages of a row that fits without, 130 one of two."""
    cells = {"model": "llama-3-8b", "n_gpus": 8, "tp": 2, "seq_len": 8192, "step_time_s": 13.9, **more}
    dp = 4 // more.get("pp", 1)
    assert _degrees(_replay(**cells, global_batch=128))["dp"] == dp
    for batch in (127, 129, 130) if dp == 4 else (129,):
        told = f"global_batch {batch} is not a multiple of micro_batch 1 * dp {dp}"
        assert replay(_run(**cells, global_batch=batch)).reason == told


def test_no_micro_batch_that_nobody_stated_is_blamed() -> None:
    """A batch of 63 on eight replicas was no multiple of "micro_batch 7", which no cell has."""
    odd = _run(model="llama-7b", n_gpus=8, framework="torchtitan", global_batch=63, seq_len=2048, step_time_s=2.5)
    assert replay(odd).reason == "global_batch 63 is not a multiple of micro_batch 1 * dp 8"


def test_a_batch_tells_of_degrees_where_the_cells_leave_too_little_memory() -> None:
    """As the layout is unknown then; and accumulation tells how many replicas there are."""
    row = {"model": "llama-3-8b", "n_gpus": 8, "seq_len": 8192, "step_time_s": 13.9}
    found = _replay(**row, global_batch=130)
    assert "tp is blank: assumed tp 4, the first that can fit with a global batch of 130" in found.assumed
    assert _replay(**row, global_batch=128).assumed.endswith("assumed tp 2, the first that can fit")
    small = {**SMALL, "n_gpus": 16, "global_batch": 4, "micro_batch": 1}
    said = _replay(**small, grad_accum=2)
    assert _degrees(said)["dp"] == 2
    assert replay(_run(**small, tp=2)).reason == "global_batch 4 is not a multiple of micro_batch 1 * dp 8"
