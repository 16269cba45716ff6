"""Presets as tables: the kinds, the names of one kind with their main figures, and every figure of one preset."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import RenderableType
from rich.markup import escape

from distsim.report.console import console, table
from distsim.report.fitting import GAP, kept_columns, least_width, left_out, squeezed
from distsim.report.show_columns import COLUMNS, FOLDED, NONE, NOTES, SOURCES_FROM, SPARE, UNITS, WHOLE, WORDS, Preset
from distsim.specs.base import source_of
from distsim.units import count

SAME = "same"
WORDS_WIDTH = 72  # columns after which a long value or source continues on the next line


def kinds(counts: Mapping[str, int]) -> list[RenderableType]:
    """How many presets there are of each kind."""
    made = table("kind", "presets", numbers=("presets",))
    for kind, number in counts.items():
        made.add_row(kind, str(number))
    ways = "list one kind: distsim show gpus    show one preset: distsim show gpu h100-sxm"
    return [made, ways, "model_types of a config.json that can be read: distsim show families"]


def names(kind: str, presets: Sequence[tuple[str, str, Preset]]) -> list[RenderableType]:
    """(name, origin, TOML) of every preset of a kind, with those of its main figures that fit the terminal."""
    columns = COLUMNS.get(kind, ())
    found = () if all(origin == "shipped" for _, origin, _ in presets) else ("origin",)
    headers = ["name", *(header for header, _ in columns), "aliases", *found]
    rows = []
    for name, origin, preset in presets:
        cells = [name, *(show({"name": name, **preset}) for _, show in columns)]
        rows.append([*cells, ", ".join(preset.get("aliases", ())), *([origin] if found else [])])
    return [*_fitting(headers, rows, ("aliases", *SPARE.get(kind, ()))), *([NOTES[kind]] if kind in NOTES else [])]


def _fitting(names: list[str], rows: list[list[str]], spare: Sequence[str]) -> list[RenderableType]:
    """All columns, or with their units above and closer together as many as there is room for."""
    room, headings, gap = console().width, dict(zip(names, names, strict=True)), GAP
    kept = kept_columns(_widths(headings, rows, FOLDED), spare, room)
    if narrow := len(kept) < len(names):
        headings, gap = _units_up(names, rows), GAP - 1
        kept = kept_columns(_widths(headings, rows, FOLDED), spare, room, gap)
    made = table(*(headings[name] for name in kept), numbers=tuple(headings[one] for one in kept if one not in WORDS))
    made.padding = (0, 1, 0, 0) if narrow else made.padding
    whole, least = _widths(headings, rows, {}), _widths(headings, rows, dict.fromkeys(set(names) - set(WHOLE), 0))
    widths = {name: max([whole[name], *map(len, headings[name].split("\n"))]) for name in kept}
    for bound in (_widths(headings, rows, FOLDED), least):
        widths = squeezed(widths, bound, room, gap)
    for column, width in zip(made.columns, widths.values(), strict=True):
        column.width = width
    for row in rows:
        made.add_row(*(escape(cell) for name, cell in zip(names, row, strict=True) if name in kept))
    return [made, *map(escape, left_out(names, kept))]


def _widths(headings: Mapping[str, str], rows: Sequence[Sequence[str]], folded: Mapping[str, int]) -> dict[str, int]:
    """What each column needs at least, by its name."""
    cells = ([row[place] for row in rows] for place in range(len(headings)))
    return {
        name: least_width(heading, column, folded.get(name))
        for (name, heading), column in zip(headings.items(), cells, strict=True)
    }


def _units_up(names: Sequence[str], rows: list[list[str]]) -> dict[str, str]:
    """Headings by name: a unit that all cells of a column share goes there, for terminals without the room."""
    headings = dict(zip(names, names, strict=True))
    for place, name in enumerate(names):
        parts = [row[place].split(" ", 2) for row in rows if row[place] != NONE]
        shared = {part[1] if len(part) > 1 else "" for part in parts}
        if len(shared) != 1 or not shared <= UNITS:
            continue
        headings[name] = f"{name}\n{shared.pop()}"
        for row in rows:
            number, *rest = row[place].split(" ", 2)
            row[place] = " ".join([number, *rest[1:]])
    return headings


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


def preset(name: str, origin: str, file: str, data: Preset, counted: Mapping[str, str] | None = None) -> list[Any]:
    """Every figure of one preset as its file states it, with its source; ``counted`` follows from them."""
    source = data.get("source", {})
    rows = []
    for figure, value in _rows({key: value for key, value in data.items() if key != "source"}):
        told = "" if figure in ("name", "aliases", "notes") else source_of(source, figure) or ""
        rows.append((figure, value, told))
    rows += [(figure, value, "computed from the figures above") for figure, value in (counted or {}).items()]
    checked = f", checked {source['checked']}" if "checked" in source else ""
    what = origin if " " in origin else f"{origin} preset"
    last = escape(f"{name}: {what}{checked}, {file}")
    return [*(_with_notes(rows) if console().width < SOURCES_FROM else _with_sources(rows)), last]


def counted_words(counted: Mapping[str, Any]) -> dict[str, str]:
    """A model's parameters in words."""
    vision = counted.get("vision_parameters")
    parts = ", ".join(f"{part} {count(number)}" for part, number in counted["parts"].items())
    return {
        "parameters": f"{count(counted['parameters'])} ({counted['parameters']:,}): {parts}",
        **({"vision parameters": f"{count(vision)} ({vision:,}), counted where a job has --images"} if vision else {}),
        "parameters per token": f"{count(counted['parameters_per_token'])}, excluding the input embedding",
    }


def _with_sources(rows: Sequence[tuple[str, str, str]]) -> list[RenderableType]:
    """Each figure's source beside it."""
    made = table("figure", "value", "source")
    made.columns[0].no_wrap = max(len(figure) for figure, _, _ in rows) <= WORDS_WIDTH
    for column in made.columns[1:]:
        column.max_width = WORDS_WIDTH
    above = ""
    for figure, value, told in rows:
        made.add_row(escape(figure), escape(value), escape(SAME if told and told == above else told))
        above = told
    return [made]


def _with_notes(rows: Sequence[tuple[str, str, str]]) -> list[RenderableType]:
    """Numbers for the sources, which follow below, where three columns would break every word."""
    numbers: dict[str, int] = {}
    made, notes = table("figure", "value", "source"), table("", "source", numbers=("",))
    made.columns[0].no_wrap = max(len(figure) for figure, _, _ in rows) <= WORDS_WIDTH * 2 // 3
    made.columns[2].no_wrap = True
    for figure, value, told in rows:
        number = numbers.setdefault(told, len(numbers) + 1) if told else ""
        made.add_row(escape(figure), escape(value), str(number))
    for told, number in numbers.items():
        notes.add_row(str(number), escape(told))
    return [made, notes]
