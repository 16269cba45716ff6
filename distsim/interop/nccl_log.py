"""Reads ``NCCL INFO`` lines (NCCL_DEBUG=INFO, NCCL_DEBUG_SUBSYS=INIT,GRAPH): rings, trees, channels, transports."""

from __future__ import annotations

import re
from typing import NamedTuple

from distsim.errors import DistsimError
from distsim.interop.text_file import read_text

_INFO = re.compile(r"NCCL INFO (.*)$")
_CHANNEL = re.compile(r"Channel (\d+)/(\d+)\s*:\s*([\d\s]+)$")
_RING = re.compile(r"Ring (\d+)\s*:\s*(\d+)\s*->\s*(\d+)\s*->\s*(\d+)")
_TREES = re.compile(r"^Trees\s+(.*)$")
_TREE = re.compile(r"\[(\d+)\]\s+(-?\d+(?:/-?\d+)*)->(\d+)->(-?\d+)")
_EDGE = re.compile(
    r"Channel (\d+)(?:/\d+)?\s*:\s*(\d+)(?:\[\w+\])?\s*->\s*(\d+)(?:\[\w+\])?\s*(?:\[\w+\]\s*)?via\s+(\S+)"
)
_GRAPH = re.compile(r"Pattern (\d+), crossNic (\d+), nChannels (\d+), bw ([\d.]+)/([\d.]+), type (\w+)/(\w+)")
_VERSION = re.compile(r"NCCL version (\S+)")
PATTERNS = {1: "balanced tree", 2: "split tree", 3: "tree", 4: "ring", 5: "nvls", 6: "collnet direct"}


class Edge(NamedTuple):
    """One connection of a channel: who sends to whom, over what."""

    channel: int
    source: int
    target: int
    transport: str


class Tree(NamedTuple):
    """Parents of the ranks of one tree; the root has parent -1."""

    parents: dict[int, int]


class Graph(NamedTuple):
    """What the search found for one pattern: channels and GB/s per channel inside and between nodes."""

    pattern: str
    channels: int
    intra: float
    inter: float
    kinds: str


class Topology(NamedTuple):
    """All that a log says of how NCCL joined the ranks."""

    version: str
    ranks: int
    rings: dict[int, tuple[int, ...]]
    trees: dict[int, Tree]
    edges: tuple[Edge, ...]
    graphs: tuple[Graph, ...]


WANTED = "give a text log written with NCCL_DEBUG=INFO"


def read(path: str) -> Topology:
    """The topology in a log; raises with the line where an INFO line of a known kind cannot be understood."""
    return parse(read_text(path, WANTED), path)


def parse(text: str, name: str = "log") -> Topology:
    """The topology that the lines of a log state."""
    reader = _Reader(name)
    for number, line in enumerate(text.splitlines(), 1):
        if match := _INFO.search(line):
            reader.line(number, match[1].strip())
    return reader.result()


class _Reader:
    """Collects rings, trees and edges line by line."""

    def __init__(self, name: str) -> None:
        self.name, self.version, self.infos = name, "", 0
        self.rings: dict[int, tuple[int, ...]] = {}
        self.next: dict[int, dict[int, int]] = {}
        self.trees: dict[int, Tree] = {}
        self.edges: dict[Edge, None] = {}
        self.graphs: dict[Graph, None] = {}

    def line(self, number: int, info: str) -> None:
        """Take in one INFO line."""
        self.infos += 1
        if match := _VERSION.search(info):
            self.version = match[1]
        elif match := _CHANNEL.match(info):
            self._channel(number, int(match[1]), match[3])
        elif match := _RING.match(info):
            self.next.setdefault(int(match[1]), {})[int(match[3])] = int(match[4])
        elif match := _TREES.match(info):
            self._trees(number, match[1])
        elif match := _EDGE.match(info):
            self.edges[Edge(int(match[1]), int(match[2]), int(match[3]), match[4])] = None
        elif match := _GRAPH.search(info):
            pattern = PATTERNS.get(int(match[1]), f"pattern {match[1]}")
            kinds = f"{match[6]}/{match[7]}"
            self.graphs[Graph(pattern, int(match[3]), float(match[4]), float(match[5]), kinds)] = None
        elif info.startswith(("Ring ", "Trees ")) or re.match(r"Channel \d+/\d+\s*:", info):
            self._fail(number, info, "a ring, a channel or a tree")

    def _channel(self, number: int, channel: int, listed: str) -> None:
        ranks = tuple(int(one) for one in listed.split())
        if len(set(ranks)) != len(ranks):
            self._fail(number, listed.strip(), "a ring that visits each rank once")
        self.rings[channel] = ranks

    def _trees(self, number: int, text: str) -> None:
        found = _TREE.findall(text)
        if not found:
            self._fail(number, f"Trees {text}", "trees such as [0] 1/-1/-1->0->-1")
        for channel, _, rank, parent in found:
            self.trees.setdefault(int(channel), Tree({})).parents[int(rank)] = int(parent)

    def _fail(self, number: int, text: str, wanted: str) -> None:
        raise DistsimError(f"cannot read {text[:80]!r} as {wanted}", where=f"{self.name}, line {number}")

    def result(self) -> Topology:
        """The finished topology; an error when the log holds none."""
        for channel, following in self.next.items():
            if channel not in self.rings and (ring := _closed(following)):
                self.rings[channel] = ring
        if not (self.rings or self.trees or self.edges):
            lines = f"{self.infos} NCCL INFO lines, none with rings, trees or channels"
            hint = "run the job with NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,GRAPH"
            raise DistsimError(f"{self.name} contains no topology: {lines}", hint)
        ranks = {rank for ring in self.rings.values() for rank in ring}
        ranks |= {rank for tree in self.trees.values() for rank in tree.parents}
        ranks |= {rank for edge in self.edges for rank in (edge.source, edge.target)}
        rings, trees = dict(sorted(self.rings.items())), dict(sorted(self.trees.items()))
        return Topology(self.version, len(ranks), rings, trees, tuple(self.edges), tuple(self.graphs))


def _closed(following: dict[int, int]) -> tuple[int, ...]:
    """The ring that successor links form; empty where the log lacks some ranks."""
    start = min(following)
    ring, rank = [start], following[start]
    while rank != start and rank in following and len(ring) <= len(following):
        ring.append(rank)
        rank = following[rank]
    return tuple(ring) if rank == start else ()
