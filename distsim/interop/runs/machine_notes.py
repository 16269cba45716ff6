"""What notes and publishers of measured runs say of the machine, or of the slots of its cards."""

from __future__ import annotations

import re

from distsim.interop.runs.denials import UNTOLD, affirmed
from distsim.interop.runs.hits import hit
from distsim.interop.runs.table import Run

_NAMED: tuple[tuple[re.Pattern[str], dict[str, str]], ...] = (
    (re.compile("/node, EFA"), {"h100-sxm": "p5.48xlarge"}),
    (re.compile("Jean[- ]Zay"), {"a100-sxm4-80gb": "jean-zay-a100", "v100-sxm2-32gb": "jean-zay-v100-32gb",
                                 "v100-sxm2-16gb": "jean-zay-v100-16gb"}),
)  # fmt: skip
"""What notes say of a machine or its network where it is no preset's name, and the presets of it by GPU."""
_NAMES = re.compile(r"[a-z][a-z0-9]*(?:[-._][a-z0-9]+)*", re.IGNORECASE)
"""Words of notes that may be a preset's name."""
_NO_MACHINE = re.compile(
    r"\b(?:eos|sophia)[-_ ]?(?:g\b|h\b|tokens?|ids?|optimi[sz]er|padding)|\bbos\W+(?:(?:and|or)\W+)?eos\b|"
    r"\b(?:end|ends|ended|separated|followed|optimizer) (?:in|by|with|is) (?:eos|sophia)\b",
    re.IGNORECASE,
)
"""A token that ends documents, and an optimizer, whose names machines have."""
_SLOTS = re.compile(r"\bpci-?e[- ](?:gen(?:eration)?[- ]?([3-6])\b|([3-6])\.0)", re.IGNORECASE)
"""How notes and descriptions of systems (accelerator_host_interconnect of MLPerf) name what slots carry."""
_SOCKETS = re.compile(affirmed("NCCL_NET ?= ?Socket|NCCL_IB_DISABLE ?= ?1|(?:over|through) TCP sockets"), re.IGNORECASE)
"""How notes tell that NCCL sends by TCP between nodes."""
_MANY_THREADS = re.compile(r"\b(?:GCP|AWS|Google Cloud|gVNIC)\b")
"""Hosts for whose NICs NCCL gives every connection several threads (src/transport/net_socket.cc)."""
_BRIDGES = re.compile(affirmed("NVLink bridges?") + f"(?!{UNTOLD})", re.IGNORECASE)
_HOMES = {"bigscience-workshop/": "Jean Zay"}
"""Publishers that measured on one machine."""


def machine_said(run: Run, gpu: str) -> str | None:
    """The preset with a GPU of a machine that is described, not named."""
    return next((nodes[gpu] for words, nodes in _NAMED if gpu in nodes and words.search(_told(run))), None)


def machine_words(run: Run) -> list[str]:
    """Words that may be a machine's name, in their order."""
    return _NAMES.findall(_NO_MACHINE.sub("", _told(run)))


def _told(run: Run) -> str:
    """The notes, and where the publisher measures."""
    return " ".join((run.notes, *(home for who, home in _HOMES.items() if run.source.startswith(who))))


def over_sockets(run: Run) -> bool:
    """Whether one thread of a process copies all that NCCL sends to other nodes."""
    return hit(_SOCKETS, run.notes) is not None and hit(_MANY_THREADS, run.notes) is None


def has_bridges(run: Run) -> bool:
    """Whether notes tell of NVLink bridges between cards."""
    return hit(_BRIDGES, run.notes) is not None


def slot_generation(run: Run) -> str | None:
    """The generation of PCIe that notes tell of slots."""
    found = hit(_SLOTS, run.notes)
    return (found[1] or found[2]) if found else None
