"""What XLA fuses on systolic arrays and what it leaves on GPUs, and what rows of JAX on GPUs say of their attention."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from distsim import Job
from distsim.engine.advice.changes import changes
from distsim.engine.exchanges.flows import Span
from distsim.engine.jobs.resolve import Setup, resolve
from distsim.engine.jobs.stages import build_stages
from distsim.engine.kernels.chip import Chip
from distsim.engine.kernels.compute import operation_sums
from distsim.engine.kernels.loss_passes import LOSS_BYTES
from distsim.engine.kernels.passes import moved_bytes
from distsim.engine.networks.links import network_for
from distsim.engine.networks.pricing import price
from distsim.engine.runs.setup import setup_of
from distsim.engine.traffic import comm_of
from distsim.errors import DistsimError
from distsim.interop.runs import Run
from distsim.layers.ledger import Operation

PAX = {
    "model": "GPT-3 126M", "family": "gpt", "layers": "12", "hidden": "768", "heads": "12", "head_dim": "64",
    "ffn_hidden": "3072", "vocab": "50304", "gpu": "a100-sxm4-80gb", "n_gpus": "64", "seq_len": "2048",
    "micro_batch": "4", "global_batch": "256", "precision": "bf16", "zero_stage": "0", "framework": "paxml",
    "tp": "1", "pp": "1", "year": "2024",
}  # fmt: skip
WITH_KERNELS = "Transformer Engine; Paxml on JAX/XLA"


def row(**cells: str) -> Run:
    return Run({**PAX, **cells}, 1)


def job(**more: Any) -> Setup:
    usual = {"model": "llama-2-7b", "gpu": "h100-sxm", "gpus": 8, "framework": "maxtext", "micro_batch": 1, "seq": 4096}
    return resolve(Job(**{**usual, **more}))


def operations(setup: Setup) -> dict[str, Operation]:
    stage = build_stages(setup)[0]
    blocks = [block for block in (stage.embedding, stage.layers[0][0], stage.head) if block is not None]
    return {one.name: one for block in blocks for one in block.operations}


def test_a_softmax_in_memory_moves_all_of_its_bytes() -> None:
    setup = job(attention="eager", seq=8192)
    softmax = operations(setup)["attention.softmax"]
    forward, _ = operation_sums(setup, Chip(setup), softmax)
    assert forward.memory * setup.accelerator.bandwidth == pytest.approx(moved_bytes(setup, softmax)[0], rel=0.02)


def test_a_compiled_loss_reads_its_logits_at_each_reduction() -> None:
    setup = job()
    loss = next(one for one in operations(setup).values() if one.kind == "loss")
    logits = loss.shape[0] * loss.shape[1]
    assert moved_bytes(setup, loss) == tuple(each * logits for each in LOSS_BYTES["compiled"])
    assert sum(LOSS_BYTES["one"]) < sum(LOSS_BYTES["compiled"]) < sum(LOSS_BYTES["eager"])


def test_adapters_are_compiled_wherever_xla_is() -> None:
    setup = job(lora_rank=16)
    adapter = next(one for one in operations(setup).values() if one.kind == "adapter")
    eager = replace(setup, kernels=setup.kernels.model_copy(update={"compiler": "none"}))
    assert moved_bytes(setup, adapter)[0] == pytest.approx(0.6 * moved_bytes(eager, adapter)[0])


def test_the_softmax_between_products_is_the_librarys_where_notes_name_it() -> None:
    plain, own = (setup_of(row(notes=notes)) for notes in ("plain XLA; Paxml on JAX/XLA", WITH_KERNELS))
    assert plain.layout.attention == own.layout.attention == "eager"
    assert (plain.kernels.softmax, own.kernels.softmax) == ("eager", "fused")
    sums = [moved_bytes(one, operations(one)["attention.softmax"])[0] for one in (plain, own)]
    assert sums[0] > 3 * sums[1]


def test_scripts_say_how_a_model_attends_unless_its_row_does() -> None:
    assert setup_of(row()).layout.attention == "eager" and setup_of(row()).recompute == "none"
    assert setup_of(row(attention="flash", notes=WITH_KERNELS)).layout.attention == "flash"
    larger = {"model": "GPT-3 5B", "layers": "24", "hidden": "4096", "heads": "32", "head_dim": "128",
              "ffn_hidden": "16384", "zero_stage": "3"}  # fmt: skip
    assert setup_of(row(**larger)).layout.attention == "flash" and setup_of(row(**larger)).recompute == "full"


def test_tuning_llama_recomputes_nothing() -> None:
    """Its script repeats no layer in a loop, and policies hold for those alone."""
    cells = dict.fromkeys(PAX, "") | {
        "model": "Llama-2-7B", "gpu": "h100-sxm", "n_gpus": "16", "seq_len": "4096", "micro_batch": "2",
        "global_batch": "32", "precision": "bf16", "zero_stage": "3", "framework": "paxml", "year": "2024",
        "finetune_kind": "full",
    }  # fmt: skip
    assert setup_of(Run(cells, 1)).recompute == "none"


@pytest.mark.parametrize(
    "gpu, line, ring",
    [("tpu-v5e", 64, 256), ("tpu-v6e", 64, 256), *((gpu, line, 64) for gpu in ("tpu-v4", "tpu-v5p", "tpu-v7x")
                                                   for line in (8, 16, 32, 48))],
)  # fmt: skip
def test_slices_below_a_cube_are_meshes(gpu: str, line: int, ring: int) -> None:
    """Axes of v5e and v6e are rings at 16 chips, those of v4, v5p and v7x from 4 x 4 x 4 chips on: 32 are 2 x 4 x 4
    without joined ends (docs.cloud.google.com/tpu/docs/v5p: all 4x4x4 and larger slices have full 3D torus)."""
    net = network_for(gpu)
    found = [price("all_gather", 1e9, Span("zero", ranks, 1).placed(net)).seconds for ranks in (line, ring)]
    shares = [(ranks - 1) / ranks for ranks in (line, ring)]
    assert found[0] / shares[0] == pytest.approx(2 * found[1] / shares[1], rel=0.01)


@pytest.mark.parametrize(
    ("gpu", "chips", "side", "ends"),
    [("tpu-v5p", 16, 4, 1), ("tpu-v5p", 32, 4, 1), ("tpu-v5p", 64, 4, 2), ("tpu-v5p", 128, 8, 2),
     ("tpu-v5p", 6144, 24, 2), ("tpu-v5p", 8960, 28, 2), ("tpu-v5e", 32, 8, 1), ("tpu-v5e", 128, 16, 2),
     ("tpu-v5e", 256, 16, 2)],
)  # fmt: skip
def test_an_all_to_all_crosses_the_longest_axis(gpu: str, chips: int, side: int, ends: int) -> None:
    """Google's shapes: 2x2x4, 2x4x4, 4x4x4, 4x4x8, 16x16x24 and the pod's 16x20x28 of v5p, 4x8, 8x16, 16x16 of v5e.
    Half of all bytes cross the middle, each quarter one way, over the links of that plane, twice where ends are joined.
    """
    net = network_for(gpu)
    link = net.intra_rate / (2 * net.torus_axes)
    size = 1e12  # latency is nothing beside it
    seconds = price("all_to_all", size, Span("zero", chips, 1).placed(net)).seconds
    assert seconds == pytest.approx(chips * size / 4 / (ends * chips / side * link), rel=0.01)


def test_a_group_inside_a_slice_is_laid_out_as_a_ring() -> None:
    """Four chips of a v5e are two by two, so that each has both of its neighbours' links."""
    net = network_for("tpu-v5e")
    inside, whole = (price("all_gather", 1e9, Span(name, 8, 1).placed(net)).seconds for name in ("tp", "zero"))
    assert inside == pytest.approx(whole, rel=0.01)  # two links of one axis, or one of each


def test_two_by_two_chips_gather_as_measured() -> None:
    """178.8 GB/s received per chip on an Ironwood slice of 2 x 2 (AI-Hypercomputer/tpu-recipes, microbenchmarks,
    ironwood/collectives/all_gather.md, 268 MB)."""
    size = 268435456
    seconds = price("all_gather", size, Span("zero", 4, 1).placed(network_for("tpu-v7x"))).seconds
    assert 0.75 * size / seconds / 1e9 == pytest.approx(178.8, rel=0.02)


def test_one_policy_holds_for_all_layers_of_a_loop() -> None:
    given = {"model": "llama-2-7b", "gpu": "tpu-v5e", "gpus": 64, "seq": 4096, "recompute": "full"}
    with pytest.raises(DistsimError, match="recomputes all layers or none, not 8"):
        resolve(Job(**given, framework="maxtext", recompute_layers=8))
    every = resolve(Job(**given, framework="maxtext", recompute_layers=32))
    assert every.layout == resolve(Job(**given, framework="maxtext")).layout
    setup = resolve(Job(**given | {"recompute": "none"}, framework="maxtext", micro_batch=2))
    assert not [one for one in changes(setup) if "recompute_layers" in one.shown]


def test_a_recomputed_layer_exchanges_what_xla_leaves_of_it() -> None:
    """A scanned layer of two sharded MLPs under jax.checkpoint, compiled over four devices (jax 0.10.2): two gathers
    and two sums forward, four and three backward, for nothing reads the recomputed layer's last sum, and gradients of
    weights read what it gathers."""
    setup = resolve(Job(model="llama-2-7b", gpu="tpu-v5p", gpus=8, tp=8, framework="maxtext", recompute="full"))
    rows = [one for one in comm_of(setup).collectives if "tensor parallel layers" in one.purpose]
    calls = {(one.op, one.phase): 0.0 for one in rows}
    for one in rows:
        calls[one.op, one.phase] += one.calls / 32
    assert calls == {
        ("all_gather", "forward"): 2, ("reduce_scatter", "forward"): 2,
        ("all_gather", "backward"): 4, ("reduce_scatter", "backward"): 3,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("policy", "mode", "calls"),
    [
        ("minimal_flash", "ring", {"forward": 3, "backward": 6}),  # keys go round again, then their gradients
        ("minimal_flash", "all_gather", {"forward": 1, "backward": 2}),
        ("minimal_flash", "all_to_all", {"forward": 4, "backward": 8}),  # what is traded is kept as it was before
        ("minimal", "all_gather", {"forward": 1, "backward": 2}),  # once for the kernel's forward and backward
        ("minimal", "ring", {"forward": 3, "backward": 9}),
    ],
)
def test_context_ranks_exchange_again_what_a_policy_drops(policy: str, mode: str, calls: dict[str, int]) -> None:
    setup = resolve(Job(model="llama-2-7b", gpu="tpu-v5p", gpus=64, cp=4, cp_mode=mode, framework="maxtext",
                        recompute="selective", remat_policy=policy))  # fmt: skip
    rows = [one for one in comm_of(setup).collectives if one.group == "cp"]
    assert {phase: sum(one.calls for one in rows if one.phase == phase) / 32 for phase in calls} == calls


def test_what_experts_give_is_sent_back_once_more_where_it_is_weighted_then() -> None:
    given = {"model": "mixtral-8x7b", "gpu": "tpu-v5p", "gpus": 8, "ep": 8, "recompute": "full", "capacity_factor": 1.0}
    setup = resolve(Job(**given, framework="maxtext"))
    back = [one for one in comm_of(setup).collectives if "expert combine" in one.purpose]
    assert sum(one.calls for one in back) == 3 * 32  # forward, its gradient, and again for that of the weights


def test_pipelines_of_jax_run_all_forwards_first() -> None:
    """JAX derives the backward of a loop over micro-batches from the whole of its forward."""
    given = {"model": "llama-3.1-70b", "gpu": "h100-sxm", "gpus": 64, "seq": 4096, "pp": 4, "global_batch": 64}
    assert resolve(Job(**given, framework="maxtext")).layout.schedule == "gpipe"
    assert resolve(Job(**given, framework="maxtext", vpp=4)).layout.schedule == "looped-bfs"
    assert resolve(Job(**given, framework="megatron-core")).layout.schedule == "1f1b"
    with pytest.raises(DistsimError, match="maxtext has no pipeline schedule 1f1b"):
        resolve(Job(**given, framework="maxtext", schedule="1f1b"))


def test_longer_groups_than_an_axis_have_all_axes() -> None:
    net = network_for("tpu-v5p")
    assert [Span("tp", ranks, 1).placed(net).axes for ranks in (16, 32)] == [1, 3]


def test_slices_are_a_hop_of_their_network_apart() -> None:
    net = network_for("tpu-v5e")
    near, far = (price("all_gather", 8.0, Span("zero", ranks, 1).placed(net)).seconds for ranks in (256, 512))
    assert net.domain == 256
    assert far - near >= net.hop > 0
