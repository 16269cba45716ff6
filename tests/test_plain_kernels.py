"""Kernels of plain torch against measured ones: norms, rotation, softmax."""

from __future__ import annotations

import csv
import statistics
from functools import lru_cache
from pathlib import Path

import pytest

from distsim.engine.jobs.kin import kin_of
from distsim.engine.jobs.resolve import Setup, resolve
from distsim.engine.jobs.stages import build_stages
from distsim.engine.kernels.passes import moved_bytes, table_gradient_bytes
from distsim.engine.kernels.plain_costs import COMPOSED_PACE, slowed
from distsim.engine.steps.breakdown import timing_on
from distsim.layers.ledger import Operation
from distsim.specs.job import Job

with (Path(__file__).parent / "oracles" / "plain_kernels.csv").open(encoding="utf-8") as file:
    MEASURED = list(csv.DictReader(file))
"""Medians of triton's do_bench, which clears the last cache between calls: providers "huggingface" and "torch" of
linkedin/Liger-Kernel benchmark/ (the file behind each row), tensors of 16 million elements and more. RMSNorm there has
fp32 weights around bf16 tensors, so that its last product, its gradient and the cast of both are wider: 2 bytes an
element forward, 16 backward."""
WIDER_WEIGHTS = (2.0, 16.0)
NAMES = {"rms_norm": "mlp.norm", "layer_norm": "mlp.norm", "rope": "attention.heads", "softmax": "attention.softmax"}
MODELS = {"rms_norm": "llama-7b", "rope": "llama-7b", "layer_norm": "gpt2", "softmax": "vit-base-patch16-224"}


@lru_cache
def operation(kernel: str, form: str, gpu: str) -> tuple[Setup, Operation]:
    """The row of the ledger that stands for a kernel, in plain torch."""
    setup = resolve(Job(model=MODELS[kernel], gpu=gpu, gpus=1, framework="huggingface", dropout=False,
                        attention="eager" if kernel == "softmax" else "flash",
                        precision="fp32" if form == "fp32" else "pure-bf16"))  # fmt: skip
    block = build_stages(setup)[0].layers[0][0]
    return setup, next(one for one in block.operations if one.name == NAMES[kernel])


def ways(kernel: str, form: str, gpu: str) -> tuple[float, float]:
    """Bytes per element, forward and backward, of the kernel alone."""
    setup, found = operation(kernel, form, gpu)
    elements = found.shape[0] * (found.shape[1] if found.kind == "norm" else 1)
    forward, backward = (float(one / elements) for one in moved_bytes(setup, found))
    if kernel == "softmax":  # without the scale before it; scores of images have no mask
        return forward - 2 * 4.0, backward - 2 * 4.0
    if kernel == "rms_norm":
        slower = slowed(COMPOSED_PACE, setup.accelerator)
        return forward + WIDER_WEIGHTS[0] * slower, backward + WIDER_WEIGHTS[1] * slower
    return forward, backward


def predicted(row: dict[str, str]) -> float:
    setup, _ = operation(row["kernel"], row["format"], row["gpu"])
    forward, backward = ways(row["kernel"], row["format"], row["gpu"])
    each = {"forward": forward, "backward": backward, "both": forward + backward}[row["way"]]
    reached = (
        float(setup.accelerator.bandwidth) * timing_on(kin_of(setup.framework), setup.accelerator.architecture).stream
    )
    return int(row["rows"]) * int(row["width"]) * each / reached


@pytest.mark.parametrize("kernel", NAMES)
def test_measured_kernels(kernel: str) -> None:
    """On chips whose memory differs ninefold: in the median within 8%, nine of ten within a quarter."""
    ratios = [predicted(row) / float(row["seconds"]) for row in MEASURED if row["kernel"] == kernel]
    assert len(ratios) >= 6
    assert statistics.median(ratios) == pytest.approx(1, abs=0.08)
    assert sum(0.75 < ratio < 1.25 for ratio in ratios) >= 0.9 * len(ratios)


def test_softmax_multiplies_before_its_backward() -> None:
    """The product of weights and gradients is half of what backward moves: without it fp32 softmax on an RTX 3090 would
    take half of the measured time."""
    _, backward = ways("softmax", "fp32", "rtx-3090")
    assert backward == 24.0
    _, softmax = operation("softmax", "fp32", "rtx-3090")
    one = softmax.saved[0].size_bytes
    assert sum(tensor.size_bytes for tensor in softmax.transient_backward) == 3 * one


def test_elements_limit_where_memory_is_fast() -> None:
    """A B200 takes a rotation hardly faster than an H100, with 2.4 times the bandwidth."""

    def seconds(gpu: str) -> float:
        setup, _ = operation("rope", "bf16", gpu)
        return ways("rope", "bf16", gpu)[0] / float(setup.accelerator.bandwidth)

    assert seconds("b200-sxm") == pytest.approx(seconds("h100-sxm"), rel=0.2)


@pytest.mark.parametrize(("precision", "forward", "backward"), [("pure-bf16", 42, 68), ("amp-bf16", 86, 146)])
def test_a_gate_multiplies_behind_a_composed_activation(precision: str, forward: float, backward: float) -> None:
    """Bytes an element: gelu_new's eight steps, and a product whose factor is fp32 under autocast."""
    setup = resolve(Job(model="flan-t5-xl", gpu="h100-sxm", gpus=1, framework="huggingface", precision=precision))
    row = next(one for one in build_stages(setup)[0].layers[0][0].operations if one.role == "activation")
    assert moved_bytes(setup, row) == pytest.approx((forward * row.shape[0], backward * row.shape[0]))


def test_a_compiled_table_sums_its_gradient_in_fp32() -> None:
    """Zeros and a cast: 637 and 1,021 us of Llama 3's table on an H100, where passes reach 2.48 TB/s (a profile)."""
    job = {"model": "llama-3-8b", "gpu": "h100-sxm", "gpus": 1, "framework": "torch-ddp", "precision": "amp-bf16"}
    each = []
    for compiled in (True, False):
        setup = resolve(Job.read({**job, "compile": compiled}))
        embedding = build_stages(setup)[0].embedding
        assert embedding is not None
        each.append(sum(table_gradient_bytes(setup, row) for row in embedding.operations))
    assert each[0] - each[1] == pytest.approx((637e-6 + 1021e-6) * 2.48e12, rel=0.05)
