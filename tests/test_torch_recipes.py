"""8-bit recipes of torchao, the machines that its tables were measured on, and kernels that unpack and attend."""

from __future__ import annotations

from typing import Any

import pytest

import distsim
from distsim import catalog
from distsim.engine.exchanges.data import data_flows
from distsim.engine.jobs.exchange import exchange_of
from distsim.engine.jobs.resolve import Setup, resolve
from distsim.engine.jobs.stages import build_stages
from distsim.engine.kernels.attention_rates import FLASH_BACKWARD_SHARE
from distsim.engine.kernels.compute import Chip, stage_compute
from distsim.engine.kernels.launches import launches
from distsim.engine.kernels.passes import moved_bytes
from distsim.engine.kernels.quantise import casts_weights
from distsim.engine.kernels.sums import StageCompute
from distsim.engine.memory import memory_of
from distsim.engine.runs.kernels import with_kernels_of
from distsim.engine.runs.precision import precision_of
from distsim.engine.runs.setup import setup_of
from distsim.engine.runs.software import told_software
from distsim.engine.runs.trained import unpacked_then
from distsim.engine.validate import replay
from distsim.formulas.compute import OLDER_ATTENTION
from distsim.interop.runs import Run
from distsim.interop.runs.gpu_notes import gpu_of
from distsim.interop.runs.tuning import tuning_options
from distsim.layers.tensor_parallel import column_collectives, row_collectives
from distsim.specs.job import Job

LAYERS, TOKENS, HIDDEN, QUERIES_KEYS_VALUES, INNER = 32, 8192, 4096, 6144, 14336  # Llama 3 8B
INPUTS = TOKENS * (HIDDEN + HIDDEN + HIDDEN + INNER)  # of attention, its projection, the MLP and its second half
OUTPUTS = TOKENS * (QUERIES_KEYS_VALUES + HIDDEN + 2 * INNER + HIDDEN)
WEIGHTS = HIDDEN * (QUERIES_KEYS_VALUES + HIDDEN + 3 * INNER)


def _run(source: str = "somebody", **cells: object) -> Run:
    usual: dict[str, object] = {
        "model": "llama-3-8b", "gpu": "h100-sxm", "n_gpus": 8, "seq_len": 8192, "micro_batch": 1, "global_batch": 8,
        "tp": 1, "pp": 1, "zero_stage": 3, "precision": "fp8", "framework": "torchtitan", "year": 2025,
        "source": source,
    }  # fmt: skip
    return Run({name: str(value) for name, value in {**usual, **cells}.items()}, 2)


def _setup(**options: Any) -> Setup:
    usual = {"model": "llama-3-8b", "gpu": "h100-sxm", "gpus": 8, "seq": 8192, "micro_batch": 1, "global_batch": 8,
             "framework": "torchtitan"}  # fmt: skip
    return resolve(Job(**{**usual, **options}))


def _computed(precision: str) -> tuple[StageCompute, float]:
    setup = _setup(precision=precision, compile=True)
    return stage_compute(setup, build_stages(setup)[0]), setup.accelerator.bandwidth


def _more_bytes(precision: str, than: str, phase: str) -> float:
    (one, bandwidth), (other, _) = _computed(precision), _computed(than)
    return float((one.phases[phase].memory - other.phases[phase].memory) * bandwidth / LAYERS)


def test_each_recipe_moves_the_bytes_that_torchao_counts() -> None:
    """Compiled, above one that casts all three in one pass of 4 bytes."""
    assert _more_bytes("torchao-tensorwise", "fsdp-fp8", "forward") == pytest.approx(2 * INPUTS - 2 * WEIGHTS)
    assert _more_bytes("torchao-tensorwise", "fsdp-fp8", "backward") == pytest.approx(2 * OUTPUTS)
    assert _more_bytes("torchao-rowwise", "fsdp-fp8", "forward") == pytest.approx(4 * INPUTS + 6 * WEIGHTS)
    rescaled = 4 * (INPUTS + WEIGHTS)  # input gradients and weight gradients, read and written once more
    assert _more_bytes("torchao-rowwise", "fsdp-fp8", "backward") == pytest.approx(4 * OUTPUTS + rescaled)


@pytest.mark.parametrize(("recipe", "last"), [("rowwise", 1), ("rowwise-gw-hp", 0)])
def test_uncompiled_recipes_quantise_each_operand_piece_by_piece(recipe: str, last: int) -> None:
    """As benchmarks/float8_issue.py counts: 33 bytes an element and 14 kernels a cast, of two operands a product,
    beside 2 bytes for each operand of backward's products that is laid out across."""

    def told(precision: str, **options: Any) -> tuple[StageCompute, float, Setup]:
        setup = _setup(precision=precision, **options)
        return stage_compute(setup, build_stages(setup)[0]), setup.accelerator.bandwidth, setup

    (wide, bandwidth, _), (eager, _, setup) = told("fsdp-bf16"), told(f"torchao-{recipe}")
    more = {phase: (eager.phases[phase].memory - wide.phases[phase].memory) * bandwidth / LAYERS
            for phase in ("forward", "backward")}  # fmt: skip
    each = INPUTS + TOKENS * HIDDEN * 3  # queries, keys and values, gate and up are modules of their own
    first, second = 33 * (each + WEIGHTS), 33 * OUTPUTS + 35 * WEIGHTS + last * 35 * (each + OUTPUTS)
    rescaled = setup.precision.rescale_bytes * (each + WEIGHTS)
    assert more["forward"] == pytest.approx(first, rel=1e-3)
    assert more["backward"] == pytest.approx(second + rescaled, rel=1e-3)
    wide_row, row = (next(one for one in build_stages(one)[0].layers[0][0].operations if one.name.endswith("mlp.down"))
                     for one in (_setup(precision="fsdp-bf16"), setup))  # fmt: skip
    counts = launches(setup, row).kernels, launches(_setup(precision="fsdp-bf16"), wide_row).kernels
    assert [one - other for one, other in zip(*counts, strict=True)] == [28, 28 + 28 * last]
    assert told(f"torchao-{recipe}", compile=True)[2].precision.cast_kernels == 0


def test_what_fsdp_gathers_in_8_bits_is_cast_before_and_kept_inputs_stay_wide() -> None:
    shared, alone = _setup(precision="fp8", zero=3), _setup(precision="fp8", gpus=1, global_batch=1, zero=0)
    assert shared.precision.name == "torchao-tensorwise"
    assert not casts_weights(shared) and casts_weights(alone) and casts_weights(_setup(precision="fp8", compile=True))
    kept = [memory_of(_setup(precision=one, recompute="none")).worst.categories["activations"]
            for one in ("fsdp-bf16", "fp8")]  # fmt: skip
    assert kept[0] == kept[1]


def test_uncompiled_layers_compute_gradients_of_frozen_weights_and_drop_them() -> None:
    usual = {"precision": "torchao-rowwise", "zero": 0, "gpus": 1, "global_batch": 1, "lora_rank": 16,
             "lora_targets": "q,v"}  # fmt: skip
    eager, compiled = (stage_compute(one, build_stages(one)[0]) for one in
                       (_setup(**usual), _setup(**usual, compile=True)))  # fmt: skip
    forward = eager.phases["forward"].matmul8
    assert eager.phases["backward"].matmul8 == pytest.approx(2 * forward, rel=0.05)
    assert compiled.phases["backward"].matmul8 == pytest.approx(forward, rel=0.05)


def test_weight_gradients_in_16_bits_are_a_third_of_the_products() -> None:
    (narrow, _), (mixed, _) = _computed("torchao-rowwise"), _computed("torchao-rowwise-gw-hp")
    before, after = narrow.phases["backward"], mixed.phases["backward"]
    assert after.matmul8 == pytest.approx(before.matmul8 / 2, rel=0.02)
    assert after.matmul > before.matmul + before.matmul8 / 2
    assert mixed.phases["forward"].matmul8 == narrow.phases["forward"].matmul8


def test_only_tensorwise_scaling_gathers_in_8_bits() -> None:
    def gathered(precision: str) -> float:
        setup = _setup(precision=precision, zero=3)
        flows = data_flows(setup, exchange_of(setup), build_stages(setup)[0])
        return float(sum(flow.bytes_logical * flow.calls for flow in flows if flow.purpose == "parameters"))

    whole, rows, tensors = (gathered(f"{name}") for name in ("fsdp-bf16", "torchao-rowwise", "torchao-tensorwise"))
    assert rows == whole
    assert whole - tensors == pytest.approx(2 * LAYERS * (WEIGHTS + 2 * HIDDEN), rel=1e-3)  # once each way
    narrow = _setup(precision="torchao-tensorwise", tp=8, gpus=8, global_batch=1).context()
    wide = _setup(precision="torchao-rowwise", tp=8, gpus=8, global_batch=1).context()
    for make in (column_collectives, row_collectives):
        for one, other in zip(make(narrow), make(wide), strict=True):
            assert one.bytes_logical == other.bytes_logical / (2 if one.op == "all_gather" else 1)
    assert column_collectives(narrow, narrow=False)[0].bytes_logical == column_collectives(wide)[0].bytes_logical


@pytest.mark.parametrize(
    ("cells", "recipe"),
    [
        ({"notes": "tensorwise + float8 all-gather"}, "torchao-tensorwise"),
        ({"notes": "async TP float8 rowwise"}, "torchao-rowwise"),
        ({"notes": "rowwise_with_gw_hp"}, "torchao-rowwise-gw-hp"),
        ({"precision": "fp8-mx"}, "torchao-mxfp8"),
        ({"precision": "nvfp4"}, "torchao-nvfp4"),
        ({"precision": "nvfp4", "notes": "layers 0-26 NVFP4, 27-31 bf16; x"}, "torchao-nvfp4-mixed"),
        ({"precision": "fp8-mx", "notes": "layers 0-26 NVFP4, 27-31 bf16; x"}, "torchao-mxfp8"),
        ({"precision": "bf16", "notes": "rowwise"}, "fsdp-bf16"),
        ({"framework": "megatron-core", "notes": "rowwise"}, "fp8"),
        ({"framework": "llm-foundry"}, "fsdp-fp8"),
    ],
)
def test_rows_name_their_recipe(cells: dict[str, str], recipe: str) -> None:
    run = _run(**cells)
    assert precision_of(run, catalog.load("frameworks", run.text("framework") or "")) == recipe


def test_last_layers_that_stay_in_16_bits_cost_what_they_do_there() -> None:
    """27 of 32 layers are narrow, as torchtitan's nvfp4.md says of 8B: 85%, rounded down."""

    def products(precision: str) -> tuple[float, float, float]:
        setup = _setup(precision=precision, gpu="gb200", recompute="selective")
        forward = stage_compute(setup, build_stages(setup)[0]).phases["forward"]
        return float(forward.matmul), float(forward.matmul8), float(memory_of(setup).stages[0].peak)

    wide, narrow, mixed = (products(name) for name in ("fsdp-bf16", "torchao-nvfp4", "torchao-nvfp4-mixed"))
    assert mixed[1] == pytest.approx(narrow[1] * 27 / 32)
    assert mixed[0] - narrow[0] == pytest.approx((wide[0] - narrow[0]) * 5 / 32)
    assert narrow[2] < mixed[2] < wide[2]


def test_checkpoints_before_torch_2_1_repeat_whole_layers() -> None:
    setup = _setup(framework="llm-foundry")
    for cells, stops in (({"year": 2023}, False), ({"year": 2024}, True),
                         ({"year": 2024, "notes": "MP mode PURE precision label bf16"}, False)):  # fmt: skip
        found = with_kernels_of(_run(**{"framework": "llm-foundry", **cells}), setup)
        assert found.kernels.recompute_stops_early is stops


def test_metas_chips_have_metas_limits() -> None:
    assert gpu_of(_run("pytorch/ao docs")) == "h100-sxm-96gb-500w"
    assert gpu_of(_run("pytorch/ao docs", gpu="mi300x")) == "mi300x"
    assert gpu_of(_run(gpu="b200-sxm", notes="8x power-limited B200, bs 1")) == "b200-sxm-750w"
    assert gpu_of(_run(notes="a power-limited B200 beside it")) == "h100-sxm"
    whole, limited = (Chip(_setup(gpu=name)) for name in ("b200-sxm", "b200-sxm-750w"))
    assert limited.rate / whole.rate == pytest.approx(0.8, abs=0.01)


def test_torch_attends_on_amd_with_a_portable_kernel() -> None:
    own, portable = (_setup(gpu="mi300x", framework=name) for name in ("megatron-core", "kempnerforge"))
    assert Chip(own).attention == (1.0, FLASH_BACKWARD_SHARE)
    assert Chip(portable).attention == pytest.approx((0.7, 0.24 * FLASH_BACKWARD_SHARE))
    assert Chip(_setup(framework="kempnerforge")).attention == (1.0, 0.87)


def test_older_attention_is_as_slow_on_slower_units() -> None:
    """An H20 has Hopper's units with a quarter of their rate. FlashAttention-2 reaches 66 and 84 TFLOP/s there,
    FlashAttention-3 108 and 126 (Dao-AILab/flash-attention issue 1310: 2,048 tokens, width 128, causal and not)."""
    fast, slow = (_setup(gpu=name, framework="deepspeed", zero=3, seq=8192) for name in ("h100-sxm", "h20"))
    assert Chip(slow).attention[0] == Chip(fast).attention[0]
    assert OLDER_ATTENTION["flash-2"][1] == pytest.approx((66 / 108 + 84 / 126) / 2, rel=0.11)
    job = {"model": "llama-2-7b", "gpu": "h20", "gpus": 8, "zero": 3, "seq": 8192, "framework": "deepspeed"}
    assert distsim.step(**job).seconds < distsim.step(**job, attention="eager").seconds


def test_weights_unpack_as_in_the_year_of_the_run() -> None:
    def unpacked(name: str, year: float) -> float:
        tuned = _run(year=year, framework="huggingface", finetune_kind="qlora", lora_rank=8, precision="bf16",
                     zero_stage=0, n_gpus=1, global_batch=1, notes=f"weights {name}")  # fmt: skip
        tuning = setup_of(tuned).tuning
        assert tuning is not None and tuning.quantization is not None
        return tuning.quantization.unpack_flops

    assert unpacked("int4 (bnb)", 2023) == 124
    assert unpacked("int4 (bnb)", 2026) == 73
    assert unpacked("int4 (gptq)", 2023) == unpacked("int4 (gptq)", 2026) == 0
    assert tuning_options(_run(finetune_kind="qlora", notes="weights int8 (gptq)"), {})["quantize"] == "gptq-int8"
    assert tuning_options(_run(finetune_kind="qlora", notes="weights int8"), {})["quantize"] == "int8"
    plain = setup_of(_run())
    assert unpacked_then(_run(), plain) is plain


def test_tinyllama_is_lit_gpt_with_fused_kernels() -> None:
    run = _run("jzhang38/TinyLlama README.md", framework="fsdp", precision="", model="tinyllama-1.1b", year=2023)
    assert told_software(run) == "tinyllama"
    kernels = catalog.load("frameworks", "tinyllama").kernels
    assert {kernels.norm, kernels.activation, kernels.rope, kernels.loss} == {"fused"}


def test_compiled_adapters_scale_and_add_in_one_kernel() -> None:
    def moved(compiled: bool) -> float:
        setup = _setup(framework="torchtune", gpus=1, global_batch=1, lora_rank=8, lora_targets="q", compile=compiled)
        block = build_stages(setup)[0].layers[1][0]
        adapter = next(one for one in block.operations if one.kind == "adapter")
        return float(moved_bytes(setup, adapter)[0])

    assert moved(True) / moved(False) == pytest.approx(3 / 5)


def test_a_fused_projection_has_one_adapter() -> None:
    setup = _setup(model="qwen-7b", framework="huggingface", gpus=1, global_batch=1, lora_rank=8, lora_targets="q,k,v")
    block = build_stages(setup)[0].layers[0][0]
    assert [one.name for one in block.operations if one.kind == "adapter"] == ["attention.qkv.lora_add"]


def test_torchtune_shards_wherever_its_source_does_not_say() -> None:
    """Its distributed recipes have no replicas: Qwen3 8B with 14 sequences of 8,192 tokens a GPU peaks at 76.35 GiB on
    eight MI350X (AMD's table of January 2026), a replica each would take 119."""
    cells = {"model": "qwen3-8b", "gpu": "mi350x", "n_gpus": "8", "seq_len": "8192", "micro_batch": "14",
             "global_batch": "112", "precision": "bf16", "recompute": "full", "compile": "1", "framework": "torchtune",
             "tokens_per_s_per_gpu": "14471", "mem_peak_gb_per_gpu": "76.35", "year": "2026"}  # fmt: skip
    found = replay(Run(cells, 2))
    assert found.setup is not None and found.setup.layout.zero == 3
    assert found.memory_error == pytest.approx(0, abs=0.1)


@pytest.mark.parametrize(
    ("source", "cells", "compiled"),
    [
        ("somebody", {}, True), ("somebody", {"precision": "torchao-rowwise"}, True),
        ("somebody", {"compile": "0"}, False), ("pytorch/torchtitan docs", {"compile": "0"}, True),
        ("somebody", {"precision": "bf16"}, False), ("somebody", {"framework": "torchtune"}, False),
    ],
)  # fmt: skip
def test_8_bit_runs_of_torchtitan_compile_unless_they_say_otherwise(
    source: str, cells: dict[str, str], compiled: bool
) -> None:
    assert setup_of(_run(source, **cells)).compiled is compiled
