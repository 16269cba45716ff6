"""From the output of nccl-tests to a profile: a line per collective and rank count, and factors that jobs use."""

from __future__ import annotations

import datetime
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from distsim import catalog
from distsim.engine.fitting import links as calibrate_links
from distsim.engine.fitting.links_rows import Batch, Measurement, batches
from distsim.engine.networks import pricing
from distsim.engine.networks.link_factors import factors
from distsim.engine.networks.network import Factor
from distsim.errors import DistsimError
from distsim.interop.nccl_tests import NcclTests, Sample
from distsim.units import GIGA, MICROSECOND, decimal_bytes, duration

MOST = 3.0
"""A measured collective that moves its bytes this many times as fast as its links can was not measured on them."""


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
    notes: tuple[str, ...] = ()


def line(samples: Sequence[Sample]) -> Line:
    """The straight line of least squared relative error; neither latency nor slope below zero."""
    op, ranks = samples[0].op, samples[0].ranks
    if ranks < 2:
        raise DistsimError(f"{op} on one rank exchanges nothing", "give a test of 2 ranks or more")
    factor = pricing.bus_factor(op, ranks)
    rows = [(1 / one.seconds, one.size_bytes * factor / one.seconds) for one in samples]
    aa, ab, bb = (sum(x[i] * x[j] for x in rows) for i, j in ((0, 0), (0, 1), (1, 1)))
    a, b = sum(x for x, _ in rows), sum(y for _, y in rows)
    determinant = aa * bb - ab * ab
    latency, slope = 0.0, b / bb
    if determinant > 0 and bb * a > ab * b:
        latency, slope = (bb * a - ab * b) / determinant, (aa * b - ab * a) / determinant
    if slope <= 0:
        raise DistsimError(
            f"{op} on {ranks} ranks takes no longer for larger sizes: no bandwidth follows",
            "measure sizes up to 1 GB or more",
        )
    errors = sorted(abs(latency * x + slope * y - 1) for x, y in rows)
    return Line(op, ranks, latency, 1 / slope, len(samples), errors[len(errors) // 2])


def fit(
    found: NcclTests,
    gpu: str,
    gpus_per_node: int | None = None,
    gbps: float | None = None,
    network: str | None = None,
    cluster: Any = None,
) -> Profile:
    """Lines and factors of a file, measured on ``cluster`` or on a GPU's usual node and network with what is stated of
    them; GPUs per node are the file's where it names hosts and nobody states them."""
    if gbps is not None and not 0 < gbps < math.inf:
        raise DistsimError(f"{gbps:g} Gb/s is not a valid network bandwidth", "give Gb/s per GPU, such as 400")
    groups: dict[tuple[str, int], list[Sample]] = {}
    for one in found.samples:
        groups.setdefault((one.op, one.ranks), []).append(one)
    lines = tuple(line(group) for group in groups.values())
    rows = [
        Measurement("nccl-tests", one.op, gpu, one.ranks, _per_node(one, gpus_per_node), gbps, one.size_bytes,
                    one.seconds, network=network)
        for one in found.samples
    ]  # fmt: skip
    ready, result = batches(rows, cluster), dict(factors())
    for batch in ready:
        _refuse_too_fast(batch)
    fitted: dict[str, Factor] = {}
    for key in sorted({one.key for one in ready}, key=lambda key: (not calibrate_links.is_intra(key), key)):
        start = calibrate_links.factor_for(result, key)
        members = [one for one in ready if one.key == key]
        fitted[key] = result[key] = calibrate_links.fit_one(members, start, result)
    return Profile(lines, fitted, tuple(filter(None, [_other_device(found.device, gpu), _ignored(found)])))


def _ignored(found: NcclTests) -> str:
    """A note on rows that were no measurements."""
    if not found.ignored:
        return ""
    rows = "1 row is" if found.ignored == 1 else f"{found.ignored} rows are"
    return f"{rows} left out: no size or no time above zero; {len(found.samples)} are fitted"


def _per_node(sample: Sample, stated: int | None) -> int | None:
    """GPUs of one node: as stated, or the file's, or None where it names no hosts."""
    if stated is not None or not sample.nodes:
        return stated
    return max(1, sample.ranks // sample.nodes)


def _refuse_too_fast(batch: Batch) -> None:
    """Times that no factor of these links explains: another machine, or numbers that are no times."""
    import numpy

    _, _, inside, across, _ = batch.terms
    times = numpy.maximum(inside, across).min(axis=0) / batch.measured
    worst = int(times.argmax())
    if times[worst] <= MOST:
        return
    one, link = batch.rows[worst], batch.key.split("/")[0]
    rate = one.size_bytes * pricing.bus_factor(one.op, one.ranks) / one.seconds
    raise DistsimError(
        f"{one.op} of {one.size_bytes:,} bytes on {one.ranks} ranks in {duration(one.seconds)} has a bus bandwidth of "
        f"{decimal_bytes(rate, 'B/s')}, {times[worst]:.1f} times what {link} on {one.gpu} can carry",
        "say where it was measured: --gpu or --cluster, --gpus-per-node, --internode-gbps-per-gpu",
    )


def _other_device(device: str, gpu: str) -> str:
    """A note where the file names another accelerator than the one it is read for, or nothing."""
    if not device or not catalog.knows("gpus", device):
        return ""
    named, told = catalog.load("gpus", gpu).name, catalog.load("gpus", device).name
    if named == told:
        return ""
    return f"the file was measured on {device}, which is {told}; it is used as a measurement of {named}"


def toml(profile: Profile, origin: str) -> str:
    """The profile as a file that ``profile=`` and ``--network-profile`` read."""
    day = datetime.date.today().isoformat()
    body = calibrate_links.toml(profile.factors, origin, day, "distsim calibrate --nccl-tests")
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
        "notes": list(profile.notes),
    }
