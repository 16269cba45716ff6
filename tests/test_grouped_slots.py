"""GShard's experts: slots are shared by groups of tokens, and Alpa's table counts their products with masks."""

from __future__ import annotations

import pytest

from distsim.engine.evidence import replay
from distsim.engine.jobs.models import load_model
from distsim.engine.jobs.resolve import Setup, resolve
from distsim.engine.jobs.stages import build_stages
from distsim.engine.kernels.passes import moved_bytes
from distsim.formulas.flops import slotted_flops_per_token
from distsim.interop.runs import Run
from distsim.interop.runs.flop_words import flop_count
from distsim.layers.ledger import Operation
from distsim.specs.job import Job

GROUP, HIDDEN = 2048, 1024
ALPA = {"model": "GShard-MoE 2.4B", "seq_len": "1024", "gpu": "v100-sxm2-16gb", "n_gpus": "8", "precision": "fp16",
        "recompute": "full", "optimizer": "adam", "framework": "alpa", "year": "2022",
        "flops_kind": "alpa MoE formula", "notes": "Alpa intra-op only"}  # fmt: skip


def _setup(micro_batch: int, seq: int = 1024, framework: str = "alpa") -> Setup:
    return resolve(
        Job(
            model="gshard-moe-2.4b",
            gpu="v100-sxm2-16gb",
            gpus=8,
            ep=8,
            framework=framework,
            seq=seq,
            micro_batch=micro_batch,
            capacity_factor=1.0,
        )
    )


def _operations(setup: Setup) -> dict[str, Operation]:
    blocks = [block for block, _ in build_stages(setup)[0].layers]
    found = (block.operations for block in blocks if any(one.name == "mlp.dispatch" for one in block.operations))
    return {operation.name: operation for operation in next(found)}


@pytest.mark.parametrize(
    ("name", "billions"),
    [("0.38b", 0.38), ("0.69b", 0.69), ("1.3b", 1.35), ("2.4b", 2.4), ("10b", 10.2), ("27b", 26.6), ("70b", 70.4)],
)
def test_presets_have_the_parameters_of_their_names(name: str, billions: float) -> None:
    assert load_model(f"gshard-moe-{name}").parameters == pytest.approx(billions * 1e9, rel=0.02)


def test_a_token_meets_the_slots_of_its_group() -> None:
    """2 x tokens x slots of 2,048 tokens for two experts each x width, however sequences make the tokens up."""
    eight = _operations(_setup(8))["mlp.dispatch"]
    assert eight.flops_forward == 2 * 8 * 1024 * (2 * GROUP) * HIDDEN
    assert _operations(_setup(4, seq=2048))["mlp.dispatch"].flops_forward == eight.flops_forward
    kept = sum(float(tensor.elements) for tensor in eight.saved)
    assert kept == 8 * 1024 * 2 * GROUP
    assert _operations(_setup(8))["mlp.combine"].flops_backward == 2 * eight.flops_forward


def test_a_micro_batch_smaller_than_a_group_is_one() -> None:
    assert _operations(_setup(1))["mlp.dispatch"].flops_forward == 2 * 1024 * (2 * 1024) * HIDDEN


def test_deepspeeds_gate_has_one_group_of_all_tokens() -> None:
    whole = _operations(_setup(8, framework="megatron-deepspeed-2021"))["mlp.dispatch"]
    assert whole.flops_forward == 8 * 1024 / GROUP * _operations(_setup(8))["mlp.dispatch"].flops_forward


def test_its_masks_are_made_one_operation_at_a_time() -> None:
    """Two outer products in fp32 (8 bytes an element), their sum (12), a comparison (5) and two casts (3 and 6); of
    backward a cast (6) and two reads (8). XLA makes masks in one kernel."""
    setup = _setup(8, framework="megatron-deepspeed-2021")
    masks = _operations(setup)["mlp.experts.masks"]
    elements = (8 * 1024) * (8 * 1024 * 2)
    assert moved_bytes(setup, masks) == (34 * elements, 14 * elements)
    assert "mlp.experts.masks" not in _operations(_setup(8))


def test_the_count_of_alpas_table() -> None:
    """Its rows of intra-operator parallelism of the 2.4B print 13.5486 s and 46.7228 TFLOP/s of eight GPUs: as counted
    here 1.4% less."""
    counted = slotted_flops_per_token(16, 1024, 32000, 1024, 8192, 16, 2, GROUP) * 1024 * 1024
    assert counted == pytest.approx(13.5486 * 8 * 46.7228e12, rel=0.015)
    words = flop_count("alpa MoE formula")
    assert words is not None and words.slotted
    hardware = flop_count("hardware 96Bslh^2(...) (remat)")
    assert hardware is not None and not hardware.slotted
    timed = replay(Run({**ALPA, "tflops_per_gpu_reported": "46.7228"}, 2))
    assert timed.measured_seconds == pytest.approx(13.5486, rel=0.015)


def test_the_formula_says_nothing_of_other_models() -> None:
    found = replay(Run({**ALPA, "model": "gpt3-1.3b", "tp": "8", "pp": "1", "global_batch": "64", "micro_batch": "8",
                        "tflops_per_gpu_reported": "40"}, 2))  # fmt: skip
    assert found.measured_seconds is None


@pytest.mark.parametrize(
    ("cells", "framework", "layout"),
    [
        ({}, "alpa", (1, 8, 8)),
        ({"notes": "Alpa auto plan"}, "alpa", (2, 4, 8)),
        ({"notes": "DeepSpeed EP + ZeRO baseline; OOM at 64 GPUs"}, "megatron-deepspeed-2021", (1, 8, 8)),
        ({"model": "GShard-MoE 0.38B", "n_gpus": "1", "notes": "Alpa auto plan"}, "alpa", (1, 1, 8)),
        ({"model": "GShard-MoE 0.69B", "n_gpus": "2", "notes": "Alpa auto plan"}, "alpa", (1, 2, 8)),
    ],
    ids=["within operators", "its search", "DeepSpeed", "one GPU", "two"],
)
def test_what_alpas_table_leaves_to_its_scripts(cells: dict[str, str], framework: str, layout: tuple[int, ...]) -> None:
    found = replay(Run({**ALPA, **cells, "tflops_per_gpu_reported": "40"}, 2))
    assert found.setup is not None, found.reason
    y = found.setup.layout
    assert (found.setup.framework.name, (y.pp, y.ep, y.micro_batch)) == (framework, layout)
    assert y.global_batch == 1024 and found.setup.job.capacity_factor == 1.0


def test_others_baselines_are_what_their_cells_say() -> None:
    told = {"framework": "megatron-core", "tp": "1", "pp": "1", "ep": "8", "global_batch": "64", "micro_batch": "8"}
    found = replay(Run({**ALPA, **told, "notes": "DeepSpeed EP + ZeRO baseline", "step_time_s": "1"}, 2))
    assert found.setup is not None, found.reason
    assert found.setup.framework.name == "megatron-core"


def test_what_nobody_chose_is_still_unknown() -> None:
    big = {"model": "GShard-MoE 70B", "n_gpus": "64"}
    assert "the layout is unknown" in replay(Run({**ALPA, **big, "step_time_s": "1291.8536"}, 2)).reason


def test_alpas_peak_of_eight_gpus() -> None:
    """7.4558 GB of memory that XLA had allocated: eight sequences at once leave 1% to explain."""
    found = replay(Run({**ALPA, "step_time_s": "13.5486", "mem_peak_gb_per_gpu": "7.4558"}, 2))
    assert found.predicted_peak == pytest.approx(7.4558e9, rel=0.03)
