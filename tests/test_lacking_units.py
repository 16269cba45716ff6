"""Precision recipes on accelerators without units for them: timed by what there is, and said."""

from __future__ import annotations

from dataclasses import replace

import pytest

import distsim
from distsim import catalog
from distsim.engine.exchanges.hidden import compute_seconds
from distsim.engine.jobs.flops import peak_of
from distsim.engine.jobs.lacking import lacking_units, narrow_units, rounded_products, wide_units
from distsim.engine.jobs.resolve import resolve
from distsim.engine.jobs.stages import build_stages
from distsim.engine.kernels.chip import Chip
from distsim.errors import DistsimError
from distsim.specs.job import Job

SETUP = resolve(Job(model="llama-7b", gpus=8))


@pytest.mark.parametrize(
    ("gpu", "wide", "units"),
    [
        ("v100-sxm2-32gb", "tf32", "fp32"), ("h100-sxm", "tf32", "tf32"), ("mi250x", "tf32", "fp32"),
        ("tpu-v5p", "tf32", "bf16"), ("v100-sxm2-32gb", "bf16", "fp32"), ("h100-sxm", "bf16", "bf16"),
        ("v100-sxm2-32gb", "fp8", "fp32"), ("t4", "fp4", "fp32"), ("a100-sxm4-80gb", "fp8", "bf16"),
        ("tpu-v4", "int8", "int8"), ("v100-sxm2-32gb", "fp16", "fp16"),
    ],
)  # fmt: skip
def test_wide_products(gpu: str, wide: str, units: str) -> None:
    assert wide_units(catalog.load("gpus", gpu).peak, wide) == units


@pytest.mark.parametrize(
    ("gpu", "narrow", "units"),
    [
        ("h100-sxm", "fp8", "fp8"),
        ("a100-sxm4-80gb", "fp8", None),
        ("gaudi3", "int8", "fp8"),
        ("h100-sxm", "fp4", None),
        ("h100-sxm", "bf16", None),
    ],
)
def test_narrow_products(gpu: str, narrow: str, units: str | None) -> None:
    assert narrow_units(catalog.load("gpus", gpu).peak, narrow) == units


@pytest.mark.parametrize(
    ("gpu", "measured"),
    [("v100s-pcie-32gb", 9.85 / 13.55), ("t4", 2.37 / 4.30), ("rtx-2080-ti", 5.14 / 9.23)],
)
def test_bf16_that_libraries_widen_is_slower_than_fp32(gpu: str, measured: float) -> None:
    """torch.matmul on chips before Ampere, the 2080 Ti as the 2080 (zzc0721/torch-performance-test-data); XLA
    multiplies in fp32."""

    def rate(precision: str, framework: str = "torch-ddp") -> float:
        return Chip(resolve(Job(model="gpt2", gpu=gpu, gpus=1, framework=framework, precision=precision))).rate

    assert rate("bf16") / rate("fp32") == pytest.approx(measured, rel=0.06)
    assert rate("jax-bf16", "maxtext") == rate("fp32")


def test_fp32_without_tf32_is_counted_against_fp32() -> None:
    setup = resolve(Job(model="llama-7b", gpu="v100-sxm2-32gb", gpus=8, precision="fp32"))
    assert peak_of(setup) == 15.7e12


def test_exchanges_hide_beside_products_at_the_rate_that_utilisation_is_counted_over() -> None:
    """One peak of a recipe on a chip for ``comm`` and ``step``: TPUs without fp8 units, V100s without bf16 ones."""
    for gpu in catalog.names("gpus"):
        for recipe in catalog.names("precisions"):
            setup = replace(SETUP, accelerator=catalog.load("gpus", gpu), precision=catalog.load("precisions", recipe))
            peak = peak_of(setup)
            seconds = compute_seconds(setup, build_stages(SETUP)[0], "forward", 1)
            flops = sum(one.flops_forward * count for one, count in build_stages(SETUP)[0].operations())
            assert seconds == (flops / peak if peak else 0), (gpu, recipe)


@pytest.mark.parametrize(
    ("gpu", "precision", "words"),
    [
        ("h100-sxm", "fp8", ""), ("a100-sxm4-80gb", "bf16", ""), ("b200-sxm", "mxfp8", ""),
        ("h100-sxm", "mxfp8", "no block-scaling units for precision"), ("h100-sxm", "nvfp4", "timed at its bf16 rate"),
        ("a100-sxm4-80gb", "fp8", "no fp8 units for precision fp8; timed at its bf16 rate"),
        ("v100-sxm2-32gb", "bf16", "no bf16 units for precision bf16; timed at its fp32 rate"),
        ("v100-sxm2-32gb", "tf32", "timed at its fp32 rate"), ("v100-sxm2-32gb", "fp32", ""),
        ("v100-sxm2-32gb", "fp8", "no fp8 units for precision fp8; timed at its fp32 rate"),
    ],
)  # fmt: skip
def test_the_user_is_told(gpu: str, precision: str, words: str) -> None:
    note = lacking_units(catalog.load("gpus", gpu), catalog.load("precisions", precision))
    assert words in note
    assert bool(note) is bool(words)


@pytest.mark.parametrize("gpu", ["v100-sxm2-32gb", "t4", "a100-sxm4-80gb"])
def test_a_narrow_recipe_is_timed_and_counted_at_the_rate_that_its_note_names(gpu: str) -> None:
    """Before Ampere what such a recipe multiplies is bf16, which no unit multiplies there."""
    told = {one: distsim.step("llama-7b", gpu=gpu, gpus=8, precision=one, zero=3) for one in ("fp8", "bf16")}
    units = "fp32" if gpu != "a100-sxm4-80gb" else "bf16"
    assert any(f"timed at its {units} rate" in note for note in told["fp8"].notes)
    assert told["fp8"].seconds == pytest.approx(told["bf16"].seconds, rel=0.05)
    assert told["fp8"].mfu == pytest.approx(told["bf16"].mfu, rel=0.05)


def test_more_recomputed_layers_than_a_stage_has() -> None:
    setup = resolve(Job(model="llama-7b", gpus=8, pp=4, global_batch=8, recompute="full", recompute_layers=9))
    assert any("stages have at most 8 layers" in note for note in setup.notes)
    assert not resolve(Job(model="llama-7b", gpus=8, pp=4, global_batch=8, recompute="full", recompute_layers=8)).notes


@pytest.mark.parametrize(
    ("framework", "gpu", "precision", "told"),
    [("maxtext", "h100-sxm", "fp32", True), ("maxtext", "h100-sxm", "tf32", False),
     ("maxtext", "tpu-v5p", "fp32", False), ("torchtitan", "h100-sxm", "fp32", False),
     ("maxtext", "mi250x", "fp32", False)],
)  # fmt: skip
def test_fp32_that_its_framework_multiplies_in_tf32(framework: str, gpu: str, precision: str, told: bool) -> None:
    """What a replay of such a run takes for granted, an estimate says."""
    found = rounded_products(*(catalog.load(*one) for one in (
        ("gpus", gpu), ("precisions", precision), ("frameworks", framework))))  # fmt: skip
    assert ("--precision tf32" in found) is told


@pytest.mark.parametrize(
    ("framework", "gpu", "precision", "mend"),
    [
        ("megatron-core", "a100-sxm4-80gb", "fp8", "--precision bf16"),
        ("torchtitan", "a100-sxm4-80gb", "torchao-tensorwise", "--precision bf16"),
        ("megatron-core", "h100-sxm", "mxfp8", "--precision fp8"),
        ("nemo", "h100-sxm", "nvfp4", "--precision fp8"),
        ("megatron-core", "mi250x", "fp8", "--precision bf16"),
    ],
)
def test_a_named_framework_refuses_narrow_recipes_on_chips_without_units(
    framework: str, gpu: str, precision: str, mend: str
) -> None:
    """Transformer Engine and torchao raise an error there; weights were gathered in 8 bits all the same."""
    job = {"model": "llama-7b", "gpu": gpu, "gpus": 8, "precision": precision}
    with pytest.raises(DistsimError, match="refuses it") as told:
        resolve(Job.read({**job, "framework": framework}))
    assert mend in told.value.text() and "source: " in told.value.text()
    assert resolve(Job.read(job)).precision.name == precision, "what nobody named is told with a note"


@pytest.mark.parametrize(
    ("framework", "gpu", "precision"),
    [
        ("megatron-core", "h100-sxm", "fp8"), ("nemo", "b200-sxm", "nvfp4"), ("torchtitan", "rtx-4090", "fp8"),
        ("maxtext", "a100-sxm4-80gb", "jax-fp8"), ("megatron-core", "mi300x", "fp8"),
        ("megatron-core", "gb300", "mxfp8"), ("maxtext", "tpu-v5p", "jax-int8"),
    ],
)  # fmt: skip
def test_narrow_recipes_run_where_units_are_or_a_compiler_widens(framework: str, gpu: str, precision: str) -> None:
    resolve(Job.read({"model": "llama-7b", "gpu": gpu, "gpus": 8, "precision": precision, "framework": framework}))
