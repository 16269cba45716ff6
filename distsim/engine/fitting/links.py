"""Fits the measured factors of each link class: two on latency and one on bandwidth, per family of collectives.

Robust: the mean absolute log error, every source weighing the same however many rows it has. What the rows do not
determine stays at the common value of all classes, which also serves classes that nobody measured.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from distsim import catalog
from distsim.engine.fitting.links_rows import LATENCY_BYTES, Batch, Measurement, batches, read
from distsim.engine.networks.network import Factor
from distsim.engine.networks.network_classes import fabrics

PULL = 0.04  # weight of one octave away from the common factor, against a mean absolute log error
ALONE = 1.5  # times the pull, where a single run tells of a factor
BEST = 0.9  # of the rate of a run's fastest row: no factor on bandwidth makes a link slower than that
SHORT_BYTES = 1 << 20  # rows below it tell of LL's latency
LONG_BYTES = 64 << 10  # rows from here to LATENCY_BYTES tell of the others', larger ones of bandwidth
ROUNDS, STEPS, SPAN, NARROW = 4, 6, 2.5, 4  # grid: passes, points each side, first width in powers of two, narrowing
TOGETHER = 65_536  # numbers of trials that are computed at once: their arrays stay in the cache
ORDER = ("all_reduce", "gather", "direct", "send_recv")


class Stack(NamedTuple):
    """Rows of many batches side by side; ``fabric`` is the known factor inside their domains, 0 where it is sought."""

    long: Any
    latency: Any
    inside: Any
    across: Any
    cap: Any
    fabric: Any
    measured: Any
    weight: Any
    floor: Any


def stacked(members: Sequence[Batch], factors: Mapping[str, Factor]) -> Stack:
    """Batches as one table of candidates by rows; missing candidates take for ever."""
    import numpy

    depth = max(len(one.terms[0]) for one in members)

    def join(index: int, fill: float) -> Any:
        parts = []
        for one in members:
            term = numpy.broadcast_to(one.terms[index], (len(one.terms[index]), len(one.rows)))
            parts.append(numpy.pad(term, ((0, depth - len(term)), (0, 0)), constant_values=fill))
        return numpy.concatenate(parts, axis=1)

    own = [0.0 if one.key == one.inside_key else factor_for(factors, one.inside_key).bandwidth for one in members]
    counts = [len(one.rows) for one in members]
    long, latency, inside, across, cap = (join(index, fill) for index, fill in enumerate((0.0, 1e30, 0.0, 0.0, 0.0)))
    measured = numpy.concatenate([one.measured for one in members])
    return Stack(long > 0, latency, inside, across, cap, numpy.repeat(own, counts), measured,
                 numpy.repeat(_weights(members), counts),
                 numpy.repeat([one.floor for one in members], counts))  # fmt: skip


def seconds(stack: Stack, factor: Factor) -> Any:
    """Seconds of every row with the sought factor; with several, as arrays of three axes, a row of them for each."""
    import numpy

    fabric = numpy.where(stack.fabric > 0, stack.fabric, factor.bandwidth)
    transfer = numpy.maximum(numpy.maximum(stack.inside / fabric, stack.across / factor.bandwidth), stack.cap)
    least = (stack.latency * numpy.where(stack.long, factor.bulk, factor.low) + transfer).min(axis=-2)
    return numpy.maximum(least, stack.floor)


def predicted(batch: Batch, factors: Mapping[str, Factor]) -> Any:
    """Seconds of a batch's rows."""
    return seconds(stacked([batch], factors), factor_for(factors, batch.key))


def _weights(members: Sequence[Batch]) -> list[float]:
    """A weight per row of each batch: link classes weigh the same, sources in a class, rows in a source."""
    rows: dict[tuple[str, str], int] = {}
    for one in members:
        rows[one.key, one.source] = rows.get((one.key, one.source), 0) + len(one.rows)
    classes = [key for key, _ in rows]
    return [1.0 / rows[one.key, one.source] / classes.count(one.key) / len(set(classes)) for one in members]


def losses(stack: Stack, trials: Sequence[Factor], common: Factor, pulls: Factor) -> list[float]:
    """Of each trial the weighted mean absolute log error, plus the pulls towards the common factors."""
    import numpy

    together, found = max(TOGETHER // stack.latency.size, 1), list[float]()
    for first in range(0, len(trials), together):
        some = trials[first : first + together]
        columns: list[Any] = [numpy.array(values)[:, None, None] for values in zip(*some, strict=True)]
        each = Factor(*columns)
        errors = numpy.abs(numpy.log(seconds(stack, each) / stack.measured))
        found += [float(error) for error in (stack.weight * errors).sum(axis=-1)]
    return [
        error + sum(pull * abs(math.log2(a / b)) for pull, a, b in zip(pulls, trial, common, strict=True) if a != b)
        for error, trial in zip(found, trials, strict=True)
    ]


def pulls_of(members: Sequence[Batch]) -> Factor:
    """How strongly each factor is pulled: more where few runs tell of it, so that none decides alone. Infinite where
    none does."""
    runs = [
        len({one.source for one in members for row in one.rows if low <= row.size_bytes < high})
        for low, high in ((0, SHORT_BYTES), (LONG_BYTES, LATENCY_BYTES), (LATENCY_BYTES, math.inf))
    ]
    return Factor(*(PULL * (ALONE if count == 1 else 1.0) if count else math.inf for count in runs))


def reached(stack: Stack, members: Sequence[Batch], rate: float) -> bool:
    """Whether some run's fastest row fits a factor on bandwidth: no link is slower than what went over it."""
    times = seconds(stack, Factor(0.0, 0.0, rate)) * BEST / stack.measured
    rows = [row for one in members for row in one.rows]
    fastest: dict[str, tuple[float, float]] = {}
    for row, took, share in zip(rows, stack.measured, times, strict=True):
        if row.size_bytes >= LATENCY_BYTES:
            fastest[row.source] = max(fastest.get(row.source, (0.0, 0.0)), (row.size_bytes / took, float(share)))
    return min((share for _, share in fastest.values()), default=0.0) <= 1


def fit_one(members: Sequence[Batch], common: Factor, fixed: Mapping[str, Factor]) -> Factor:
    """Least loss on a grid that narrows: bandwidth and long latency together (they trade), then short latency."""
    stack, best, pulls = stacked(members, fixed), common, pulls_of(members)

    def least(trials: Iterable[Factor], best: Factor) -> Factor:
        """The best of the trials and of what was best before."""
        every = [best, *trials]
        now, *others = losses(stack, every, common, pulls)
        for trial, other in zip(every[1:], others, strict=True):
            if other < now - 1e-9:
                best, now = trial, other
        return best

    for round_ in range(ROUNDS):
        steps = [2 ** (SPAN / NARROW**round_ * step / STEPS) for step in range(-STEPS, STEPS + 1)]
        bulks, rates = ([at * one for one in steps] if pull < math.inf else [at]
                        for at, pull in zip(best[1:], pulls[1:], strict=True))  # fmt: skip
        rates = [one for one in rates if one >= best.bandwidth or reached(stack, members, one)]
        best = least((best._replace(bulk=bulk, bandwidth=rate) for bulk in bulks for rate in rates), best)
        best = least((best._replace(low=best.low * one) for one in steps if pulls.low < math.inf), best)
    return best


def fit(rows: Iterable[Measurement]) -> dict[str, Factor]:
    """Factors by ``link/family``, with ``other-intra`` and ``other-inter`` for classes without measurements."""
    return fit_batches(batches(rows))


@catalog.settled()  # every class of links is looked up in the same table
def fit_batches(
    found: Sequence[Batch], known: Mapping[str, Factor] | None = None, wanted: set[str] | None = None
) -> dict[str, Factor]:
    """Factors from prepared batches: links inside a domain first, then networks, whose rings also run inside.

    Of each family, what all classes share comes first (pulled towards all-reduce's latency), then each class.
    With ``wanted``, only those classes are fitted anew; the others keep their ``known`` factors.
    """
    result: dict[str, Factor] = {}
    found = [one for one in found if not one.floor]
    for place, inside in (("other-intra", True), ("other-inter", False)):
        for family in ORDER:
            members = [one for one in found if one.key.endswith(f"/{family}") and is_intra(one.key) == inside]
            common_key, keys = f"{place}/{family}", sorted({one.key for one in members})
            if not members:
                continue
            if wanted is not None and known is not None and not _touched(wanted, place, family):
                result.update({key: known[key] for key in (common_key, *keys)})
                continue
            start = result.get(f"{place}/all_reduce", Factor())._replace(bandwidth=1.0)
            common = result[common_key] = fit_one(members, start, result)
            for key in sorted(keys, key=lambda one: bool(_model(one, keys))):
                if wanted is not None and known is not None and key not in wanted:
                    result[key] = known[key]
                    continue
                start = same_latency(result, key, common)
                result[key] = fit_one([one for one in members if one.key == key], start, result)
    return {**same_rings(found, result), **same_networks(result), **result}


def _model(key: str, keys: Iterable[str]) -> str:
    """The class that differs in nothing but that GPUs share its NICs, where it has factors; else nothing."""
    link, family = key.split("/")
    like = f"{fabrics()['network'].get(link, {}).get('shared')}/{family}"
    return like if like in keys else ""


def same_latency(factors: Mapping[str, Factor], key: str, common: Factor) -> Factor:
    """Where the fit of a class starts and is pulled to: what all share, or the latency of the same network."""
    model = _model(key, factors)
    return common._replace(low=factors[model].low, bulk=factors[model].bulk) if model else common


def same_networks(factors: Mapping[str, Factor]) -> dict[str, Factor]:
    """Factors of networks that were only measured where GPUs share NICs: their latency, the bandwidth of all."""
    keys = [f"{link}/{family}" for link in fabrics()["network"] for family in ORDER]
    return {key: same_latency(factors, key, factor_for(factors, key)) for key in keys if _model(key, factors)}


def same_rings(found: Sequence[Batch], factors: Mapping[str, Factor]) -> dict[str, Factor]:
    """Factors of gathers inside domains where nobody measured them but all-reduces run on the same rings: an
    all-gather and a reduce-scatter together then take no less than an all-reduce, as everywhere both were measured."""
    links = {one.key.split("/")[0] for one in found if one.key.endswith("/all_reduce") and one.rings_only}
    return {f"{link}/gather": factors[f"{link}/all_reduce"] for link in links if is_intra(link)}


def _touched(wanted: set[str], place: str, family: str) -> bool:
    """True when a family of links (or the all-reduce it leans on) loses rows."""
    inside = place == "other-intra"
    return any(is_intra(key) == inside and key.split("/")[1] in (family, "all_reduce") for key in wanted)


def is_intra(key: str) -> bool:
    """True for links inside a domain: all but the classes of networks, whose names no such link's factors have."""
    return key.split("/")[0] not in (*fabrics()["network"], "other-inter")


def factor_for(factors: Mapping[str, Factor], key: str) -> Factor:
    """The factors of a class, or those that stand for classes without measurements."""
    other = f"{'other-intra' if is_intra(key) else 'other-inter'}/{key.split('/')[1]}"
    return factors.get(key, factors.get(other, Factor()))


def toml(factors: Mapping[str, Factor], origin: str, checked: str, by: str = "make calibrate-links") -> str:
    """The preset that pricing reads, as text; ``by`` is the command that writes it."""
    lines = [
        f"# Written by `{by}`; what each number means: docs/collectives.md.",
        "# Factors on NCCL's own arithmetic: latency of the LL protocol, latency of all others, bandwidth.",
        'name = "factors"',
        "",
        "[source]",
        f'all = "{origin}"',
        f"checked = {checked}",
    ]
    for key, one in sorted(factors.items()):
        link, family = key.split("/")
        lines += ["", f"[factor.{link}.{family}]", f"latency_short = {one.low:.4g}"]
        lines += [f"latency_long = {one.bulk:.4g}", f"bandwidth = {one.bandwidth:.4g}"]
    return "\n".join(lines) + "\n"


def main(source: str, target: str) -> None:
    """Fit the factors of a CSV of measured collectives and write them as a preset."""
    rows = read(source)
    origin = f"{len(rows)} rows of {source.rsplit('/', 1)[-1]}: {len({row.source for row in rows})} runs"
    text = toml(fit(rows), origin, datetime.date.today().isoformat())
    with open(target, "w", encoding="utf-8") as handle:
        handle.write(text)


if __name__ == "__main__":
    import sys

    main(*sys.argv[1:3])
