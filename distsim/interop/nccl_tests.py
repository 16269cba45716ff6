"""Reads what nccl-tests prints: its text tables and its JSON (``-J``)."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeVar

from distsim.errors import DistsimError
from distsim.interop.json_file import unusable
from distsim.interop.text_file import read_text
from distsim.units import MICROSECOND

Told = TypeVar("Told", int, str)
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
_WANTED = "give the printed output of nccl-tests, or its JSON (-J)"
_TIMES = ("time", "cputime")
_NOT_TIMED = (3, 4, 5)
"""Columns before the first time: size, count and type, then neither, one or both of redop and root."""
_TIMED = 8
"""Columns from the first time on: time, algbw, busbw and errors, out of place and in place."""
_ENDLESS = 10**18  # no size in bytes, and no time in us, is as large
_NO_RANKS = "the number of ranks is not in the file"


class Sample(NamedTuple):
    """One measured size of one collective, out of place."""

    op: str
    ranks: int
    nodes: int
    """Hosts that the file names; 0 where it names none."""
    size_bytes: int
    seconds: float


class NcclTests(NamedTuple):
    """All samples of a file, and the device its ranks ran on where the file says."""

    samples: tuple[Sample, ...]
    device: str
    ignored: int = 0
    """Rows whose size or time is no measurement, as of a test that was cut off."""


def read(path: str, op: str | None = None, ranks: int | None = None) -> NcclTests:
    """Samples of a file that nccl-tests wrote; ``op`` and ``ranks`` serve files whose headers are missing."""
    if ranks is not None and ranks < 1:
        raise DistsimError(f"{ranks} ranks cannot form a group", "give a whole number of at least 2")
    text = read_text(path, _WANTED)
    if text.lstrip().startswith("{"):
        return _read_json(text, path, op, ranks)
    return _read_text(text, path, op, ranks)


def _read_text(text: str, path: str, op: str | None, ranks: int | None) -> NcclTests:
    samples: list[Sample] = []
    hosts: set[str] = set()
    seen_ranks: set[int] = set()
    device, name, columns = "", op, list[str]()
    for number, line in enumerate(text.splitlines(), 1):
        plain, where = line.strip(), f"{path}, line {number}"
        if plain.startswith("#"):
            if (match := _STARTING.search(plain)) and match[1] in _OPS:
                name = _agreed(op, _OPS[match[1]], path)
                hosts, seen_ranks = set(), set()
            elif match := _RANK.search(plain):
                seen_ranks.add(int(match[1]))
                hosts.add(match[2])
                device = match[3].strip() or device
            elif (names := plain.lstrip("# ").split())[:2] == ["size", "count"]:
                columns = names
            continue
        fields = plain.split()
        if len(fields) < _TIMED or not fields[0].isdecimal():
            continue
        known, count = _known(name, where), _agreed(ranks, len(seen_ranks), path) or 0
        if count < 1:
            raise DistsimError(_NO_RANKS, "add --ranks N", where=where)
        size, seconds = _measured(fields, columns, where)
        samples.append(Sample(known, count, len(hosts), size, seconds))
    return _checked(samples, device, path)


def _agreed(typed: Told | None, listed: Told | None, path: str) -> Told | None:
    """What the file says, or what was typed where it says nothing; raises DistsimError where both do and differ."""
    if typed and listed and typed != listed:
        what = "--ranks" if isinstance(typed, int) else "--collective"
        raise DistsimError(f"{what} {typed} contradicts the file, which says {listed}", "leave it out", where=path)
    return listed or typed


def _measured(fields: Sequence[str], columns: Sequence[str], where: str) -> tuple[int, float]:
    """Bytes and seconds out of place of one row."""
    place = _time_at(fields, columns, where)
    try:
        return int(fields[0]), float(fields[place]) * MICROSECOND
    except ValueError:
        hint = f"columns: {' '.join(columns[: place + 1]) or 'size count type redop root time'}"
        raise DistsimError(f"{fields[place]!r} is not a time in us", hint, where=where) from None


def _time_at(fields: Sequence[str], columns: Sequence[str], where: str) -> int:
    """Which field is the first time: older tests print no root, those of gathers no redop either."""
    if not columns:
        place = len(fields) - _TIMED
        if place in _NOT_TIMED:
            return place
        hint = "keep the header line: # size count type redop root time algbw busbw #wrong ..."
        raise DistsimError(f"{len(fields)} columns without a header line that names them", hint, where=where)
    place = next((index for index, name in enumerate(columns) if name in _TIMES), 0)
    if place not in _NOT_TIMED:
        raise DistsimError(f"no time column among: {' '.join(columns)}", _WANTED, where=where)
    if "redop" in columns[:place] and not fields[columns.index("redop")].isalpha():
        return place - 1  # tests that reduce nothing left the name of the operation blank
    return place


def _known(name: str | None, where: str) -> str:
    if name is None:
        hint = f"add --collective, one of {', '.join(_OPS.values())}"
        raise DistsimError("the file does not name its collective", hint, where=where)
    return name


def _read_json(text: str, path: str, op: str | None, ranks: int | None) -> NcclTests:
    data = _json_object(text, path)
    name = _agreed(op, _json_op(data), path)
    listed = _find(data, "devices") or _find(data, "ranks")
    devices = [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []
    hosts = {str(host) for one in devices if (host := one.get("hostname", one.get("host"))) is not None}
    count = _agreed(ranks, len(devices) or _json_ranks(data, path), path) or 0
    results = data.get("results") or []
    if not isinstance(results, list):
        raise DistsimError(f"results is {_shown(results)}, not a list of measurements", _WANTED, where=path)
    samples = []
    for index, row in enumerate(results):
        where = f"{path}, result {index}"
        if count < 1:
            raise DistsimError(_NO_RANKS, "add --ranks N", where=where)
        size, seconds = _json_measured(row, where)
        samples.append(Sample(_known(name, where), count, len(hosts), size, seconds))
    device = next((str(one["device_info"]) for one in devices if one.get("device_info")), "")
    return _checked(samples, device, path)


def _json_object(text: str, path: str) -> dict[str, Any]:
    try:
        data: dict[str, Any] = json.loads(text)
    except json.JSONDecodeError as error:
        raise DistsimError(f"not JSON: {error.msg}", _WANTED, where=f"{path}, line {error.lineno}") from None
    except (RecursionError, ValueError) as error:
        raise DistsimError(f"not usable JSON: {unusable(error)}", _WANTED, where=path) from None
    return data


def _json_measured(row: Any, where: str) -> tuple[int, float]:
    """Bytes and seconds of one result: out of place, or in place where a test runs nothing else."""
    place = (row.get("out_of_place") or row.get("in_place")) if isinstance(row, dict) else None
    time = place.get("time", place.get("cpu_time")) if isinstance(place, dict) else None
    if time is None or not _is_count(row.get("size")):
        raise DistsimError(f"no size or out_of_place time in {_shown(row)}", _WANTED, where=where)
    if isinstance(time, bool) or not isinstance(time, (int, float)) or not abs(time) < _ENDLESS:
        raise DistsimError(f"{_shown(time)} is not a time in us", _WANTED, where=where)
    return row["size"], time * MICROSECOND


def _json_ranks(data: dict[str, Any], path: str) -> int:
    """The number of ranks where no devices are listed; 0 where nothing tells it."""
    stated = _find(data, "nranks")
    if stated is not None and (not _is_count(stated) or stated < 1):
        raise DistsimError(f"nranks {_shown(stated)} is not a number of ranks", "add --ranks N", where=path)
    return stated or 0


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _ENDLESS


def _shown(value: Any) -> str:
    """A value of a file as an error quotes it."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _json_op(data: dict[str, Any]) -> str | None:
    """The collective a JSON file is of, from any of its texts that names a test."""
    texts = json.dumps({key: data[key] for key in data if key != "results"})
    return next((_OPS[word] for word in re.findall(r"\b(\w+)_perf\b", texts) if word in _OPS), None)


def _find(data: Any, key: str) -> Any:
    """The first value under a key, at any depth of mappings."""
    if not isinstance(data, dict):
        return None
    if key in data:
        return data[key]
    return next((found for value in data.values() if (found := _find(value, key)) is not None), None)


def _checked(samples: list[Sample], device: str, path: str) -> NcclTests:
    good = [one for one in samples if one.size_bytes > 0 and 0 < one.seconds < math.inf]
    if not good:
        raise DistsimError(f"no measurements in {path}", _WANTED)
    return NcclTests(tuple(good), device, sum(one.size_bytes != 0 for one in samples) - len(good))
