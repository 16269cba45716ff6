"""How far a long command has come, on stderr: a line that is written over where a person watches, else a note now and
then."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator

from distsim.report import talk
from distsim.units import duration, stated

PATIENCE = 0.5
"""Seconds before anything is shown, and a tenth of a second between updates after that."""
BETWEEN = 0.1
BAR = 20
SILENCE = 10.0
"""Seconds without a word where nobody watches; each further note takes twice as long."""
LEAST_LEFT = 1
"""Seconds of the rest that are told; with less, nobody is told who does not watch."""


class Progress:
    """One line that is written over, or a few notes."""

    def __init__(self, what: str = "layouts") -> None:
        self.what = what
        self.began = self.last = time.monotonic()
        self.shown = False
        self.silence = SILENCE
        self.watched = sys.stderr.isatty() and os.environ.get("TERM", "").lower() not in ("dumb", "unknown")

    def show(self, done: int, whole: int) -> None:
        """So many of so many are done."""
        now = time.monotonic()
        if not self.watched:
            taken = now - self.began
            if taken >= self.silence and _left(done, whole, taken) >= LEAST_LEFT:
                self.silence = 2 * taken
                talk.note(told(done, whole, taken, self.what))
            return
        if now - self.began < PATIENCE or now - self.last < BETWEEN:
            return
        self.last, self.shown = now, True
        text = line(done, whole, now - self.began, self.what, shutil.get_terminal_size().columns - 1, _unicode())
        sys.stderr.write(f"\r{text}\x1b[K")
        sys.stderr.flush()

    def clear(self) -> None:
        """Take the line away."""
        if self.shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


@contextlib.contextmanager
def shown(what: str) -> Iterator[Callable[[int, int], None]]:
    """What tells how many are done while a command works; its clock starts when the first is, and anew with each
    further whole."""
    made: dict[int, Progress] = {}

    def show(done: int, whole: int) -> None:
        if whole not in made:
            made[whole] = Progress(what)
        made[whole].show(done, whole)

    try:
        yield show
    finally:
        for one in made.values():
            one.clear()


def line(done: int, whole: int, seconds: float, what: str, width: int, unicode: bool) -> str:
    """A bar where there is room for it, and what is told."""
    share = min(done / max(whole, 1), 1.0)
    text = f"{share:4.0%}  {told(done, whole, seconds, what)}"
    full, empty = ("█", "░") if unicode else ("#", ".")
    cells = round(share * BAR)
    bar = full * cells + empty * (BAR - cells)
    return f"{bar} {text}" if len(text) + BAR + 1 <= width else text[: max(width, 1)]


def told(done: int, whole: int, seconds: float, what: str) -> str:
    """How much of how much is done, at which rate, and how long the rest takes."""
    rate = _rate(done, seconds)
    rest = max(round(_left(done, whole, seconds)), LEAST_LEFT)
    pace = f"{rate:,.0f} per second, " if rate >= 1 else ""
    return f"{done:,} of {whole:,} {what}, {pace}{stated(duration(rest))} left"


def _rate(done: int, seconds: float) -> float:
    return done / max(seconds, 1e-9)


def _left(done: int, whole: int, seconds: float) -> float:
    """Seconds that the rest takes at the pace so far."""
    return (whole - done) / max(_rate(done, seconds), 0.01)


def _unicode() -> bool:
    return (sys.stderr.encoding or "ascii").lower().replace("-", "").startswith("utf")
