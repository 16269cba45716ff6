"""Measure single kernels on the GPU of this machine: products, attention, passes over memory, optimizers, the host.

Run with ``python benchmarks/gpu/kernels.py OUT.csv [--only GROUP]``; needs torch. A row has group, what, format, shape,
way, seconds, and work: the floating-point operations of products and attention, the elements of anything else.
"""

from __future__ import annotations

import argparse
import csv
import sys
import time
from collections.abc import Callable, Iterator

import torch
from attention import attention, masked
from chains import gaps, sizes
from host import host
from passes import compiled, passes
from products import aligned, batched, formats, grouped, narrow, products
from timing import Row
from updates import optimizers

GROUPS: dict[str, Callable[[], Iterator[Row]]] = {
    "host": host,
    "products": products,
    "formats": formats,
    "aligned": aligned,
    "sizes": sizes,
    "gaps": gaps,
    "batched": batched,
    "attention": attention,
    "masked": masked,
    "passes": passes,
    "optimizers": optimizers,
    "grouped": grouped,
    "narrow": narrow,
    "compiled": compiled,
}


def main() -> int:
    """Measure all groups, or those named, into one CSV; a group that fails keeps what it measured."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out")
    parser.add_argument("--only", action="append", choices=list(GROUPS))
    options = parser.parse_args()
    print(torch.cuda.get_device_name(), torch.__version__)
    with open(options.out, "a", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(Row._fields)
        for name in options.only or GROUPS:
            begun, count = time.perf_counter(), 0
            try:
                for row in GROUPS[name]():
                    writer.writerow([*row[:5], f"{row.seconds:.4e}", f"{row.work:.5e}"])
                    count += 1
            except Exception as error:
                print(f"{name}: {type(error).__name__}: {str(error)[:300]}")
            file.flush()
            torch.cuda.empty_cache()
            print(f"{name}: {count} rows in {time.perf_counter() - begun:.0f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
