"""Passes over memory beside products that plain torch makes: gradients of biases, casts, copies, residual additions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from distsim.engine.jobs.resolve import Setup, resolve
from distsim.engine.jobs.stages import build_stages
from distsim.engine.kernels.chip import Chip
from distsim.engine.kernels.compute import operation_sums
from distsim.engine.kernels.passes import bias_bytes, bias_gradient_bytes, bias_sums, input_bytes, moved_bytes
from distsim.engine.kernels.plain_costs import STRIDED_PACE, slowed
from distsim.engine.runs.setup import setup_of
from distsim.interop.runs import Run
from distsim.layers.ledger import Operation
from distsim.specs.job import Job


def _operation(name: str, **options: Any) -> tuple[Setup, Operation, float]:
    """A row of the ledger's first stage, and the elements of the residual stream."""
    setup = resolve(Job.read({"gpus": 1, "gpu": "a100-sxm4-80gb", "seq": 1024, "micro_batch": 2, **options}))
    rows = [one for block, _ in build_stages(setup)[0].layers for one in block.operations]
    return setup, next(one for one in rows if one.name == name), 2 * 1024 * setup.model.hidden


def test_gradients_of_biases_read_what_outputs_receive() -> None:
    gpt: dict[str, Any] = {"model": "gpt2-xl", "framework": "torch-ddp"}
    setup, up, stream = _operation("mlp.up", precision="bf16", **gpt)
    assert bias_gradient_bytes(setup, up) == 2 * 4 * stream
    assert bias_sums(setup, up) == 1
    llama, up, _ = _operation("mlp.up", model="llama-7b", framework="huggingface")
    assert bias_gradient_bytes(llama, up) == bias_sums(llama, up) == 0
    compiled, up, _ = _operation("mlp.up", model="gpt2-xl", framework="torchtitan", compile=True)
    assert bias_gradient_bytes(compiled, up) > 0  # a reduction of its own (tests/oracles/gpu_kernels.csv)
    assert bias_sums(compiled, up) == 0


def test_biases_took_a_pass_of_their_own_before_2022() -> None:
    """pytorch pull request 71200: until then outputs were read and written once more, two bytes each way."""
    setup, up, stream = _operation("mlp.up", precision="bf16", model="gpt2-xl", framework="torch-ddp")
    earlier = replace(setup, kernels=setup.kernels.model_copy(update={"product_bias": "pass"}))
    assert (bias_bytes(setup, up), bias_bytes(earlier, up)) == (0, 4 * 4 * stream)
    row = {"source": "ours", "model": "bert-large", "seq_len": "128", "gpu": "v100-sxm2-16gb", "n_gpus": "8", "dp": "8",
           "micro_batch": "16", "global_batch": "128", "precision": "fp16"}  # fmt: skip
    for framework in ("torch-ddp", "huggingface", "deepspeed"):
        told = {year: setup_of(Run({**row, "framework": framework, "year": year}, 1)) for year in ("2021-12", "2022")}
        kinds = [one.kernels.product_bias for one in told.values()]
        assert kinds == ["pass", "epilogue"], framework
    own = {**row, "framework": "deepspeed", "year": "2020", "notes": "DeepSpeed transformer kernel"}
    assert setup_of(Run(own, 1)).kernels.product_bias == "epilogue"


def test_autocast_casts_for_each_product_and_adds_their_gradients() -> None:
    """Three projections of a Llama cast the fp32 stream each (4 + 2 bytes); their gradients are two sums of fp32."""
    job: dict[str, Any] = {"model": "llama-7b", "framework": "huggingface"}
    setup, qkv, stream = _operation("attention.qkv", precision="amp-bf16", **job)
    assert input_bytes(setup, qkv) == (3 * stream * 6, 3 * stream * 6 + 2 * stream * 12)
    _, down, _ = _operation("mlp.down", precision="amp-bf16", **job)
    assert input_bytes(setup, down) == (0, 0)  # which reads what is in 16 bits already
    plain, qkv, _ = _operation("attention.qkv", precision="bf16", **job)
    assert input_bytes(plain, qkv) == (0, 2 * stream * 6)  # sums of 2-byte gradients, with nothing cast


def test_residual_additions() -> None:
    """Three tensors each way; dropout's mask each way, its result where nothing fuses it, its gradient."""
    llama, added, stream = _operation("mlp.residual", model="llama-7b", framework="huggingface", precision="bf16")
    assert moved_bytes(llama, added) == (6 * stream, 6 * stream)
    plain, added, stream = _operation("mlp.residual", model="gpt2-xl", framework="torch-ddp", precision="bf16")
    assert moved_bytes(plain, added) == (11 * stream, 11 * stream)
    fused, added, stream = _operation("mlp.residual", model="gpt2-xl", framework="megatron-core", precision="bf16")
    assert moved_bytes(fused, added) == (7 * stream, 11 * stream)


@pytest.mark.parametrize(("model", "copies"), [("gpt2-xl", 4), ("llama-7b", 2)])
def test_batched_products_copy_what_is_not_laid_out_by_heads(model: str, copies: int) -> None:
    """Queries, keys, values and the output; what a rotation wrote anew is. Reading and writing are two bytes each."""
    options: dict[str, Any] = {"model": model, "framework": "huggingface", "precision": "bf16"}
    flash, heads, stream = _operation("attention.heads", attention="flash", **options)
    composed, again, _ = _operation("attention.heads", attention="eager", **options)
    more = [b - a for a, b in zip(moved_bytes(flash, heads), moved_bytes(composed, again), strict=True)]
    slower = slowed(STRIDED_PACE, composed.accelerator)
    packed = 3 * stream * 4 * (flash.kernels.qkv_matrices == 1)  # side by side; composed, part of the copies
    assert more == pytest.approx([copies * stream * 4 * slower, copies * stream * 4 * slower - packed])


@pytest.mark.parametrize(("model", "forward", "backward"), [("clip-vit-large-patch14", 14, 28), ("esm2-650m", 22, 48)])
def test_activations_without_powers_stay_narrow_under_autocast(model: str, forward: int, backward: int) -> None:
    """Quick GELU is three operations and GELU by erf five, each reading and writing two bytes; they had been priced as
    GELU by tanh, whose power autocast makes in fp32: 76 and 118 bytes."""
    options: dict[str, Any] = {"model": model, "framework": "huggingface", "precision": "amp-bf16", "seq": 257}
    setup, row, _ = _operation("mlp.activation", **options)
    elements = row.shape[0]
    assert moved_bytes(setup, row) == (pytest.approx(forward * elements), pytest.approx(backward * elements))


CLIP = {"source": "ours", "model": "clip-vit-large-patch14", "seq_len": "257", "gpu": "a100-sxm4-40gb", "n_gpus": "8",
        "dp": "8", "precision": "amp", "year": "2022"}  # fmt: skip


def test_open_clip_trains_with_torchs_own_gelu() -> None:
    row = {**CLIP, "micro_batch": "16", "global_batch": "128"}
    told = {("open_clip (torch-ddp)", ""): "gelu", ("open_clip", "ViT-L-14-quickgelu"): "quick_gelu",
            ("huggingface", ""): "quick_gelu"}  # fmt: skip
    for (framework, notes), activation in told.items():
        assert setup_of(Run({**row, "framework": framework, "notes": notes}, 1)).model.activation == activation


def test_what_does_not_fit_without_scores_either_computed_layers_again() -> None:
    """Scores in memory are only assumed where nobody names the kernel: they excuse a job that would fit without."""
    row = {**CLIP, "framework": "open_clip (torch-ddp)"}
    found = {
        batch: setup_of(Run({**row, "micro_batch": str(batch), "global_batch": str(8 * batch)}, 1)).recompute
        for batch in (16, 112, 448)
    }
    assert found == {16: "none", 112: "none", 448: "full"}


def test_copies_for_batched_products_come_from_memory() -> None:
    """The row of heads without rotation reads and writes nothing of its own; its copies are as large as all others."""
    setup, heads, stream = _operation("attention.heads", model="bert-large", framework="torch-ddp", attention="eager",
                                      micro_batch=64, precision="fp16")  # fmt: skip
    chip = Chip(setup)
    moved = moved_bytes(setup, heads)[0]
    slower = slowed(STRIDED_PACE, setup.accelerator)
    assert moved == pytest.approx(2 * 4 * 2 * 32 * stream * slower)  # queries, keys, values and the result, both ways
    assert operation_sums(setup, chip, heads)[0].memory > 0.9 * moved / chip.bandwidth


def test_products_that_compute_little_are_as_fast_as_a_copy() -> None:
    """Scores of heads 64 wide do 32 operations a byte that they write."""
    setup, scores, _ = _operation("attention.scores", model="bert-large", framework="torch-ddp", attention="eager",
                                  micro_batch=64, precision="fp16")  # fmt: skip
    moved = scores.bytes_read + scores.bytes_written
    assert operation_sums(setup, Chip(setup), scores)[0].matmul == pytest.approx(moved / (0.855 * 2.039e12))


@pytest.mark.parametrize(("framework", "split"), [("fsdp", 0), ("nemo-automodel", 0), ("torchtitan", 1)])
def test_tensor_parallel_torch_splits_no_sequence_unless_told(framework: str, split: int) -> None:
    job: dict[str, Any] = {"model": "llama-3-8b", "gpu": "h100-sxm", "gpus": 8, "tp": 4, "framework": framework}
    assert resolve(Job.read(job)).layout.sequence_parallel == split
    assert resolve(Job.read({**job, "sequence_parallel": True})).layout.sequence_parallel == 1


def test_biases_of_relative_positions_gather_gradients_of_all_layers() -> None:
    """T5 adds each layer's gradient of its scores to that of the biases, all samples apart: three passes, in fp32 under
    autocast; attention to the encoder has none. A mask of its own has BERT, but no gradient of it."""
    job: dict[str, Any] = {"framework": "huggingface", "attention": "eager", "dropout": False}
    for precision, more in (("pure-bf16", 6), ("fp32", 12), ("amp-bf16", 18)):
        t5, own, _ = _operation("attention.softmax", model="t5-base", precision=precision, **job)
        bert, other, _ = _operation("attention.softmax", model="bert-base", precision=precision, **job)
        ways = [moved_bytes(one, row)[1] / row.shape[0] for one, row in ((t5, own), (bert, other))]
        assert ways[0] - ways[1] == pytest.approx(more)
