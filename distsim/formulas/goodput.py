"""Time lost to failures and checkpoints: closed forms for exponential times between failures."""

from __future__ import annotations

from distsim.arrays import Number, exp, maximum, minimum, some, where
from distsim.formula import formula
from distsim.formulas.step import largest_deviation
from distsim.units import DAY, HOUR

DALY = "Daly 2006, A higher order estimate of the optimum checkpoint interval, Future Generation Computer Systems 22"
YOUNG = "Young 1974, A first order approximation to the optimum checkpoint interval, CACM 17"
KOKOLIS = "Kokolis et al. 2025 (arXiv:2410.21680), E[ETTR] from N, r_f, u0, the checkpoint interval and write time"
ERLANG = (
    "Erlang 1917, loss formula; for repairs of any lengths: Sevastyanov 1957. Its servers are nodes in repair: "
    "failures come at a constant rate while the job runs (Poisson arrivals see time averages), none while it waits"
)
RARELY = 0.01  # share of failures that may find no spare node, where the number of spares is not given
NEVER = 1e-15  # a share of failures too small to change any sum


@formula(unit="1/GPU-h", source="definition: count over accelerator-hours")
def failures_per_gpu_hour(failures: Number, gpus: Number, window_seconds: Number) -> Number:
    """Failure rate of one accelerator with its share of everything around it, from a count over a window."""
    return failures / (gpus * window_seconds / HOUR)


@formula(unit="1/GPU-h", source="definition: a node-day has 24 hours of each of its accelerators")
def failures_per_gpu_hour_of_node_days(failures_per_node_day: Number, gpus_per_node: Number) -> Number:
    """Failure rate of one accelerator from a rate per node and day."""
    return failures_per_node_day / gpus_per_node / (DAY / HOUR)


@formula(unit="s", source="definition: as many steps as the tokens need, one after the other")
def undisturbed_seconds(tokens: Number, tokens_per_step: Number, step_seconds: Number) -> Number:
    """Time of a training run without failures and without checkpoints."""
    return tokens / tokens_per_step * step_seconds


@formula(unit="s", source="rates of independent machines add up")
def seconds_between_failures(gpus: Number, gpu_failures_per_hour: Number) -> Number:
    """Mean time between failures of a job that needs all of its accelerators."""
    return HOUR / (gpus * gpu_failures_per_hour)


@formula(unit="s", source="definition: each node is taken away once in that time on average")
def seconds_between_preemptions(nodes: Number, seconds_per_node: Number) -> Number:
    """Mean time until the provider takes back the first of a job's nodes."""
    return seconds_per_node / nodes


@formula(unit="s", source="rates of independent causes add up")
def seconds_between_stops(seconds_between_failures: Number, seconds_between_preemptions: Number) -> Number:
    """Mean time between stops of a job, by failures and preemptions together."""
    return 1 / (1 / seconds_between_failures + 1 / seconds_between_preemptions)


@formula(unit="s", source="definition: the storage or the writers' links, whichever is slower")
def checkpoint_write_seconds(checkpoint_bytes: Number, storage_rate: Number, writers_rate: Number) -> Number:
    """Time from the first byte written to a checkpoint that can be restored, all writers together."""
    return checkpoint_bytes / minimum(storage_rate, writers_rate)


@formula(unit="s", source="MegaScale (arXiv:2402.15627) section 4.4: the GPU waits for the copy to host memory only")
def checkpoint_copy_seconds(bytes_per_gpu: Number, host_rate: Number) -> Number:
    """How long training pauses for an asynchronous checkpoint, which is written while training continues."""
    return bytes_per_gpu / host_rate


@formula(
    unit="B/s", source="rule: a rate per accelerator between a floor and a cap, where the storage is not described"
)
def assumed_storage_rate(gpus: Number, rate_per_gpu: Number, least: Number, most: Number) -> Number:
    """Write rate of a storage system that grows with its cluster."""
    return minimum(maximum(gpus * rate_per_gpu, least), most)


@formula(unit="s", source=YOUNG)
def young_interval_seconds(blocking_seconds: Number, mean_time_between_failures: Number) -> Number:
    """First-order optimum of the training time between two checkpoints."""
    return (2 * blocking_seconds * mean_time_between_failures) ** 0.5


@formula(unit="s", source=f"{DALY}, equation 37")
def daly_interval_seconds(blocking_seconds: Number, mean_time_between_failures: Number) -> Number:
    """Higher-order optimum of the training time between two checkpoints."""
    half = blocking_seconds / (2 * mean_time_between_failures)
    root = half**0.5
    optimum = young_interval_seconds(blocking_seconds, mean_time_between_failures) * (1 + root / 3 + half / 9)
    return where(half < 1, maximum(optimum - blocking_seconds, 1e-9), mean_time_between_failures)


@formula(
    unit="1", source=f"{DALY}, equation 20; a checkpoint counts once it is drained: renewal argument in docs/goodput.md"
)
def wall_over_work(
    interval_seconds: Number,
    blocking_seconds: Number,
    drain_seconds: Number,
    restart_seconds: Number,
    mean_time_between_failures: Number,
) -> Number:
    """Expected time over training time; failures also strike checkpoints and restarts, and lost work is redone."""
    mean = mean_time_between_failures
    segment = (interval_seconds + blocking_seconds) / mean
    growth = where(segment < 1e-6, segment, exp(minimum(segment, 500.0)) - 1)
    return mean * exp(minimum((restart_seconds + drain_seconds) / mean, 100.0)) * growth / interval_seconds


@formula(unit="1", source=KOKOLIS)
def expected_ettr(
    gpu_or_node_count: Number,
    failures_per_second: Number,
    restart_seconds: Number,
    interval_seconds: Number,
    write_seconds: Number,
) -> Number:
    """Effective training time ratio to first order in the failure rate; below zero counts as zero."""
    lost = gpu_or_node_count * failures_per_second * (restart_seconds + interval_seconds / 2)
    return maximum(1 - lost, 0) / (1 + write_seconds / interval_seconds)


@formula(unit="1", source="definition: planned pauses per day of running, each with a checkpoint before it")
def planned_stretch(pauses_per_day: Number, seconds_per_pause: Number) -> Number:
    """Factor by which planned maintenance lengthens a run; it is announced, so no work is lost."""
    return 1 + pauses_per_day * seconds_per_pause / DAY


@formula(unit="1", source="definition: a synchronous step waits for its slowest worker")
def straggler_stretch(workers: Number, spread_fraction: Number) -> Number:
    """Step time of the slowest of N workers over the mean, for speeds with a standard deviation ``spread_fraction``."""
    return 1 + spread_fraction * largest_deviation(workers)


@formula(unit="1", source=f"{ERLANG}; the failing node sees the others: B(spares, nodes in repair)")
def spares_short_probability(nodes_in_repair: Number, spares: Number) -> Number:
    """Probability that a failure finds no spare node left. ``nodes_in_repair``, repair time over time between failures,
    is the mean number of nodes in repair if spares never ran out."""
    return erlang_b(nodes_in_repair, spares)


def erlang_b(load: Number, servers: Number) -> Number:
    """Erlang's B(servers, load), by its recursion."""
    share, count = 1.0 + 0.0 * load, 0
    while some((servers > count) & (share > NEVER)):
        count += 1
        share = where(servers >= count, load * share / (count + load * share), share)
    return share


@formula(unit="nodes", source=f"{ERLANG}: the smallest number for which B is at most 1%")
def usual_spares(nodes_in_repair: Number) -> Number:
    """Fewest spare nodes with which at most one failure in a hundred finds none left; zero if nothing is repaired."""
    return fewest_servers(nodes_in_repair)


def fewest_servers(load: Number) -> Number:
    """Fewest servers with which Erlang's B is at most ``RARELY``."""
    share, servers, count = where(load > 0, 1.0, 0.0), 0 * load, 0
    while some(share > RARELY):
        count += 1
        servers = where(share > RARELY, count, servers)
        share = load * share / (count + load * share)
    return servers


@formula(
    unit="s", source="first of spares + 1 exponential repairs to end; the mean is the same for repairs of any lengths"
)
def repair_wait_seconds(repair_seconds: Number, spares: Number) -> Number:
    """Mean wait after a failure that finds no spare node: all spares and the failed node are in repair."""
    return repair_seconds / (spares + 1)


@formula(unit="1", source="renewal: each time between failures is followed by its wait, in which nothing else fails")
def waiting_stretch(short_probability: Number, wait_seconds: Number, seconds_between_failures: Number) -> Number:
    """Factor by which waits for nodes in repair lengthen a run, as all nodes wait: 1 / (1 - Erlang's B(spares + 1))."""
    return 1 + short_probability * wait_seconds / seconds_between_failures
