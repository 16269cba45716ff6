"""CPU time of replaying measured runs: ``distsim validate`` is for every change of the physics, so it must be quick.

Run with ``python benchmarks/bench_validate.py``; exits with 1 when a thousand runs take more than the bar.
"""

from __future__ import annotations

import csv
import sys
import tempfile
import time
from pathlib import Path

RUNS = 1000
BAR_SECONDS = 10.0


def main(runs: int = RUNS) -> int:
    """Replay every so-manieth shipped run; 1 when the bar is missed."""
    start = time.process_time()
    from distsim.engine.validate import shipped_runs, validate_file

    with open(shipped_runs(), newline="", encoding="utf-8") as file:
        header, *rows = csv.reader(file)
    chosen = rows[:: max(1, len(rows) // runs)][:runs]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "runs.csv"
        with open(path, "w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([header, *chosen])
        answer = validate_file(path)
    seconds = time.process_time() - start
    told = f"{len(chosen)} runs replayed in {seconds:.1f} s of CPU, imports included"
    print(f"{told}; {answer.summary.rows} answered (bar {BAR_SECONDS:g} s for {RUNS})")
    return int(seconds > BAR_SECONDS * len(chosen) / RUNS)


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:2])))
