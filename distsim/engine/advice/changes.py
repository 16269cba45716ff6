"""Single changes to a job that can lower its memory, each with how big a change it is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from distsim import catalog
from distsim.engine.advice.change import Change
from distsim.engine.advice.offered import offered
from distsim.engine.advice.recomputation import (
    cheap_again,
    counted,
    groups,
    policies,
    some_layers,
    switches_operations,
)
from distsim.engine.jobs.drives import DRIVEN, node_rates
from distsim.engine.jobs.lacking import lacking_units, sixteen_bits
from distsim.engine.jobs.profile import fused_instead, other_losses
from distsim.engine.jobs.reference import whole_pairs
from distsim.engine.jobs.resolve import Setup
from distsim.engine.jobs.tiling import has_dense_mlp
from distsim.engine.jobs.tuning import stored_as, with_experts
from distsim.engine.jobs.waiting import reduced_each
from distsim.layers.tiles import usual_tiles
from distsim.specs.accelerator import Accelerator
from distsim.specs.layout import SHARDS_ALL
from distsim.specs.offloads import layers_leave, leaves
from distsim.specs.rules import divisors
from distsim.specs.stage_layers import BALANCED

SMALL_STATES = ("adamw-8bit", "lion", "adafactor")
PURE = "pure-bf16"
USUAL_RANK, USUAL_QUANTIZATION = 16, "nf4"
"""Adapters that are proposed where a framework has no usual ones. Assumed."""
PARTS = (0.25, 0.5, 0.75, 1.0)
"""Of an optimizer that a job moves to host memory in part."""
LARGEST_CP, LARGEST_FACTOR = 16, 1024
"""Context parallel degrees and multiples of other values beyond these are not proposed."""


def changes(setup: Setup) -> Iterator[Change]:
    """All single changes worth computing, mildest of each family first."""
    yield from sharding(setup)
    if reduced_each(setup) is not None:
        yield Change("no_sync", 0, "gradients reduced in every micro-batch", {"no_sync": False})
    yield from _losses(setup)
    if fused := fused_instead(setup.framework, setup.job):
        yield Change("update", 0, "a fused update", {"optimizer": fused})
    yield from _micro_batch(setup)
    yield from _tiles(setup)
    yield from recomputing(setup)
    yield from _experts(setup)
    yield from degrees(setup)
    yield from _offloading(setup)
    yield from _optimizers(setup)
    yield from _training(setup)
    yield from _hardware(setup)


def sharding(setup: Setup) -> Iterator[Change]:
    layout = setup.layout
    if layout.tp > 1 and not layout.sequence_parallel:
        yield Change("sequence parallel", 0, "sequence parallelism", {"sequence_parallel": True})
    if layout.dp * layout.cp > 1:
        for step, zero in enumerate(range(layout.zero + 1, 4)):
            yield Change("zero", step, f"ZeRO {zero}", {"zero": zero})


def _losses(setup: Setup) -> Iterator[Change]:
    names = other_losses(setup.framework, setup.model, setup.job, setup.accelerator)
    for step, name in enumerate(names):
        yield Change("loss", step, f"{name} loss", {"loss": name})


def _tiles(setup: Setup) -> Iterator[Change]:
    """MLPs in tiles, where the sequence of a rank is longer than one."""
    supported = setup.framework.supports.tiles_mlp and setup.tuning is None and has_dense_mlp(setup.model)
    several = usual_tiles(setup.layout.seq / setup.layout.cp, setup.model.hidden) > 1
    if setup.job.mlp_tiles is None and supported and several:
        yield Change("mlp_tiles", 0, "MLPs in tiles of tokens", {"mlp_tiles": "auto"})


def _micro_batch(setup: Setup) -> Iterator[Change]:
    layout = setup.layout
    sizes = divisors(layout.micro_batch * layout.micro_batches)
    smaller = [size for size in sizes if size < layout.micro_batch and whole_pairs(setup.job, size)]
    for step, size in enumerate(reversed(smaller)):
        shown = {"micro_batch": size, "global_batch": layout.global_batch}
        yield Change("micro_batch", step, "smaller micro-batches", shown)


def recomputing(setup: Setup) -> Iterator[Change]:
    """Cheap modules, attention, then full for a quarter, half and three quarters of a stage's layers, then for all."""
    if setup.recompute == "full" and setup.layout.recompute_layers < 0:
        yield from (Change("recompute", 0, words, {"recompute_group": size}) for words, size in groups(setup))
        return
    step, stated = 0, {} if setup.job.recompute is None else {"recompute": "selective"}
    if setup.recompute != "full" and (again := cheap_again(setup)):
        named = {**stated, "recompute_modules": ",".join(again)}
        yield Change("recompute", step, f"recompute {' and '.join(again)}", named, {"recompute": "selective"})
        step = 1
    if setup.recompute == "none" and not setup.framework.remat and switches_operations(setup):
        yield Change("recompute", step, "recompute attention", {"recompute": "selective"})
        step += 1
    if setup.job.recompute_modules or setup.job.remat_policy:
        return  # whole layers have no modules apart
    for name in policies(setup):
        named = {**stated, "remat_policy": name}
        yield Change("recompute", step, f"remat policy {name}", named, {"recompute": "selective"})
        step += 1
    layers = max(setup.stage_layers)
    for count in counted(setup):
        if count > setup.layout.recompute_layers:
            shown = {"recompute": "full", "recompute_layers": count}
            yield Change("recompute", step, some_layers(count, layers), shown)
            step += 1
    all_layers = {} if setup.job.recompute_layers is None else {"recompute_layers": layers}
    yield Change("recompute", step + 2, some_layers(layers, layers), {"recompute": "full", **all_layers})


def _experts(setup: Setup) -> Iterator[Change]:
    """Experts spread over more of the ranks that there are."""
    layout, experts = setup.layout, setup.model.experts
    wider = (
        []
        if experts is None
        else [size for size in divisors(experts.count) if size > layout.ep and size % layout.ep == 0]
    )
    for step, size in enumerate(size for size in wider if size <= layout.gpus // layout.pp):
        yield Change("ep", step, f"expert parallelism {size}", {"ep": size})


def degrees(setup: Setup) -> Iterator[Change]:
    """More tensor, pipeline or context parallelism on the same GPUs, with the same global batch."""
    layout = setup.layout
    most = {"tp": setup.cluster.gpus_per_node, "pp": setup.model.layers, "cp": LARGEST_CP}
    names = {"tp": "tensor parallelism", "pp": "pipeline stages", "cp": "context parallelism"}
    hidden = {"dp": None, "gpus": layout.gpus, "zero_group": None}
    placed = setup.job.stage_layers not in (None, BALANCED)
    open_batch = setup.job.global_batch is None and layout.dp > 1
    batch = {"global_batch": layout.global_batch} if open_batch else {}
    for name, limit in most.items():
        old = getattr(layout, name)
        wider = [size for size in divisors(layout.gpus) if size > old and size % old == 0 and size <= limit]
        for step, size in enumerate(wider):
            unplaced = ["stage_layers"] if placed and name == "pp" else []
            yield Change(name, step, f"{names[name]} {size}", {name: size, **batch}, hidden, unplaced)


def _optimizers(setup: Setup) -> Iterator[Change]:
    known = catalog.names("optimizers")
    for step, name in enumerate(one for one in SMALL_STATES if one in known and one != setup.optimizer.name):
        yield Change("optimizer", step, f"{name} instead of {setup.optimizer.name}", {"optimizer": name})


def _offloading(setup: Setup) -> Iterator[Change]:
    """Optimizer states in host memory, more of them where a job moves a part, sharded parameters with them, and what
    layers keep for backward; states and parameters on drives, where there are some that software knows of."""
    for step, part in enumerate(part for part in PARTS if (setup.job.offload_fraction or 1) < part):
        yield Change("offload", step, f"{part:.0%} of the optimizer in host memory", {"offload_fraction": part})
    words = {"optimizer": "optimizer states", "optimizer,parameters": "optimizer states and parameters",
             "activations": "activations"}  # fmt: skip
    for step, kinds in enumerate(words):
        moved = (*setup.offload, *kinds.split(","))
        if not layers_leave(setup.framework.supports, moved, setup.layout, bool(setup.job.offload_modules)):
            continue
        if len(set(moved)) == len(moved) and leaves(setup.framework.supports, moved, setup.layout.gpus):
            least = setup.framework.supports.offload_zero if "optimizer" in moved else 0
            least = SHARDS_ALL if "parameters" in moved else least  # shards of ZeRO 3, on a single GPU too
            shards = {"zero": least} if setup.layout.zero < least else {}
            told = f"{words[kinds]} in host memory{', ZeRO ' * bool(shards)}{shards.get('zero', '')}"
            yield Change("offload", step, told, {**shards, "offload": ",".join(moved)})
    if setup.framework.supports.drives and not setup.drives and None not in node_rates(setup.cluster):
        moved = tuple(dict.fromkeys((*setup.offload, *DRIVEN)))
        shards = {} if setup.layout.zero == SHARDS_ALL else {"zero": SHARDS_ALL}
        shown = {**shards, "offload": ",".join(moved), "offload_to": "nvme"}
        yield Change("offload", len(words), "states and parameters on NVMe drives", shown)


def _training(setup: Setup) -> Iterator[Change]:
    """Weights and states without a master copy, and adapters beside frozen weights, where a framework has them; fewer
    bits of weights that are frozen already."""
    supports, usual = setup.framework.supports, setup.framework.usual_tuning
    if recipe := sixteen_bits(setup):
        yield Change("sixteen bits", 0, "products and activations in 16 bits", {"precision": recipe})
    name = str(usual.get("quantize", USUAL_QUANTIZATION))
    if setup.tuning is not None:
        if supports.tunes and setup.tuning.quantization is None:
            yield Change("quantize", 0, f"frozen weights in {name}", {"quantize": name})
        name = stored_as(setup.tuning) or name
        if supports.tunes and (every := with_experts(setup, name)):
            yield Change("quantize", 1, f"frozen experts in {name} too", {"quantize": every})
        return
    if supports.pure_bf16 and setup.precision.bf16_over_fp32:
        yield Change("precision", 0, "weights and states in bf16, no master copy", {"precision": PURE})
    if supports.tunes:
        rank = {"lora_rank": usual.get("lora_rank", USUAL_RANK)}
        yield Change("adapters", 0, "LoRA instead of all weights", rank)
        yield Change("adapters", 1, "QLoRA instead of all weights", {**rank, "quantize": name})
        if every := with_experts(setup, name):
            words = "QLoRA instead of all weights, experts quantised too"
            yield Change("adapters", 2, words, {**rank, "quantize": every})


def _hardware(setup: Setup) -> Iterator[Change]:
    """Twice the GPUs, and so on; then the larger cards of the same vendor, those that somebody sells first."""
    layout = setup.layout
    factor, step = 2, 0
    sharded = _sharded_replicas(setup)
    words = f", ZeRO {sharded['zero']}" if sharded else ""
    while factor <= LARGEST_FACTOR:
        hidden: dict[str, Any] = {"zero_group": None, "dp": None}
        yield Change("gpus", step, f"{factor} times the GPUs{words}", {"gpus": layout.gpus * factor, **sharded}, hidden)
        factor, step = factor * 2, step + 1
    instead = offered(setup.accelerator)
    larger: dict[tuple[bool, int], Accelerator] = {}  # by capacity the fastest, the first of equals
    for other in instead.holding_more:
        place = (other.name not in instead.sold, other.capacity)
        known = larger.get(place)
        if _better(setup, other) and (known is None or _speed(setup, other) > _speed(setup, known)):
            larger[place] = other
    count = {"gpus": layout.gpus} if setup.job.gpus is None else {}
    largest = max((capacity for unsold, capacity in larger if not unsold), default=0)
    worth = (place for place in larger if not place[0] or place[1] > largest)
    for step, place in enumerate(sorted(worth)):
        there = {} if setup.job.cluster is None else {"cluster": larger[place].default_cluster}
        shown = {"gpu": larger[place].name, **there, **count}
        yield Change("gpu", step, "a larger GPU", shown, {"cluster": None, "gpus": layout.gpus})


def _sharded_replicas(setup: Setup) -> dict[str, int]:
    """The ZeRO stage that makes further replicas of a job that has only one worth their memory."""
    layout, supports = setup.layout, setup.framework.supports
    most = max(stage for stage in supports.zero if layout.pp == 1 or stage <= supports.pipeline_zero)
    return {"zero": most} if layout.dp * layout.cp == 1 and most > layout.zero else {}


def _better(setup: Setup, other: Accelerator) -> bool:
    """Whether a GPU of the same vendor holds more and is no slower, nor joined by fewer or slower links, nor without
    units for the recipe that this one has."""
    card = setup.accelerator
    if other.capacity <= card.capacity or not other.default_cluster:
        return False
    if lacking_units(other, setup.precision) and not lacking_units(card, setup.precision):
        return False
    domain = 1 if setup.layout.gpus == 1 else setup.cluster.domain
    rates = zip(_speed(setup, other), _speed(setup, card), strict=True)
    return catalog.usual_cluster(other.name).domain >= domain and all(theirs >= mine for theirs, mine in rates)


def _speed(setup: Setup, card: Accelerator) -> tuple[float, float, float]:
    """Memory, products, and the links of its usual node where the job has any."""
    joined = setup.cluster if card is setup.accelerator else catalog.usual_cluster(card.name)
    links = 0.0 if setup.layout.gpus == 1 else joined.fabric.rate or 0.0
    return card.bandwidth, max(card.peak.bf16 or 0.0, card.peak.fp16 or 0.0), links


def together(setup: Setup, combined: Sequence[Change]) -> tuple[dict[str, Any], dict[str, Any]]:
    """(new values of the job's fields, what of them a user types) of several changes at once."""
    fields: dict[str, Any] = {}
    shown: dict[str, Any] = {}
    for change in sorted(combined, key=lambda one: one.family == "gpus"):  # the last word on how many there are
        most = max(change.shown.get("zero", 0), shown.get("zero", 0))
        stage = {"zero": most} if "zero" in change.shown else {}
        fields.update({**change.fields, **stage})
        shown.update({**change.shown, **stage})
    if grows(setup, combined):  # left open it would be that of other ranks
        fields["global_batch"] = shown["global_batch"] = setup.layout.global_batch
    return fields, shown


def grows(setup: Setup, combined: Sequence[Change]) -> bool:
    """Whether an open global batch would become another one with the GPUs."""
    return setup.job.global_batch is None and any(change.family == "gpus" for change in combined)
