"""From the output of nccl-tests to a profile: a line per collective and rank count, and factors that jobs use."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from distsim.engine import calibrate_links, pricing
from distsim.engine.calibrate_links_rows import Measurement, batches
from distsim.engine.links import factors
from distsim.engine.network import Factor
from distsim.errors import DistsimError
from distsim.interop.nccl_tests import NcclTests, Sample
from distsim.units import GIGA, MICROSECOND


class Line(NamedTuple):
    """``latency + size * bus factor / bandwidth`` as fitted to one collective on one number of ranks."""

    op: str
    ranks: int
    latency_seconds: float
    bytes_per_second: float
    samples: int
    error: float
    """Median absolute relative error of the line over its samples."""


class Profile(NamedTuple):
    """Lines for people, factors for jobs."""

    lines: tuple[Line, ...]
    factors: dict[str, Factor]


def line(samples: Sequence[Sample]) -> Line:
    """The straight line of least squared relative error; neither latency nor slope below zero."""
    op, ranks = samples[0].op, samples[0].ranks
    factor = pricing.bus_factor(op, ranks)
    rows = [(1 / one.seconds, one.size_bytes * factor / one.seconds) for one in samples]
    aa, ab, bb = (sum(x[i] * x[j] for x in rows) for i, j in ((0, 0), (0, 1), (1, 1)))
    a, b = sum(x for x, _ in rows), sum(y for _, y in rows)
    determinant = aa * bb - ab * ab
    latency, slope = 0.0, b / bb
    if determinant > 0 and bb * a > ab * b:
        latency, slope = (bb * a - ab * b) / determinant, (aa * b - ab * a) / determinant
    if slope <= 0:
        raise DistsimError(f"{op} on {ranks} ranks takes no longer for more bytes", "measure sizes up to 1 GB or more")
    errors = sorted(abs(latency * x + slope * y - 1) for x, y in rows)
    return Line(op, ranks, latency, 1 / slope, len(samples), errors[len(errors) // 2])


def fit(found: NcclTests, gpu: str, gpus_per_node: int | None, gbps: float | None) -> Profile:
    """Lines and factors of a file; node counts are the file's where it names hosts."""
    groups: dict[tuple[str, int], list[Sample]] = {}
    for one in found.samples:
        groups.setdefault((one.op, one.ranks), []).append(one)
    rows = [
        Measurement(
            "nccl-tests", one.op, gpu, one.ranks, gpus_per_node or max(1, one.ranks // one.nodes), gbps,
            one.size_bytes, one.seconds,
        )
        for one in found.samples
    ]  # fmt: skip
    ready, result = batches(rows), dict(factors())
    fitted: dict[str, Factor] = {}
    for key in sorted({one.key for one in ready}, key=lambda key: (not calibrate_links.is_intra(key), key)):
        start = calibrate_links.factor_for(result, key)
        members = [one for one in ready if one.key == key]
        fitted[key] = result[key] = calibrate_links.fit_one(members, start, result)
    return Profile(tuple(line(group) for group in groups.values()), fitted)


def toml(profile: Profile, origin: str) -> str:
    """The profile as a file that ``profile=`` and ``--network-profile`` read."""
    body = calibrate_links.toml(profile.factors, origin, datetime.date.today().isoformat())
    lines = [body.rstrip()]
    for one in profile.lines:
        lines += [
            "",
            "[[line]]  # time = latency + bytes * bus factor / rate",
            f'op = "{one.op}"',
            f"ranks = {one.ranks}",
            f'latency = "{one.latency_seconds / MICROSECOND:.4g} us"',
            f'rate = "{one.bytes_per_second / GIGA:.5g} GB/s"',
            f"samples = {one.samples}",
        ]
    return "\n".join(lines) + "\n"


def to_dict(profile: Profile) -> Mapping[str, object]:
    """Lines and factors for JSON."""
    return {
        "schema": "distsim.network_profile/1",
        "lines": [one._asdict() for one in profile.lines],
        "factors": {key: one._asdict() for key, one in profile.factors.items()},
    }
