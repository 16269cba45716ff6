"""Products of separate modules that read one input: each at its own shape, none faster than all in one."""

from __future__ import annotations

import pytest

import distsim
from distsim.engine.jobs.resolve import resolve
from distsim.engine.jobs.stages import build_stages
from distsim.engine.kernels.chip import Chip
from distsim.engine.kernels.products import linear_seconds, module_widths, product_seconds
from distsim.formulas.compute import product_bytes, product_flops
from distsim.layers.ledger import Operation
from distsim.specs.job import Job


def layer(framework: str, model: str = "llama-3.2-1b", **options: object) -> tuple[Chip, dict[str, Operation]]:
    job = {"model": model, "gpu": "a100-sxm4-80gb", "gpus": 8, "framework": framework, "seq": 2048, **options}
    setup = resolve(Job.read(job))
    block, _ = build_stages(setup)[0].usual_layer
    return Chip(setup), {one.name: one for one in block.operations}


@pytest.mark.parametrize(
    ("framework", "widths"),
    [
        ("torchtitan", {"attention.qkv": [(2048, 1), (512, 1), (512, 1)], "mlp.up": [(8192, 2)]}),
        ("megatron-core", {"attention.qkv": [(3072, 1)], "mlp.up": [(16384, 1)], "mlp.down": [(2048, 1)]}),
        ("litgpt", {"attention.qkv": [(3072, 1)], "mlp.up": [(8192, 2)]}),
    ],
)
def test_modules_are_those_of_the_framework(framework: str, widths: dict[str, list[tuple[int, int]]]) -> None:
    _, found = layer(framework)
    for name, expected in widths.items():
        assert module_widths(found[name]) == expected
        assert sum(width * alike for width, alike in expected) == found[name].shape[1]


def test_each_module_is_a_product_of_its_own_shape() -> None:
    chip, found = layer("torchtitan")
    one = found["attention.qkv"]
    m, n, k, _ = one.shape
    apart = linear_seconds(chip, chip.rate, one, 1, 2.0)
    parts = [
        product_seconds(chip, chip.rate, (m, width, k, 1), product_flops(m, width, k), product_bytes(m, width, k, 1, 2))
        for width in (2048, 512, 512)
    ]
    assert apart == pytest.approx([sum(times) for times in zip(*parts, strict=True)])
    whole = product_seconds(chip, chip.rate, (m, n, k, 1), product_flops(m, n, k), product_bytes(m, n, k, 1, 2))
    assert all(slow >= fast for slow, fast in zip(apart, whole, strict=True))
    assert apart[0] > 1.02 * whole[0]  # 16 and 64 tiles of 512 columns fill 108 units badly


def test_experts_are_a_batch_and_no_modules() -> None:
    _, found = layer("megatron-core", "mixtral-8x7b", ep=8)
    ups = [one for name, one in found.items() if "expert" in name and one.kind == "matmul"]
    assert ups and all(module_widths(one) == [(one.shape[1], 1)] for one in ups)


def test_explain_tells_the_product_of_one_module() -> None:
    report = distsim.step(model="llama-3.2-1b", gpu="a100-sxm4-80gb", gpus=8, framework="torchtune")
    from distsim.engine.steps.kernel_figures import kernels, product_figures

    labels = [figure.label for figure in product_figures(report)]
    assert any(label.startswith("mlp.up, one of 2: seconds") for label in labels), labels
    apart = {one.name: one.apart for one in kernels(report)[0][1]}
    assert apart["mlp.up"] == (8192, 8192) and apart["mlp.down"] == ()
