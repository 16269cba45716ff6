"""Figures of the page as SVG: shares of the money, memory per stage, days against dollars; each says in words what it
shows, and letters tell its colours apart."""

from __future__ import annotations

from collections.abc import Sequence

from distsim.engine.memory import CATEGORIES, MemoryReport
from distsim.engine.plans.plan import Option
from distsim.report.bars import INKS
from distsim.report.markup import Html, element, joined
from distsim.report.memory import folded
from distsim.report.plan import PARTS, money_shares
from distsim.report.style import Colour
from distsim.units import dollars, gib

WIDTH, BAR, GAP, LABEL = 960.0, 34.0, 12.0, 92.0
LETTER = 16.0
"""Segments narrower than this have no letter."""


def drawing(key: str, width: float, height: float, title: str, words: str, parts: Sequence[str]) -> Html:
    """An SVG with its title and its description in words."""
    head = [element("title", title, id=f"{key}-title"), element("desc", words, id=f"{key}-words")]
    return element(
        "svg", "\n", joined([*head, *parts]), "\n", viewBox=f"0 0 {width:g} {height:g}", width=width, height=height,
        role="img", aria_labelledby=f"{key}-title {key}-words", font_size=13,
    )  # fmt: skip


def figure(caption: str, *content: str, class_: str | None = None) -> Html:
    """A figure with its caption."""
    return element("figure", element("div", *content, class_=class_), "\n", element("figcaption", caption))


def hexadecimal(colour: Colour) -> str:
    """``#0072b2``."""
    return "#" + "".join(f"{part:02x}" for part in colour.rgb)


def key(letter: str, colour: Colour) -> Html:
    """A letter on its colour, for a table that explains a figure."""
    ink = "#fff" if colour.dark else "#000"
    return element("span", letter, class_="key", style=f"background: {hexadecimal(colour)}; color: {ink}")


def text(x: float, y: float, words: str, anchor: str = "start", class_: str | None = None) -> Html:
    """Words at a place."""
    return element("text", words, x=x, y=y, text_anchor=anchor, class_=class_)


def _segments(parts: Sequence[tuple[str, str, Colour, float]], x: float, y: float, height: float) -> list[Html]:
    """Neighbouring rectangles of (hint, letter, colour, width), with their letters where there is room."""
    made = []
    for hint, letter, colour, width in parts:
        rect = element("rect", x=x, y=y, width=width, height=height, fill=hexadecimal(colour))
        ink = "on-dark" if colour.dark else "on-light"
        told = [text(x + width / 2, y + height / 2 + 5, letter, "middle", ink)] if width >= LETTER else []
        if width > 0:
            made.append(element("g", element("title", hint), rect, *told))
        x += width
    return made


def money_bar(option: Option) -> Html:
    """One bar: what the accelerators did while they were paid."""
    shares = money_shares(option)
    parts = [
        (f"{name}: {shares[name]:.1%}, {dollars(shares[name] * option.dollars)}", letter, colour, shares[name] * WIDTH)
        for name, (letter, colour) in PARTS.items()
    ]
    words = "; ".join(hint for hint, *_ in parts)
    drawn = _segments(parts, 0.0, 0.0, BAR)
    return drawing("money", WIDTH, BAR, f"Where the {dollars(option.dollars)} goes", words, drawn)


def memory_bars(report: MemoryReport) -> Html:
    """A bar per group of like stages, against what one accelerator has."""
    groups = folded(report.stages)
    room = WIDTH - LABEL - 110
    full = max(float(report.capacity), *(float(group.memory.peak) for group in groups))
    drawn: list[str] = []
    words = []
    for row, group in enumerate(groups):
        y = 22 + row * (BAR + GAP)
        sizes = {name: float(group.memory.categories[name]) for name in CATEGORIES}
        parts = [(f"{name}: {gib(size)}", *INKS[name], size / full * room) for name, size in sizes.items()]
        drawn += [text(LABEL - 10, y + BAR / 2 + 5, f"stage {group.label}", "end"), *_segments(parts, LABEL, y, BAR)]
        drawn.append(text(LABEL + room + 10, y + BAR / 2 + 5, gib(group.memory.peak)))
        words.append(f"stage {group.label}: {gib(group.memory.peak)}")
    height, x = 22 + len(groups) * (BAR + GAP), LABEL + report.capacity / full * room
    drawn.append(element("path", d=f"M{x:.2f} 16V{height:.2f}", class_="limit"))
    drawn.append(text(x, 12, f"capacity {gib(report.capacity)}", "end"))
    told = f"{'; '.join(words)}; capacity {gib(report.capacity)}"
    return drawing("memory-bars", WIDTH, height, "Memory of one accelerator, per pipeline stage", told, drawn)
