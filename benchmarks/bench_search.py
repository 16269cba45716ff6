"""Layouts per second of a search on one core, from a thousand to tens of millions, with the memory that it took.

    python benchmarks/bench_search.py [--quick]

Each case is a process of its own, so that its peak memory is its own; the rate counts everything from reading presets
to ranking, and, in the last column, only the evaluation.
"""

from __future__ import annotations

import json
import subprocess
import sys

CASES = [
    ("llama-7b", "h100-sxm", 8, {"pp": "1", "recompute": "none,selective"}),
    ("llama-7b", "h100-sxm", 8, {"recompute": "none,selective"}),
    ("llama-7b", "h100-sxm", 8, {}),
    ("llama-70b", "h100-sxm", 64, {"schedule": "1f1b"}),
    ("llama-70b", "h100-sxm", 64, {}),
    ("mixtral-8x7b", "h100-sxm", 64, {}),
    ("llama-70b", "h100-sxm", 512, {}),
    ("gpt3-175b", "a100-sxm4-80gb", 1024, {}),
    ("llama-405b", "h100-sxm", 16384, {}),
]

ONE = """
import json, resource, sys, time
began = time.process_time()
from distsim.engine.search import Request, search
from distsim.engine.search_bounds import parse_bounds
from distsim.specs.job import Job
model, gpu, gpus, bounds = json.loads(sys.argv[1])
begun = time.process_time()
marks = []
report = search(Request(Job(model=model, gpu=gpu), (gpus,), parse_bounds(bounds, [])),
                lambda done, whole: marks.append(time.process_time()))
ended = time.process_time()
print(json.dumps({"evaluated": report.evaluated, "feasible": report.feasible, "cpu": ended - began,
                  "evaluation": marks[-1] - begun, "best": report.best[0].report.seconds if report.best else None,
                  "memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}))
"""


def main() -> None:
    """Run all cases and print a table."""
    cases = CASES[:5] if "--quick" in sys.argv else CASES
    print(
        f"{'search':38} {'layouts':>12} {'feasible':>12} {'CPU s':>7} {'per s':>10} {'evaluated/s':>12} {'peak MB':>8}"
    )
    for case in cases:
        model, gpu, gpus, bounds = case
        done = subprocess.run([sys.executable, "-c", ONE, json.dumps(case)], capture_output=True, text=True, check=True)
        one = json.loads(done.stdout)
        name = f"{model} on {gpus} {gpu}" + (" (bounded)" if bounds else "")
        print(
            f"{name:38} {one['evaluated']:12,} {one['feasible']:12,} {one['cpu']:7.2f} "
            f"{one['evaluated'] / one['cpu']:10,.0f} {one['evaluated'] / one['evaluation']:12,.0f} "
            f"{one['memory'] / 1e6:8.0f}"
        )


if __name__ == "__main__":
    main()
