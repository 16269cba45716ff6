"""In which documents of a source its measured runs stand. A publisher's tables are of one cluster and one tuning; its
issues, pull requests and functional tests are of others, which the interval of its tables held less often
(docs/findings/fit.md)."""

import csv
import functools
from collections import Counter

from distsim import catalog
from distsim.engine.corrections.correction import Publication
from distsim.interop.runs import Run


def published_as(run: Run, year: float, strange: bool = False) -> Publication:
    """A run as what others of its source are asked about; of a ``strange`` one those that nothing is fitted to are
    not."""
    return Publication(run.id, year, run.source, has_company(run), _stands_beside(run, "unseen"), strange)


def document_of(run: Run) -> str:
    """A run's source in short, and what its next word begins with: a folder, a page, or what kind of words follow."""
    return _place(run.text("source") or "?")


def _place(words: str) -> str:
    source, _, rest = words.partition(" ")
    return f"{source} {rest.lstrip().partition(' ')[0].partition('/')[0]}".rstrip()


def has_company(run: Run) -> bool:
    """Whether another run that is fitted to stands in the document of a run."""
    return _stands_beside(run, "published")


def _stands_beside(run: Run, table: str) -> bool:
    counts, ids = _shipped(table)
    return counts[document_of(run)] > (run.id in ids)


@functools.cache
def _shipped(name: str) -> tuple[Counter[str], frozenset[str]]:
    """How many runs of a shipped table stand in each document, and their names."""
    with open(catalog.path("runs", name), newline="", encoding="utf-8") as table:
        rows = list(csv.DictReader(table))
    return Counter(_place(row["source"]) for row in rows), frozenset(row["id"] for row in rows)
