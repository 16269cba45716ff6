"""Reads what nccl-tests prints: its text tables and its JSON (``-J``)."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, NamedTuple

from distsim.errors import DistsimError
from distsim.units import MICROSECOND

_OPS = {
    "all_reduce": "all_reduce",
    "all_gather": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "alltoall": "all_to_all",
    "broadcast": "broadcast",
    "reduce": "reduce",
    "scatter": "scatter",
    "gather": "gather",
    "sendrecv": "send_recv",
}
_STARTING = re.compile(r"^#.*?\b(\w+)_perf\b")
_RANK = re.compile(r"#\s+Rank\s+(\d+)\b.*?\bon\s+(\S+)\s+device\s+\S+\s*(?:\[\S+\]\s*)?(.*)$")
_WANTED = "give a file that nccl-tests printed, or wrote with -J"
_COLUMNS = 5  # size, count, type, redop, root stand before the out-of-place time


class Sample(NamedTuple):
    """One measured size of one collective, out of place."""

    op: str
    ranks: int
    nodes: int
    size_bytes: int
    seconds: float


class NcclTests(NamedTuple):
    """All samples of a file, and the device its ranks ran on where the file says."""

    samples: tuple[Sample, ...]
    device: str


def read(path: str, op: str | None = None, ranks: int | None = None) -> NcclTests:
    """Samples of a file that nccl-tests wrote; ``op`` and ``ranks`` serve files whose headers are missing."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DistsimError(f"cannot read {path}: {error}", _WANTED) from None
    if text.lstrip().startswith("{"):
        return _read_json(text, path, op, ranks)
    return _read_text(text, path, op, ranks)


def _read_text(text: str, path: str, op: str | None, ranks: int | None) -> NcclTests:
    samples: list[Sample] = []
    hosts: set[str] = set()
    seen_ranks: set[int] = set()
    device, name = "", op
    for number, line in enumerate(text.splitlines(), 1):
        plain = line.strip()
        if plain.startswith("#"):
            if (match := _STARTING.search(plain)) and match[1] in _OPS:
                name = _OPS[match[1]]
                hosts, seen_ranks = set(), set()
            elif match := _RANK.search(plain):
                seen_ranks.add(int(match[1]))
                hosts.add(match[2])
                device = match[3].strip() or device
            continue
        fields = plain.split()
        if len(fields) < _COLUMNS + 3 or not fields[0].isdigit():
            continue
        where = f"{path}, line {number}"
        samples.append(_sample(fields, where, _known(name, where), ranks or len(seen_ranks), max(1, len(hosts))))
    return _checked(samples, device, path)


def _sample(fields: list[str], where: str, op: str, ranks: int, nodes: int) -> Sample:
    if ranks < 1:
        raise DistsimError("the number of ranks is not in the file", "add --ranks N", where=where)
    try:
        size, time = int(fields[0]), float(fields[_COLUMNS])
    except ValueError:
        hint = "columns: size count type redop root time"
        raise DistsimError(f"{fields[_COLUMNS]!r} is not a time in us", hint, where=where) from None
    return Sample(op, ranks, nodes, size, time * MICROSECOND)


def _known(name: str | None, where: str) -> str:
    if name is None:
        hint = f"add --collective, one of {', '.join(_OPS.values())}"
        raise DistsimError("the file does not name its collective", hint, where=where)
    return name


def _read_json(text: str, path: str, op: str | None, ranks: int | None) -> NcclTests:
    try:
        data = json.loads(text)
    except json.JSONDecodeError as error:
        raise DistsimError(f"not JSON: {error.msg}", _WANTED, where=f"{path}, line {error.lineno}") from None
    name = op or _json_op(data)
    devices = _find(data, "devices") or _find(data, "ranks") or []
    hosts = {str(one.get("hostname", one.get("host"))) for one in devices if isinstance(one, dict)}
    count = ranks or (len(devices) if isinstance(devices, list) else 0) or int(_find(data, "nranks") or 0)
    samples = []
    for index, row in enumerate(data.get("results") or []):
        where = f"{path}, result {index}"
        if count < 1:
            raise DistsimError("the number of ranks is not in the file", "add --ranks N", where=where)
        place = row.get("out_of_place") or row.get("in_place") or {}
        time = place.get("time", place.get("cpu_time"))
        if not isinstance(time, (int, float)) or not isinstance(row.get("size"), int):
            raise DistsimError("a result without size or out_of_place time", _WANTED, where=where)
        samples.append(Sample(_known(name, where), count, max(1, len(hosts)), row["size"], time * MICROSECOND))
    return _checked(samples, "", path)


def _json_op(data: dict[str, Any]) -> str | None:
    """The collective a JSON file is of, from any of its texts that names a test."""
    match = re.search(r"\b(\w+)_perf\b", json.dumps({key: data[key] for key in data if key != "results"}))
    return _OPS.get(match[1]) if match else None


def _find(data: Any, key: str) -> Any:
    """The first value under a key, at any depth of mappings."""
    if not isinstance(data, dict):
        return None
    if key in data:
        return data[key]
    return next((found for value in data.values() if (found := _find(value, key)) is not None), None)


def _checked(samples: list[Sample], device: str, path: str) -> NcclTests:
    good = [one for one in samples if one.size_bytes > 0 and one.seconds > 0]
    if not good:
        raise DistsimError(f"no measurements in {path}", _WANTED)
    return NcclTests(tuple(good), device)
