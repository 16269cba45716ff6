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
    "distsim step llama-7b --zero 3": (["step", "llama-7b", "--zero", "3"], 24),
    "distsim step llama-7b --zero 3 --gantt": (["step", "llama-7b", "--zero", "3", "--gantt"], 28),
}


def cpu_seconds(command: list[str]) -> float:
    """User and system time of one child process."""
    # Compiled modules are kept, as in any installation.
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True, env={**environment, "NO_COLOR": "1"})
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main(times: int = 15) -> int:
    """Print the table; 1 when a bar is missed. Runs take turns, so that a busy moment meets all of them."""
    commands = {"python -c pass": ["-c", "pass"], **{name: ["-c", ENTRY, *words] for name, (words, _) in CASES.items()}}
    seconds: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(times + 1):
        for name, words in commands.items():
            seconds[name].append(cpu_seconds([sys.executable, *words]))
    middle = {name: statistics.median(found[1:]) for name, found in seconds.items()}  # the first warms the file cache
    bare = middle.pop("python -c pass")
    print(f"python -c pass: {bare * 1000:.1f} ms of CPU, median of {times}")
    missed = 0
    for name, found in middle.items():
        ratio, bar = found / bare, CASES[name][1]
        missed += ratio > bar
        print(f"{name:<42} {ratio:5.1f} x  (bar {bar:g}){'' if ratio <= bar else '  MISSED'}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:2])))
