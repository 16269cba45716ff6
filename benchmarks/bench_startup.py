"""CPU time of the command line as multiples of a bare interpreter: start-up is a feature.

Run with ``make bench``; exits with 1 when a command takes more than its bar.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys

ENTRY = "from distsim.cli import main; main()"
CASES: dict[str, tuple[list[str], float]] = {
    "distsim --version": (["--version"], 9),
    "distsim --help": (["--help"], 9),
    "distsim memory --help": (["memory", "--help"], 22),
    "distsim memory llama-7b --zero 2 --json": (["memory", "llama-7b", "--zero", "2", "--json"], 22),
    "distsim memory llama-7b --zero 2": (["memory", "llama-7b", "--zero", "2"], 22),
}


def cpu_seconds(command: list[str]) -> float:
    """User and system time of one child process."""
    # Compiled modules are kept, as in any installation.
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True, env={**environment, "NO_COLOR": "1"})
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def median_seconds(command: list[str], times: int) -> float:
    """The middle of several runs, after one that warms the file cache."""
    cpu_seconds(command)
    return statistics.median(cpu_seconds(command) for _ in range(times))


def main(times: int = 15) -> int:
    """Print the table; 1 when a bar is missed."""
    bare = median_seconds([sys.executable, "-c", "pass"], 2 * times)
    print(f"python -c pass: {bare * 1000:.1f} ms of CPU")
    missed = 0
    for name, (words, bar) in CASES.items():
        ratio = median_seconds([sys.executable, "-c", ENTRY, *words], times) / bare
        missed += ratio > bar
        print(f"{name:<42} {ratio:5.1f} x  (bar {bar:g}){'' if ratio <= bar else '  MISSED'}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:2])))
