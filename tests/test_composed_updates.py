"""Updates that software makes of elementary operations, and what trainers change of an optimizer's states."""

from typing import Any

import pytest

import distsim
from distsim import catalog
from distsim.engine.jobs.exchange import exchange_of
from distsim.engine.jobs.resolve import resolve
from distsim.engine.jobs.stages import build_stages
from distsim.engine.kernels.weights import optimizer_seconds
from distsim.engine.runs.setup import setup_of
from distsim.interop.runs import Run
from distsim.specs.job import Job

TABLE, PARAMETERS = 128_256 * 4096, 8_030_261_248
"""Elements of Llama 3's embedding, as many of its output layer, and of the whole model of 8B."""
JOB: dict[str, Any] = {
    "model": "llama-3.1-8b", "gpu": "h200-sxm", "gpus": 1, "framework": "huggingface", "seq": 2048,
    "precision": "pure-bf16", "recompute": "full",
}  # fmt: skip


def _stage(**options: Any) -> Any:
    return distsim.memory(**{**JOB, **options}).stages[0]


def _update(name: str = "adafactor", **options: Any) -> float:
    """Bytes that live during Adafactor's update, and not during that of a fused kernel."""
    total = {}
    for optimizer in (name, "sgd"):
        stage = _stage(**options, optimizer=optimizer)
        step = next(one.total for one in stage.moments if one.name == "optimizer step")
        total[optimizer] = float(step - stage.categories["optimizer"])
    return total[name] - total["sgd"]


@pytest.mark.parametrize(
    ("name", "precision", "each"),
    [("adafactor-transformers", "pure-bf16", 16), ("adafactor-transformers", "fp32", 8),
     ("adafactor", "pure-bf16", 2), ("adafactor", "fp32", 4)],
)  # fmt: skip
def test_adafactor_holds_copies_of_its_largest_parameter(name: str, precision: str, each: int) -> None:
    """Recorded on one parameter: transformers' update of 16-bit weights holds four fp32 tensors, of fp32 ones two;
    torch's one as wide as the parameter."""
    found = _update(name, precision=precision)
    assert found == pytest.approx(each * TABLE, rel=1e-3)


def test_a_shard_of_the_largest_parameter_is_updated() -> None:
    """FSDP2's local tensors are the shards: an eighth of what one GPU holds."""
    alone, shared = (_update(framework="torchtune", **options) for options in ({}, {"gpus": 8, "zero": 3}))
    assert (alone, shared) == (pytest.approx(2 * TABLE, rel=1e-3), pytest.approx(2 * TABLE / 8, rel=1e-3))


@pytest.mark.parametrize(
    ("name", "precision", "moved"),
    [("adafactor-transformers", "pure-bf16", 102), ("adafactor-transformers", "fp32", 84),
     ("adafactor", "pure-bf16", 34), ("adafactor", "fp32", 68)],
)  # fmt: skip
def test_adafactor_moves_what_its_operations_read_and_write(name: str, precision: str, moved: int) -> None:
    """Bytes recorded for an element and three passes that clip the gradient, at the bandwidth that a fused AdamW of
    seven accesses and these reaches."""
    width = 4 if precision == "fp32" else 2
    job = {**JOB, "precision": precision}
    slow, fused = (distsim.step(**job, optimizer=one).breakdown["optimizer"] for one in (name, "adamw"))
    assert slow / fused == pytest.approx((moved + 3 * width) / (10 * width), rel=0.03)


@pytest.mark.parametrize(("precision", "gradient"), [("bf16", 2), ("bf16-fp32-grads", 4)])
def test_masters_are_read_from_gradients_and_written_to_parameters(precision: str, gradient: int) -> None:
    """Beside the 68 bytes of operations in fp32: the gradient is read, an fp32 copy of it written, the master read, the
    narrow parameter written; nothing clips it."""
    job: dict[str, Any] = {**JOB, "framework": "torchtune", "optimizer": "adafactor"}
    found, plain = (distsim.step(**{**job, "precision": one}).breakdown["optimizer"] for one in (precision, "fp32"))
    assert found / plain == pytest.approx((68 + gradient + 4 + 4 + 2) / 68, rel=1e-3)


@pytest.mark.parametrize("framework", ["megatron-core", "nanotron", "llm-foundry", "torchtitan"])
def test_adafactor_is_built_from_elementary_operations_wherever_torch_runs_it(framework: str) -> None:
    """Where a framework had no word on it, it had cost as little as SGD, and advice recommended it for that."""
    job: dict[str, Any] = {**JOB, "framework": framework}
    found = {name: distsim.step(**job, optimizer=name).breakdown["optimizer"] for name in ("adafactor", "adamw")}
    assert found["adafactor"] > found["adamw"]


def test_lamb_moves_more_than_adam() -> None:
    found = {name: distsim.step(**JOB, optimizer=name).breakdown["optimizer"] for name in ("lamb", "adamw")}
    assert 1.3 < found["lamb"] / found["adamw"] < 1.5


@pytest.mark.parametrize(("optimizer", "moved"), [("adamw", 7), ("adafactor", 17)])
def test_gradients_that_are_not_clipped_are_not_read_for_their_norm(optimizer: str, moved: int) -> None:
    """torch reads them for the norm, then reads and writes them to scale them, in 12 bytes of fp32: 2.6 TB/s of an
    H100's 3.35 by tests/oracles/gpu_kernels.csv, as fused AdamW reaches in 28."""
    job: dict[str, Any] = {**JOB, "framework": "torchtune", "precision": "fp32", "optimizer": optimizer}
    clipped, free = (distsim.step(**job, clip=clip).breakdown["optimizer"] for clip in (True, False))
    assert free / clipped == pytest.approx(moved / (moved + 3), rel=1e-3)


def test_updates_that_scale_as_they_read_clip_in_one_pass() -> None:
    job: dict[str, Any] = {**JOB, "gpu": "h100-sxm", "framework": "t5x", "precision": "fp32", "optimizer": "adamw"}
    clipped, free = (distsim.step(**job, clip=clip).breakdown["optimizer"] for clip in (True, False))
    assert free / clipped == pytest.approx(7 / 8, rel=1e-3)


@pytest.mark.parametrize(
    ("notes", "clipped"),
    [("", True), ("own training loop", False), ("own training loop; gradient clipping", True), ("no clipping", False),
     ("max_grad_norm=1.0; own training loop", True), ("max_grad_norm 0.0", False), ("max_grad_norm=0.5", True)],
)  # fmt: skip
def test_loops_of_ones_own_clip_where_notes_say_so(notes: str, clipped: bool) -> None:
    cells = {"model": "qwen3-0.6b", "gpu": "rtx-4090", "n_gpus": "1", "seq_len": "512", "micro_batch": "2",
             "global_batch": "2", "framework": "huggingface", "precision": "amp-bf16", "notes": notes}  # fmt: skip
    assert exchange_of(setup_of(Run(cells, 2))).clip is clipped


def test_foreach_adamw_moves_what_a_profiler_saw() -> None:
    """Qwen3 0.6B in fp32 on an RTX 4090: 28.8% of 181.9 ms of kernels a step, 52.4 ms, at the 0.94 of the bandwidth
    that the same report reads at. No zeros are written (set_to_none), no norm is taken."""
    setup = resolve(Job(model="qwen3-0.6b", gpu="rtx-4090", gpus=1, framework="torch-ddp", precision="amp-bf16"))
    stage = build_stages(setup)[0]
    seconds = float(optimizer_seconds(setup, stage))
    assert seconds == pytest.approx(80 * 596_049_920 / 1008e9, rel=2e-3)
    assert 0.88 < seconds / 0.0524 < 0.94


def test_compiled_programs_fuse_adafactor() -> None:
    """XLA makes one kernel of it, which reads and writes each element a few times."""
    job: dict[str, Any] = {**JOB, "gpu": "tpu-v5p", "gpus": 8, "zero": 3, "framework": "maxtext"}
    found = {name: distsim.step(**job, optimizer=name).breakdown["optimizer"] for name in ("adafactor", "adamw")}
    assert found["adafactor"] < found["adamw"]


@pytest.mark.parametrize(
    ("framework", "zero", "each"),
    [("torchtitan", 3, 0), ("fsdp", 3, 4), ("deepspeed", 2, 4), ("fsdp", 0, 0), ("huggingface", 1, 4)],
)
def test_flat_shards_have_no_rows_and_columns(framework: str, zero: int, each: int) -> None:
    """FSDP1 and DeepSpeed step views of one dimension: the second moment is as large as what it is of."""
    found = _stage(framework=framework, zero=zero, gpus=8, precision="fp32", optimizer="adafactor")
    shards = 8 if zero else 1
    assert found.categories["optimizer"] == pytest.approx(each * PARAMETERS / shards, abs=4e7)


def test_trainer_keeps_8_bit_optimizers_from_embeddings() -> None:
    """transformers registers nn.Embedding with 32 bits: two fp32 moments of the table, not of the output layer."""
    narrow, wide = 2 * (1 + 4 / 256), 8
    plain = _stage(framework="torchtune", optimizer="adamw_bnb_8bit").categories["optimizer"]
    trainer = _stage(optimizer="adamw_bnb_8bit").categories["optimizer"]
    assert plain == pytest.approx(narrow * PARAMETERS, rel=1e-6)
    assert trainer - plain == pytest.approx((wide - narrow) * TABLE, rel=1e-6)


def test_a_table_that_is_the_output_layer_too_is_an_embedding() -> None:
    tied = _stage(model="gemma-2-2b", optimizer="paged_adamw_8bit").categories["optimizer"]
    plain = _stage(model="gemma-2-2b", framework="torchtune", optimizer="paged_adamw_8bit").categories["optimizer"]
    assert tied - plain == pytest.approx((8 - 2 * (1 + 4 / 256)) * 256_000 * 2304, rel=1e-6)


def test_others_8_bit_states_are_all_narrow() -> None:
    """torchao is not bitsandbytes; DeepSpeed steps flat copies, of which nothing is registered; adapters are none."""
    torchao = _stage(optimizer="adamw_torch_8bit").categories["optimizer"]
    assert torchao == pytest.approx(2 * (1 + 4 / 256) * PARAMETERS, rel=1e-6)
    flat = _stage(optimizer="adamw_bnb_8bit", gpus=8, zero=2).categories["optimizer"]
    assert flat == pytest.approx(torchao / 8, rel=1e-6)
    adapters: dict[str, Any] = {"lora_rank": 16, "optimizer": "adamw_bnb_8bit"}
    found = [_stage(**adapters, **more).categories["optimizer"] for more in ({}, {"framework": "torch-ddp"})]
    assert found[0] == found[1] > 0


def test_trainers_adafactor_is_another_than_torchs() -> None:
    """torch keeps states as wide as the parameter; a note tells the other, which rows of tables mean."""
    found = {name: distsim.memory(**{**JOB, "optimizer": name}) for name in ("adafactor", "adafactor-transformers")}
    assert ["adafactor-transformers" in " ".join(one.setup.notes) for one in found.values()] == [True, False]
    torch, own = (one.stages[0].categories["optimizer"] for one in found.values())
    assert torch < own
    cells = {"id": "a", "model": "llama-3.1-8b", "gpu": "h200-sxm", "n_gpus": "1", "seq_len": "2048",
             "micro_batch": "1", "framework": "huggingface", "optimizer": "adafactor"}  # fmt: skip
    assert setup_of(Run(cells, 1)).job.optimizer == "adafactor-transformers"


def test_8_bit_updates_of_bitsandbytes_compute_longer_than_they_move() -> None:
    """Seven cycles of a unit an element at 0.7 of the best rates; torchao's are compiled and move bytes."""
    eight, torchao, fused = (distsim.step("llama-3.1-8b", gpu="h200-sxm", gpus=1, micro_batch=1, seq=512,
                                          framework="huggingface", precision="pure-bf16", optimizer=name)
                             for name in ("adamw-8bit", "adamw-8bit-torchao", "adamw"))  # fmt: skip
    parts = [one.breakdown["optimizer"] for one in (eight, torchao, fused)]
    chip = catalog.load("gpus", "h200-sxm").chip
    assert chip.units and chip.clock
    assert parts[0] == pytest.approx(8.03e9 * 7 / (chip.units * chip.clock), rel=0.2)
    assert parts[1] < parts[2] < parts[0]
    spread = distsim.step("llama-3.1-8b", gpu="h200-sxm", gpus=8, zero=3, framework="fsdp", optimizer="adamw-8bit")
    assert spread.breakdown["optimizer"] < parts[0] / 6
