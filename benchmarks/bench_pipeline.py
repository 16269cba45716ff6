"""Actions per second and memory of the pipeline simulation, over sizes from a thousand to a million actions.

usage: python benchmarks/bench_pipeline.py
"""

from __future__ import annotations

import time
import tracemalloc

import distsim
from distsim.schedules import registry

SIZES = ((4, 125), (8, 625), (16, 3_125), (64, 1_024), (64, 7_812))  # stages, micro-batches: 1e3 to 1e6 actions
OTHERS = (("gpipe", 64, 1_024), ("interleaved-1f1b", 16, 1_024), ("zb-v", 16, 512), ("dualpipe", 64, 512),
          ("v-half", 16, 96), ("zb-auto", 16, 512), ("hanayo", 16, 512))  # fmt: skip


def measure(name: str, stages: int, micro: int) -> str:
    """One line of the table: CPU time of order and simulation, actions per second, and peak memory per action."""
    begin = time.process_time()
    schedule = registry.build(name, stages, micro)
    built = time.process_time() - begin
    actions = sum(map(len, schedule.orders))
    del schedule
    whole = min(_cpu_seconds(name, stages, micro) for _ in range(3))
    tracemalloc.start()
    distsim.pipeline(stages, micro, name)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return (
        f"{name:<17} {stages:>3} x {micro:>5} {actions:>10,} {built:>8.3f} s {whole:>8.3f} s "
        f"{actions / whole:>12,.0f}/s {peak / actions:>6.0f} B"
    )


def _cpu_seconds(name: str, stages: int, micro: int) -> float:
    begin = time.process_time()
    distsim.pipeline(stages, micro, name)
    return time.process_time() - begin


def main() -> None:
    """Print the table."""
    distsim.pipeline(2, 2)  # imports
    print(f"{'schedule':<17} {'size':>11} {'actions':>10} {'order':>10} {'all':>10} {'actions':>14} {'memory':>8}")
    for stages, micro in SIZES:
        print(measure("1f1b", stages, micro))
    for name, stages, micro in OTHERS:
        print(measure(name, stages, micro))


if __name__ == "__main__":
    main()
