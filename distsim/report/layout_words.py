"""A layout in words, as headlines of answers have it."""

from __future__ import annotations

from distsim.specs.layout import Layout

DEGREES = ("tp", "pp", "vpp", "cp", "ep", "dp")


def layout_words(y: Layout) -> list[str]:
    """``tp 2``, ``pp 4``, ``ZeRO 1`` …; degrees of one are left out."""
    degrees = [f"{name} {getattr(y, name)}" for name in DEGREES if getattr(y, name) > 1] or ["one GPU"]
    group = f" over {y.zero_group} ranks" if y.zero and y.zero_group != y.dp * y.cp else ""
    shared = [f"{y.vocab_parallel} over the stages"] if y.vocab_parallel else []
    return [*degrees, *shared, f"ZeRO {y.zero}{group}"]
