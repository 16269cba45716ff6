"""Bytes of parameters, gradients and optimizer states of one stage on one rank."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from distsim import catalog
from distsim.architectures import traits_of
from distsim.arrays import Number, maximum, nothing, some, where
from distsim.engine.figures import Figures
from distsim.engine.footprint.drives import Away, away
from distsim.engine.footprint.host_share import Held, host_updates, passes_host_buffer, states_share
from distsim.engine.footprint.low_rank import LOW_RANK, low_rank_bytes, projects
from distsim.engine.footprint.orthogonalised import orthogonalised
from distsim.engine.footprint.stored import filling_of, shared_elements
from distsim.engine.jobs.narrow import NARROW, narrow_weight
from distsim.engine.jobs.reference import copies_weights, in_reference
from distsim.engine.jobs.resolve import Setup
from distsim.engine.jobs.sharding import sharding_group
from distsim.engine.jobs.tuning import recipe_of, weight_bytes
from distsim.engine.jobs.waiting import stays_whole
from distsim.formulas.drives import wide_gradient_bytes
from distsim.formulas.states import (
    factored_state_bytes,
    gradient_bytes_per_rank,
    offloaded_bytes,
    older_weight_bytes,
    optimizer_bytes_per_rank,
    parameter_bytes_per_rank,
)
from distsim.layers.ledger import Parameter
from distsim.specs.optimizer import State
from distsim.specs.precision import Precision
from distsim.units import FP32_BYTES


class States(NamedTuple):
    """Bytes on one rank, and the parameter counts they follow from."""

    parameters: Number
    gradients: Number
    optimizer: Number
    dense_parameters: Number
    """Elements that train on this rank before ZeRO shards them."""
    expert_parameters: Number
    away: Away = Away(0, 0)
    """What of the states lives in host memory, and on drives."""


def stored(setup: Setup) -> Setup:
    """The setup with the recipe that its states are held in, where only matrix products know of a narrower one."""
    held, precision = setup.framework.narrow_states, setup.precision
    if not held or precision.math not in NARROW or precision.name == held:
        return setup
    recipe = catalog.load("precisions", held)
    own = {"name": precision.name, "math": precision.math, "wide_layers": precision.wide_layers}
    return replace(setup, precision=recipe.model_copy(update=own))


def filled_experts(setup: Setup) -> tuple[str, ...]:
    """A note where so many ranks share experts that some hold whole ones, and all gather what fills the others up, or
    where FSDP2 would have to cut inside them unevenly, which it refuses (torch _fsdp_param.py)."""
    layout, filling, experts = setup.layout, filling_of(setup), setup.model.experts
    if experts is None or filling.padding != "parameter" or layout.zero < 2:
        return ()
    ranks, local = sharding_group(layout, "expert"), experts.count // layout.ep
    if ranks <= local:
        return ()
    if filling.by_columns:
        widths = {width for width in (experts.latent or setup.model.hidden, experts.ffn // layout.etp) if width % ranks}
        told = " and ".join(f"{width:,}" for width in sorted(widths))
        return (f"FSDP2 refuses to shard inside experts unevenly: {ranks} ranks, widths {told}",) if widths else ()
    words = f"FSDP2 shards whole experts: the {local} of a layer are padded to {ranks}, one per rank"
    if not setup.framework.traffic.experts_by_columns:
        return (words,)
    return (f"{words}; with --ep {setup.framework.name} shards inside experts",)


def states_of(setup: Setup, parameter: Parameter) -> list[State]:
    """The states that the optimizer keeps for a parameter."""
    optimizer = setup.optimizer
    apart = (projects if optimizer.projection else orthogonalised)(setup, parameter)
    kind = "matrices" if apart else "vectors"
    return [state for state in optimizer.states if state.of in ("all", kind)]


def element_bytes(setup: Setup, precision: Precision, parameter: Parameter, state: State) -> Number:
    """Bytes of a state for each element of a parameter; none where it is a counter, factored or projected."""
    if state.shape == "scalar" or state.shape in LOW_RANK:
        return 0
    rules, each = setup.framework.buffers, state.bytes_under(precision)
    if state.shape == "factored" and parameter.kind != "vector":
        return where(_flat(setup, parameter), each, 0) if rules.flat_shards else 0
    if parameter.kind == "embedding" and setup.optimizer.library in rules.fp32_embedding_states:
        return where(_flat(setup, parameter), each, FP32_BYTES)
    return each


def _flat(setup: Setup, parameter: Parameter) -> Number:
    """Whether ranks share states in flat tensors, in which no parameter has a shape."""
    layout, flat = setup.layout, setup.framework.buffers.flat_shards
    return (layout.zero >= 1) & (sharding_group(layout, parameter.group) > 1) & flat


def state_bytes(setup: Setup, precision: Precision, parameter: Parameter) -> Number:
    """Optimizer bytes of one parameter tensor, with its master copy, before sharding."""
    counter = setup.framework.buffers.step_counter_bytes
    total: Number = parameter.elements * precision.master_bytes
    for state in states_of(setup, parameter):
        each = element_bytes(setup, precision, parameter, state)
        total = total + parameter.elements * each
        if state.shape in LOW_RANK:
            total = total + low_rank_bytes(setup, precision, parameter, state)
        if state.shape == "scalar":
            total = total + (parameter.copies if parameter.group == "dense" else 1) * counter
        elif state.shape == "factored" and parameter.kind != "vector":
            wide = state.bytes_under(precision)
            rows = factored_state_bytes(parameter.rows, parameter.columns, parameter.copies, wide)
            total = total + where(each > 0, 0, rows)
    return total


def states(setup: Setup, parameters: Sequence[tuple[Parameter, int]], figures: Figures, versions: Number = 1) -> States:
    """Fold a stage's parameters into bytes per rank, weights that train in so many ``versions``."""
    folds: dict[tuple[str, str], _Fold] = {}
    for parameter, times in parameters:
        key = parameter.group, parameter.held
        fold = folds.get(key)
        if fold is None:
            fold = folds[key] = _Fold(parameter, sharding_group(setup.layout, parameter.group))
        fold.add(setup, parameter, times)
    sums: dict[str, Number] = {"parameters": 0, "gradients": 0, "optimizer": 0}
    trained: dict[str, Number] = {"dense": 0, "expert": 0}
    shards: dict[bool, Number] = {False: 0, True: 0}
    for group, held in sorted(folds, key=lambda key: (key[0] != "dense", key[1] != "trained")):
        if group == "expert" and setup.model.experts is None:
            continue
        fold = folds[group, held]
        before = sums["parameters"]
        fold.sum_up(setup, sums, figures)
        if fold.sample.trains and some(versions > 1):
            sums["parameters"] = sums["parameters"] + figures.use(
                f"{group} weights of older versions", older_weight_bytes,
                parameter_bytes=sums["parameters"] - before, versions=versions,
            )  # fmt: skip
        if copies_weights(setup) and in_reference(fold.sample.held):
            fold.add_reference(setup, sums, figures)
            shards[False] = shards[False] + fold.filled / sharding_group(setup.layout, group)
        trains = fold.sample.trains
        shards[trains] = shards[trains] + fold.filled / sharding_group(setup.layout, group)
        if trains:
            trained[group] = trained[group] + fold.count
    left = _offload(setup, parameters, sums, shards, figures)
    return States(**sums, dense_parameters=trained["dense"], expert_parameters=trained["expert"], away=left)


_KINDS = {"trained": "parameters", "narrow": "embeddings in 16 bits", "whole": "parameters trained whole",
          "apart": "copies trained apart", "adapter": "adapters", "frozen": "frozen parameters",
          "quantised": "quantised weights"}  # fmt: skip


class _Fold:
    """Parameters of one group that are held alike."""

    def __init__(self, sample: Parameter, ranks: Number) -> None:
        self.sample = sample
        self.count: Number = 0
        self.filled: Number = 0
        """With what fills tensors up to alike shards: the fullest rank has its share of this."""
        self.matrices: Number = 0
        """Weights that a recipe of 8 bits copies, or holds in them."""
        self.optimizer: Number = 0
        self.ranks = ranks

    def add(self, setup: Setup, parameter: Parameter, times: int) -> None:
        """Count a parameter."""
        self.count = self.count + parameter.elements * times
        self.filled = self.filled + shared_elements(setup, parameter, self.ranks) * times
        if narrow_weight(parameter.name, parameter.kind == "matrix"):
            self.matrices = self.matrices + parameter.elements * times
        if parameter.trains:
            recipe = recipe_of(parameter, setup.precision, setup.tuning)
            self.optimizer = self.optimizer + state_bytes(setup, recipe, parameter) * times

    def _shared(self, setup: Setup, stage: Number, least: int) -> dict[str, Any]:
        """How many are shared among how many ranks from the ``least`` stage of ZeRO on."""
        group = sharding_group(setup.layout, self.sample.group)
        return {"parameters": where(stage >= least, self.filled, self.count), "zero_stage": stage,
                "zero_group_size": group}  # fmt: skip

    def _kept(self, setup: Setup) -> dict[str, Any]:
        """The same of the weights that a rank keeps."""
        stage = setup.layout.zero
        return self._shared(setup, stage + (stage == 2) if setup.framework.buffers.gathers_copies else stage, 3)

    def add_reference(self, setup: Setup, sums: dict[str, Number], figures: Figures) -> None:
        """Add a reference model's weights of the kind, held and sharded as those that it is a copy of."""
        sample, plain = self.sample, setup.precision.parameter_bytes
        packed = weight_bytes(sample, setup.precision, setup.tuning) if sample.held == "quantised" else plain
        sums["parameters"] = sums["parameters"] + figures.use(
            f"{sample.group} {_KINDS[sample.held]} of the reference", parameter_bytes_per_rank, **self._kept(setup),
            bytes_per_parameter=packed,
        )  # fmt: skip

    def sum_up(self, setup: Setup, sums: dict[str, Number], figures: Figures) -> None:
        """Add its bytes on one rank."""
        sample = self.sample
        recipe = recipe_of(sample, setup.precision, setup.tuning)
        transposed = recipe.transpose_bytes * traits_of(setup.accelerator).transposes
        if sample.held == "frozen" and recipe.parameter_bytes < recipe.activation_bytes:
            transposed = 0  # made for each product: a cache of it would double what is frozen (docs/finetuning.md)
        narrow = self.matrices / maximum(self.count, 1)
        copies = narrow * (recipe.weight_copy_bytes + transposed)
        if recipe.math in NARROW:
            copies = copies + (1 - narrow) * max(0.0, recipe.activation_bytes - recipe.parameter_bytes)
        if sample.held == "quantised":
            copies = 0
        elif sample.held == "whole" and setup.framework.adapters.keeps_originals:
            copies = copies + setup.precision.parameter_bytes
        name = _KINDS[sample.held]
        sums["parameters"] = sums["parameters"] + figures.use(
            f"{sample.group} {name}", parameter_bytes_per_rank, **self._kept(setup),
            bytes_per_parameter=weight_bytes(sample, setup.precision, setup.tuning) + copies,
        )  # fmt: skip
        if not sample.trains:
            return
        of = "" if sample.held == "trained" else f" of {name}"
        reduced = where(stays_whole(setup), 1, setup.layout.zero)
        sums["gradients"] = sums["gradients"] + figures.use(
            f"{sample.group} gradients{of}", gradient_bytes_per_rank, **self._shared(setup, reduced, 2),
            bytes_per_gradient=0 if steps_in_backward(setup) else recipe.gradient_bytes,
        )  # fmt: skip
        sums["optimizer"] = sums["optimizer"] + figures.use(
            f"{sample.group} optimizer states{of}", optimizer_bytes_per_rank,
            **self._shared(setup, setup.layout.zero, 1),
            state_bytes_per_parameter=self.optimizer / maximum(self.count, 1),
        )  # fmt: skip


def steps_in_backward(setup: Setup) -> bool:
    """Whether each parameter is updated, and its gradient freed, as soon as backward has made it."""
    return setup.framework.buffers.steps_in_backward or setup.optimizer.in_backward


def in_buckets(setup: Setup) -> Number:
    """Whether DDP wraps the model, whose buckets hold all gradients once more."""
    layout, precision, until = setup.layout, setup.precision, setup.framework.buffers.replica_buckets
    if until is None:
        return False
    narrow = precision.gradient_bytes <= precision.parameter_bytes
    return (layout.dp * layout.cp > 1) & ((layout.zero == 0) | ((layout.zero <= until) & narrow))


def gradients_in_host(setup: Setup) -> Number:
    """Whether gradients live in host memory: sharded ones go there with the optimizer that reads them; whole ones are
    reduced where backward makes them, on the GPU."""
    return (setup.layout.zero >= 2) & ("optimizer" in setup.offload)


def _offload(
    setup: Setup, held: Held, sums: dict[str, Number], shards: Mapping[bool, Number], figures: Figures
) -> Away:
    """Take what lives elsewhere off the GPU, and tell how much that is; of ``shards`` some train. Gradients that micro-
    batches add up to a sum in host memory all go there; in fp32 each is where it is used."""
    moved: dict[str, Number] = {"parameters": 0}
    updates = host_updates(setup, held)
    shares = {"parameters": 1.0, "optimizer": states_share(setup, held)}
    leaves: dict[str, Number] = {name: share for name, share in shares.items() if name in setup.offload}
    if "optimizer" in setup.offload:
        leaves["gradients"] = where(gradients_in_host(setup), 1 if passes_host_buffer(setup) else updates, 0)
    for name, share in leaves.items():
        where_to = "on drives or in host memory" if name in setup.drives else "in host memory"
        moved[name] = figures.use(f"{name} {where_to}", offloaded_bytes, held_bytes=sums[name], leaves=share)
        sums[name] = sums[name] - moved[name]
    if passes_host_buffer(setup) and not nothing(1 - updates):
        sums["gradients"] = sums["gradients"] + figures.use(
            "fp32 gradients of what the GPU updates", wide_gradient_bytes, trained=shards[True] * (1 - updates)
        )
    return away(setup, moved, sum(shards.values()), shards[True] * updates, figures)
