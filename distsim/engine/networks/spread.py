"""How the ranks of a process group fall onto nodes, where all ranks are numbered through: that of the group that comes
off worst, since the others of a step wait for it, and NCCL takes of all its nodes the fewest channels (init.cc aligns
what the ranks' searches found)."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence

from distsim.arrays import Number, ceil_div, each, maximum, some, where

Spread = tuple[Number, Number]
"""Domains that a group is on, and its ranks on the one that holds fewest of them."""


def spread(ranks: Number, stride: Number, world: Number, domain: int, node: int = 0) -> Spread:
    """The worst of all groups of ``ranks`` that are ``stride`` apart, on domains of so many GPUs.

    Groups tile the ``world`` (0: any number of ranks): one after the other, ``stride`` of them interwoven. So groups of
    six on nodes of eight are 0 to 5 inside one, 6 to 11 on two. Racks whose nodes have ``node`` GPUs need not be full:
    as many of their nodes are taken as hold whole groups, and of wide groups as many ranks are on each.
    """
    if isinstance(ranks, (int, float)) and isinstance(stride, (int, float)) and isinstance(world, (int, float)):
        return _of_one(round(ranks), round(stride), round(world), domain, node)
    block = ranks * stride
    wide = (block > domain) & ((domain > node > 0) | (block % domain == 0) & (domain % stride == 0))
    near = (block <= domain) & (domain % maximum(block, 1) == 0)
    easy = near | (stride >= domain) | wide
    fitting = maximum(domain // stride, 1)
    domains = where(near, 1, ceil_div(ranks, fitting))
    fewest = ranks / domains
    if some(~easy):  # few kinds of groups do not divide: each is looked at once
        odd = (where(easy, 1, ranks), where(easy, 1, stride), where(easy, 1, world), domain, node)
        domains = where(easy, domains, each(lambda *one: _of_one(*map(round, one))[0], *odd))
        fewest = where(easy, fewest, each(lambda *one: _of_one(*map(round, one))[1], *odd))
    return domains, fewest


@functools.lru_cache(maxsize=8192)
def _of_one(ranks: int, stride: int, world: int, domain: int, node: int) -> tuple[int, float]:
    block = ranks * stride
    if block <= domain and (0 < world <= domain or filled(block, domain, node) % block == 0):
        return 1, ranks
    if stride >= domain:
        return ranks, 1
    if block > domain and (domain > node > 0 or (block % domain == 0 and domain % stride == 0)):
        domains = ceil_div(ranks, domain // stride)
        return domains, ranks / domains
    period = domain // math.gcd(block, domain)  # after so many blocks all comes again
    blocks = min(period, max(world // block, 1)) if world else period
    found = (_counts(start * block + at, ranks, stride, domain) for start in range(blocks) for at in range(stride))
    return min(found, key=lambda one: (one[1], -one[0]))


def _counts(start: int, ranks: int, stride: int, domain: int) -> tuple[int, int]:
    """Domains of one group, and its ranks on the one that holds fewest."""
    end = start + (ranks - 1) * stride
    first, last = start // domain, end // domain
    if first == last:
        return 1, ranks
    between = range(first + 1, min(last, first + 1 + stride))  # so many, and the counts come again
    below = [ceil_div(border * domain - start, stride) for border in (*between, between.stop)]
    counts = [after - before for before, after in itertools.pairwise(below)]
    return last - first + 1, min(ceil_div(domain - start % domain, stride), end % domain // stride + 1, *counts)


def filled(block: int, domain: int, node: int) -> int:
    """GPUs of a domain that a job takes: all of a node; of a rack as many nodes as hold whole blocks of ranks."""
    whole = math.lcm(block, node) if domain > node > 0 else domain + 1
    return domain if whole > domain else domain // whole * whole


def filled_by(blocks: Sequence[int], domain: int, node: int) -> int:
    """The same for groups of several sizes, those that are wider than a domain left out. Where no number of nodes holds
    whole groups of all kinds, it is that of the kind that leaves most nodes idle."""
    near = [block for block in blocks if block <= domain]
    together = math.lcm(node, *near)
    return min((filled(block, domain, node) for block in (near if together > domain else [together])), default=domain)


def pair_apart(one: Number, other: Number, width: Number, domain: int, node: int = 0) -> Number:
    """Whether some rank among ``width`` that start at ``one`` is on another domain than its like from ``other`` on."""
    if domain > node > 0:
        domain = each(lambda block: filled(block, domain, node), width)
    low, high = where(one < other, one, other), where(one < other, other, one)
    return low // domain != (high + width - 1) // domain
