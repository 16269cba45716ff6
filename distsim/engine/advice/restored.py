"""Settings that somebody stated, put back to what the job has without them: what they ask for may cost memory or time.

Which were stated the job itself tells, and what it has without one of them is computed, not listed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from distsim.engine.jobs.drives import DRIVEN
from distsim.engine.jobs.resolve import Setup, resolve
from distsim.errors import DistsimError
from distsim.specs.rules import divisors
from distsim.specs.stage_layers import written

SETTINGS = {
    "schedule": "schedule {}", "vpp": "{} model chunks per stage", "stage_layers": "layers placed as by default",
    "vocab_parallel": "no vocabulary parallelism", "zero_group": "states sharded over {} ranks",
    "sequence_parallel": "sequence parallelism", "loss_parallel": "a loss of sharded logits",
    "mlp_tiles": "MLPs on all tokens at once", "attention": "{} attention", "compile": "torch.compile",
    "cuda_graphs": "CUDA graphs as by default ({})", "expert_overlap": "overlap of expert all-to-all",
    "expert_dispatcher": "the default expert dispatcher", "etp": "experts cut over {} ranks",
    "tp_comm_overlap": "overlap of tensor parallel communication",
    "dp_comm_overlap": "overlap of data parallel communication",
    "tp_mode": "tensor parallelism in one dimension", "no_sync": "one reduction of gradients per step",
    "compress": "gradients sent as they are", "zeropp": "no ZeRO++", "sync": "all-reduce of gradients",
}  # fmt: skip
"""Settings of how a job runs, not of what it trains, on what or on how many GPUs, as putting them back is called;
``{}`` is the value that the job then has."""
TOGETHER = {"vpp": ("schedule",), "tp_mode": ("tp_depth",), "sync": ("servers",)}
"""Options that go with a setting, and mean something else or nothing without it."""
NO_VALUE = {"vocab_parallel", "mlp_tiles", "expert_dispatcher", "zeropp", "tp_depth", "servers"}
"""Settings that no value turns off: they are left out."""
OFFLOADING = "less offload"
FEW_CHUNKS = 8
"""Numbers of layers that are listed one by one: more have signs that shells must have quoted."""


class Restored(NamedTuple):
    """A setting put back."""

    name: str
    """The setting; of all ways to offload less the same one."""
    words: str
    options: dict[str, Any]
    """What to type; None for what is to be left out of the command."""


def restored(setup: Setup) -> Iterator[Restored]:
    """Each setting that the job states to be other than it is by default, put back, and less offloading."""
    yield from _less_offloading(setup)
    for name, words in SETTINGS.items():
        if getattr(setup.job, name) is None or (name == "zero_group" and setup.job.sync == "local-sgd"):
            continue  # the groups of local SGD are its replicas, which are another training
        try:
            values = _defaults(setup, name)
        except DistsimError:
            continue
        if values[name] is None or values[name] != _typed(setup, name):
            told = f"without {words}" if values[name] is False else words.format(values[name])
            yield Restored(name, told, values)
        if name == "zero_group":
            yield from _larger_groups(setup)


def _defaults(setup: Setup, name: str) -> dict[str, Any]:
    """What a job has without a setting and those that go with it; None for what no value turns off. Raises DistsimError
    where it is no valid layout then."""
    stated = [name, *(one for one in TOGETHER.get(name, ()) if getattr(setup.job, one) is not None)]
    open_again = {**dict.fromkeys(stated), "gpus": setup.layout.gpus, "global_batch": setup.layout.global_batch}
    given = {"accelerator": setup.accelerator, "cluster": setup.cluster}
    plain = resolve(setup.job.model_copy(update=open_again), given)
    return {one: None if one in NO_VALUE else _typed(plain, one) for one in stated}


def _typed(setup: Setup, name: str) -> Any:
    """The value of an option in a resolved job, as it is typed."""
    if name == "stage_layers":
        few = len(setup.chunk_layers) <= FEW_CHUNKS
        return ",".join(map(str, setup.chunk_layers)) if few else written(setup.chunk_layers)
    return setup.to_dict()[name]


def _larger_groups(setup: Setup) -> Iterator[Restored]:
    """More ranks that share one copy of the states, but not all."""
    layout = setup.layout
    sharers = layout.dp * layout.cp
    for size in reversed(divisors(sharers)):
        if layout.zero_group < size < sharers:
            yield Restored("zero_group", SETTINGS["zero_group"].format(size), {"zero_group": size})


def _less_offloading(setup: Setup) -> Iterator[Restored]:
    """States in host memory instead of on drives, each kind back on the GPU, and all of them."""
    if setup.drives:
        words = f"{' and '.join(setup.drives)} in host memory instead of on drives"
        yield Restored(OFFLOADING, words, {"offload_to": "cpu"})
    if setup.offload:
        yield Restored(OFFLOADING, "nothing offloaded", {"offload": "none", **_meaningless(setup, ())})
    for kind in setup.offload if len(setup.offload) > 1 else ():
        rest = tuple(one for one in setup.offload if one != kind)
        yield Restored(OFFLOADING, f"{kind} not offloaded", {"offload": ",".join(rest), **_meaningless(setup, rest)})


def _meaningless(setup: Setup, rest: tuple[str, ...]) -> dict[str, None]:
    """Options that a job states and must not where only the ``rest`` is offloaded."""
    gone = {"offload_modules": "activations" not in rest, "offload_fraction": "optimizer" not in rest,
            "offload_to": not (set(rest) & set(DRIVEN) if setup.drives else rest)}  # fmt: skip
    return {name: None for name, left in gone.items() if left and getattr(setup.job, name) is not None}
