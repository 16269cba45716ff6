"""What a job could run on instead: accelerators that hold more, and which of them somebody sells. A file that cannot be
read costs its own offers, not the advice."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from distsim import catalog
from distsim.errors import DistsimError
from distsim.preset_files import Written
from distsim.specs.accelerator import Accelerator
from distsim.units import parse

if TYPE_CHECKING:
    from distsim.engine.memory import MemoryReport


class Offered:
    """What presets offer in place of an accelerator; ``unread`` tells which of them cannot be read, and why."""

    def __init__(self, card: Accelerator) -> None:
        self.card = card
        self.unread: list[str] = []
        self.sold = self._sold()
        """The accelerators of the price lists, whatever the terms."""
        self.holding_more = [one for one in self._read("gpus", self._larger) if one is not None]
        """Accelerators of the same vendor with more memory on the label, with a usual node; of all others only the
        first lines are read."""

    def _sold(self) -> set[str]:
        lists = self._read("prices", lambda name: _sold_in(catalog.state("prices", name), name))
        return {gpu for one in lists for gpu in one}

    def _larger(self, name: str) -> Accelerator | None:
        stated = _first_lines(catalog.state("gpus", name), name)
        same = str(stated.get("vendor")).strip().casefold() == self.card.vendor.casefold()
        if not same or parse(stated.get("memory", 0), "B", f"memory of {name}") <= self.card.capacity:
            return None
        found: Accelerator = catalog.load("gpus", name)
        if found.default_cluster is None:
            return None
        catalog.usual_cluster(name)  # of which its links are read
        return found

    def _read(self, kind: str, what: Callable[[str], Any]) -> Iterator[Any]:
        for name in catalog.names(kind):
            try:
                yield what(name)
            except DistsimError as error:
                where = error.where or catalog.path(kind, name)
                self.unread.append(f"{where}: {error.problem}")


@lru_cache(maxsize=64)
def _sold_in(files: Written, name: str) -> frozenset[str]:
    """The accelerators of a price list, read once while its files are the same."""
    offers = catalog.raw("prices", name).get("offers")
    listed = offers if isinstance(offers, list) else []
    return frozenset(str(offer.get("gpu")) for offer in listed if isinstance(offer, dict))


@lru_cache(maxsize=512)
def _first_lines(files: Written, name: str) -> dict[str, Any]:
    """What an accelerator's preset states before its tables, read once while its files are the same."""
    return catalog.tables("gpus", name, lambda table: False)


def offered(card: Accelerator) -> Offered:
    """What presets offer in place of an accelerator, read once by the notes and the advice of a command."""
    found: Offered = catalog.once(("offered", card.vendor, card.capacity), lambda: Offered(card))
    return found


def unread_notes(report: MemoryReport) -> list[str]:
    """Notes on files of which no advice is taken, where a job needs advice."""
    if report.fits:
        return []
    return [f"not considered for what makes it fit: {told}" for told in offered(report.setup.accelerator).unread]
