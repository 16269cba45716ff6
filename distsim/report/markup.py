"""HTML and SVG elements as text: whatever is not marked as markup is escaped, so no name can break a page."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence

VOID = ("meta", "br", "rect", "line", "circle", "path")
"""Elements without content; those of SVG close themselves."""
SHORT, DATE = 22, 10
"""Words up to that length are kept on one line in a table; on paper, where room is short, only those of a date."""
_CONTROL = {code: None for code in (*range(32), 127, *range(128, 160)) if code not in (9, 10, 13)}


class Html(str):
    """Text that is markup already."""

    __slots__ = ()


def safe(text: str) -> Html:
    """Text for any place of a page: markup stays, all else is escaped; what no page may hold is left out."""
    if isinstance(text, Html):
        return text
    plain = str(text).encode("utf-8", "replace").decode("utf-8").translate(_CONTROL)
    return Html(html.escape(plain, quote=True))


def element(tag: str, /, *content: str, **attributes: str | float | None) -> Html:
    """One element. ``class_`` is class, other underscores are hyphens; an attribute of None is left out."""
    told = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{safe(_number(value))}"'
        for key, value in attributes.items() if value is not None
    )  # fmt: skip
    if tag in VOID:
        return Html(f"<{tag}{told}>" if tag in ("meta", "br") else f"<{tag}{told}/>")
    return Html(f"<{tag}{told}>{joined(content, '')}</{tag}>")


def _number(value: str | float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)


def joined(parts: Iterable[str], between: str = "\n") -> Html:
    """Parts in a row, each made safe."""
    return Html(between.join(safe(part) for part in parts))


def datum(value: float | None, text: str) -> Html:
    """A figure as people read it, with the exact one for programs; a dash where there is none."""
    return Html("-") if value is None else element("data", text, value=repr(value))


def table(caption: str, head: Sequence[str], rows: Iterable[Sequence[str]], words: Sequence[int] = (0,)) -> Html:
    """A table with a caption; columns are numbers, flush right, but those in ``words``. It scrolls where too wide."""

    def kind(index: int, cell: str) -> str | None:
        if index not in words:
            return "n"
        return "w s" if len(cell) <= DATE else "w" if len(cell) <= SHORT else None

    top = [element("th", cell, scope="col", class_=None if index in words else "n") for index, cell in enumerate(head)]
    body = [
        element("tr", *(element("td", cell, class_=kind(index, cell)) for index, cell in enumerate(row)))
        for row in rows
    ]
    made = element(
        "table", element("caption", caption), "\n", element("thead", element("tr", *top)), "\n",
        element("tbody", joined(body)),
    )  # fmt: skip
    return element("div", made, class_="scroll", tabindex=0, role="region", aria_label=caption)


def section(key: str, title: str, *content: str) -> Html:
    """A part of the page with a heading to link to."""
    heading = element("h2", title, id=f"{key}-heading")
    return element("section", "\n", joined([heading, *content]), "\n", id=key, aria_labelledby=f"{key}-heading")


def paragraph(*content: str, class_: str | None = None) -> Html:
    """A paragraph."""
    return element("p", *content, class_=class_)


def items(rows: Iterable[str]) -> Html:
    """A list with bullets."""
    return element("ul", joined(element("li", row) for row in rows))
