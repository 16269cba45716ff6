"""The largest counts and the ranges of quantities that anybody means: what lies beyond is a typing slip, or a unit that
was left out. Assumed, each beyond what exists."""

from typing import NamedTuple

LARGEST_DEGREE = 10_000_000
"""Accelerators, and so degrees and micro-batches: beyond any machine."""
LARGEST_CLUSTER = 32_768
"""Accelerators of a cluster that searches and plans try of their own accord; --gpus asks for more."""
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
    bits: bool = True
    """Whether anybody states it in bits."""
    told: str = ""
    """The range in words, where it is not told in SI."""


RANGES = {
    # GTX 1080's fp32 is 8.9e12; a wafer's fp16 (Cerebras WSE-3) 1.25e17.
    "FLOP/s": Range(1e9, 1e19, (1e12, 1e17), ("PFLOP/s", "TFLOP/s", "GFLOP/s")),
    # A modem's 56 kb/s are 7e3; a wafer's SRAM 2.1e16. In Gb/s or GB/s links and memories have less than 1e4.
    "B/s": Range(5e3, 1e17, (1e9, 3e13), ("TB/s", "GB/s", "Gb/s")),
    # The last cache of small chips has 256 KiB, the largest file system 2.4e17. In MiB no chip has a hundred thousand.
    "B": Range(2**17, 1e21, (1e7, 1e13), ("TB", "GB", "MiB"), bits=False),
    # Chips clock at 1 to 3 GHz.
    "Hz": Range(1e6, 1e11, (1e8, 1e10), ("GHz", "MHz")),
    # The smallest shipped chip draws 60 W, a rack as one node 132 kW.
    "W": Range(1, 1e7, (10, 1e6), ("kW", "W")),
}
"""Of accelerators, nodes, links and drives, by dimension."""
BYTE_RATES = RANGES["B/s"]._replace(units=("TB/s", "GB/s"), bits=False)
"""Of memories, hosts and drives, whose makers state bytes: bits are a slip that makes an eighth of them."""
BYTE_LINKS = frozenset({"nvlink", "nvswitch", "nvlink-mesh", "xgmi", "xelink", "hccs", "pcie"})
"""Kinds of links and fabrics of which the same holds. Ethernet, UALink and what joins TPUs and Trainium are told in
bits too."""
NIC_RATES = Range(5e3, 2e11, (1e8, 2e11), ("Gb/s",), told="a NIC has at most 1,600 Gb/s")
"""Of one NIC: ConnectX-9, announced for 2026, has 1,600 Gb/s."""
MOST_NIC_BYTES = 5e10
"""Bytes per second of a NIC that are taken in bytes: 50 GB/s are the 400 Gb/s of NDR. Of more than that 100 and 200
GB/s may be 100 and 200 Gb/s as well."""
MOST_NODE_GBPS = 3000
"""Gb/s of a node's network per accelerator: 2,400 of an MI455X in Helios are the most of all shipped."""
CHIP_WATTS = Range(1, 5e4, (10, 5e3), ("W", "kW"), told="an accelerator draws 1 W to 50 kW")
"""Of one accelerator: a VR200 superchip draws 2.3 kW, a wafer (Cerebras CS-3) 23 kW."""
