"""Attention on TPUs: which kernel a run has, and how many products its backward takes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from distsim import catalog
from distsim.engine.jobs.resolve import resolve
from distsim.engine.jobs.stages import build_stages
from distsim.engine.kernels.attention_rates import FLASH_BACKWARD_SHARE
from distsim.engine.kernels.chip import Chip, grid_kernels
from distsim.engine.kernels.flash import flash_seconds
from distsim.engine.runs.setup import setup_of
from distsim.engine.step import seconds_of
from distsim.formulas.compute import causal_fraction
from distsim.formulas.pallas import UNMASKED, unmasked_time
from distsim.interop.runs import Run
from distsim.interop.runs.attention import block_said, kernel_said
from distsim.specs.job import Job

ROW = {"id": "x", "year": "2025", "model": "llama-3-8b", "gpu": "tpu-v6e", "n_gpus": "4", "zero_stage": "3",
       "seq_len": "8192", "global_batch": "8", "precision": "bf16", "framework": "torchprime"}  # fmt: skip


@pytest.mark.parametrize(("gpu", "products"), [("tpu-v5p", 7), ("tpu-v5e", 7), ("tpu-v6e", 5), ("h100-sxm", 5)])
def test_backward_takes_scores_twice_unless_it_is_fused(gpu: str, products: int) -> None:
    setup = resolve(Job(model="llama-3-8b", gpu=gpu, framework="maxtext"))
    forward, backward = Chip(setup).attention
    share = backward / forward / (FLASH_BACKWARD_SHARE if gpu != "h100-sxm" else backward / forward)
    assert share == pytest.approx(5 / products)
    assert catalog.load("gpus", gpu).chip.attention_products in (products, None)


@pytest.mark.parametrize(
    ("framework", "notes", "kernel"),
    [
        ("torchprime", "ici_mesh.fsdp=256, splash attention", None),
        ("torchprime", "flash (not yet splash) attention", "pallas"),
        ("torchprime", "attention kernel not passed", "pallas"),
        ("maxtext", "attention kernel not passed", None),
    ],
)
def test_first_pallas_kernel(framework: str, notes: str, kernel: str | None) -> None:
    assert kernel_said(Run({"framework": framework, "notes": notes, "attention": "flash"}, 1)) == kernel


@pytest.mark.parametrize(
    ("notes", "kernel"),
    [("use_tokamax_splash=True", "tokamax"), ("Tokamax splash kernel", "tokamax"), ("no Tokamax splash", None)],
)
def test_notes_name_tokamax(notes: str, kernel: str | None) -> None:
    assert kernel_said(Run({"framework": "maxtext", "notes": notes, "attention": "flash (splash)"}, 1)) == kernel
    assert resolve(Job(model="llama-3-8b", gpu="tpu-v7x", framework="maxtext")).kernels.attention_kernel == "tokamax"


@pytest.mark.parametrize(("blocks", "edges"), [(1, 1), (4, 4 / 10), (64, 64 / 2080)])
def test_only_blocks_on_the_diagonal_are_masked(blocks: int, edges: float) -> None:
    """A sequence of n blocks meets n (n + 1) / 2, n of them on the diagonal."""
    keys = 1024 * blocks * causal_fraction(1024 * blocks, 1024 * blocks, 1024)
    assert unmasked_time(1024, keys, 1, UNMASKED[0]) == pytest.approx(1 - (1 - UNMASKED[0]) * (1 - edges))
    assert unmasked_time(1024, 1024, 2, UNMASKED[0]) == 1  # both edges of a narrow window


def test_splash_attention_saves_what_was_measured() -> None:
    """2.735 s with JAX's first kernel, 2.407 s with splash attention."""
    seconds = [seconds_of(setup_of(Run({**ROW, "notes": notes}, 1))) for notes in ("", "splash attention")]
    assert seconds[0] - seconds[1] == pytest.approx(2.735 - 2.407, rel=0.15)


def attention_seconds(gpu: str, seq: int, block: int | None = None) -> float:
    """Forward and backward of one layer of Llama 3 8B."""
    setup = resolve(Job(model="llama-3-8b", gpu=gpu, framework="maxtext", seq=seq))
    kernels = setup.kernels.model_copy(update={"attention_block": block})
    setup = replace(setup, kernels=kernels)
    layer, _ = build_stages(setup)[0].usual_layer
    core = next(one for one in layer.operations if one.name.endswith(".core"))
    return float(sum(flash_seconds(Chip(setup), core)))


@pytest.mark.parametrize(("coarse", "fine", "seconds"), [(256, 128, 0.63e-6), (512, 256, 0.57e-6), (1024, 512, 0.3e-6)])
def test_small_blocks_cost_their_steps(coarse: int, fine: int, seconds: float) -> None:
    """What a v6e takes longer for each step more, as measured in steps of training, where attention keeps 0.79 of its
    best rate; what small blocks save above the diagonal is little beside that but between the largest."""
    more = attention_seconds("tpu-v6e", 2048, fine) - attention_seconds("tpu-v6e", 2048, coarse)
    blocks = [(2048 // side) * (2048 // side + 1) / 2 for side in (fine, coarse)]
    steps = 32 * 2 * (blocks[0] - blocks[1])  # heads, and a kernel each way
    assert more / steps / 0.79 == pytest.approx(seconds, rel=0.25)


def test_long_sequences_reach_no_more_than_blocks_of_512_do() -> None:
    """Levanter's 32,768 tokens on v5p came out 33 and 40% too fast as long as length alone told the rate."""
    short, long = (attention_seconds("tpu-v5p", seq) / seq**2 for seq in (8192, 32768))
    assert long / short == pytest.approx((1 + 512 / 32768) / (1 + 512 / 8192), rel=1e-6)


@pytest.mark.parametrize(
    ("notes", "block"),
    [("sa_block_q: 1024, sa_block_kv: 512", 724), ("sa_block_q=1024", 1024),
     ("splash attention, block size 256; kv heads 2", 256),
     ("Tokamax Splash attention with blocks of 1,024", 1024),
     ("block size (derived) 2048; splash attention", None)],
)  # fmt: skip
def test_blocks_that_notes_tell(notes: str, block: int | None) -> None:
    assert block_said(Run({"notes": notes}, 1)) == block
    kernels = setup_of(Run({**ROW, "framework": "maxtext", "notes": notes}, 1)).kernels
    assert kernels.attention_block == block
    assert (
        setup_of(Run({**ROW, "framework": "maxtext", "gpu": "h100-sxm", "notes": notes}, 1)).kernels.attention_block
        is None
    )


def test_backward_kernels_by_chip() -> None:
    """A v5p's makes the scores once for queries and once for keys and values."""
    setups = [resolve(Job(model="gpt2", gpu=name)) for name in ("h100-sxm", "tpu-v5p", "tpu-v6e")]
    assert [grid_kernels(one) for one in setups] == [0, 2, 1]


@pytest.mark.parametrize(
    ("gpu", "notes", "products"),
    [("tpu-v6e", "sa_use_fused_bwd_kernel=False", 7), ("tpu-v5p", "sa_use_fused_bwd_kernel: true", 5),
     ("tpu-v5p", "use_tokamax_splash=True sa_use_fused_bwd_kernel=False", 5), ("tpu-v6e", "", None),
     ("tpu-v5p", "Tokamax Splash attention with blocks of 1024", 5), ("tpu-v5p", "not Tokamax splash", None),
     ("h100-sxm", "sa_use_fused_bwd_kernel=False", None)],
)  # fmt: skip
def test_a_fused_backward_that_notes_tell(gpu: str, notes: str, products: int | None) -> None:
    setup = setup_of(Run({**ROW, "framework": "maxtext", "gpu": gpu, "notes": notes}, 1))
    assert setup.kernels.attention_products == products
    forward, backward = Chip(setup).attention
    expected = 5 / (products or setup.accelerator.chip.attention_products or 5)
    if gpu != "h100-sxm":
        assert backward / forward / FLASH_BACKWARD_SHARE == pytest.approx(expected)
        assert Chip(setup).grid_kernels == (1 if expected == 1 else 2)
