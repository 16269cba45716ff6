"""What Megatron's recomputation of modules keeps: what a module reads, not what it makes; and activations without a
fused kernel (NVIDIA/Megatron-LM core/tensor_parallel/random.py, CheckpointWithoutOutput; core/transformer/moe/
experts.py). Gradients, dispatchers and routers that notes tell of."""

from __future__ import annotations

from typing import Any

import pytest

from distsim.engine.evidence import replay
from distsim.engine.jobs.resolve import Setup
from distsim.engine.jobs.stages import build_stages
from distsim.engine.kernels.passes import HALVES_SCALED_GATE, composed
from distsim.engine.memory import memory_of
from distsim.engine.runs.memory import held_by
from distsim.engine.runs.setup import setup_of
from distsim.interop.runs import Run
from distsim.layers.ledger import distinct_saved
from distsim.units import MIB

CELLS = {"id": "a", "model": "olmoe-1b-7b", "gpu": "h100-sxm", "n_gpus": "8", "seq_len": "4096", "micro_batch": "4",
         "global_batch": "32", "ep": "8", "tp": "1", "pp": "1", "zero_stage": "3", "precision": "bf16",
         "framework": "megatron-bridge", "year": "2026", "notes": "forced balanced routing"}  # fmt: skip
"""A micro-batch of 16,384 tokens: 64 MiB a tensor of the hidden width, 256 MiB one of the experts' inner width."""


def _setup(**cells: str) -> Setup:
    return setup_of(Run({**CELLS, **cells}, 1))


def _kept(setup: Setup) -> dict[str, float]:
    block = build_stages(setup)[0].layers[0][0]
    saved = distinct_saved(block.operations, setup.layout.selective, setup.kernels)
    return {name: float(size) / MIB for name, size in saved.items()}


def _dropped(**cells: str) -> dict[str, float]:
    before, after = _kept(_setup(**{**cells, "recompute": "none"})), _kept(_setup(**cells))
    return {name: before[name] - size for name, size in after.items() if size != before[name]}


def test_activations_computed_again_keep_what_they_read() -> None:
    inner = {"mlp.experts.activated", "mlp.experts.unscaled", "mlp.experts.product"}
    assert _dropped(recompute="moe_act") == {**dict.fromkeys(inner, 256), "mlp.experts.activated": 2 * 256}
    assert _kept(_setup(recompute="moe_act"))["mlp.experts.preactivation"] == 512


@pytest.mark.parametrize(
    ("module", "model"),
    [("moe_act", "llama-3-8b"), ("mla_up_proj", "olmoe-1b-7b"), ("shared_experts", "olmoe-1b-7b"), ("moe", "gpt2-xl")],
)
def test_modules_that_a_model_lacks_change_nothing(module: str, model: str) -> None:
    """The MLP of a dense model had been taken for experts; a module that no layer has was no answer at all."""
    ep = "8" if model == "olmoe-1b-7b" else "1"
    found, none = (replay(Run({**CELLS, "model": model, "ep": ep, "recompute": word}, 1)) for word in (module, "none"))
    assert found.predicted_seconds == none.predicted_seconds and found.predicted_peak == none.predicted_peak
    assert f"{module.replace('_', '-')} ignored" in found.assumed


def test_modules_that_stand_alone() -> None:
    cells = {"model": "deepseek-v2-lite", "notes": ""}
    assert _setup(**cells, recompute="moe_act").kernels.selective == ("mlp.experts.activation",)
    assert set(_dropped(**cells, recompute="mla_up_proj")) == {"attention.key", "attention.value"}
    assert "mlp.shared.down" in _setup(**cells, recompute="shared_experts").kernels.selective


def test_experts_that_are_computed_again_keep_their_input_alone() -> None:
    """Also where they have latents and shared experts with a gate; attention stays as it was."""
    for model, gone in (
        ("nemotron-3-super-120b-a12b", "mlp.experts.combined"),
        ("qwen2-57b-a14b", "mlp.shared.output"),
    ):
        setup = _setup(model=model, notes="", recompute="moe")
        block = next(block for block, _ in build_stages(setup)[0].layers if block.name == "moe")
        saved = distinct_saved(block.operations, 1, setup.kernels)
        kept = {name for name, size in saved.items() if size and name.startswith("mlp.")}
        assert gone in saved and kept == {"mlp.input"}


def test_modules_take_the_place_of_a_policy_that_names_what_is_kept() -> None:
    """MaxText keeps named products; a cell of modules had been that policy whatever it named."""
    kept = [_kept(_setup(framework="maxtext", recompute=word)) for word in ("layernorm", "moe_act")]
    assert kept[0] != kept[1]


def test_a_fused_activation_gives_its_output_alone() -> None:
    assert _dropped(recompute="moe_act", framework="megatron-core") == {"mlp.experts.product": 256}


def test_norms_in_front_of_experts_are_modules_of_their_own() -> None:
    """Input norms are part of the product behind them, and norms of queries and keys are not named."""
    assert _dropped(recompute="layernorm") == {"mlp.input": 64}
    latent = _dropped(model="deepseek-v3", recompute="layernorm")
    assert set(latent) == {"attention.input", "mlp.input"}


def test_queries_keys_and_values_are_made_again_from_narrow_layers() -> None:
    found = _dropped(model="deepseek-v3", notes="")
    assert {"attention.query", "attention.key", "attention.value"} <= set(found)
    assert "attention.query_latent" not in found


def test_what_is_made_again_is_there_when_it_is_read() -> None:
    """Backward of one layer has all that this layer keeps, whatever the others dropped."""
    peaks = [replay(Run({**CELLS, "recompute": what, "notes": "max_memory_allocated"}, 1)).predicted_peak or 0
             for what in ("none", "moe_act")]  # fmt: skip
    assert peaks[0] - peaks[1] == pytest.approx(16 * 4 * 256 * MIB, rel=0.001)


@pytest.mark.parametrize(
    ("recompute", "gib"),
    [("none", 60.6), ("core_attn", 62.1), ("layernorm", 59.6), ("moe_act", 45.5)],
)
def test_peaks_of_olmoe_under_megatron_fsdp(recompute: str, gib: float) -> None:
    """vuiseng9/mbridge, olmoe_workload_base_configs.py, e02, e04, e05 and e07, counted as nvidia-smi does; its
    olmoe_llm_pretrain.py sets moe_token_dispatcher_type to alltoall. All are told 4 to 5 GiB high (nvidia-smi shows
    70 GB beside 62.1); what a module frees or takes, within two."""
    told = {"mem_kind": "device", "notes": f"{CELLS['notes']}; all-to-all dispatcher"}
    found, plain = (replay(Run({**CELLS, **told, "recompute": what}, 1)).predicted_peak for what in (recompute, "none"))
    assert found is not None and plain is not None
    assert (found - plain) / 2**30 == pytest.approx(gib - 60.6, abs=2)
    assert found / 2**30 == pytest.approx(gib, rel=0.09)


@pytest.mark.parametrize(
    ("notes", "kernel"),
    [("bias_activation_fusion not set", "eager"), ("--no-bias-swiglu-fusion", "eager"), ("bias_activation_fusion: off",
     "eager"), ("bias_activation_fusion on", "fused"), ("", "fused")],
)  # fmt: skip
def test_notes_tell_of_activations_without_a_kernel(notes: str, kernel: str) -> None:
    cells: dict[str, Any] = {"model": "qwen3-30b-a3b", "notes": notes}
    assert _setup(**cells).kernels.activation == kernel


def test_experts_scale_in_plain_torch_where_their_activation_is() -> None:
    setup = _setup()
    operation = next(o for o in build_stages(setup)[0].layers[0][0].operations if o.name == "mlp.experts.activation")
    assert composed(setup, operation) == HALVES_SCALED_GATE


@pytest.mark.parametrize(
    ("notes", "bytes_each"),
    [("fp32 gradients", 4), ("grad_reduce_in_fp32 true", 4), ("grad_reduce_in_fp32=False", 2), ("bf16 gradients", 2),
     ("--main-grads-dtype bf16 (gradients reduced in bf16)", 2), ("gradients accumulated in fp32", 4)],
)  # fmt: skip
def test_notes_tell_the_format_of_gradients(notes: str, bytes_each: int) -> None:
    for name in ("megatron-core", "megatron-bridge"):
        assert _setup(framework=name, notes=notes).precision.gradient_bytes == bytes_each


def test_gradients_that_nobody_tells_of_are_those_of_the_framework() -> None:
    kept = {name: _setup(framework=name).precision.gradient_bytes for name in ("megatron-core", "megatron-bridge")}
    assert kept == {"megatron-core": 4, "megatron-bridge": 2}
    told, plain = (_setup(framework="fsdp", ep="1", notes=notes) for notes in ("fp32 gradients", ""))
    assert told.precision == plain.precision


@pytest.mark.parametrize(
    ("notes", "order", "copies"),
    [("NCCL all-to-all dispatcher", "around", "each"), ("alltoall dispatcher", "around", "each"),
     ("all-to-all dispatcher (no DeepEP/HybridEP)", "around", "each"), ("HybridEP", "fused", "once"),
     ("dispatcher as the report's NCCL baseline", "around", "each"),
     ("", "fused", "once")],
)  # fmt: skip
def test_notes_name_dispatchers_of_plain_collectives(notes: str, order: str, copies: str) -> None:
    setup = _setup(notes=notes)
    assert (setup.kernels.expert_order, setup.framework.traffic.expert_copies) == (order, copies)


def test_notes_tell_of_fused_routers() -> None:
    found = [_setup(framework="megatron-core", notes=notes).kernels.routing
             for notes in ("permute and router fusion", "no router fusion", "")]  # fmt: skip
    assert found == ["fused", "composed", "composed"]


@pytest.mark.parametrize(
    ("notes", "bytes_each"),
    [("--cross_entropy_loss_fusion true", 10), ("native fused CE", 10), ("native cross-entropy fusion", 10),
     ("fused cross entropy", 10), ("TE fused CE", 2), ("TE cross-entropy fusion", 2), ("", 6),
     ("cross-entropy-loss-fusion=true, cross-entropy-fusion-impl=te", 2)],
)  # fmt: skip
def test_losses_that_torch_compiles_have_ten_bytes_a_logit(notes: str, bytes_each: int) -> None:
    """Each is kept in fp32 and in transit in bf16; a compiled loss has another in fp32, and Transformer Engine's writes
    over those in bf16."""
    logits = 4 * 4096 * 50304
    runs = [Run({**CELLS, "framework": "megatron-core", "notes": said}, 1) for said in (notes, "max_memory_allocated")]
    setups = [held_by(run, setup_of(run), 2026) for run in runs]
    first, plain = (memory_of(setup).worst.counted("allocated") for setup in setups)
    assert (first - plain) / logits == pytest.approx(bytes_each - 6, abs=0.01)
