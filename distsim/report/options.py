"""Every resolved option with its value and where that comes from: what ``--show-config`` prints."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import Any

from distsim.engine.jobs.resolve import Setup
from distsim.report import terminal
from distsim.report.prose import folded
from distsim.report.style import columns
from distsim.specs.modules import IMPLIED
from distsim.specs.stage_layers import written

VALUE_ROOM = 32
"""Columns for the values of options; longer lists go on below."""
_FOLLOWS = {
    "gpu": "default, or the cluster's", "cluster": "the GPU's usual one", "gpus": "one node, or what the degrees need",
    "gpu_power": "the cluster, or the GPU's preset", "framework": "default, or the GPU's own",
    "dp": "gpus / (tp * pp * cp)", "etp": "tp and ep", "schedule": "pp and vpp", "stage_layers": "layers / pp",
    "mtp": "stage_layers", "decoder_seq": "the model",
    "zero_group": "dp * cp", "sequence_parallel": "tp > 1", "seq": "the model's context", "dropout": "the model",
    "global_batch": "micro_batch * micro_batches * dp", "micro_batches": "global_batch / (micro_batch * dp)",
    "clip": "the framework", "no_sync": "the framework", "cuda_graphs": "the framework's recipe",
    "expert_overlap": "the framework's recipe", "expert_imbalance": "1.2 for step time with ep > 1, else 1",
    "tp_comm_overlap": "the framework's recipe", "dp_comm_overlap": "the framework",
    "expert_dispatcher": "the framework's recipe",
    "recompute_layers": "recompute", "recompute_group": "recompute", "vocab_padded": "the framework's padding",
}  # fmt: skip
"""What a value follows from where nobody states the option."""


def origin_of(setup: Setup, origins: Mapping[str, str], name: str) -> str:
    """Where an option's value comes from, in words."""
    if name in origins:
        return origins[name]
    told = setup.origins.get(name, "")
    if name == "stage_layers" and len(set(setup.chunk_layers)) > 1 and told != "you":
        return f"framework {setup.framework.name}'s placement"
    if by := next((option for option, (needed, _) in IMPLIED.items() if needed == name and option in origins), ""):
        return by
    return told if told and told != "you" else _FOLLOWS.get(name, "default")


def option_lines(setup: Setup, origins: Mapping[str, str]) -> list[str]:
    """Every resolved option with its value and origin."""
    rows = []
    for name, value in setup.to_dict().items():
        shown = "none" if value in (None, []) else f"{value}"
        shown = written(value) if name == "stage_layers" else shown
        shown = ",".join(value) if name == "zeropp" and value else shown
        shown = "all" if name == "recompute_layers" and value < 0 else shown
        first, *rest = _lists(shown) if terminal.width() else [shown]
        rows += [[name, first, origin_of(setup, origins, name)], *(["", more, ""] for more in rest)]
    made = columns(["option", "value", "from"], rows, left=(0, 1, 2))
    return folded(made, made[0].rindex("from"))


def _lists(value: str) -> list[str]:
    """A value, a long list in parts that end in commas, so that it pushes no column beyond the terminal."""
    spaced = textwrap.wrap(value.replace(",", ", "), VALUE_ROOM, break_long_words=False, break_on_hyphens=False)
    return [part.replace(", ", ",") for part in spaced] if len(value) > VALUE_ROOM and "," in value else [value]


def options_data(setup: Setup, origins: Mapping[str, str]) -> dict[str, Any]:
    """The same as plain data, for JSON."""
    told = {name: origin_of(setup, origins, name) for name in setup.to_dict()}
    return {"schema": "distsim.config/1", "job": setup.written(), "origins": told}
