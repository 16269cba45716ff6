"""What of the offloaded states is in host memory, and what on the drives of the node."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from distsim.arrays import Number, maximum, nothing, product, where
from distsim.engine.figures import Figures
from distsim.engine.footprint.host_share import passes_host_buffer
from distsim.engine.jobs.offloading import in_fp32
from distsim.engine.jobs.resolve import Setup
from distsim.formulas import drives as forms


class Away(NamedTuple):
    """Bytes of one rank's states that are not on its GPU."""

    host: Number
    drives: Number


def away(setup: Setup, moved: Mapping[str, Number], elements: Number, trained: Number, figures: Figures) -> Away:
    """Where the states that left the GPU are, ``moved`` by kind: of ``elements`` parameters of one rank, of which
    ``trained`` are updated there."""
    host, drives = sum(moved.values()), 0
    summed = passes_host_buffer(setup)
    beside = summed or in_fp32(setup.framework, setup.offload)
    if not (setup.drives or beside):
        return Away(host, drives)
    if beside and "optimizer" not in setup.drives:
        host = host + figures.use("fp32 gradients in host memory", forms.wide_gradient_bytes, trained=trained)
    if summed:
        layout, narrow = setup.layout, setup.precision.parameter_bytes
        whole = where(layout.zero < 3, 1, 0)
        if not nothing(whole):
            host = host + figures.use("updated parameters in host memory", forms.narrow_copy_bytes, trained=trained,
                                      bytes_each=whole * narrow)  # fmt: skip
        host = host - product(whole * (layout.micro_batches == 1), moved["gradients"])  # nothing to add up
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
