"""How the parts of a training step add up; all functions take numbers or arrays."""

from __future__ import annotations

import math

from distsim.arrays import Number, log2, maximum, minimum, where
from distsim.formula import formula

SMOOTH = 6
"""Sharpness of the change from waiting for the GPU to waiting for the host (assumed)."""
CHECKED_SPANNING = 1.24
"""Time of a checked exchange of a group over several nodes, over one within a node: 2.6 and 2.1 ms per layer and rank
in the ultrascale playbook's sweep (docs/findings/nanotron.md)."""
SPANNING_SHARE, SPANNING_POWER = 0.09, 0.5
"""What an exchange of a tensor parallel group over several nodes waits unchecked, over what it waits for checks, and
how that grows with the nodes of a group. Fitted to the same sweep."""
FILL_SHARE = 0.41
"""What a stalling exchange loses while a pipeline fills and drains, over what it loses in between.
Fitted to the same sweep."""
STALL_POWER = 0.05
"""Growth of stalls with nodes. Fitted to the same sweep."""
BLOCKING_SECONDS = 20e-6
"""What waiting for a kernel costs the host besides issuing it. BigScience's 200B on 80 A100 ran at 91.0 TFLOP/s with
CUDA_LAUNCH_BLOCKING=1 and at 97.2 without (bigscience-workshop/bigscience, tr11-176B-ml/chronicles-prequel.md, dealing
with JZ hanging; no difference on 160): 3.5 ms per layer and micro-batch, of which issuing its kernels is 2.4."""
MIDDLE = 0.5264
"""Share of a distribution of the largest of some normal values that lies below its mean (Chen and Tyler 1999)."""
QUANTILE = ((2.515517, 0.802853, 0.010328), (1.432788, 0.189269, 0.001308))
"""Of the normal distribution: the share of it below the mean of the largest of one, and the upper quantiles' rational
approximation (above and below the bar)."""
LEAST_SECONDS = 1e-12
"""Keeps a phase without kernels from dividing by zero."""


@formula(unit="s", source="two queues in series: the slower one sets the pace; near balance both contribute")
def paced_seconds(gpu_seconds: Number, host_seconds: Number) -> Number:
    """Time of a phase whose kernels the host must first issue: the longer of both times, more near balance."""
    longer = maximum(gpu_seconds, host_seconds)
    part = minimum(gpu_seconds, host_seconds) / maximum(longer, LEAST_SECONDS)
    return longer * (1 + part**SMOOTH) ** (1 / SMOOTH)


@formula(unit="s", source="definition: time at the best measured rates over the share of them that a step reaches")
def at_share_seconds(ideal_seconds: Number, share: Number) -> Number:
    """Time of kernels in a real step."""
    return ideal_seconds / share


@formula(unit="s", source="definition: so many of one length, or a time and its fitted factor")
def scaled_seconds(seconds: Number, factor: Number) -> Number:
    """A time, so many times."""
    return seconds * factor


@formula(unit="s", source="two queues in series: what the host's pace leaves of exchanges that are queued on the GPU")
def queued_seconds(priced_seconds: Number, factor: Number, beside_seconds: Number, share_left: Number) -> Number:
    """What an exchange adds to a phase: its price and the fitted factor, and what others that should run beside
    products or attention leave exposed of themselves; of both the share that the host's pace does not hide."""
    return (priced_seconds * factor + beside_seconds) * share_left


@formula(unit="s", source="sum of the parts")
def micro_batch_seconds(forward: Number, backward: Number, communication: Number) -> Number:
    """One micro-batch on the stage that sets the pace."""
    return forward + backward + communication


@formula(unit="s", source="sum of the parts; jitter, fixed time and correction: docs/step.md")
def step_seconds(
    micro_batches: Number, ramp: Number, apart: Number, after: Number, jitter: Number, fixed: Number, correction: Number
) -> Number:
    """One step: all micro-batches, the pipeline's ramp, what follows the last of them, and what all steps add."""
    return ((micro_batches + ramp + apart + after) * (1 + jitter) + fixed) * correction


@formula(unit="s", source="what is too long to hide, and of what hides the share that exchange and computation lose to "
         "each other, which is fitted")  # fmt: skip
def exposed_seconds(exchange_seconds: Number, compute_seconds: Number, exposed_fraction: Number) -> Number:
    """Exposed part of an exchange that overlaps computation of ``compute_seconds``."""
    hidden = minimum(exchange_seconds, compute_seconds) * (1 - minimum(exposed_fraction, 1.0))
    return exchange_seconds - hidden


@formula(unit="s", source="two queues in series: what the host's pace leaves of exchanges that the GPU waits for")
def waited_seconds(
    exchange_seconds: Number, compute_seconds: Number, exposed_fraction: Number, share_left: Number
) -> Number:
    """What an exchange that overlaps computation adds to a phase: its exposed part, less what the host, which goes on
    while the GPU waits, hides where it sets the pace."""
    exposed = exposed_seconds(exchange_seconds, compute_seconds, exposed_fraction)
    return exposed * share_left


@formula(unit="s", source="Narayanan et al. 2021, arXiv:2104.04473, section 2.2; exact for equal stages")
def ramp_seconds(sum_of_stages: Number, slowest_stage: Number, chunks: Number) -> Number:
    """Time to fill and drain a pipeline: one micro-batch through all other stages, over the model chunks per stage."""
    return (sum_of_stages - slowest_stage) / chunks


@formula(unit="s", source="makespan of equal micro-batches: all stages once, the slowest stage for each further one")
def apart_seconds(
    slowest_forward: Number, slowest_backward: Number, slowest_stage: Number, micro_batches: Number, chunks: Number
) -> Number:
    """Extra time of schedules with all forwards before all backwards, as different stages may set the pace of the two;
    exact for one chunk, and for equal chunks with at least as many micro-batches as stages."""
    return (micro_batches - 1 / chunks) * (slowest_forward + slowest_backward - slowest_stage)


@formula(unit="s", source="definition: an evaluation is forward passes without backward; exchanges scale with them")
def evaluation_seconds(
    training_seconds: Number, forward_seconds: Number, backward_seconds: Number, passes: Number
) -> Number:
    """Time of evaluating ``passes`` whole batches per training step, where both were measured together."""
    return passes * training_seconds * forward_seconds / (forward_seconds + backward_seconds)


@formula(unit="1", source="Chen and Tyler 1999, the 0.5264th power of the normal quantile function; its quantiles by "
         "Abramowitz and Stegun 26.2.23; within 6% of the exact mean at 2 workers, 2% from 4 up")  # fmt: skip
def largest_deviation(workers: Number) -> Number:
    """Mean of the largest of N normal values, in standard deviations: 0 for one, 0.6 for two, 1.4 for eight, 3.2 for a
    thousand."""
    root = (-2 * math.log(2) * log2(1 - MIDDLE ** (1 / maximum(workers, 2.0)))) ** 0.5
    above, below = QUANTILE
    largest = root - (above[0] + (above[1] + above[2] * root) * root) / (
        1 + (below[0] + (below[1] + below[2] * root) * root) * root
    )
    return where(workers > 1, largest, 0.0)


@formula(unit="1", source="the slowest of many GPUs sets the pace; the spread of their speeds is fitted")
def jitter_share(jitter: Number, gpus: Number) -> Number:
    """How much the slowest of many GPUs lengthens a step; their speeds have a standard deviation of ``jitter``."""
    return jitter * largest_deviation(gpus)


@formula(unit="s", source="fitted to the ultrascale playbook's sweep (docs/findings/nanotron.md)")
def check_seconds(
    layer_stall: Number, checked: Number, nodes: Number, node_size: Number, layers: Number, tp: Number
) -> Number:
    """Host time for a micro-batch's tensor parallel exchanges on one stage, where it compares all ranks one after the
    other before each exchange (PyTorch's debug level DETAIL), in jobs of several nodes."""
    share = where(tp > node_size, CHECKED_SPANNING, 1.0) * where(checked > 0, where(nodes > 1, 1.0, 0.0), 0.0)
    return layer_stall * layers * tp * where(tp > 1, share, 0.0)


@formula(unit="s", source="fitted to the ultrascale playbook's sweep (docs/findings/nanotron.md)")
def spanning_seconds(layer_stall: Number, node_size: Number, layers: Number, tp: Number) -> Number:
    """Stall of a micro-batch's unchecked tensor parallel exchanges on one stage where groups span nodes."""
    share = where(tp > node_size, SPANNING_SHARE * (tp / node_size) ** SPANNING_POWER, 0.0)
    return layer_stall * layers * tp * share


@formula(unit="s", source="fitted to the ultrascale playbook's sweep (docs/findings/nanotron.md)")
def stall_seconds(stall: Number, stalled: Number, nodes: Number, pp: Number, micro_batches: Number) -> Number:
    """Time that a micro-batch loses on one stage where pipeline exchanges stall: ``stall`` per neighbour, less while
    the pipeline fills and drains."""
    exchanges = minimum(pp - 1, 2) * micro_batches + FILL_SHARE * (pp - 1)
    lost = stall * maximum(nodes, 1.0) ** STALL_POWER * exchanges / (micro_batches + pp - 1)
    return lost * where(stalled > 0, 1.0, 0.0)
