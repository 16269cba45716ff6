"""What is offloaded to a node's NVMe drives: rates, and what of it stays in memory (Rajbhandari et al. 2021,
ZeRO-Infinity, arXiv:2104.07857)."""

from __future__ import annotations

from distsim.arrays import Number, maximum, minimum
from distsim.formula import formula
from distsim.units import FP32_BYTES

READ_RATES = {3: 3.2e9, 4: 6e9}
"""Bytes per second that one data-centre drive reads in a row, by the generation of PCIe of its host: of a DGX-2's eight
25.6 GB/s (ZeRO-Infinity, figure 2: 1.6 for each of 16 GPUs; recalled); vendors' class of generation 4 is 6 to 7."""
WRITE_RATES = {3: 3.1e9, 4: 4e9}
"""The same written: a DGX-2's eight about 25 GB/s (recalled); vendors' class of generation 4."""
REACHED_SHARE = 0.75
"""Of what drives are rated for, what reaches buffers in host memory through asynchronous reads and a file system: 10 of
13 GB/s of Azure's NC96ads_A100_v4 (DeepSpeed blogs, deepspeed-gds), 3.69 and 3.18 of 5.6 and 4.3 read and written on
one PNY CS3040 (DeepSpeed docs, tutorials, deepnvme)."""

SWAP_BUFFERS = 4
"""Buffers of fp32 numbers through which a sub-group's states pass: parameter, gradient and two moments
(deepspeedai/DeepSpeed runtime/zero/offload_config.py, offload_optimizer.buffer_count)."""
SUB_GROUP_ELEMENTS = 1e9
"""Elements that are updated at a time (deepspeed.ai documentation, sub_group_size)."""
PARAMETER_BUFFERS, PARAMETER_BUFFER_ELEMENTS = 5, 1e8
"""Buffers for parameters on their way from drives (the same file, offload_param.buffer_count and buffer_size)."""
KEPT_ELEMENTS = 1e9
"""Parameters of each rank that stay in host memory nevertheless (the same file, offload_param.max_in_cpu)."""


@formula(unit="B/s", source="DeepSpeed blogs, deepspeed-gds; docs, tutorials, deepnvme: 0.66 to 0.77 of rated reads")
def drive_rate(node_rate: Number, reached_share: Number, sharers: Number) -> Number:
    """Bytes per second that one rank reads or writes where ``sharers`` ranks of a node do so at once."""
    return node_rate * reached_share / sharers


@formula(unit="1", source="deepspeedai/DeepSpeed runtime/zero/stage3.py, _create_param_groups_fp16_flat_cpu_memory")
def driven_share(elements: Number, kept_elements: Number) -> Number:
    """Share of a rank's parameters that go on to drives: what is beyond those that host memory keeps."""
    return maximum(0.0, 1 - kept_elements / maximum(elements, 1.0))


@formula(unit="B", source="deepspeedai/DeepSpeed runtime/zero/stage3.py, _configure_tensor_swapping: of the largest")
def swap_buffer_bytes(elements: Number, sub_group_elements: Number, buffers: Number) -> Number:
    """Pinned host memory of one rank through which the states of ``elements`` parameters are updated."""
    return minimum(elements, sub_group_elements) * FP32_BYTES * buffers


@formula(
    unit="B",
    source="deepspeedai/DeepSpeed runtime/zero/stage3.py: fp32 gradients are written next to the states they update; "
    "stage_1_and_2.py, single_partition_of_fp32_groups: each has a gradient of its own in host memory",
)
def wide_gradient_bytes(trained: Number) -> Number:
    """fp32 gradients of one rank beside optimizer states that left the GPU, besides those that its micro-batches sum
    up."""
    return trained * FP32_BYTES


@formula(
    unit="B",
    source="deepspeedai/DeepSpeed 0.19.8 runtime/zero/stage_1_and_2.py, param_buffer_of_bit16_for_cpu_offload_groups",
)
def narrow_copy_bytes(trained: Number, bytes_each: Number) -> Number:
    """What a host updates in the format in which the GPU takes it back, under ZeRO 1 and 2."""
    return trained * bytes_each


@formula(
    unit="B", source="deepspeedai/DeepSpeed runtime/zero/offload_config.py: buffer_count x buffer_size of offload_param"
)
def fetch_buffer_bytes(buffers: Number, buffer_elements: Number, bytes_each: Number) -> Number:
    """Buffers in host memory for parameters on their way from drives."""
    return buffers * buffer_elements * bytes_each
