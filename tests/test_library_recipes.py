"""Recipes that a library gives its users to start from leave fusions off that its publisher's performance scripts turn
on (NVIDIA-NeMo/Megatron-Bridge recipes/qwen and scripts/performance)."""

from __future__ import annotations

import pytest

from distsim import Job
from distsim.engine.evidence import replay
from distsim.engine.jobs.resolve import Setup, resolve
from distsim.engine.jobs.stages import build_stages
from distsim.engine.kernels.launches import PLAIN_ISSUE, launches
from distsim.engine.kernels.passes import composed, moved_bytes
from distsim.engine.kernels.plain_costs import HALVES_GATE
from distsim.engine.runs.setup import setup_of
from distsim.interop.runs import Run
from distsim.layers.head import head
from distsim.layers.ledger import Operation

LIBRARY = "NeMo container 25.09, Megatron-Bridge 0.1.0rc4 recipes; grad_reduce_in_fp32 (fp32 gradients)"
CELLS = {"id": "a", "model": "qwen3-1.7b", "gpu": "h100-sxm", "n_gpus": "16", "seq_len": "4096", "micro_batch": "2",
         "global_batch": "32", "tp": "1", "pp": "1", "zero_stage": "1", "sequence_parallel": "0", "precision": "bf16",
         "recompute": "none", "framework": "megatron-bridge", "year": "2026-09", "mem_kind": "allocated",
         "notes": LIBRARY}  # fmt: skip


def _setup(**cells: str) -> Setup:
    return setup_of(Run({**CELLS, **cells}, 1))


def _operation(setup: Setup, name: str) -> Operation:
    rows = (*build_stages(setup)[0].layers[0][0].operations, *head(setup.context()))
    return next(one for one in rows if one.name == name)


@pytest.mark.parametrize(
    ("words", "kernels"),
    [
        (LIBRARY, ("eager", "steps")),
        ("recipe qwen3_8b_sft_4gpu_h100_bf16_config of 2026; tag v26.04", ("eager", None)),
        ("Megatron-Bridge 0.1.0 recipes as its performance scripts have them", ("fused", None)),
        ("scripts/performance, recipe qwen3_8b_pretrain_config", ("fused", None)),
        ("", ("fused", None)),
    ],
)
def test_runs_that_name_a_librarys_recipe_lack_its_fusions(words: str, kernels: tuple[str, str | None]) -> None:
    found = _setup(notes=words).kernels
    assert (found.activation, found.loss_kernel) == kernels


@pytest.mark.parametrize(
    ("words", "precision", "recipe"),
    [
        ("NVIDIA Qwen3 recipes as starting point", "bf16", "bf16-fp32-grads"),
        ("Megatron-Bridge 0.1.0 recipes", "fp8", "fp8-parameters-fp32-grads"),
        ("bf16_mixed(), llama3_8b_pretrain_config of Megatron-Bridge", "bf16", "bf16-fp32-grads"),
        ("llama3_8b_pretrain_config of Megatron-Bridge", "nvfp4", "nvfp4"),
        ("scripts/performance, llama3_8b_pretrain_config of Megatron-Bridge", "nvfp4", "nvfp4-bf16-grads"),
        ("Megatron-Bridge recipes; grad_reduce_in_fp32 off (bf16 gradients)", "bf16", "bf16"),
        ("NVIDIA's performance recipes, scripts/performance", "bf16", "bf16"),
        ("", "fp8", "fp8-parameters"),
    ],
)
def test_gradients_are_summed_in_fp32_but_by_performance_scripts(words: str, precision: str, recipe: str) -> None:
    """training/mixed_precision.py, bf16_mixed: grad_reduce_in_fp32 = True."""
    assert _setup(notes=words, precision=precision).precision.name == recipe


def test_a_routers_kernels_are_fused_by_performance_scripts_alone() -> None:
    cells = {"model": "qwen3-30b-a3b", "ep": "8"}
    assert _setup(**cells).kernels.routing == "composed"
    assert _setup(**cells, notes="").kernels.routing == "fused"
    assert _setup(model="llama-3-8b").kernels.activation == "fused"


def test_a_librarys_experts_exchange_by_nccl_and_nothing_is_a_graph() -> None:
    """recipes/gpt_oss/gpt_oss.py, recipes/qwen/qwen3_moe.py of 0.3.1."""
    cells = {"model": "gpt-oss-120b", "ep": "8", "gpu": "gb300", "precision": "mxfp8", "year": "2026-09"}
    own, tuned = _setup(**cells).kernels, _setup(**cells, notes="").kernels
    assert (own.graphs, own.routing, own.expert_order) == ("none", "composed", "around")
    assert (tuned.graphs, tuned.routing, tuned.expert_order) == ("iteration", "fused", "fused")
    assert _setup(model="qwen3-30b-a3b", ep="8").kernels.expert_order == "fused"  # DeepEP


@pytest.mark.parametrize(
    ("model", "targets"),
    [("gpt-oss-20b", "q k v o gate up down"), ("nemotron-3-nano-30b-a3b", "q k v o up down in_proj out_proj"),
     ("qwen3-30b-a3b", "q k v o")],
)  # fmt: skip
def test_a_librarys_adapters_stand_beside_all_linear_layers(model: str, targets: str) -> None:
    """recipes/common.py, _peft_common, and recipes/qwen/qwen3_moe.py; performance scripts adapt attention alone."""
    adapted = {"model": model, "ep": "8", "finetune_kind": "lora"}
    own, tuned = (_setup(**adapted, notes=words).tuning for words in (LIBRARY, "scripts/performance"))
    assert own is not None and own.targets == set(targets.split()) and own.rank == 32
    assert tuned is not None and tuned.targets == {"q", "k", "v"} and tuned.rank == 8


@pytest.mark.parametrize(
    ("cells", "graphs"),
    [
        ({}, "modules"), ({"notes": "15 iterations, packed SFT rows of 32k"}, "none"),
        ({"finetune_kind": "sft"}, "none"), ({"notes": "no SFT yet"}, "modules"), ({"finetune_kind": "cpt"}, "modules"),
        ({"notes": "SFT, scripts/performance"}, "modules"),
    ],
)  # fmt: skip
def test_experts_are_fine_tuned_by_library_recipes(cells: dict[str, str], graphs: str) -> None:
    """scripts/performance/configs has no *_finetune.py but Llama's."""
    bare = {"model": "nemotron-3-super-120b-a12b", "ep": "8", "gpu": "b300-sxm", "notes": "", **cells}
    assert _setup(**bare).kernels.graphs == graphs


def test_jobs_of_ones_own_are_told_of_its_recipes_gradients() -> None:
    told = resolve(Job(model="qwen3-8b", gpu="h100-sxm", gpus=8, seq=4096, framework="megatron-bridge")).notes
    assert any("megatron-bridge usually accumulates them in 4 bytes" in note for note in told)


def test_jobs_of_ones_own_have_what_performance_scripts_set() -> None:
    job = Job(model="qwen3-8b", gpu="h100-sxm", gpus=8, seq=4096, framework="megatron-bridge")
    assert resolve(job).kernels.activation == "fused"


def test_halves_of_a_product_take_torchs_slow_loops() -> None:
    """25.2 million elements of Qwen3 8B at two tensor parallel ranks: 157 us forward, 314 backward (profile of
    BastiaanGroot/ML-Infrastructure-Engineer); 2.48 TB/s is what passes reach on an H100 in the mean."""
    setup = _setup(model="qwen3-8b", tp="2", micro_batch="1", global_batch="64")
    operation = _operation(setup, "mlp.activation")
    assert composed(setup, operation) == HALVES_GATE
    microseconds = [float(size) / 2.48e6 for size in moved_bytes(setup, operation)]
    assert microseconds == pytest.approx([157, 314], rel=0.01)


def test_plain_operations_inside_megatrons_modules_cost_the_host_little() -> None:
    setup, fused = _setup(), _setup(notes="")
    plain, one = (launches(each, _operation(each, "mlp.activation")).issued for each in (setup, fused))
    assert one == (1.0, 1.0)
    assert plain == pytest.approx((1 + PLAIN_ISSUE, 1 + 4 * PLAIN_ISSUE))


def test_a_loss_in_compiled_steps_takes_what_was_measured() -> None:
    """The same profile: 3.27 ms forward, 1.87 backward for 311 million logits."""
    setup = _setup(model="qwen3-8b", tp="2", micro_batch="1", global_batch="64")
    seconds = [float(size) / 2.48e9 for size in moved_bytes(setup, _operation(setup, "loss"))]
    assert seconds == pytest.approx([3.27, 1.87], rel=0.02)


@pytest.mark.parametrize(
    ("framework", "kernel"), [("megatron-bridge", "steps"), ("megatron-core", "steps"), ("fsdp", None)]
)
def test_notes_of_megatrons_fused_loss_count_for_time_as_for_memory(framework: str, kernel: str | None) -> None:
    assert _setup(framework=framework, notes="fused cross entropy").kernels.loss_kernel == kernel


@pytest.mark.parametrize(
    ("cells", "gigabytes"),
    [
        ({}, 44.3), ({"tp": "2"}, 24.7), ({"model": "qwen3-8b", "tp": "2", "micro_batch": "1"}, 49.2),
        ({"model": "qwen3-8b", "tp": "4", "micro_batch": "1"}, 30.2),
        ({"model": "qwen3-8b", "tp": "2", "micro_batch": "1", "precision": "fp8"}, 47.2),
        ({"pp": "2", "notes": f"{LIBRARY}; peak of rank 0"}, 27.3),
    ],
)  # fmt: skip
def test_peaks_of_qwen3_in_megatron_bridges_library(cells: dict[str, str], gigabytes: float) -> None:
    """BastiaanGroot/ML-Infrastructure-Engineer training/README.md, on two nodes of eight H100."""
    assert (replay(Run({**CELLS, **cells}, 1)).predicted_peak or 0) / 1e9 == pytest.approx(gigabytes, rel=0.03)


def test_gradients_in_fp32_beside_8_bit_parameters() -> None:
    assert _setup(precision="fp8").precision.name == "fp8-parameters-fp32-grads"
    assert _setup(precision="fp8", notes="").precision.name == "fp8-parameters"


@pytest.mark.parametrize(
    ("words", "rope"),
    [("apply_rope_fusion not set", "eager"), ("--no-rope-fusion", "eager"), ("without fused rope", "eager"),
     ("apply_rope_fusion True", "fused"), ("", "fused")],
)  # fmt: skip
def test_notes_tell_of_rotation_without_a_kernel(words: str, rope: str) -> None:
    setup = _setup(framework="megatron-core", notes=words)
    assert setup.kernels.rope == rope
    forward = launches(setup, _operation(setup, "attention.heads")).issued[0]
    assert forward == pytest.approx(1 + 9 * PLAIN_ISSUE * (rope == "eager"))
