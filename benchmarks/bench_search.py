"""Layouts per second of a search on one core, from a thousand to tens of millions, with the memory that it took.

    python benchmarks/bench_search.py [--quick]

Each case is a process of its own, so that its peak memory is its own. The first rate counts everything from reading
presets to ranking; the second only what is done for all layouts: time, traffic and memory of each, and what is kept of
them. Cases that are alike but for their bounds are then held against a straight line.
"""

from __future__ import annotations

import json
import subprocess
import sys

META = {"cluster": "meta-24k-roce", "global_batch": 2048, "seq": 8192, "framework": "megatron-lm"}
CLOSED = "1f1b,gpipe,interleaved-1f1b,looped-bfs,zb-h1,zb-h2,zb-v"
LINE = {"model": "llama-70b", "gpu": "h100-sxm", "global_batch": 1024}
CASES = [
    ("line", LINE, 512, {"tp": "8", "pp": "8", "cp": "1", "vpp": "1", "schedule": "1f1b"}),
    ("line", LINE, 512, {"tp": "8", "pp": "8", "cp": "1..4"}),
    ("line, free", LINE, 512, {"pp": "8", "tp": "8"}),
    ("line, free", LINE, 512, {"pp": "4,8", "cp": "1..4"}),
    ("line, free", LINE, 512, {"pp": "1..8"}),
    ("line, free", LINE, 512, {"schedule": CLOSED}),
    ("line, free", {**LINE, "global_batch": 12288}, 512, {"schedule": CLOSED}),
    ("", {"model": "llama-7b", "gpu": "h100-sxm"}, 8, {}),
    ("", {"model": "llama-70b", "gpu": "h100-sxm"}, 64, {}),
    ("", {"model": "mixtral-8x7b", "gpu": "h100-sxm"}, 64, {}),
    ("free", {"model": "mixtral-8x7b", "gpu": "h100-sxm"}, 64, {}),
    ("free", {"model": "llama-70b", "gpu": "h100-sxm"}, 512, {}),
    ("free", {"model": "gpt3-175b", "gpu": "a100-sxm4-80gb"}, 1024, {}),
    ("free", {"model": "llama-405b", "gpu": "h100-sxm"}, 16384, {}),
    ("", {"model": "llama-405b", "gpu": "h100-sxm", **META}, 16384, {}),
    ("free", {"model": "llama-405b", "gpu": "h100-sxm", **META}, 16384, {}),
    ("free", {"model": "gpt3-175b", "gpu": "a100-sxm4-80gb", "global_batch": 12288}, 1536, {"schedule": CLOSED}),
]
"""``free`` searches also what the framework does not run: GPipe, ZeRO 2 and 3 with pipelines."""

ONE = """
import json, resource, sys, time
began = time.process_time()
from distsim.engine.layouts.report import Request
from distsim.engine.layouts.search import search
from distsim.engine.layouts.bounds import parse_bounds
from distsim import catalog
from distsim.specs.job import Job
from distsim.specs.support import Supports
kind, job, gpus, bounds = json.loads(sys.argv[1])
job, overrides = Job(**job), {}
if "free" in kind:
    overrides["framework"] = catalog.load("frameworks", job.framework).model_copy(update={"supports": Supports()})
begun = time.process_time()
marks = []
report = search(Request(job, (gpus,), parse_bounds(bounds, []), overrides=overrides),
                lambda done, whole: marks.append(time.process_time()))
ended = time.process_time()
print(json.dumps({"evaluated": report.evaluated, "feasible": report.feasible, "cpu": ended - began,
                  "evaluation": marks[-1] - begun, "best": report.best[0].report.seconds if report.best else None,
                  "memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}))
"""


def main() -> None:
    """Run all cases and print a table, then how far cost is from proportional."""
    cases = CASES[:4] if "--quick" in sys.argv else CASES
    print(
        f"{'search':42} {'layouts':>12} {'feasible':>12} {'CPU s':>7} {'per s':>10} {'evaluated/s':>12} {'peak MB':>8}"
    )
    line = []
    for case in cases:
        kind, job, gpus, _ = case
        asked = json.dumps(case)
        done = subprocess.run([sys.executable, "-c", ONE, asked], capture_output=True, text=True, check=True)
        one = json.loads(done.stdout)
        name = f"{job['model']} on {gpus} {job['gpu']}" + (f" ({kind})" if kind else "")
        print(
            f"{name:42} {one['evaluated']:12,} {one['feasible']:12,} {one['cpu']:7.2f} "
            f"{one['evaluated'] / one['cpu']:10,.0f} {one['evaluated'] / one['evaluation']:12,.0f} "
            f"{one['memory'] / 1e6:8.0f}"
        )
        if "line" in kind:
            line.append((one["evaluated"], one["cpu"]))
    few, many = line[0], line[-1]
    each = (many[1] - few[1]) / (many[0] - few[0])
    print(f"\na search: {few[1] - each * few[0]:.2f} s, and {1e9 * each:.0f} ns for each layout; measured over this:")
    print("  ".join(f"{count:,}: {cpu / (few[1] + each * (count - few[0])):.2f}" for count, cpu in line))


if __name__ == "__main__":
    main()
