"""In which documents of a source its measured runs stand. A publisher's tables are of one cluster and one tuning; its
issues, pull requests and functional tests are of others, which the interval of its tables held less often
(docs/findings/fit.md)."""

import csv
import functools
from collections import Counter

from distsim import catalog
from distsim.interop.runs import Run


def document_of(run: Run) -> tuple[str, str]:
    """A run's source in short, and what its next word begins with: a folder, a page, or what kind of words follow."""
    return _place(run.text("source") or "?")


def _place(words: str) -> tuple[str, str]:
    source, _, rest = words.partition(" ")
    return source, rest.lstrip().partition(" ")[0].partition("/")[0]


def has_company(run: Run) -> bool:
    """Whether another shipped run stands in the document of a run; of a source that has none, nothing is known."""
    counts, ids = _shipped()
    source, _ = document = document_of(run)
    if not any(known == source for known, _ in counts):
        return True
    return counts[document] > (run.id in ids)


@functools.cache
def _shipped() -> tuple[Counter[tuple[str, str]], frozenset[str]]:
    with open(catalog.path("runs", "published"), newline="", encoding="utf-8") as table:
        rows = list(csv.DictReader(table))
    return Counter(_place(row["source"]) for row in rows), frozenset(row["id"] for row in rows)
