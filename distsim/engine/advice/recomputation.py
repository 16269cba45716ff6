"""More and less recomputation, as advice names it: whole layers, Megatron's modules, JAX's policies."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from distsim.arrays import ceil_div, round_up
from distsim.engine.jobs.modules import cheap_modules
from distsim.engine.jobs.resolve import Setup
from distsim.specs.flags import flag

PARTS = ("recompute_layers", "recompute_group", "recompute_modules", "remat_policy")
"""Options that say what of layers is computed again."""

GROUPS = (1, 2, 4)
"""Layers of a checkpoint that advice tries: beyond the square root of a stage's layers inputs no longer outweigh them
(Chen et al. 2016, arXiv:1604.06174), and stages have tens at most."""


def less_recomputation(setup: Setup) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Changes that compute less again: kind, words and what a job then says."""
    gone = [name for name in PARTS if getattr(setup.job, name) is not None]
    fewer = f" (without {' and '.join(map(flag, gone))})" if gone else ""
    if setup.recompute != "none":
        yield "recompute", f"no recomputation{fewer}", {"recompute": "none", **dict.fromkeys(gone)}
        for name in policies(setup):
            if name != setup.job.remat_policy:
                yield "recompute", f"remat policy {name}", {"recompute": "selective", "remat_policy": name}
    if setup.recompute == "full":
        if switches_operations(setup):
            yield "recompute", f"recompute attention only{fewer}", {"recompute": "selective", **dict.fromkeys(gone)}
        if again := cheap_again(setup):
            changed = {**dict.fromkeys(gone), "recompute": "selective", "recompute_modules": ",".join(again)}
            yield "recompute", f"recompute {' and '.join(again)} only{fewer}", changed
        for count, layers in _fewer_layers(setup):
            yield "recompute", some_layers(count, layers), {**dict.fromkeys(gone), "recompute_layers": count}


def switches_operations(setup: Setup) -> bool:
    """Whether a switch of the framework recomputes some operations of layers alone."""
    return "operations" in setup.framework.supports.recompute_switches


def switches_layers(setup: Setup) -> bool:
    """Whether one recomputes some layers and not others."""
    supports = setup.framework.supports
    return supports.some_layers and "layers" in supports.recompute_switches


def cheap_again(setup: Setup) -> tuple[str, ...]:
    """Cheap modules that a job may compute again; none where it names its own."""
    return () if setup.job.recompute_modules else cheap_modules(setup.framework, setup.model)


def policies(setup: Setup) -> list[str]:
    """A framework's policies of what layers keep on the GPU, one of those that keep the same."""
    known = setup.framework.remat.items()
    return list({policy.keeps: name for name, policy in reversed(known) if not policy.offload}.values())[::-1]


def some_layers(count: int, layers: int) -> str:
    """How recomputing ``count`` of each stage's layers is called in advice."""
    return f"recompute {count} of {layers} layers per stage" if count < layers else "recompute all layers"


def groups(setup: Setup) -> list[tuple[str, int]]:
    """Other sizes of the groups of layers that share a checkpoint, where all layers are recomputed, in words."""
    if not setup.framework.supports.recompute_groups:
        return []
    now, most = setup.layout.recompute_group, max(setup.stage_layers)
    words = {1: "one layer in each checkpoint"}
    return [(words.get(size, f"{size} layers in each checkpoint"), size) for size in GROUPS if now != size < most]


def counted(setup: Setup) -> list[int]:
    """About a quarter, half and three quarters of a stage's layers, as the framework's switch counts them; none where
    it has no such switch."""
    if not switches_layers(setup):
        return []
    layers = max(setup.stage_layers)
    each = setup.layout.vpp if setup.framework.supports.recompute_counts == "chunks" else 1
    some = {int(round_up(ceil_div(layers * quarters, 4), each)) for quarters in (1, 2, 3)}
    return sorted(count for count in some if count < layers)


def _fewer_layers(setup: Setup) -> Iterator[tuple[int, int]]:
    """Parts of a stage's layers that are fewer than compute again."""
    layers, now = max(setup.stage_layers), setup.layout.recompute_layers
    for count in counted(setup):
        if count < (layers if now < 0 else min(now, layers)):
            yield count, layers
