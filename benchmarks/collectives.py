"""Speed and accuracy of collective pricing: time of 100,000 prices, and errors on fitted and left-out runs.

Run: python benchmarks/collectives.py
"""

from __future__ import annotations

import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy

from distsim import catalog
from distsim.engine.fitting import links as calibrate_links
from distsim.engine.fitting.links_rows import Batch, batches, read
from distsim.engine.networks.link_factors import factors
from distsim.engine.networks.links import network_for
from distsim.engine.networks.network import group_of
from distsim.engine.networks.pricing import price

COUNT, MIB = 100_000, 2**20
BUCKETS = (("64 MB and more", 64 * MIB), ("4 to 64 MB", 4 * MIB), ("below 4 MB", 0))


def speed() -> None:
    """CPU time of pricing many collectives in one call, and of one plain price."""
    net = network_for("h100-sxm", 8, 400)
    random = numpy.random.default_rng(0)
    sizes, ranks = 2.0 ** random.uniform(10, 33, COUNT), 2 ** random.integers(1, 10, COUNT)
    group = group_of(ranks, numpy.minimum(ranks, 8), net)
    for op in ("all_reduce", "all_gather", "all_to_all"):
        price(op, sizes, group)
        start = time.process_time()
        price(op, sizes, group)
        print(f"{op:<12} {COUNT:,} prices in {time.process_time() - start:.3f} s")
    start = time.process_time()
    for _ in range(200):
        price("all_reduce", 2.0**20, group_of(64, 8, net))
    print(f"one plain price: {(time.process_time() - start) / 200 * 1e6:.0f} us")


def bucket(size: int) -> str:
    """Name of the size class."""
    return next(name for name, least in BUCKETS if size >= least)


def medians(pairs: Iterable[tuple[Batch, Any]], by: str) -> dict[str, dict[str, list[float]]]:
    """Absolute errors by group and size class."""
    found: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for batch, seconds in pairs:
        for row, measured, predicted in zip(batch.rows, batch.measured, seconds, strict=True):
            name = {"all": "all rows", "class": batch.key, "op": row.op, "run": row.source}[by]
            found[name][bucket(row.size_bytes)].append(abs(predicted / measured - 1))
    return found


def line(name: str, errors: dict[str, list[float]]) -> str:
    """One row of a Markdown table."""
    cells = [f"{statistics.median(errors[one]) * 100:.1f}%" if errors.get(one) else "–" for one, _ in BUCKETS]
    return f"| {name} | {' | '.join(cells)} |"


def leave_one_out(found: Sequence[Batch], name: Callable[[Batch], str]) -> list[tuple[Batch, Any]]:
    """Every batch with its seconds as predicted by factors fitted without any batch of the same name."""
    out, whole = [], calibrate_links.fit_batches(found)
    for held in sorted({name(one) for one in found}):
        gone = [one for one in found if name(one) == held]
        fitted = calibrate_links.fit_batches(
            [one for one in found if name(one) != held], whole, {one.key for one in gone}
        )
        out += [(one, calibrate_links.predicted(one, fitted)) for one in gone]
    return out


def unseen() -> list[tuple[Batch, Any]]:
    """Runs that no fit uses, with their seconds as the shipped factors predict them."""
    ready = batches(read(str(catalog.path("runs", "unseen_collectives"))))
    return [(one, calibrate_links.predicted(one, factors())) for one in ready]


def main() -> None:
    """Print all figures."""
    speed()
    ready = batches(read(str(catalog.path("runs", "collectives"))))
    publication = {one.source: one.rows[0].publication.split("@")[0].split(" ")[0] for one in ready}
    plain = [(one, calibrate_links.predicted(one, {})) for one in ready]
    fitted = [(one, calibrate_links.predicted(one, factors())) for one in ready]
    by_run = leave_one_out(ready, lambda one: one.source)
    by_publication = leave_one_out(ready, lambda one: publication[one.source])
    print(f"| median error | {' | '.join(name for name, _ in BUCKETS)} |")
    for name, pairs in (("unfitted", plain), ("fitted", fitted), ("left out by run", by_run),
                        ("left out by publication", by_publication), ("never fitted", unseen())):  # fmt: skip
        print(line(f"**{name}**", medians(pairs, "all")["all rows"]))
    print("\nruns of which no row took part in a fit")
    for name, errors in medians(unseen(), "run").items():
        print(line(name, errors))
    for by in ("op", "class"):
        print(f"\nfitted / left out by run, by {by}")
        left = medians(by_run, by)
        for name, errors in sorted(medians(fitted, by).items()):
            print(line(name, errors), line("", left[name]))


if __name__ == "__main__":
    main()
