"""How often the loss passes over its logits, and what of that the last cache spares."""

from __future__ import annotations

from dataclasses import replace

import pytest

import distsim
from distsim import catalog
from distsim.arrays import Number
from distsim.engine.jobs.resolve import Setup, resolve
from distsim.engine.jobs.stages import build_stages
from distsim.engine.kernels.loss_passes import LOSS_AGAIN, LOSS_BYTES, loss_kernel
from distsim.engine.kernels.passes import moved_bytes
from distsim.engine.runs.setup import setup_of
from distsim.formulas.caches import CACHE_RATE, reread_share
from distsim.interop.runs import Run
from distsim.specs.job import Job


def per_logit(framework: str, gpu: str = "a100-sxm4-80gb", model: str = "llama-7b", **kernels: object) -> Number:
    """Bytes that forward moves per logit."""
    setup: Setup = resolve(Job(model=model, gpu=gpu, gpus=8, framework=framework))
    object.__setattr__(setup, "kernels", setup.kernels.model_copy(update=kernels))
    head = build_stages(setup)[-1].head
    assert head is not None
    loss = next(one for one in head.operations if one.kind == "loss")
    return moved_bytes(setup, loss)[0] / (loss.shape[0] * loss.shape[1])


def test_rows_that_fit_the_cache_are_found_there() -> None:
    assert reread_share(1e5, 100, 50e6) == pytest.approx(1 / CACHE_RATE)
    assert reread_share(1e6, 100, 50e6) == pytest.approx(1 - 0.25 * (1 - 1 / CACHE_RATE))
    assert reread_share(1e6, 100, 0.0) == 1


def test_composed_loss_reads_wide_rows_from_memory() -> None:
    """A row of 128,256 words in fp32 is four times as long as one of 32,000, which A100's cache holds."""
    short, long = (per_logit("huggingface", model=name) for name in ("llama-7b", "llama-3-8b"))
    assert short == pytest.approx(LOSS_BYTES["eager"][0] - LOSS_AGAIN["eager"][0] * (1 - 1 / CACHE_RATE))
    assert short < long < LOSS_BYTES["eager"][0]


@pytest.mark.parametrize("flag", ["logit_softcap", "attention_softcap"])
def test_soft_caps_pass_over_logits(flag: str) -> None:
    """Quotient, tanh, product, two passes each; backward product and quotient, and of tanh three. Logits are capped
    where scores are, as Gemma 2's preset says it: its configuration file, which says both, had a longer step."""
    model, found = catalog.load("models", "gemma-2-2b"), []
    for capped in (True, False):
        caps = {"logit_softcap": False, "attention_softcap": False} | {flag: capped}
        setup = resolve(Job(model=model.model_copy(update=caps), framework="huggingface"))
        head = build_stages(setup)[0].head
        assert head is not None
        loss = next(one for one in head.operations if one.kind == "loss")
        found.append([size / (loss.shape[0] * loss.shape[1]) for size in moved_bytes(setup, loss)])
    assert [a - b for a, b in zip(*found, strict=True)] == pytest.approx([6 * 2, 7 * 2])


def test_narrow_rows_take_half_the_cache() -> None:
    """Of 16-bit logits a row of Llama 3's words is as long as one of 64,128 in fp32, of which more is found again."""
    narrow = per_logit("huggingface", model="llama-3-8b", loss_upcast=False)
    chip = catalog.load("gpus", "a100-sxm4-80gb").chip
    found = reread_share(128_256 * 2, chip.units, float(chip.cache))
    assert narrow == pytest.approx(LOSS_BYTES["narrow"][0] - LOSS_AGAIN["narrow"][0] * (1 - found))
    assert found < reread_share(128_256 * 4, chip.units, float(chip.cache))


def test_metrics_take_the_loss_once_more_each() -> None:
    """Composer's cross entropy and perplexity, each composed in fp32 beside a fused loss."""
    one = per_logit("huggingface")
    assert per_logit("llm-foundry", loss_metrics=0) == LOSS_BYTES["one"][0]
    assert per_logit("llm-foundry") == pytest.approx(LOSS_BYTES["one"][0] + 2 * one)


def test_plain_torch_scales_masks_and_casts_scores() -> None:
    """Bytes per score of GPT-2: scale and causal mask (8), fp32 mask of padding (6, on a busy A100 less than a pass),
    softmax (8), cast (6); backward cast (6), product and softmax (24), cast (6), causal mask and scale (8). Compiled,
    scale and masks are part of the softmax."""
    setup = resolve(Job(model="gpt2", gpu="a100-sxm4-80gb", framework="torch-ddp", precision="amp-bf16",
                        attention="eager", dropout=False))  # fmt: skip
    softmax = next(o for o in build_stages(setup)[0].layers[0][0].operations if o.name == "attention.softmax")
    forward, backward = moved_bytes(setup, softmax)
    scores = softmax.shape[0]
    assert (forward / scores, backward / scores) == pytest.approx((28, 44), rel=0.06)
    compiled = resolve(Job(model="gpt2", gpu="a100-sxm4-80gb", framework="torch-compile", precision="amp-bf16",
                           attention="eager", dropout=False))  # fmt: skip
    assert moved_bytes(compiled, softmax)[0] / scores == 14


OWN_GPT2 = catalog.load("models", "gpt2").model_copy(update={"activation": "gelu"})
"""GPT-2 as nanoGPT and its successor write it, with nn.GELU or a scripted one, which is one kernel; that of
transformers is composed."""


@pytest.mark.parametrize(("precision", "seconds"), [("amp-bf16", 0.300), ("tf32", 0.333)])
def test_small_gpt2_in_plain_torch(precision: str, seconds: float) -> None:
    """GPT-2 124M, 16 sequences of 1,024 tokens on one A100, attention and modules composed (Karpathy 2024, Let's
    reproduce GPT-2, chapters on TF32 and bfloat16); nothing is fitted to it."""
    step = distsim.step(OWN_GPT2, gpu="a100-sxm4-80gb", gpus=1, framework="torch-ddp", precision=precision, seq=1024,
                        micro_batch=16, global_batch=16, dropout=False, attention="eager")  # fmt: skip
    assert step.interval.low < seconds < step.interval.high
    assert step.seconds == pytest.approx(seconds, rel=0.15)


@pytest.mark.parametrize(("framework", "seconds"), [("torch-ddp", 0.250), ("torch-compile", 0.135)])
def test_nanogpt_before_flash_attention(framework: str, seconds: float) -> None:
    """karpathy/nanoGPT's README of December 2022: 12 sequences of 1,024 tokens in 250 ms, compiled in 135."""
    step = distsim.step(OWN_GPT2, gpu="a100-sxm4-40gb", gpus=1, framework=framework, precision="amp-bf16", seq=1024,
                        micro_batch=12, global_batch=12, dropout=False, attention="eager")  # fmt: skip
    assert step.interval.low < seconds < step.interval.high
    assert step.seconds == pytest.approx(seconds, rel=0.12)


@pytest.mark.parametrize(("precision", "ways"), [("fp16", (36, 56)), ("amp-fp16", (76, 118))])
def test_gelu_of_plain_operations(precision: str, ways: tuple[float, float]) -> None:
    """Bytes per element of transformers' NewGELUActivation; autocast makes its power, and all after it, in fp32."""
    setup = resolve(Job(model="gpt2", gpu="v100-sxm2-32gb", framework="huggingface", precision=precision))
    gelu = next(o for o in build_stages(setup)[0].layers[0][0].operations if o.name == "mlp.activation")
    elements = gelu.bytes_written / 2
    assert tuple(size / elements for size in moved_bytes(setup, gelu)) == pytest.approx(ways)


def test_losses_shift_their_logits_until_2025() -> None:
    """A copy without the last position's logits (4 bytes a logit in 16 bits), and zeros into which their gradient is
    copied (6); GPT-2's loss of 2021 is of 16-bit logits, Llama's of fp32 ones."""
    cells = {"gpu": "v100-sxm2-32gb", "n_gpus": "8", "seq_len": "1024", "micro_batch": "2", "zero_stage": "1",
             "precision": "fp16", "framework": "deepspeed", "step_time_s": "1", "model": "gpt2"}  # fmt: skip
    found = {}
    for year in ("2021", "2026"):
        setup = setup_of(Run({**cells, "year": year}, 2))
        loss = next(o for s in build_stages(setup) if s.head for o in s.head.operations if o.name == "loss")
        found[year] = loss_kernel(setup), setup.kernels.loss_shifted, moved_bytes(setup, loss)
    assert [one[:2] for one in found.values()] == [("narrow", True), ("eager", False)]
    setup = setup_of(Run({**cells, "year": "2021"}, 2))
    plain = replace(setup, kernels=setup.kernels.model_copy(update={"loss_shifted": False}))
    more = [a - b for a, b in zip(found["2021"][2], moved_bytes(plain, loss), strict=True)]
    logits = loss.shape[0] * loss.shape[1]
    assert more == pytest.approx([4 * logits, 6 * logits])
    one, alone = (replace(each, layout=each.layout.with_(micro_batch=1)) for each in (setup, plain))
    assert moved_bytes(one, loss)[0] == moved_bytes(alone, loss)[0], "of one sequence the copy is a view"
