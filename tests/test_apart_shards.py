"""Shards of gradients that torch's FSDP makes on a stream of its own."""

from __future__ import annotations

import pytest

import distsim
from distsim.units import GIB

JOB = {"model": "llama-3.2-1b", "gpu": "a100-sxm4-80gb", "seq": 2048, "micro_batch": 1, "framework": "fsdp",
       "precision": "fsdp-pure", "optimizer": "adamw-fused", "recompute": "none"}  # fmt: skip


@pytest.mark.parametrize(("gpus", "measured"), [(2, 13.81), (4, 10.40), (8, 8.67)])
def test_they_are_not_allocated_at_the_loss(gpus: int, measured: float) -> None:
    """Saibernard/distributed_training, torch.cuda.max_memory_allocated with transformers' LlamaForCausalLM."""
    held = distsim.memory(**JOB, gpus=gpus).worst
    assert held.peak_moment == "loss backward"
    assert held.counted("allocated") / GIB == pytest.approx(measured, rel=0.07)


def test_but_their_blocks_are_reserved() -> None:
    held = distsim.memory(**JOB, gpus=4).worst
    peak = next(one for one in held.moments if one.name == held.peak_moment)
    assert peak.unmade == pytest.approx(held.states.gradients)
    assert held.counted("reserved") > held.counted("allocated") + peak.unmade


def test_the_root_ends_with_three_of_its_tensors() -> None:
    """Gathered, as gradients, and joined in one: 5.9 GiB of Llama 3.1 8B beside states and gradients of its layers."""
    held = distsim.memory(**{**JOB, "model": "llama-3.1-8b", "recompute": "full"}, gpus=4).worst
    assert max(held.moments, key=lambda one: one.total).name == "embedding backward"
    assert held.counted("allocated") / GIB == pytest.approx(34.8, rel=0.08)
