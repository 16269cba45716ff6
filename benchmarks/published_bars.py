"""Step times that were published and that other predictors are judged by: python benchmarks/published_bars.py [--docs]

Prints them beside what is predicted; with --docs they are written to docs/step.md, between their marks.
"""

from __future__ import annotations

import functools
import itertools
import math
import re
import statistics
import sys
from pathlib import Path
from typing import Any

import distsim
from distsim import catalog
from distsim.engine.evidence import replay
from distsim.engine.validate import shipped_runs
from distsim.interop.runs import read_runs
from distsim.units import TERA

PAGE = Path(__file__).parent.parent / "docs" / "step.md"
MARK = re.compile(r"(<!-- published bars -->\n).*?(<!-- end -->)", re.DOTALL)
HOW = "python benchmarks/published_bars.py --docs"

# Korthikanti et al. 2022 (arXiv:2205.05198), table 5: seconds per iteration on A100-80GB, full recomputation, and
# selective with sequence parallelism.
KORTHIKANTI: list[tuple[Any, ...]] = [
    ("megatron-22b", 8, 1, 1, 4, 4, 1.42, 1.10), ("gpt3-175b", 64, 8, 3, 1, 64, 18.13, 13.75),
    ("mt-nlg-530b", 280, 35, 3, 1, 280, 49.05, 37.83), ("megatron-1t", 512, 64, 1, 1, 512, 94.42, 71.49),
]  # fmt: skip
REPLICAS_SECONDS = 39.15
"""Of the 530B model with eight replicas, whose gradients nothing hides."""

# Narayanan et al. 2021 (arXiv:2104.04473), table 2: 175B at batch 1,536, TFLOP/s per GPU.
NARAYANAN: dict[str, Any] = {"model": "gpt3-175b", "gpu": "a100-sxm4-80gb", "global_batch": 1536, "seq": 2048,
                             "recompute": "full", "attention": "eager", "precision": "fp16"}  # fmt: skip
SIZES = ((384, 4), (768, 2), (1536, 1))
"""GPUs, and the micro-batch under ZeRO 3."""
SHARDED, SOLID = (144, 88, 44), (153, 149, 141)
SCAN = "train/tr11-176B-ml/"
"""In the source of the runs with which BigScience chose BLOOM's layout."""
WORK = 96 * 1536 * 2048 * 96 * 12288**2 * (1 + 2048 / (6 * 12288) + 51200 / (16 * 96 * 12288))
"""FLOP of its step (equation 3)."""


def korthikanti(recompute: str, model: str, gpus: int, pp: int, vpp: int, micro: int, batch: int) -> float:
    """Predicted seconds of a step."""
    return distsim.step(
        model=model, gpu="a100-sxm4-80gb", gpus=gpus, tp=8, pp=pp, vpp=vpp, micro_batch=micro, global_batch=batch,
        seq=2048, recompute=recompute, sequence_parallel=recompute == "selective", attention="eager",
        framework="megatron-lm", precision="fp16",
    ).seconds  # fmt: skip


def korthikanti_errors() -> list[float]:
    """Of the eight step times, without their signs."""
    return [
        abs(korthikanti(recompute, *job) / measured - 1)
        for *job, full, selective in KORTHIKANTI
        for recompute, measured in (("full", full), ("selective", selective))
    ]


def replicas() -> float:
    """Predicted seconds of the 530B model with eight replicas."""
    return korthikanti("selective", "mt-nlg-530b", 2240, 35, 3, 1, 2240)


def sharded(framework: str = "deepspeed-2021") -> list[float]:
    """Predicted TFLOP/s under ZeRO 3."""
    return [_speed(gpus, zero=3, micro_batch=micro, framework=framework) for gpus, micro in SIZES]


def solid() -> list[float]:
    """Predicted TFLOP/s with tensor and pipeline parallelism."""
    return [_speed(gpus, tp=8, pp=12, micro_batch=1, framework="megatron-2021") for gpus, _ in SIZES]


def _speed(gpus: int, **layout: Any) -> float:
    return WORK / distsim.step(**NARAYANAN, gpus=gpus, **layout).seconds / gpus / TERA


@functools.cache
@catalog.settled()
def scan() -> list[tuple[float, float]]:
    """Measured and predicted seconds of BLOOM's scan of layouts."""
    runs = [run for run in read_runs(shipped_runs()) if SCAN in (run.text("source") or "")]
    timed = [one for one in map(replay, runs) if one.error is not None]
    return [(one.measured_seconds or 0.0, one.predicted_seconds or 0.0) for one in timed]


def kendall(pairs: list[tuple[float, float]]) -> float:
    """Kendall's tau of two orders: 1 where all pairs are in the same, 0 where as many are not."""
    signs = [math.copysign(1, (a - c) * (b - d)) for (a, b), (c, d) in itertools.combinations(pairs, 2) if a != c]
    return statistics.fmean(signs)


def table() -> str:
    """What docs/step.md tells of them."""
    errors, scanned = korthikanti_errors(), scan()
    rows = [
        ("Korthikanti et al. 2022, eight step times", "best peer: 3.65% off in the mean, 8.87% at worst",
         f"{statistics.fmean(errors):.1%} in the mean, {max(errors):.1%} at worst"),
        ("the same, 530B with eight replicas", f"{REPLICAS_SECONDS} s", f"{replicas():.1f} s"),
        ("Narayanan et al. 2021, 175B under ZeRO 3 on 384, 768, 1,536 GPUs (`deepspeed-2021`)",
         f"{_listed(SHARDED)} TFLOP/s", _listed(sharded())),
        ("the same under `deepspeed`, fitted to what Azure measured in 2022", "", _listed(sharded("deepspeed"))),
        ("the same with 3D parallelism (`megatron-2021`)", f"{_listed(SOLID)} TFLOP/s", _listed(solid())),
        (f"BLOOM's scan of layouts, {len(scanned)} steps: Kendall's tau", "", f"{kendall(scanned):.2f}"),
    ]  # fmt: skip
    lines = ["| step | published | predicted |", "|---|---|---|"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])


def _listed(speeds: Any) -> str:
    return ", ".join(f"{speed:.0f}" for speed in speeds)


def with_table(page: str, told: str) -> str:
    """The page with the table between its marks."""
    return MARK.sub(lambda found: f"{found[1]}\n{told}\n\n{found[2]}", page)


if __name__ == "__main__":
    found = table()
    print(found)
    if "--docs" in sys.argv:
        PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8"), found), encoding="utf-8")
