"""Laws between the answers of ``step`` for jobs drawn by chance: parts add up, and more work takes longer, whatever
pipelines, shards or offloads."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest
from accepted import accepted

import distsim

JOBS, SEED = 30, 20
MODELS = ("gpt2", "llama-3.2-1b", "qwen1.5-moe-a2.7b", "whisper-small", "bert-large", "mamba2-370m")
GPUS = ("a100-sxm4-80gb", "h100-sxm", "mi250x-gcd", "v100-sxm2-32gb")
SCHEDULES = ("1f1b", "gpipe", "zb-h1", "zb-v", "hanayo", "interleaved-1f1b")


def options(rng: random.Random) -> dict[str, Any]:
    """A job as a user might ask for it; many are refused."""
    tp, pp, dp = rng.choice((1, 1, 2)), rng.choice((1, 2, 4)), rng.choice((1, 2, 8))
    job = {"model": rng.choice(MODELS), "gpu": rng.choice(GPUS), "tp": tp, "pp": pp, "gpus": tp * pp * dp, "seq": 512,
           "global_batch": dp * rng.choice((1, 2, 4)), "micro_batch": 1, "zero": rng.choice((0, 1, 2, 3)),
           "recompute": rng.choice(("none", "selective", "full")),
           "offload": rng.choice(("none", "none", "optimizer", "activations"))}  # fmt: skip
    return {**job, "schedule": rng.choice(SCHEDULES)} if pp > 1 else job


@pytest.mark.parametrize("job", accepted(options, SEED, JOBS), ids=lambda job: f"{job['model']}-{job['gpus']}")
def test_more_work_takes_longer(job: dict[str, Any]) -> None:
    """Not strictly: where the host is the slower one, longer weight gradients fill a bubble that was idle anyway."""
    step = distsim.step(**job)
    parts = step.breakdown.values()
    assert all(math.isfinite(part) and part >= 0 for part in parts)
    assert sum(parts) == pytest.approx(step.seconds)
    assert step.interval.low <= step.seconds <= step.interval.high
    for more in ({"global_batch": 3 * job["global_batch"]}, {"seq": 2 * job["seq"]}):
        assert distsim.step(**{**job, **more}).seconds > 0.98 * step.seconds
