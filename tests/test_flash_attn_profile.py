"""Training scripts of flash-attention: kernels that add, drop and norm at once, products with their GELU."""

from __future__ import annotations

from dataclasses import replace

import pytest

import distsim
from distsim.engine.evidence import replay
from distsim.engine.jobs.resolve import Setup, resolve
from distsim.engine.jobs.stages import build_stages
from distsim.engine.kernels.passes import input_bytes, moved_bytes
from distsim.errors import DistsimError
from distsim.interop.runs import Run
from distsim.layers.ledger import Operation
from distsim.specs.job import Job

JOB = {"model": "gpt2-xl", "gpu": "a100-sxm4-80gb", "gpus": 8, "zero": 1, "micro_batch": 8, "seq": 1024}


def usual(**more: object) -> Setup:
    return resolve(Job(**{**JOB, "framework": "flash-attn", **more}))


def row(setup: Setup, name: str) -> Operation:
    return next(one for one in build_stages(setup)[0].usual_layer[0].operations if one.name == name)


def test_one_kernel_adds_and_norms() -> None:
    """Under autocast 2 bytes of a branch, 4 of the stream, once read and once written, and a mask; backward 16."""
    setup = usual()
    elements = 8 * 1024 * 1600
    assert moved_bytes(setup, row(setup, "mlp.residual")) == pytest.approx((13 * elements, 17 * elements))
    assert moved_bytes(setup, row(setup, "mlp.norm")) == (0.0, 0.0)
    assert input_bytes(setup, row(setup, "mlp.up")) == (0.0, 0.0)
    apart = replace(setup, kernels=setup.kernels.model_copy(update={"norm_adds": False}))
    moved = [sum(map(sum, (moved_bytes(one, row(one, name)) for name in ("mlp.residual", "mlp.norm"))))
             for one in (setup, apart)]  # fmt: skip
    assert moved[0] < 0.7 * moved[1] and input_bytes(apart, row(apart, "mlp.up"))[0] > 0


def test_what_it_has_not_is_refused() -> None:
    for more in ({"compile": True}, {"offload": "optimizer"}, {"tp": 2}, {"zero": 3}):
        with pytest.raises(DistsimError):
            usual(**more)
    assert usual().vocab_padded == 50264  # pad_vocab_size_multiple
    notes = distsim.step(**JOB, framework="flash-attention").notes
    assert not any("aligned" in note for note in notes)


@pytest.mark.parametrize(
    ("micro_batch", "gpu", "seconds"), [("4", "a100-sxm4-40gb", 4.65), ("8", "a100-sxm4-80gb", 4.33)]
)
def test_comments_of_its_recipe(micro_batch: str, gpu: str, seconds: float) -> None:
    """training/configs/experiment/owt/gpt2xl-flash.yaml: of 512 sequences a step (activations of MLPs made again)."""
    cells = {"model": "gpt2-xl", "gpu": gpu, "n_gpus": "8", "zero_stage": "1", "seq_len": "1024", "precision": "fp16",
             "micro_batch": micro_batch, "global_batch": "512", "framework": "flash-attn", "year": "2022",
             "attention": "flash-1", "step_time_s": str(seconds)}  # fmt: skip
    found = replay(Run(cells, 1), strange=True)
    assert found.error == pytest.approx(0, abs=0.12)
    by_publisher = replay(Run({**cells, "framework": "pytorch-lightning ddp",
                               "source": "Dao-AILab/flash-attention training/README.md"}, 1), strange=True)  # fmt: skip
    assert by_publisher.predicted_seconds == pytest.approx(found.predicted_seconds)
