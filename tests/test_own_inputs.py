"""What products in 8 bits keep of a tensor that several of them read."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from distsim.engine.jobs.resolve import Setup, resolve
from distsim.engine.jobs.stages import build_stages
from distsim.layers.ledger import distinct_saved
from distsim.specs.job import Job

HIDDEN = 4096 * 7168
"""Elements of the hidden state of DeepSeek-V3 at 4,096 tokens."""


def _setup(**options: Any) -> Setup:
    usual: dict[str, Any] = {
        "model": "deepseek-v3", "gpu": "b200-sxm", "gpus": 2048, "pp": 16, "ep": 64, "seq": 4096, "global_batch": 30720,
        "precision": "fp8", "framework": "megatron-core",
    }  # fmt: skip
    return resolve(Job(**{**usual, **options}))


def _kept(setup: Setup, stage: int = 5) -> dict[str, float]:
    """Bytes by tensor of a mixture's layer."""
    block = next(one for one in build_stages(setup)[stage].blocks if any("router" in r.name for r in one.operations))
    sizes = distinct_saved(block.operations, setup.layout.selective, setup.kernels)
    return {name: float(size) for name, size in sizes.items()}


@pytest.mark.parametrize(("precision", "narrow"), [("fp8", 1), ("mxfp8", 33 / 32), ("nvfp4", 9 / 16)])
def test_each_module_of_transformer_engine_keeps_its_own_copy(precision: str, narrow: float) -> None:
    """Two latents read one tensor; the router keeps 16 bits of its own, which shared experts read too."""
    kept = _kept(_setup(precision=precision))
    assert kept["attention.input"] == kept["attention.kv_down.own_input"] == narrow * HIDDEN
    assert kept["mlp.input"] == 2 * HIDDEN
    assert "mlp.shared.up.own_input" not in kept
    assert kept["attention.output"] == 2 * 4096 * 128 * 128


def test_copies_in_16_bits_are_one_tensor() -> None:
    """Nothing is copied, so nothing is kept twice."""
    kept = _kept(_setup(precision="bf16"))
    assert kept["attention.input"] == kept["mlp.input"] == 2 * HIDDEN
    assert not [name for name in kept if name.endswith("own_input")]


def test_a_layer_of_deepseek_v3_in_fp8() -> None:
    """Router and second latent: a byte each for every element of the hidden state. Megatron's own permutation keeps a
    mask and a weight of each of 256 experts, and 4 bytes more of each of eight copies."""
    assert sum(_kept(_setup()).values()) == 1_491_730_432 + 2 * HIDDEN + 4096 * (256 * 3 + 8 * 4)


def test_transformer_engines_permutation_counts_places_of_all_experts() -> None:
    """row_id_map: two int32 for each token and expert; what sorts chunks, one of each copy either way."""
    setup = _setup(precision="bf16", framework="megatron-bridge")
    kept = _kept(_with(setup, expert_order="around"))
    assert kept["mlp.experts.places"] == 2 * 4 * 4096 * 256
    assert kept["mlp.experts.row_map"] == 2 * 4 * 4096 * 8
    assert "mlp.experts.places" not in _kept(setup)  # DeepEP orders tokens at their experts' ranks


@pytest.mark.parametrize(("precision", "copies"), [("mxfp8", 1), ("nvfp4", 2)])
def test_both_directions_of_a_gathered_norm_are_kept_in_nvfp4(precision: str, copies: int) -> None:
    """A module of norm and product keeps of NVFP4 what it gathered and what its weight gradient reads; products alone
    keep the latter."""
    each = {"mxfp8": 33 / 32, "nvfp4": 9 / 16}[precision]
    layout = {"model": "llama-3.1-405b", "ep": 1, "pp": 1, "tp": 4, "gpus": 64, "global_batch": 64}
    for sharded in (True, False):
        block = build_stages(_setup(**layout, precision=precision, sequence_parallel=sharded))[0].blocks[0]
        kept = {name: size / 4096 for name, size in distinct_saved(block.operations, 0, None).items()}
        ranks, times = (4, copies) if sharded else (1, 1)
        assert kept["attention.input"] == kept["mlp.input"] == 16384 / ranks * each * times
        assert kept["mlp.product"] == 53248 / 4 * each
    frozen = {**layout, "precision": precision, "framework": "nemo", "lora_rank": 8, "lora_targets": "o"}
    assert build_stages(_setup(**frozen))  # frozen products keep nothing


def test_modules_that_are_told_nothing_copy_for_themselves() -> None:
    """Delayed scaling: shared experts' first product and the output projection quantise for themselves."""
    setup = _setup()
    spared, own = _kept(setup), _kept(_with(setup, quantised_inputs="own"))
    assert own["mlp.shared.up.own_input"] == HIDDEN
    assert own["attention.projection.own_input"] == 4096 * 128 * 128
    assert sum(own.values()) - sum(spared.values()) == HIDDEN + 4096 * 128 * 128


def _with(setup: Setup, **kernels: Any) -> Setup:
    return replace(setup, kernels=setup.kernels.model_copy(update=kernels))


def test_what_is_made_again_is_not_copied() -> None:
    """A norm that runs again makes what all copies are of; a block that does keeps what the router keeps anyway."""
    norms = _kept(_setup(recompute_modules="layernorm"))
    assert not norms["attention.input"] and not norms["attention.kv_down.own_input"] and not norms["mlp.input"]
    setup = _setup(recompute_modules="shared_experts")
    for kept in (_kept(setup), _kept(_with(setup, quantised_inputs="own"))):
        assert kept["mlp.input"] == 2 * HIDDEN
        assert not kept.get("mlp.shared.up.own_input", 0)


def test_megatrons_router_keeps_its_input_beside_frozen_weights() -> None:
    """Its own function saves what it is given; torch's linear layer has no use for it."""
    job: dict[str, Any] = {
        "model": "qwen3-30b-a3b", "gpu": "h100-sxm", "gpus": 64, "pp": 1, "ep": 8, "zero": 1, "precision": "bf16",
        "lora_rank": 16, "lora_targets": "attention",
    }  # fmt: skip
    assert _kept(_setup(**job), 0)["mlp.input"] == 2 * 4096 * 2048
    assert "mlp.input" not in _kept(_setup(**{**job, "framework": "huggingface"}), 0)


def test_one_module_of_a_delta_rule_makes_all_it_reads() -> None:
    """Megatron's in_proj is one product; a latent in front of experts is another module than the router."""
    delta = _kept(_setup(model="qwen3-next-80b-a3b", pp=1), 0)
    assert not [name for name in delta if name.startswith("delta.") and name.endswith("own_input")]
    latent = _kept(_setup(model="nemotron-3-super-120b-a12b", pp=1), 0)
    assert latent["mlp.latent_in.own_input"] * 2 == latent["mlp.input"]
