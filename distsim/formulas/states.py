"""Model states: what one rank holds of parameters, gradients and optimizer states."""

from __future__ import annotations

from distsim.arrays import Number, ceil_div, maximum, minimum, where
from distsim.formula import formula

ZERO = "Rajbhandari et al. 2020, ZeRO (arXiv:1910.02054), sections 3.1 and 5"


@formula(unit="B", source=ZERO)
def parameter_bytes_per_rank(
    parameters: Number, bytes_per_parameter: Number, zero_stage: Number, zero_group_size: Number
) -> Number:
    """Parameters held by one rank; sharded over the ZeRO group at stage 3."""
    return parameters * bytes_per_parameter / where(zero_stage >= 3, zero_group_size, 1)


@formula(unit="B", source="Narayanan et al. 2019, PipeDream, section 3.3")
def older_weight_bytes(parameter_bytes: Number, versions: Number) -> Number:
    """Older weight versions that micro-batches in flight still use, in addition to the current one."""
    return parameter_bytes * (versions - 1)


@formula(unit="B", source=ZERO)
def gradient_bytes_per_rank(
    parameters: Number, bytes_per_gradient: Number, zero_stage: Number, zero_group_size: Number
) -> Number:
    """Gradients held by one rank until the optimizer's step; sharded over the ZeRO group from stage 2 up."""
    return parameters * bytes_per_gradient / where(zero_stage >= 2, zero_group_size, 1)


@formula(unit="B", source=ZERO)
def optimizer_bytes_per_rank(
    parameters: Number, state_bytes_per_parameter: Number, zero_stage: Number, zero_group_size: Number
) -> Number:
    """Optimizer states and master copy held by one rank; sharded over the ZeRO group from stage 1 up."""
    return parameters * state_bytes_per_parameter / where(zero_stage >= 1, zero_group_size, 1)


@formula(
    unit="B", source="NVIDIA/Megatron-LM core/distributed/param_and_grad_buffer.py and distributed_data_parallel.py"
)
def building_bytes(
    dense: Number, experts: Number, bytes_per_parameter: Number, bytes_per_gradient: Number, chunks: Number
) -> Number:
    """The most that is there while weights are copied into buffers that have gradients' beside them, one of ``chunks``
    model chunks at a time: experts come after all else, whose buffers then stand, and until then theirs do not.

    ``dense`` and ``experts`` are parameters of a rank.
    """
    whole = (dense + experts) * (bytes_per_parameter + bytes_per_gradient)
    last = bytes_per_parameter / chunks
    return whole + maximum(experts * last, dense * last - experts * bytes_per_gradient / chunks)


@formula(unit="B", source="Shazeer and Stern 2018, Adafactor (arXiv:1804.04235), section 3")
def factored_state_bytes(rows: Number, columns: Number, copies: Number, bytes_per_element: Number) -> Number:
    """A factored second moment: one value per row and one per column of each matrix."""
    return (rows + columns) * copies * bytes_per_element


@formula(
    unit="B", source="Ren et al. 2021, ZeRO-Offload (arXiv:2101.06840), section 4; ZeRO-Infinity (arXiv:2104.07857)"
)
def offloaded_bytes(held_bytes: Number, leaves: Number) -> Number:
    """What of one kind of states is not on the GPU."""
    return held_bytes * leaves


@formula(
    unit="1",
    source="deepspeedai/DeepSpeed 0.19.8 runtime/zero/stage3.py, _create_fp16_sub_groups, _create_fp32_partitions; run "
    "(docs/findings/executed.md)",
)
def host_share(matrices: Number, others: Number, part: Number, sub_group_elements: Number, tensor: Number) -> Number:
    """Share of what a rank trains that its host updates, of which a job asks for ``part``: whole sub-groups, those of
    matrices apart from what does not decay (transformers' Trainer, Megatron). The first ones stay on the GPU. Each ends
    with the ``tensor`` that fills it, on average half of one beyond."""
    group = sub_group_elements + tensor / 2
    stay = (1 - part) * (ceil_div(matrices, group) + where(others > 0, 1, 0)) // 1
    return 1 - minimum(stay * group, matrices) / maximum(matrices + others, 1)


@formula(unit="B", source="torch 2.13 optim/_muon.py, _zeropower_via_newtonschulz; counted on 14,336 by 4,096 elements")
def newton_schulz_bytes(short: Number, long: Number, matrices: Number, bytes_per_element: Number) -> Number:
    """What the iteration holds of matrices that it takes together: the iterate, its product and their sum, and two
    squares as wide as the shorter side."""
    return matrices * (3 * short * long + 2 * short * short) * bytes_per_element
