"""Presets as tables: the kinds, the names of one kind with their main figures, and every figure of one preset."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from rich.console import RenderableType
from rich.markup import escape

from distsim import units
from distsim.report.console import console, table
from distsim.specs.base import source_of
from distsim.specs.dates import age, span

Preset = Mapping[str, Any]
Column = tuple[str, Callable[[Preset], str]]
NONE, SAME = "-", "same"
WORDS_WIDTH = 72  # columns after which a long value or source goes on in the next line


def _at(preset: Preset, figure: str) -> Any:
    """The value stated for a dotted name, or None."""
    value: Any = preset
    for part in figure.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def _stated(figure: str) -> Callable[[Preset], str]:
    """Shows a figure in the words of its file."""
    return lambda preset: NONE if _at(preset, figure) is None else str(_at(preset, figure))


def _usable(preset: Preset) -> str:
    """What the driver reports, else the label with a mark."""
    usable = preset.get("usable_memory")
    size = units.parse(usable if usable is not None else preset["memory"], "B", "memory")
    return units.gib(size, 1) + ("" if usable is not None else " *")


def _network(preset: Preset) -> str:
    network = preset.get("network")
    if not network:
        return NONE
    rate = f"{network['nics']} x {network['nic_rate']}" if "nics" in network else str(network.get("node_rate"))
    return f"{network['kind']}{' ' + network['generation'] if 'generation' in network else ''} {rate}"


def _lines(figure: str) -> Callable[[Preset], str]:
    """How many rows a list of tables has."""
    return lambda preset: str(len(preset.get(figure, ()))) if preset.get(figure) else NONE


def _newest(preset: Preset) -> str:
    rows = [*preset.get("offers", ()), *preset.get("purchases", ())]
    return max((str(row["date"]) for row in rows), key=span, default=NONE)


def _old(preset: Preset) -> str:
    newest = _newest(preset)
    return NONE if newest == NONE else age(newest, datetime.date.today())


def _accelerators(preset: Preset) -> str:
    kinds = {str(row["gpu"]) for row in preset.get("offers", ())}
    return str(len(kinds)) if kinds else NONE


COLUMNS: dict[str, tuple[Column, ...]] = {
    "gpus": (
        ("usable", _usable),
        ("bandwidth", _stated("bandwidth")),
        ("bf16 dense", _stated("peak.bf16")),
        ("fp8 dense", _stated("peak.fp8")),
        ("link, one way", _stated("link.rate")),
        ("power", _stated("power")),
    ),
    "clusters": (
        ("gpu", _stated("gpu")),
        ("per node", _stated("gpus_per_node")),
        ("domain", _stated("domain")),
        ("fabric", _stated("fabric.kind")),
        ("one way", _stated("fabric.rate")),
        ("network of a node", _network),
    ),
    "prices": (
        ("rents", _lines("offers")),
        ("to buy", _lines("purchases")),
        ("newest", _newest),
        ("age", _old),
        ("currency", _stated("currency")),
        ("accelerators", _accelerators),
    ),
    "failures": (("counted on", _stated("gpu")), ("gpus", _stated("gpus")), ("unplanned", _stated("unplanned"))),
    "storage": (("write", _stated("write_rate")), ("read", _stated("read_rate"))),
    "facilities": (
        ("PUE", _stated("pue")),
        ("$/kWh", _stated("usd_per_kwh")),
        ("$/kW-month", _stated("usd_per_kw_month")),
        ("kg/kWh", _stated("kg_co2e_per_kwh")),
    ),
    "models": (
        ("layers", _stated("layers")),
        ("hidden", _stated("hidden")),
        ("heads", _stated("heads")),
        ("vocab", _stated("vocab")),
    ),
}
ALIASES_FROM = 100
"""Columns of a terminal that has room for them."""
WORDS = (
    "name",
    "aliases",
    "gpu",
    "fabric",
    "network of a node",
    "found",
    "kind",
    "newest",
    "age",
    "currency",
    "accelerators",
    "counted on",
)
NOTES = {
    "gpus": "usable: what the driver reports; * the label, where nobody reported it. Peaks are dense.",
    "prices": "age: of the newest price, at most where its source gives a year. One list: distsim show prices aws",
    "clusters": "domain: accelerators joined by the fabric. Rates are one direction, per accelerator.",
}


def kinds(counts: Mapping[str, int]) -> list[RenderableType]:
    """How many presets there are of each kind."""
    made = table("kind", "presets", numbers=("presets",))
    for kind, count in counts.items():
        made.add_row(kind, str(count))
    return [made, "one kind: distsim show gpus    one preset: distsim show gpu h100-sxm"]


def names(kind: str, presets: Sequence[tuple[str, str, Preset]]) -> list[RenderableType]:
    """(name, origin, TOML) of every preset of a kind, with its main figures."""
    columns: Sequence[Column] = COLUMNS.get(kind, ())
    found = () if all(origin == "shipped" for _, origin, _ in presets) else ("found",)
    narrow = console().width < ALIASES_FROM
    headers = ("name", *(header for header, _ in columns), *(() if narrow else ("aliases",)), *found)
    made = table(*headers, numbers=tuple(one for one in headers if one not in WORDS))
    made.columns[0].no_wrap = True  # a name is typed again as it stands
    for name, origin, preset in presets:
        cells = [name, *(show(preset) for _, show in columns)]
        if not narrow:
            cells.append(", ".join(preset.get("aliases", ())))
        made.add_row(*map(escape, cells), *([origin] if found else []))
    return [made, NOTES[kind]] if kind in NOTES else [made]


def _rows(preset: Preset, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Dotted names and stated values, tables flattened."""
    for key, value in preset.items():
        if isinstance(value, Mapping):
            yield from _rows(value, f"{prefix}{key}.")
        elif isinstance(value, (list, tuple)):
            yield prefix + key, ", ".join(_words(one) for one in value)
        else:
            yield prefix + key, str(value)


def _words(value: Any) -> str:
    return " ".join(f"{key} {one}" for key, one in value.items()) if isinstance(value, Mapping) else str(value)


def preset(name: str, origin: str, file: str, data: Preset) -> list[RenderableType]:
    """Every figure of one preset as its file states it, with its source."""
    source = data.get("source", {})
    made = table("figure", "value", "source")
    for column in made.columns[1:]:
        column.max_width = WORDS_WIDTH
    above = ""
    for figure, value in _rows({key: value for key, value in data.items() if key != "source"}):
        told = "" if figure in ("name", "aliases", "notes") else source_of(source, figure) or ""
        made.add_row(escape(figure), escape(value), escape(SAME if told and told == above else told))
        above = told
    checked = f", checked {source['checked']}" if "checked" in source else ""
    return [made, escape(f"{name}: {origin} preset{checked}, {file}")]
