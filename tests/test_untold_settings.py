"""What rows say they do not know says nothing; dies, publishers and words in another order say what they mean."""

from __future__ import annotations

import pytest

from distsim import catalog
from distsim.engine.evidence import replay
from distsim.engine.jobs.resolve import resolve
from distsim.engine.runs.precision import precision_of
from distsim.engine.runs.profile import assumed_profile
from distsim.engine.runs.profile import framework_of as software_of
from distsim.interop.runs.chips import with_chip
from distsim.interop.runs.graphs import graphs_of
from distsim.interop.runs.precision_notes import rounds_products
from distsim.interop.runs.remat import custom_of
from distsim.interop.runs.sharding import stated_stage
from distsim.interop.runs.table import Run
from distsim.specs.job import Job


def _run(notes: str = "", **cells: str) -> Run:
    return Run({"source": "ours", "notes": notes, **cells}, 2)


@pytest.mark.parametrize(
    ("notes", "graphs"),
    [
        ("recompute, dispatcher and CUDA graphs are the recipe's and not said", None), ("CUDA graphs not stated", None),
        ("CUDA graphs: unknown", "modules"), ("CUDA graphs, unknown network", "modules"),
        ("CUDA graphs are unknown", None), ("CUDA graphs off, recompute not said", "none"),
        ("CUDA graphs of router and preprocess", "routers"), ("whole-iteration CUDA graph", "iteration"),
    ],
)  # fmt: skip
def test_graphs_of_which_nothing_is_told(notes: str, graphs: str | None) -> None:
    assert graphs_of(_run(notes)) == graphs


def test_a_tuned_recipe_holds_where_its_settings_are_not_spelt_out() -> None:
    """Megatron-Bridge's card of Qwen3 30B on eight GB300 in MXFP8: 5.855 s with graphs of whole iterations."""
    cells = {
        "model": "qwen3-30b-a3b", "seq_len": "4096", "gpu": "gb300", "n_gpus": "8", "gpus_per_node": "4", "tp": "1",
        "pp": "1", "ep": "8", "etp": "1", "micro_batch": "8", "global_batch": "512", "precision": "fp8-mx",
        "framework": "megatron-bridge", "year": "2026-08", "step_time_s": "5.85491",
    }  # fmt: skip
    found = replay(
        _run("performance recipe; recompute and CUDA graphs are the recipe's and not said; nemo:26.08", **cells)
    )
    assert found.setup is not None and found.setup.kernels.graphs == "iteration"
    assert found.error is not None and abs(found.error) < 0.1


@pytest.mark.parametrize(
    ("notes", "rounds"),
    [
        ("fp32 runs: TF32 setting not stated", None), ("fp32 (TF32 not said)", None), ("TF32 unknown", None),
        ("whether TF32 was allowed is not said; eager", None), ("no TF32 for products", False), ("TF32 on", True),
    ],
)  # fmt: skip
def test_tf32_of_which_nothing_is_told(notes: str, rounds: bool | None) -> None:
    assert rounds_products("fp32", notes) is rounds


@pytest.mark.parametrize(
    ("gpu", "notes", "name"),
    [
        ("mi250x", "GPU means one GCD of an MI250X", "mi250x-gcd"),
        ("MI250X", "GCDs are counted as GPUs", "mi250x-gcd"), ("mi250x", "8 nodes x 8 GCDs", "mi250x"),
        ("MI250X (1 GCD)", "", "mi250x-gcd"), ("h100-sxm", "a GPU is a GCD", "h100-sxm"),
    ],
)  # fmt: skip
def test_dies_that_are_called_gpus(gpu: str, notes: str, name: str) -> None:
    assert with_chip(_run(notes, gpu=gpu)).text("gpu") == name


@pytest.mark.parametrize(
    ("notes", "stage"),
    [
        ("no distributed optimizer; fp16", 0), ("use_distributed_optimizer=False", 0),
        ("distributed optimizer is off", 0),
        ("no distributed optimizer or overlap asked for", None), ("distributed optimizer, overlap_grad_reduce", None),
    ],
)  # fmt: skip
def test_optimizers_that_nothing_shards(notes: str, stage: int | None) -> None:
    assert stated_stage(_run(notes, framework="megatron-lm")) == stage


def test_a_policy_named_the_other_way_round() -> None:
    found = custom_of(
        _run("custom remat with context=offload (attention outputs to the host); JAX", recompute="custom")
    )
    assert found is not None and found.host == ("context",) and not found.device


def test_unknown_software_that_torch_shards_and_splits() -> None:
    split = {"framework": "somebody's", "pp": "2", "n_gpus": "8", "gpu": "h100-sxm", "model": "llama-2-7b"}
    assert software_of(_run(fsdp_kind="FSDP2", **split)).name == "torchtitan"
    assert "megatron-lm" in assumed_profile(_run(**split))


@pytest.mark.parametrize(("gpu", "recipe"), [("v100-sxm2-32gb", "fp16"), ("t4", "fp16"), ("a100-sxm4-80gb", "bf16")])
def test_sixteen_bits_that_nobody_names_are_those_that_the_chip_has(gpu: str, recipe: str) -> None:
    setup = resolve(Job(model="gpt2", gpu=gpu))
    assert setup.precision.math == recipe
    assert any("no units for bf16" in note for note in setup.notes) is (recipe == "fp16")
    assert resolve(Job(model="gpt2", gpu=gpu, precision="bf16")).precision.math == "bf16"
    row = _run(gpu=gpu, framework="megatron-core")
    assert precision_of(row, software_of(row)).startswith(recipe)


def test_bf16_is_slower_than_fp16_where_no_unit_multiplies_it() -> None:
    """V100s took 6.4 to 9.1 s for steps of bf16 that their fp16 units would have made in 1.4."""
    from distsim.engine.step import step_of

    seconds = [
        step_of(resolve(Job(model="gpt2-xl", gpu="v100-sxm2-32gb", precision=one))).seconds for one in ("bf16", "fp16")
    ]
    assert seconds[0] > 2.5 * seconds[1]


def test_sequences_that_tensor_parallel_ranks_do_not_divide() -> None:
    setup = resolve(Job(model="llama-2-7b", gpu="tpu-v4", gpus=8, tp=4, seq=2050, framework="t5x", attention="eager"))
    assert not setup.layout.sequence_parallel
    assert any("does not divide the 2,050 tokens of a sequence" in note for note in setup.notes)


def test_laptops_draw_less_than_the_cards_they_are_called_after() -> None:
    for name in (one for one in catalog.names("gpus") if one.endswith("-laptop")):
        card = name.removesuffix("-laptop")
        assert catalog.usual_cluster(name).gpus_per_node == 1
        if catalog.knows("gpus", card):
            assert catalog.load("gpus", name).power < catalog.load("gpus", card).power, name
