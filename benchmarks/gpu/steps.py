"""Measure training steps on the GPU of this machine, as rows that ``distsim validate`` and ``calibrate`` read.

Run with ``python benchmarks/gpu/steps.py FOLDER [--only WORDS] [--skip WORDS] [--gpu PRESET] [--seconds N]
[--profile]``; needs torch and transformers, accelerate for its Trainer and peft for adapters. ``FOLDER/runs.csv`` has a
row per case (docs/runs.md has the columns), ``FOLDER/kernels.csv`` what the kernels of each took, by kind, in one more
step under torch's profiler.
"""

from __future__ import annotations

import argparse
import csv
import gc
import sys
import time
import traceback
from pathlib import Path
from typing import Any

import torch
from cases import CASES, Case
from loops import own_loop, own_seconds
from models import MODELS
from plain import PLAIN
from rows import kernels_of, row_of, write_rows
from trainer import trainer_seconds


def measure(case: Case, folder: Path, profiled: bool) -> tuple[dict[str, Any], list[tuple[Any, ...]]]:
    """The row of one case, and its kernels."""
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = case.precision == "tf32"
    torch._dynamo.reset()
    told, kernels = [], []
    if case.loop == "trainer":
        seconds = trainer_seconds(case, folder)
    else:
        step = own_loop(case)
        waited, seconds = own_seconds(step)
        told.append(f"{waited * 1e3:.2f} ms where each step is waited for")
    free, total = torch.cuda.mem_get_info()
    told += [
        f"peak reserved {torch.cuda.max_memory_reserved() / 2**30:.2f} GiB",
        f"{(total - free) / 2**30:.2f} GiB of the device in use",
    ]
    peak = torch.cuda.max_memory_allocated() / 2**30
    if profiled and case.loop != "trainer":
        kernels = [(case.name, *row) for row in kernels_of(step)]
    return row_of(case, seconds, peak, told), kernels


def chosen(only: list[str], skip: list[str]) -> list[Case]:
    """Cases whose names have all words of one entry of ``only`` and none of ``skip``."""

    def has(case: Case, words: str) -> bool:
        return set(words.split()) <= set(case.name.split())

    cases = [case for case in CASES if not only or any(has(case, words) for words in only)]
    return [case for case in cases if not any(has(case, words) for words in skip)]


def tried(case: Case, folder: Path, profiled: bool) -> tuple[dict[str, Any], list[tuple[Any, ...]]] | None:
    """What ``measure`` gives, or why there is nothing: one case that fails must not cost the others."""
    try:
        return measure(case, folder, profiled)
    except Exception as error:
        print(f"{case.name}: {type(error).__name__}: {str(error)[:300]}")
        traceback.print_exc(limit=-2)
        return None


def asked() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--gpu", default=torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu")
    parser.add_argument("--only", action="append", default=[], help="words of a case's name; may be given again")
    parser.add_argument("--skip", action="append", default=[], help="leave out cases with these words")
    parser.add_argument("--seconds", type=float, default=540.0, help="begin no case after so many")
    parser.add_argument("--profile", action="store_true", help="also write the kernels of one step of each case")
    return parser.parse_args()


def main() -> int:
    """Measure all chosen cases; files are written as rows come, so that what was measured stays."""
    options = asked()
    options.folder.mkdir(parents=True, exist_ok=True)
    assert all(case.model in (PLAIN if case.loop == "hand" else MODELS) for case in CASES)
    begun, rows = time.perf_counter(), []
    with open(options.folder / "kernels.csv", "a", newline="") as kernel_file:
        writer = csv.writer(kernel_file)
        for place, case in enumerate(chosen(options.only, options.skip)):
            if time.perf_counter() - begun > options.seconds:
                print("no time for", case.name)
                continue
            found = tried(case, options.folder, options.profile)
            if found is None:
                continue
            row, kernels = found
            head = {"id": f"gpu-{place:03}", "source": "distsim/benchmarks gpu/steps.py", "gpu": options.gpu}
            rows.append(head | row)
            writer.writerows(kernels)
            kernel_file.flush()
            milliseconds = float(row["step_time_s"]) * 1e3
            print(f"{case.name:<70} {milliseconds:9.2f} ms {row['mem_peak_gb_per_gpu']:>8} GiB", flush=True)
            write_rows(options.folder / "runs.csv", rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
