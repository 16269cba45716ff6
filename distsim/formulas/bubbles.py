"""Closed forms of pipeline schedules, each with the range in which it equals the event simulation.

Times are seconds of one micro-batch through one whole stage (all of its chunks), all stages equal; ``hop`` is the delay
of one transfer between neighbours, overlapped with compute. ``*_exact`` says where a form is exact; outside it is an
estimate. Everything takes numbers or arrays.
"""

from __future__ import annotations

from distsim.arrays import Number, ceil_div, each, maximum, minimum, where
from distsim.formula import formula

_MEGATRON = "Narayanan et al. 2021, arXiv:2104.04473, section 2.2"
_ZB = "Qi et al. 2023, arXiv:2401.10241, section 3"
_DERIVED = "derived from the order; checked against the event simulation"


@formula(unit="1", source="share of stage time spent idle")
def bubble_fraction(stage_seconds: Number, busy_seconds: Number) -> Number:
    """Idle share of all stages' time: one minus their busy time over the makespan of every stage."""
    return 1 - busy_seconds / stage_seconds


@formula(
    unit="s",
    source="definition: a stage waits for the first forward to arrive, and its last backward still goes through",
)
def least_makespan(stages_before: Number, stage: Number, micro: Number) -> Number:
    """Lower bound on any order's makespan: a stage's own work for all micro-batches, and all stages before it once."""
    return stages_before + micro * stage


@formula(unit="s", source=_DERIVED)
def naive_makespan(stages: Number, micro: Number, forward: Number, backward: Number, hop: Number = 0.0) -> Number:
    """One micro-batch at a time: every stage waits for all others."""
    return micro * (stages * (forward + backward) + 2 * (stages - 1) * hop)


@formula(unit="s", source="Huang et al. 2019, arXiv:1811.06965, section 2.3")
def gpipe_makespan(stages: Number, micro: Number, forward: Number, backward: Number, hop: Number = 0.0) -> Number:
    """All forwards, then all backwards; exact for every number of stages and micro-batches and every hop."""
    return (micro + stages - 1) * (forward + backward) + 2 * (stages - 1) * hop


@formula(unit="s", source=f"{_MEGATRON}.1; the hop term is {_DERIVED}")
def one_f_one_b_makespan(stages: Number, micro: Number, forward: Number, backward: Number, hop: Number = 0.0) -> Number:
    """1F1B with flush, for any number of micro-batches. In-order 1F1B pays (p-1)/p round trips per micro-batch, not
    only the two ramps."""
    trips = (stages - 1) + (micro - 1) - ceil_div(micro - 1, stages)
    return (micro + stages - 1) * (forward + backward) + where(stages > 1, 2 * hop * trips, 0)


@formula(unit="s", source=f"{_MEGATRON}.2; m < p is {_DERIVED}")
def looped_seconds(stages: Number, micro: Number, chunks: Number, forward: Number, backward: Number) -> Number:
    """Passes and ramp of a schedule whose chunks go round all stages in turn, without hops; with fewer micro-batches
    than stages, each further round waits for the first micro-batch to come back."""
    steps = micro * chunks + stages - 1 + (chunks - 1) * maximum(stages - micro, 0)
    return steps * (forward + backward) / chunks


@formula(unit="s", source=f"{_MEGATRON}.2; the hop term is {_DERIVED}")
def interleaved_makespan(
    stages: Number, micro: Number, chunks: Number, forward: Number, backward: Number, hop: Number = 0.0
) -> Number:
    """Interleaved 1F1B: more chunks per stage shrink the ramp and add hops."""
    return looped_seconds(stages, micro, chunks, forward, backward) + 2 * hop * (stages * chunks - 1)


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
    return looped_seconds(stages, micro, chunks, forward, backward) + 2 * hop * trips


def looped_bfs_exact(
    stages: Number, micro: Number, chunks: Number, forward: Number, backward: Number, hop: Number = 0.0
) -> Number:
    """Exact without hops; with hops for m <= p, and from 2p up where a chunk's passes are no shorter than a hop."""
    hidden = (micro >= 2 * stages) & (hop * chunks <= minimum(forward, backward))
    return (hop == 0) | (((micro <= stages) | hidden) & (stages > 1))


@formula(unit="s", source=f"{_ZB}; unequal passes are {_DERIVED}")
def zb_h1_makespan(
    stages: Number, micro: Number, forward: Number, input_gradient: Number, weight_gradient: Number, chunks: Number = 1
) -> Number:
    """ZB-H1 for passes of any length; from 2p micro-batches up also over several chunks (interleaved zero bubble). The
    round trip of the first micro-batch is idle but for a shortest pass of each of up to p-1 others (no hops)."""
    filled = minimum(micro - 1, stages - 1) * minimum(forward, input_gradient, weight_gradient)
    ramp = (stages - 1) * (forward + input_gradient) - filled
    return micro * (forward + input_gradient + weight_gradient) + ramp / chunks


@formula(unit="s", source=f"{_ZB}; unequal passes are {_DERIVED}")
def zb_h2_makespan(
    stages: Number, micro: Number, forward: Number, input_gradient: Number, weight_gradient: Number
) -> Number:
    """ZB-H2: twice as many passes fill the round trip of the first micro-batch; with equal passes, stages lose only the
    time until their first forward (no hops)."""
    filled = minimum(micro - 1, 2 * (stages - 1)) * minimum(forward, weight_gradient)
    ramp = maximum((stages - 1) * forward, (stages - 1) * (forward + input_gradient) - filled)
    return micro * (forward + input_gradient + weight_gradient) + ramp


def zb_h2_exact(
    stages: Number, micro: Number, forward: Number, input_gradient: Number, weight_gradient: Number
) -> Number:
    """Exact from p micro-batches up; below, where the input gradient is not the shortest pass."""
    return (micro >= stages) | (input_gradient >= minimum(forward, weight_gradient))


@formula(unit="s", source=f"{_ZB}, section 6; fewer than 2p-1 micro-batches and unequal passes are {_DERIVED}")
def zb_v_makespan(
    stages: Number, micro: Number, forward: Number, input_gradient: Number, weight_gradient: Number
) -> Number:
    """ZB-V over two chunks: the longest of eight chains of passes, for equal passes that of all stages' first
    forwards; with fewer than 2p-1 micro-batches the first one's round trip (no hops)."""
    gaps = stages - 1
    longest = maximum(
        forward / 2 + (gaps - 1) / 2 * weight_gradient,
        input_gradient / 2 + (gaps - 1) / 2 * weight_gradient,
        gaps * input_gradient / 2,
        gaps * (input_gradient - weight_gradient),
        gaps * (forward - input_gradient / 2) - weight_gradient / 2,
        (gaps - 0.5) * forward - (gaps - 1) / 2 * input_gradient,
        gaps * forward - (gaps + 0.5) * weight_gradient,
        (gaps - 0.5) * forward + input_gradient / 2 - gaps * weight_gradient,
    )
    few = maximum(gaps * forward / 2, gaps * (forward + input_gradient) - (micro - 1) * weight_gradient)
    ramp = where(stages > 1, where(micro >= 2 * stages - 1, longest, few), 0)
    return micro * (forward + input_gradient + weight_gradient) + ramp


def zb_v_exact(
    stages: Number, micro: Number, forward: Number, input_gradient: Number, weight_gradient: Number
) -> Number:
    """Exact for passes of any length from 2p-1 micro-batches up; below, where all take the same time (no hops)."""
    return (micro >= 2 * stages - 1) | ((forward == input_gradient) & (forward == weight_gradient))


@formula(unit="s", source=f"Li and Hoefler 2021, arXiv:2107.06925; directly concatenated units are {_DERIVED}")
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


@formula(unit="s", source="DeepSeek-AI 2024, DualPipe README; DeepSeek-V3 technical report, section 3.2.1; unequal "
         f"passes are {_DERIVED}")  # fmt: skip
def dualpipe_makespan(
    turns: Number, micro: Number, forward: Number, input_gradient: Number, weight_gradient: Number, chunks: Number = 1
) -> Number:
    """DualPipe and DualPipeV with atomic fused pairs as long as their halves, for passes of any length (no hops).
    ``turns`` is p/2 - 1 for DualPipe and p - 1 for DualPipeV."""
    way = maximum(2 * turns * forward, (turns - 1) * forward + turns * input_gradient)
    idle = way + turns * maximum(0, input_gradient - weight_gradient)
    return micro * (forward + input_gradient + weight_gradient) + where(turns > 0, idle / chunks, 0)


@formula(unit="s", source=_DERIVED)
def dualpipe_split_makespan(
    turns: Number, micro: Number, forward: Number, input_gradient: Number, weight_gradient: Number, chunks: Number = 1
) -> Number:
    """The same where the halves of fused pairs run one after the other and publish at once (no hops)."""
    way = maximum(forward, input_gradient - forward / maximum(turns, 1), 2 * forward - input_gradient - weight_gradient)
    idle = turns * (way + maximum(0, input_gradient - weight_gradient))
    return micro * (forward + input_gradient + weight_gradient) + idle / chunks


@formula(unit="activations", source=_DERIVED)
def naive_peak(stages: Number, stage: Number = 0) -> Number:
    """Micro-batches in flight on a stage where each finishes its backward before the next one starts."""
    return 1 + 0 * (stages + stage)


@formula(unit="activations", source=_MEGATRON)
def one_f_one_b_peak(stages: Number, micro: Number, stage: Number = 0) -> Number:
    """Micro-batches in flight on a stage under 1F1B; as many under ZB-H1, counted until their input gradient."""
    return minimum(micro, stages - stage)


@formula(unit="micro-batches", source="NVIDIA/Megatron-LM core/pipeline_parallel/schedules.py, "
         "microbatch_group_size_per_vp_stage; torch.distributed.pipelining, equal rounds")  # fmt: skip
def interleaved_group(stages: Number, micro: Number) -> Number:
    """The fewest consecutive micro-batches per chunk: the number of stages if that divides all micro-batches, else the
    next number for which the last group is full or holds at least as many as there are stages."""
    return each(_least_group, stages, micro)


def _least_group(stages: float, micro: float) -> float:
    sizes = range(int(stages), int(micro))
    return next((size for size in sizes if micro % size == 0 or micro % size >= stages), micro)


@formula(unit="activations", source=_MEGATRON)
def interleaved_peak(stages: Number, micro: Number, chunks: Number, group: Number, stage: Number = 0) -> Number:
    """Whole-stage activations in flight under interleaved 1F1B; ``group`` is p where it divides m."""
    return minimum(micro * chunks, 2 * (stages - 1 - stage) + (chunks - 1) * group + 1) / chunks


@formula(unit="activations", source=_ZB)
def zb_h2_peak(stages: Number, micro: Number, stage: Number = 0) -> Number:
    """Micro-batches in flight on a stage under ZB-H2: forwards fill the round trip to the last stage."""
    return minimum(micro, 2 * (stages - stage) - 1)


@formula(
    unit="activations", source=f"Qi et al. 2023, arXiv:2401.10241, section 2.3; any number of micro-batches {_DERIVED}"
)
def zb_h1_waiting(stages: Number, micro: Number, stage: Number = 0) -> Number:
    """Micro-batches waiting for their weight gradient under ZB-H1 when a stage holds the most before their input
    gradient; together they are as many as 1F1B's first stage holds."""
    return minimum(stage, micro - one_f_one_b_peak(stages, micro, stage))


@formula(
    unit="activations", source=f"Qi et al. 2023, arXiv:2401.10241, section 2.3; any number of micro-batches {_DERIVED}"
)
def zb_h2_waiting(stages: Number, micro: Number, stage: Number = 0) -> Number:
    """Micro-batches waiting for their weight gradient under ZB-H2 when a stage holds the most before their input
    gradient; together they are 2p - 1."""
    return minimum(2 * stage, micro - zb_h2_peak(stages, micro, stage))


@formula(unit="activations", source=_DERIVED)
def zb_h2_most_waiting(stages: Number, micro: Number, stage: Number = 0) -> Number:
    """The most micro-batches waiting for their weight gradient when another one's backward begins under ZB-H2: one more
    per micro-batch beyond 2p - 1 (beyond 2p on the first stage), up to p - 1 plus the number of stages before this
    one."""
    beyond = maximum(micro - (2 * stages - 1) - where(stage == 0, 1, 0), 0)
    return minimum(zb_h2_waiting(stages, micro, stage) + beyond, stages - 1 + stage)


@formula(unit="activations", source=f"{_ZB}, section 6; per stage {_DERIVED}")
def zb_v_peak(stages: Number, micro: Number, stage: Number = 0) -> Number:
    """Whole-stage activations in flight under ZB-V; with enough micro-batches every stage holds as many as 1F1B's first
    stage."""
    return minimum(micro, stages, (micro + 1 + stage) / 2)


@formula(unit="versions", source="Narayanan et al. 2019, PipeDream, section 3.3")
def pipedream_versions(stages: Number, micro: Number, stage: Number = 0) -> Number:
    """Versions of its weights that a stage keeps under PipeDream: one for each mini-batch in flight."""
    return minimum(micro, stages - stage)


@formula(unit="versions", source="Narayanan et al. 2021, arXiv:2006.09503, section 3.1")
def double_buffered_versions(stages: Number, micro: Number) -> Number:
    """Versions of its weights that each stage keeps under PipeDream-2BW: the current and the previous one."""
    return where((stages > 1) & (micro > 1), 2, 1)


@formula(unit="activations", source=_DERIVED)
def all_forwards_peak(stages: Number, micro: Number) -> Number:
    """Micro-batches in flight where all forwards come first (GPipe, looped breadth-first)."""
    return micro + 0 * stages


@formula(unit="activations", source="DeepSeek-AI 2024, DualPipe README: PP + 1")
def dualpipe_peak(stages: Number, stage: Number = 0) -> Number:
    """Whole-stage activations in flight under DualPipe, of both directions together, on every stage."""
    return stages + 1 + 0 * stage


@formula(unit="activations", source="DeepSeek-AI 2024, DualPipe README: PP + 1 of parts, of which a stage holds two")
def dualpipe_v_peak(stages: Number, stage: Number = 0) -> Number:
    """Whole-stage activations in flight under DualPipeV, on every stage; a part is half of a stage."""
    return stages + 0.5 + 0 * stage
