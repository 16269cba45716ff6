"""Rings and trees of an NCCL log, drawn with characters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TypeVar

from distsim.interop.nccl_log import Topology, Tree

_WIDTH = 100
Item = TypeVar("Item")


def ring_line(ranks: tuple[int, ...], arrow: str = "→") -> str:
    """A ring from its first rank back to it."""
    return f" {arrow} ".join(str(rank) for rank in (*ranks, *ranks[:1]))


def tree_lines(tree: Tree, unicode: bool = True) -> list[str]:
    """A tree, root first, children below their parent."""
    children: dict[int, list[int]] = {}
    for rank, parent in sorted(tree.parents.items()):
        children.setdefault(parent, []).append(rank)
    known = set(tree.parents)
    roots = [rank for parent, ranks in children.items() if parent not in known for rank in ranks]
    tee, corner, bar = ("├─ ", "└─ ", "│  ") if unicode else ("|- ", "`- ", "|  ")
    lines: list[str] = []
    pending = [(root, "", "") for root in sorted(roots, reverse=True)]
    while pending:
        rank, head, body = pending.pop()
        lines.append(f"{head}{rank}")
        below = children.get(rank, [])
        for place, child in reversed(list(enumerate(below))):
            last = place == len(below) - 1
            pending.append((child, body + (corner if last else tee), body + ("   " if last else bar)))
    return lines


def _alike(items: Mapping[int, Item]) -> list[tuple[str, Item]]:
    """Channels that hold the same thing, joined: ``channels 0-3, 6``."""
    groups: dict[str, list[int]] = {}
    found: dict[str, Item] = {}
    for channel, item in items.items():
        groups.setdefault(repr(item), []).append(channel)
        found[repr(item)] = item
    return [(_spans(channels), found[key]) for key, channels in groups.items()]


def _spans(numbers: list[int]) -> str:
    """Whole numbers as spans: 0-3, 6."""
    spans: list[list[int]] = []
    for number in sorted(numbers):
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    text = ", ".join(str(low) if low == high else f"{low}-{high}" for low, high in spans)
    return f"channel {text}" if len(numbers) == 1 else f"channels {text}"


def text(topology: Topology, unicode: bool = True) -> str:
    """Summary, graphs, rings, trees and transports of a log."""
    arrow = "→" if unicode else "->"
    version = f"NCCL {topology.version}, " if topology.version else ""
    lines = [f"{version}{topology.ranks} ranks, {len(topology.rings)} rings, {len(topology.trees)} trees"]
    for graph in topology.graphs:
        total = graph.channels * graph.intra
        lines.append(
            f"  {graph.pattern}: {graph.channels} channels x {graph.intra:g} GB/s inside ({total:g}), "
            f"{graph.inter:g} between nodes, {graph.kinds}"
        )
    lines += ["", "rings"] if topology.rings else []
    for name, ranks in _alike(topology.rings):
        lines += [f"  {name}: {_cut(ring_line(ranks, arrow))}"]
    lines += ["", "trees"] if topology.trees else []
    for name, parents in _alike({channel: tree.parents for channel, tree in topology.trees.items()}):
        lines += [f"  {name}", *(f"    {line}" for line in tree_lines(Tree(parents), unicode))]
    if topology.edges:
        counts = Counter(edge.transport for edge in topology.edges)
        lines += ["", "connections", *(f"  {transport}: {count}" for transport, count in counts.most_common())]
    return "\n".join(lines)


def _cut(line: str) -> str:
    """A long ring with its middle left out, and how long it is."""
    if len(line) <= _WIDTH:
        return line
    half = _WIDTH // 2
    return f"{line[:half]} ... {line[-half:]}"
