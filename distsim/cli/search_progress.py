"""How far a long search has come, on stderr, and only where a person watches."""

from __future__ import annotations

import sys
import time

from distsim.units import duration

PATIENCE = 0.5
"""Seconds before anything is shown, and a tenth of a second between updates after that."""
BETWEEN = 0.1


class Progress:
    """One line that is written over."""

    def __init__(self, what: str = "layouts") -> None:
        self.what = what
        self.began = self.last = time.monotonic()
        self.shown = False
        self.watched = sys.stderr.isatty()

    def show(self, done: int, whole: int) -> None:
        """So many of so many are done."""
        now = time.monotonic()
        if not self.watched or now - self.began < PATIENCE or now - self.last < BETWEEN:
            return
        self.last, self.shown = now, True
        rate = done / (now - self.began)
        left = duration((whole - done) / max(rate, 0.01))
        pace = f"{rate:,.0f} per second, " if rate >= 1 else ""
        text = f"{done / max(whole, 1):4.0%}  {done:,} of {whole:,} {self.what}, {pace}{left} left"
        sys.stderr.write(f"\r{text}\x1b[K")
        sys.stderr.flush()

    def clear(self) -> None:
        """Take the line away."""
        if self.shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
