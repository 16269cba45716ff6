"""Closed forms of pipeline schedules, each with the range in which it equals the event simulation.

Times are seconds of one micro-batch through one whole stage (all of its chunks), all stages alike; ``hop`` is the delay
of one transfer between neighbours, overlapped with compute. ``*_exact`` says where a form is exact; outside it is an
estimate. Everything takes numbers or arrays.
"""

from __future__ import annotations

from distsim.arrays import Number, ceil_div, maximum, minimum, where
from distsim.formula import formula

_MEGATRON = "Narayanan et al. 2021, arXiv:2104.04473, section 2.2"
_ZB = "Qi et al. 2023, arXiv:2401.10241, section 3"
_DERIVED = "derived from the order; held against the event simulation"


@formula(unit="1", source="share of stage time that idles")
def bubble_fraction(makespan_seconds: Number, busy_seconds: Number) -> Number:
    """One minus the mean busy time of a stage over the makespan."""
    return 1 - busy_seconds / makespan_seconds


@formula(unit="s", source=_DERIVED)
def naive_makespan(stages: Number, micro: Number, forward: Number, backward: Number, hop: Number = 0.0) -> Number:
    """One micro-batch at a time: every stage waits for all others."""
    return micro * (stages * (forward + backward) + 2 * (stages - 1) * hop)


@formula(unit="s", source="Huang et al. 2019, arXiv:1811.06965, section 2.3")
def gpipe_makespan(stages: Number, micro: Number, forward: Number, backward: Number, hop: Number = 0.0) -> Number:
    """All forwards, then all backwards; exact for every number of stages and micro-batches and every hop."""
    return (micro + stages - 1) * (forward + backward) + 2 * (stages - 1) * hop


@formula(unit="s", source=_DERIVED)
def gpipe_uneven_makespan(
    sum_forward: Number, longest_forward: Number, sum_backward: Number, longest_backward: Number, micro: Number
) -> Number:
    """GPipe on uneven stages (sums and maxima over stages, no hop); exact always."""
    return sum_forward + sum_backward + (micro - 1) * (longest_forward + longest_backward)


@formula(unit="s", source=f"{_MEGATRON}.1; the hop term is {_DERIVED}")
def one_f_one_b_makespan(stages: Number, micro: Number, forward: Number, backward: Number, hop: Number = 0.0) -> Number:
    """1F1B with flush, for any number of micro-batches. In-order 1F1B pays (p-1)/p round trips per micro-batch, not
    only the two ramps."""
    trips = (stages - 1) + (micro - 1) - ceil_div(micro - 1, stages)
    return (micro + stages - 1) * (forward + backward) + where(stages > 1, 2 * hop * trips, 0)


@formula(unit="s", source=_DERIVED)
def one_f_one_b_uneven_bound(sum_both: Number, longest_both: Number, micro: Number) -> Number:
    """Upper bound of 1F1B on uneven stages without hops; exact where the last stage is the slowest in both."""
    return sum_both + (micro - 1) * longest_both


@formula(unit="s", source=f"{_MEGATRON}.2; m < p and the hop term are {_DERIVED}")
def interleaved_makespan(
    stages: Number, micro: Number, chunks: Number, forward: Number, backward: Number, hop: Number = 0.0
) -> Number:
    """Interleaved 1F1B: the ramp shrinks by the chunks, and hops grow with them."""
    short = maximum(stages - micro, 0)
    steps = micro * chunks + stages - 1 + (chunks - 1) * short
    return steps * (forward + backward) / chunks + 2 * hop * (stages * chunks - 1)


def interleaved_exact(
    stages: Number, micro: Number, chunks: Number, forward: Number, backward: Number, hop: Number = 0.0
) -> Number:
    """Exact without hops for every m that the schedule takes; with hops for m % p == 0 and hops no longer than the
    forward and the backward of a chunk, which the deeper warm-up then hides."""
    return (hop == 0) | ((micro % stages == 0) & (hop * chunks <= minimum(forward, backward)) & (stages > 1))


@formula(unit="s", source=f"Lamy-Poirier 2023, arXiv:2211.05953, section 4; the hop term is {_DERIVED}")
def looped_bfs_makespan(
    stages: Number, micro: Number, chunks: Number, forward: Number, backward: Number, hop: Number = 0.0
) -> Number:
    """Looped breadth-first: from 2p micro-batches up a chunk's hops are hidden behind its other micro-batches."""
    trips = where(micro >= 2 * stages, stages - 1, stages * chunks - 1)
    steps = micro * chunks + stages - 1 + (chunks - 1) * maximum(stages - micro, 0)
    return steps * (forward + backward) / chunks + 2 * hop * trips


def looped_bfs_exact(
    stages: Number, micro: Number, chunks: Number, forward: Number, backward: Number, hop: Number = 0.0
) -> Number:
    """Exact without hops; with hops for m <= p, and from 2p up where a chunk's passes are no shorter than a hop."""
    hidden = (micro >= 2 * stages) & (hop * chunks <= minimum(forward, backward))
    return (hop == 0) | (((micro <= stages) | hidden) & (stages > 1))


@formula(unit="s", source=_ZB)
def zb_h1_makespan(
    stages: Number, micro: Number, forward: Number, input_gradient: Number, weight_gradient: Number
) -> Number:
    """ZB-H1: the weight gradient fills the drain as far as the input gradient is longer (no hops)."""
    work = micro * (forward + input_gradient + weight_gradient)
    long = work + (stages - 1) * (forward + maximum(0, input_gradient - weight_gradient))
    short = work + (stages - 1) * (forward + input_gradient) - (micro - 1) * weight_gradient
    return where(micro >= stages, long, short)


@formula(unit="1", source="zb_h1_makespan from p micro-batches up: p - 1 times F + max(0, I - W)")
def zb_h1_ramp_share(forward_share: Number, weight_share: Number) -> Number:
    """ZB-H1's idle time over that of stages paid once each, by the shares of a micro-batch that are its forward and its
    weights' gradients."""
    return maximum(forward_share, 1 - 2 * weight_share)


def zb_h1_exact(
    stages: Number, micro: Number, forward: Number, input_gradient: Number, weight_gradient: Number
) -> Number:
    """Exact for m >= p where the weight or the input gradient is not longer than the forward; below, where the weight
    gradient is longer than neither."""
    long = (micro >= stages) & ((weight_gradient <= forward) | (input_gradient <= forward))
    return long | ((weight_gradient <= input_gradient) & (weight_gradient <= forward))


@formula(unit="s", source=f"{_ZB}; fewer than 2p-1 micro-batches {_DERIVED}")
def zero_bubble_makespan(
    stages: Number, micro: Number, forward: Number, input_gradient: Number, weight_gradient: Number, chunks: Number = 1
) -> Number:
    """ZB-H2 and ZB-V (two chunks): from 2p-1 micro-batches up stages never wait inside their span and only start one
    after the other; with fewer, the first one's way there and back shows."""
    starts = (stages - 1) * forward / chunks
    way = (stages - 1) * (forward + input_gradient) - (micro - 1) * weight_gradient
    return micro * (forward + input_gradient + weight_gradient) + maximum(starts, way)


def zero_bubble_exact(
    stages: Number, micro: Number, forward: Number, input_gradient: Number, weight_gradient: Number
) -> Number:
    """Exact where the three passes take the same time (no hops)."""
    return (forward == input_gradient) & (forward == weight_gradient)


@formula(unit="s", source=f"Li and Hoefler 2021, arXiv:2107.06925; units concatenated directly, {_DERIVED}")
def chimera_makespan(stages: Number, micro: Number, forward: Number, backward: Number) -> Number:
    """Chimera with whole units of p micro-batches: its ramp is half of 1F1B's, but a backward longer than the forward
    leaves (p-2)/p of the difference idle in every unit (no hops)."""
    return micro * (forward + backward) + (stages - 2) * (forward + (backward - forward) * micro / stages)


def chimera_exact(stages: Number, micro: Number, forward: Number, backward: Number) -> Number:
    """Exact for m % p == 0 and a backward of once or twice the forward."""
    return (micro % stages == 0) & ((backward == forward) | (backward == 2 * forward))


@formula(unit="s", source=f"Liu et al. 2023, arXiv:2308.15762; the packing is {_DERIVED}")
def hanayo_makespan(stages: Number, micro: Number, chunks: Number, forward: Number) -> Number:
    """Hanayo for a backward of twice the forward; each repeat of p micro-batches idles 2p-3 chunk forwards."""
    steps = 3 * micro * chunks + 4 * (stages - 1) + (micro / stages - 1) * (2 * stages - 3)
    return steps * forward / chunks


def hanayo_exact(stages: Number, micro: Number, forward: Number, backward: Number) -> Number:
    """Exact for m % p == 0 and a backward of twice the forward."""
    return (micro % stages == 0) & (backward == 2 * forward) & (stages > 1)


@formula(unit="s", source="DeepSeek-AI 2024, DualPipe README; DeepSeek-V3 technical report, section 3.2.1")
def dualpipe_makespan(
    turns: Number, micro: Number, forward: Number, backward: Number, weight_gradient: Number, chunks: Number = 1
) -> Number:
    """DualPipe and DualPipeV with atomic fused blocks as long as their halves (no hops). ``turns`` is p/2 - 1 for
    DualPipe and p - 1 for DualPipeV."""
    return micro * (forward + backward) + turns * (forward + 2 * backward - 3 * weight_gradient) / chunks


def dualpipe_exact(forward: Number, input_gradient: Number, weight_gradient: Number) -> Number:
    """Exact where the input gradient is as long as the forward and the weight gradient not longer."""
    return (input_gradient == forward) & (weight_gradient <= forward)


@formula(unit="activations", source=_MEGATRON)
def one_f_one_b_peak(stages: Number, micro: Number, stage: Number = 0) -> Number:
    """Micro-batches in flight on a stage under 1F1B; ZB-H1 holds as many until the input gradient."""
    return minimum(micro, stages - stage)


@formula(unit="activations", source=_MEGATRON)
def interleaved_peak(stages: Number, micro: Number, chunks: Number, group: Number, stage: Number = 0) -> Number:
    """Whole-stage activations in flight under interleaved 1F1B; ``group`` is p where it divides m."""
    return minimum(micro * chunks, 2 * (stages - 1 - stage) + (chunks - 1) * group + 1) / chunks


@formula(unit="activations", source=_ZB)
def zb_h2_peak(stages: Number, micro: Number, stage: Number = 0) -> Number:
    """Micro-batches in flight on a stage under ZB-H2: forwards fill the way to the last stage and back."""
    return minimum(micro, 2 * (stages - stage) - 1)


@formula(unit="activations", source=f"{_ZB}, section 6; per stage {_DERIVED}")
def zb_v_peak(stages: Number, micro: Number, stage: Number = 0) -> Number:
    """Whole-stage activations in flight under ZB-V: as many as 1F1B's first stage, on every stage in the end."""
    return minimum(micro, stages, (micro + 1 + stage) / 2)


@formula(unit="activations", source=_DERIVED)
def all_forwards_peak(stages: Number, micro: Number) -> Number:
    """Micro-batches in flight where all forwards come first (GPipe, looped breadth-first)."""
    return micro + 0 * stages
