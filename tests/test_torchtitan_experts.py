"""What torchtitan's experts keep in plain torch, counted with saved_tensors_hooks in torch 2.13, what FSDP2 holds while
it reduces their gradients, and how the loss was cut before chunks had a length."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from distsim import Job
from distsim.engine.figures import Figures
from distsim.engine.footprint.buffers import gone_at_step, reduced_unit_bytes
from distsim.engine.footprint.states import states
from distsim.engine.jobs.resolve import resolve
from distsim.engine.jobs.stages import build_stages
from distsim.engine.memory import memory_of
from distsim.engine.runs.setup import setup_of
from distsim.interop.runs import Run
from distsim.layers.ledger import Operation

CELLS = {"model": "gpt-oss-20b", "gpu": "gb300", "n_gpus": "64", "seq_len": "8192", "micro_batch": "4", "year": "2026",
         "global_batch": "256", "precision": "fsdp-bf16", "framework": "torchtitan", "zero_stage": "3",
         "source": "somebody's table"}  # fmt: skip


def rows(model: str, **more: Any) -> dict[str, Operation]:
    job = Job(model=model, gpu="gb300", gpus=8, framework="torchtitan", seq=4096, zero=3, **more)
    block = build_stages(resolve(job))[0].layers[-1][0]
    return {one.name: one for one in block.operations}


@pytest.mark.parametrize(("compiled", "kept", "made"), [(False, 4, 12), (True, 2, 2)])
def test_routers_weights_multiply_fp32_copies_of_outputs_where_nothing_compiles(
    compiled: bool, kept: float, made: float
) -> None:
    combine = rows("qwen3-30b-a3b", compile=compiled)["mlp.combine"]
    output = next(tensor for tensor in combine.saved if tensor.name == "mlp.experts.output")
    assert output.bytes_each == kept
    in_transit = sum(tensor.size_bytes for tensor in combine.transient_backward)
    assert in_transit / output.elements == made  # a gradient, and its products by weights and by outputs


def test_clamped_halves_keep_four_tensors_beside_what_they_were_cut_from() -> None:
    kept = {tensor.name: tensor for tensor in rows("gpt-oss-20b")["mlp.experts.activation"].saved}
    assert kept["mlp.experts.activated"].elements == 2 * kept["mlp.experts.preactivation"].elements
    plain = {tensor.name: tensor for tensor in rows("qwen3-30b-a3b")["mlp.experts.activation"].saved}
    assert plain["mlp.experts.activated"].elements == plain["mlp.experts.preactivation"].elements / 2
    fused = rows("gpt-oss-20b", compile=True)["mlp.experts.activation"].saved
    assert [tensor.name for tensor in fused] == ["mlp.experts.preactivation"]


@pytest.mark.parametrize(
    ("notes", "year", "parts", "tokens"),
    [
        ("chunked loss", "2026", 8, 8192),
        ("chunked loss", "2026.9", 1, 8192),
        ("eager loss in chunks of 4,096 tokens", "2026", 1, 4096),
        ("chunked loss, 16 loss chunks", "2026", 16, 8192),
    ],
)
def test_chunks_of_a_loss_are_those_of_the_runs_software(notes: str, year: str, parts: int, tokens: int) -> None:
    kernels = setup_of(Run({**CELLS, "notes": notes, "year": year}, 1)).kernels
    assert (kernels.loss, kernels.loss_chunks, kernels.loss_chunk_tokens) == ("with-head", parts, tokens)


def test_fsdp2_holds_a_layers_gradients_and_the_copy_that_is_being_reduced() -> None:
    """torch 2.13, _fsdp_param_group.py, post_backward: a layer's bf16 gradients are copied to an fp32 input, which is
    kept until the next layer's is made."""
    job: dict[str, Any] = {"model": "gpt-oss-120b", "gpu": "gb300", "framework": "torchtitan", "seq": 8192, "zero": 3,
                           "recompute": "full", "loss": "chunked-head"}  # fmt: skip
    shared, alone = resolve(Job(**job, gpus=64)), resolve(Job(**job, gpus=1))
    stage = build_stages(shared)[0]
    layer = sum(p.elements for one in stage.layers[0][0].operations for p in one.parameters)
    assert reduced_unit_bytes(shared, stage) == (2 * layer, 4 * layer)
    assert reduced_unit_bytes(alone, build_stages(alone)[0]) == (0, 0)
    older = shared.framework.model_copy(
        update={"buffers": shared.framework.buffers.model_copy(update={"gathers_copies": False})}
    )
    peaks = [
        {moment.name: moment.total for moment in memory_of(setup).worst.moments}
        for setup in (shared, replace(shared, framework=older))
    ]
    grown = {name: peaks[0][name] - peaks[1][name] for name in peaks[0]}
    assert 2 * layer < grown["backward of the last layer"] < 6 * layer  # its own, the output layer's before
    assert grown["backward of layer 35 of 36"] >= 4 * layer - 1
    assert grown["loss"] == 0
    gone = gone_at_step(shared, stage, states(shared, stage.held(), Figures()))
    assert grown["optimizer step"] == -gone < 0  # no unit is gathered then
