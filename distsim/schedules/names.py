"""What else pipeline schedules are called: other names of one, names that may mean several, and those of none here."""

from __future__ import annotations

from collections.abc import Iterable

from distsim.errors import DID_YOU_MEAN, did_you_mean

_SAME = {
    "gpipe": "afab fthenb f-then-b fill-drain",
    "1f1b": "pipedream-flush 1f1b-flush dapple onefoneb",
    "interleaved-1f1b": "interleaved1f1b 1f1b-interleaved interleaved vpp depth-first",
    "looped-bfs": "loopedbfs bfs breadth-first",
    "interleaved-zb": "interleavedzerobubble interleavedzb",
    "zb-h1": "zbh1",
    "zb-h2": "zbh2",
    "zb-v": "zbv zbvzerobubble",
    "v-half": "vhalf",
    "v-min": "vmin",
    "1f1b-v": "1f1bv",
    "dualpipe-v": "dualpipev",
    "pipedream-2bw": "2bw pipedream2bw",
}
"""Schedule -> the same one elsewhere: torch's classes (torch.distributed.pipelining.schedules, get_schedule_class),
nanotron's and Paddle's of GPipe, Paddle's and Lamy-Poirier's of what interleaves, DAPPLE's and PipeDream's of 1F1B."""
ALIASES = {other: name for name, others in _SAME.items() for other in others.split()}
"""Name elsewhere -> the schedule."""

_SEVERAL = {
    "zb-v": "v-zb zbvpp",
    "zb-h1 (the memory of 1f1b), zb-h2 (twice), zb-v, interleaved-zb, zb-auto": "zb zero-bubble zerobubble zbpp",
    "zb-h1, or zb-auto with memory for as many micro-batches as stages": "zb-1p zb1p",
    "zb-auto (memory for twice as many micro-batches as stages), or zb-h2": "zb-2p zb2p",
    "interleaved-1f1b-overlap (of a step: --expert-overlap)": "1f1b-overlap overlapped-1f1b combined-1f1b ep-overlap "
    "1f1b-a2a a2a-overlap",
}
"""Schedules here -> names that may mean one of them."""
_OF_STEP = {"interleaved-1f1b-megatron": "interleaved-1f1b"}
_BY_ORDER = "distsim pipeline --order simulates your own order"
_NONE = {
    "splits sequences into slices and is not a named schedule here; distsim pipeline --order can simulate it with a "
    "micro-batch per slice, backwards of a sequence last slice first": "seq1f1b slimpipe terapipe mepipe svpp",
    f"runs both directions over several chunks and is not a named schedule here; chimera and dualpipe have one chunk; "
    f"{_BY_ORDER}":
    "bitpipe mixpipe",
    f"warms up deeper to hide transfers and is not a named schedule here; {_BY_ORDER}": "eager-1f1b eager1f1b",
    "passes weights between stages instead of activations, which no schedule here does": "weipipe wpipe",
    f"splits layers at their attention and is not a named schedule here; {_BY_ORDER}": "helixpipe",
    "is 1f1b with layers and recomputation chosen per stage: --stage-layers, --recompute-layers": "adapipe",
}  # fmt: skip
"""What published schedules do that have no name here -> their names."""


def plain(name: str) -> str:
    """A schedule's name as it is written here; underscores and case do not matter."""
    spelt = name.strip().lower().replace("_", "-")
    return ALIASES.get(spelt, spelt)


def of_step(name: str) -> str:
    """What a step calls a schedule: Megatron's groups are those of interleaved 1F1B wherever stages divide the
    micro-batches, and else the least that it can interleave."""
    return _OF_STEP.get(plain(name), plain(name))


def schedule_meant(name: str, known: Iterable[str]) -> str:
    """A hint line for a name that is no schedule's: what it may mean, what is known of it, or the names most like it;
    empty where none is."""
    spelt = plain(name)
    for told, others in _SEVERAL.items():
        if spelt in others.split():
            return f"{DID_YOU_MEAN} {told}?"
    for told, others in _NONE.items():
        if spelt in others.split():
            return f"{spelt} {told}"
    return did_you_mean(name, known)
