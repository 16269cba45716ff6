"""How people write the names of accelerators: what is around them, what is joined, in which order the words stand."""

from __future__ import annotations

import re

from distsim.units import GIB, parse

_MAKERS = re.compile(
    r"^(?:(?:nvidia|amd|intel(?:\(r\))?|radeon|habana|huawei|google|cloud|aws|instinct|tesla|geforce|"
    r"dgx|hgx|blackwell|hopper|ampere|volta)-)+"
    r"|(?:-(?:oam|gpu|accelerator|tensor-core))+(?=-|$)|-hbm\d\w*$|-generation$|-ac$|-vf$"
    r"|-blackwell(?=-max-q\b)|-blackwell-(?:server|workstation)-edition$|(?<=-max-q)-workstation(?:-edition)?$"
)
"""What drivers, vendors and makers of nodes say around a GPU's name, as in NVIDIA H100 80GB HBM3 and DGX A100."""
_JOINED = (
    (re.compile(r"^(?:dgx|hgx)(?=[a-z]+\d)"), ""),
    (re.compile(r"^tpu-?v?(?=\d)"), "tpu-v"),
    (re.compile(r"^(rtx|gtx|rx|ascend)-?(?=a?\d)"), r"\1-"),
    (re.compile(r"^(mi|gaudi|trainium)-(?=\d)"), r"\1"),
    (re.compile(r"\b(\d+)-?g(?:ib?|b)?(?=-|$)"), r"\1gb"),
)
"""Words that are written together or apart: TPUv5e, DGXH200, RTX4090, Gaudi 2, 80G."""
_SIZE_FIRST = re.compile(r"^(.+?)-(\d+gb)-(sxm\d?|pcie|nvl)$")
_SOCKET = re.compile(r"^(h\d+-(?:\d+gb-)?sxm)5\b|^(b\d+-(?:\d+gb-)?sxm)6\b")
"""Hopper's modules are SXM5, Blackwell's SXM6."""
SIZED = re.compile(r"^(.+)-(\d+)gb$")
"""A name that ends in its memory."""
BRACKETED = re.compile(r"^([^()]+?)-?\(([^()]+)\)$")
"""A name with words in brackets, as in H100 (PCIe)."""

MEMORY_APART = 0.08
"""Share by which the memory in a name and on the label may differ: B200 goes by 180 and by 192 GB."""


def near_label(memory: str | float, told_gb: float) -> bool:
    """Whether a name's gigabytes are the memory of a label."""
    label = parse(memory, "B") / GIB
    return abs(label - told_gb) <= MEMORY_APART * label


def spellings(name: str) -> list[str]:
    """Other ways to write a plain name of an accelerator that mean no other one, the nearest first."""
    plain = re.sub("-+", "-", _MAKERS.sub("", name)).strip("-")
    for words, written in _JOINED:
        plain = words.sub(written, plain)
    found = [plain, _SIZE_FIRST.sub(r"\1-\3-\2", plain)]
    return [one for one in dict.fromkeys((*found, *(_SOCKET.sub(r"\1\2", one) for one in found))) if one != name]
