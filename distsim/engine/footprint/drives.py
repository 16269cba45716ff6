"""What of the offloaded states is in host memory, and what on the drives of the node."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from distsim.arrays import Number, maximum
from distsim.engine.figures import Figures
from distsim.engine.jobs.offloading import host_updates, in_fp32
from distsim.engine.jobs.resolve import Setup


class Away(NamedTuple):
    """Bytes of one rank's states that are not on its GPU."""

    host: Number
    drives: Number


def away(setup: Setup, moved: Mapping[str, Number], elements: Number, trained: Number, figures: Figures) -> Away:
    """Where the states that left the GPU are, ``moved`` by kind: of ``elements`` parameters of one rank, of which
    ``trained`` train."""
    host, drives = sum(moved.values()), 0
    summed = "optimizer" in setup.offload and setup.framework.traffic.host_gradients == "summed"
    beside = summed or in_fp32(setup.framework, setup.offload)
    if not (setup.drives or beside):
        return Away(host, drives)
    from distsim.formulas import drives as forms

    if beside and "optimizer" not in setup.drives:
        host = host + figures.use("fp32 gradients in host memory", forms.wide_gradient_bytes,
                                  trained=trained if summed else trained * host_updates(setup))  # fmt: skip
    if "optimizer" in setup.drives:
        gradients = figures.use("fp32 gradients on drives", forms.wide_gradient_bytes, trained=trained)
        buffers = figures.use("buffers for updating states", forms.swap_buffer_bytes, elements=trained,
                              sub_group_elements=forms.SUB_GROUP_ELEMENTS, buffers=forms.SWAP_BUFFERS)  # fmt: skip
        host = host - moved["optimizer"] + buffers
        drives = drives + moved["optimizer"] + gradients
    if "parameters" in setup.drives:
        share = figures.use("share of parameters on drives", forms.driven_share, elements=elements,
                            kept_elements=forms.KEPT_ELEMENTS)  # fmt: skip
        each = moved["parameters"] / maximum(elements, 1)
        most = figures.use("buffers for parameters", forms.fetch_buffer_bytes, buffers=forms.PARAMETER_BUFFERS,
                           buffer_elements=forms.PARAMETER_BUFFER_ELEMENTS, bytes_each=each)  # fmt: skip
        host = host - moved["parameters"] * share + most
        drives = drives + moved["parameters"] * share
    return Away(host, drives)
