"""The largest counts and the ranges of quantities that anybody means: what lies beyond is a typing slip, or a unit that
was left out. Assumed, each beyond what exists."""

from typing import NamedTuple

LARGEST_DEGREE = 10_000_000
"""Accelerators, and so degrees and micro-batches: beyond any machine."""
LARGEST_BATCH = 1_000_000_000
"""Sequences of a step."""
LARGEST_SIZE = 1_000_000_000
"""Tokens of a sequence, and widths, counts and lengths of a network."""
LARGEST_DEPTH = 10_000
"""Layers of a network: the deepest transformer that was published has 1,000 (DeepNet, Wang et al. 2022,
arXiv:2203.00555), the deepest large model 128."""
LARGEST_TILES = 65_536
"""Tiles of a rank's sequence: a thousand are 4,096 tokens each of the longest that anybody trained on one GPU."""
FASTEST_GBPS = 1_000_000
"""Gb/s of a network per GPU; more is a slip of a unit."""


class Range(NamedTuple):
    """What a quantity of hardware can be, in SI, and how people state it: in ``units``, within what is ``usual``."""

    least: float
    most: float
    usual: tuple[float, float]
    units: tuple[str, ...]


RANGES = {
    # GTX 1080's fp32 is 8.9e12; a wafer's fp16 (Cerebras WSE-3) 1.25e17.
    "FLOP/s": Range(1e9, 1e19, (1e12, 1e17), ("PFLOP/s", "TFLOP/s", "GFLOP/s")),
    # A modem's 56 kb/s are 7e3; a wafer's SRAM 2.1e16. In Gb/s or GB/s links and memories have less than 1e4.
    "B/s": Range(5e3, 1e17, (1e9, 3e13), ("TB/s", "GB/s", "Gb/s")),
    # The last cache of small chips has 256 KiB, the largest file system 2.4e17. In MiB no chip has a hundred thousand.
    "B": Range(2**17, 1e21, (1e7, 1e13), ("TB", "GB", "MiB")),
    # Chips clock at 1 to 3 GHz.
    "Hz": Range(1e6, 1e11, (1e8, 1e10), ("GHz", "MHz")),
    # The smallest shipped chip draws 60 W, a rack as one node 132 kW.
    "W": Range(1, 1e7, (10, 1e6), ("kW", "W")),
}
"""Of accelerators, nodes, links and drives, by dimension."""
