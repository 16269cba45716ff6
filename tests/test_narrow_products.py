"""Products in 8 and 4 bits, held against kernels that were timed alone, and the law for chips without such a time."""

from __future__ import annotations

import pytest

from distsim import catalog
from distsim.engine.jobs.resolve import resolve
from distsim.engine.kernels.chip import FOUR_BIT_JOULES, NARROW_SHARE, Chip, narrow_share, usual_share
from distsim.engine.kernels.quantise import frozen_casts, trained_casts
from distsim.formulas.compute import matmul_share
from distsim.formulas.power import narrowed_share
from distsim.layers.ledger import Operation
from distsim.layers.names import PROJECTION
from distsim.specs.job import Job

# Transformer Engine, docs/examples/gemm_profiling: a layer 4,096 wide with 15,872 tokens on a B300; milliseconds of its
# twelve products, operands quantised beforehand.
TOKENS, WIDTH = 15872, 4096
SHAPES = ((WIDTH, 3 * WIDTH), (WIDTH, WIDTH), (WIDTH, 4 * WIDTH), (4 * WIDTH, WIDTH))  # inputs, outputs
MEASURED = {"bf16": 13.102, "fp8": 6.812, "mxfp8": 7.161, "nvfp4": 3.764}
UNITS = 148


def milliseconds(precision: str) -> float:
    """The same products at the rates and shapes' shares of the model, without what training loses beside."""
    chip = Chip(resolve(Job(model="llama-7b", gpu="b300-sxm", precision=precision)))
    rate = chip.narrow_rate or chip.rate
    products = [
        one for k, n in SHAPES for one in ((TOKENS, n, k), (TOKENS, k, n), (k, n, TOKENS))
    ]  # m, n, depth of forward, input gradient and weight gradient
    return 1e3 * sum(2 * m * n * k / (rate * float(matmul_share(m, n, k, 1, UNITS))) for m, n, k in products)


PRODUCT = Operation(PROJECTION, "matmul")


@pytest.mark.parametrize("precision", list(MEASURED))
def test_each_width_falls_as_far_short_of_its_best_product(precision: str) -> None:
    """All but 16 to 19% of the time, at shapes and clocks of a benchmark that does not search for the best."""
    assert milliseconds(precision) / MEASURED[precision] == pytest.approx(0.845, abs=0.02)


@pytest.mark.parametrize("name", ["b200-sxm", "gb200", "b300-sxm"])
def test_power_tells_four_bits_from_eight(name: str) -> None:
    chip = catalog.load("gpus", name)
    assert chip.peak.fp8 and chip.peak.fp4 and chip.measured.matmul_fp8 and chip.measured.matmul_fp4
    told = narrowed_share(chip.measured.matmul_fp8, chip.peak.fp4 / chip.peak.fp8, FOUR_BIT_JOULES)
    assert told == pytest.approx(chip.measured.matmul_fp4, rel=0.12)


def test_half_again_the_units_are_not_half_again_as_fast() -> None:
    """GB300 states 1.5 times GB200's rate in 4 bits and has a sixth more power."""
    ultra, older = catalog.load("gpus", "gb300"), catalog.load("gpus", "gb200")
    rates = [(one.peak.fp4 or 0) * narrow_share(one, "fp4", usual_share(one)) for one in (ultra, older)]
    assert 1.05 < rates[0] / rates[1] < 1.25


def test_four_bits_at_the_rate_of_eight_are_no_faster() -> None:
    chip = catalog.load("gpus", "trainium3")
    assert narrow_share(chip, "fp4", 0.8) == pytest.approx(0.8 * NARROW_SHARE)


@pytest.mark.parametrize(
    ("precision", "gpu", "trained", "frozen"),
    [
        ("fp8", "h100-sxm", (4, 0, 0, 4, 0), (3, 0, 0, 3, 0)),
        ("fp8-parameters", "h100-sxm", (4, 0, 0, 4, 0), (3, 0, 0, 3, 2)),
        ("fp8-parameters", "b200-sxm", (4, 0, 0, 4, 0), (3, 0, 0, 3, 0)),
        ("torchao-rowwise", "h100-sxm", (33, 33, 39, 68, 39), (33, 33, 4, 33, 35)),
        ("torchao-rowwise compiled", "h100-sxm", (8, 10, 4, 8, 4), (7, 10, 4, 7, 0)),
        ("jax-int8", "tpu-v5p", (5, 5, 5, 10, 5), (5, 5, 0, 5, 5)),
    ],
)
def test_casts_read_and_write(precision: str, gpu: str, trained: tuple[int, ...], frozen: tuple[int, ...]) -> None:
    """Bytes an element: of input and weights forward, of input, of the output's gradient and of weights backward.

    Transformer Engine reads 2 and writes 1, and 1 more that the weight's gradient needs; 8-bit weights are turned for
    Hopper (1 + 1). torchao reads and writes results of unscaled products again (4); what nothing compiles casts all for
    each product, in 33 bytes, and lays three of backward's operands out across (2). JAX keeps nothing either.
    """
    recipe, _, compiled = precision.partition(" ")
    more = {"compile": True, "framework": "torchtitan"} if compiled else {}
    setup = resolve(Job(model="llama-3-8b", gpu=gpu, gpus=8, precision=recipe, **more))
    for casts, expected in ((trained_casts, trained), (frozen_casts, frozen)):
        of_input, of_output, of_weights = (casts(setup, PRODUCT, one) for one in ((1, 0, 0), (0, 1, 0), (0, 0, 1)))
        assert of_output[0] == 0
        assert (of_input[0], of_weights[0], of_input[1], of_output[1], of_weights[1]) == expected
