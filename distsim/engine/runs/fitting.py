"""What a measured run computed again where nobody says: as much as it needed to fit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from distsim.engine.jobs.resolve import Setup
from distsim.engine.memory import memory_of


def fitting(setup: Setup) -> Setup:
    """The setup recomputing as much as it needs to fit, since it ran; itself where nothing helps, but all of it under
    policies for all layers: what then still does not fit is on the host."""

    def recomputing(layers: int) -> Setup:
        return replace(setup, recompute="full", layout=setup.layout.with_(recompute_layers=layers, selective=0))

    fewest, most = 1, max(setup.stage_layers)
    if setup.recompute == "full" or memory_of(setup).fits:
        return setup
    if setup.kernels.kept is not None:
        return next((one for one in _with_less(setup) if memory_of(one).fits), recomputing(most))
    if not memory_of(recomputing(most)).fits:
        return setup
    while fewest < most:
        middle = (fewest + most) // 2
        fewest, most = (fewest, middle) if memory_of(recomputing(middle)).fits else (middle + 1, most)
    return recomputing(most)


def _with_less(setup: Setup) -> Iterator[Setup]:
    """The setup under its framework's own policies, which hold for all layers, from the one that keeps most on."""
    layout = setup.layout.with_(selective=1)
    yield replace(setup, recompute="selective", layout=layout)
    for policy in setup.framework.remat.values():
        if not policy.offload:
            kernels = setup.kernels.model_copy(update={"kept": policy.keeps})
            yield replace(setup, recompute="selective", layout=layout, kernels=kernels)
