"""Communication buffers and gathered parameters on one rank."""

from __future__ import annotations

from distsim.architectures import traits_of
from distsim.arrays import Number, maximum, minimum, some, where
from distsim.engine.figures import Figures
from distsim.engine.footprint.buckets import buckets_of, fills_buckets
from distsim.engine.footprint.gathered import from_host, gathered, gathered_at_once, sharded, unit_parameters
from distsim.engine.footprint.gradient_places import gradient_place_bytes
from distsim.engine.footprint.host_share import passes_host_buffer
from distsim.engine.footprint.joined import unjoined_bytes
from distsim.engine.footprint.offloaded import host_buffer
from distsim.engine.footprint.receives import receive_buffers
from distsim.engine.footprint.replicas import replica_buckets, unsent
from distsim.engine.footprint.states import States
from distsim.engine.footprint.update import own_elements
from distsim.engine.jobs.exchange import exchange_of, reduces_last
from distsim.engine.jobs.module_buffers import module_buffers
from distsim.engine.jobs.resolve import Setup
from distsim.engine.jobs.sharding import sharding_group
from distsim.engine.jobs.stages import Stage
from distsim.engine.jobs.waiting import gradients_wait
from distsim.formulas.buffers import (
    EXCHANGES_PER_LAYER,
    bucket_bytes,
    held_exchange_bytes,
    host_buffer_bytes,
    step_copy_bytes_per_rank,
    table_bytes,
    whole_copies_bytes,
    workspace_bytes,
)
from distsim.formulas.states import parameter_bytes_per_rank
from distsim.formulas.traffic import DTYPE_BYTES
from distsim.last import for_last, for_parts_of_last
from distsim.layers.ledger import Block, Parameter, parameters_of

FORWARDS_AHEAD = 0.5
"""Part of the micro-batches in flight, less one of them, by which the host is ahead of its GPU while a pipeline fills,
even where it is slower; found on the first stage of 2, 4, 8 and 16 in nanotron's sweep (docs/findings/nanotron.md)."""


def _shared(setup: Setup, parameter: Parameter) -> Number:
    """Elements of a parameter that ranks share, as backward makes them: without what fills shards up."""
    return where(sharding_group(setup.layout, parameter.group) > 1, parameter.elements, 0)


@for_parts_of_last
def reduced_unit_bytes(setup: Setup, stage: Stage) -> tuple[Number, Number]:
    """FSDP2's gradients of the largest layer as backward makes them, and the copy of them that is being reduced, which
    lives until the next layer's is made (torch _fsdp_param_group.py: reduce_scatter_state); or what DeepSpeed joins a
    bucket's gradients in to reduce them (runtime/comm/coalesced_collectives.py)."""
    layout, precision = setup.layout, setup.precision
    if setup.framework.buffers.bucket_copies:
        filled = fills_buckets(setup) & (layout.zero >= 3)
        return 0, where(filled, bucket_bytes(**buckets_of(setup, _trained(setup, stage))), 0) if some(filled) else 0
    if not setup.framework.buffers.gathers_copies or setup.framework.traffic.one_unit:
        return 0, 0
    largest: Number = 0
    made: Number = 0
    for block, _ in stage.layers:
        trained = [p for p in parameters_of(block.operations) if p.trains]
        largest = maximum(largest, sum(sharded(setup, p) for p in trained))
        made = maximum(made, sum(_shared(setup, p) for p in trained))
    reduces = where((layout.zero >= 2) & layout.shards(setup.model.experts is not None), 1, 0)
    adds = where(_in_place(setup), 0, reduces)
    return adds * made * DTYPE_BYTES[precision.gather_dtype], reduces * largest * DTYPE_BYTES[precision.reduce_dtype]


def ended_unit_bytes(setup: Setup, stage: Stage) -> Number:
    """Gathered parameters of a layer whose gradients are being reduced: it is resharded before that, while the next one
    is there already (torch _fsdp_param_group.py, post_backward)."""
    if not setup.framework.buffers.gathers_copies or not some(gathers := _in_units(setup)):
        return 0
    return where(gathers, 1, 0) * unit_parameters(setup, stage)[0] * setup.precision.gather_bytes


@for_parts_of_last
def head_gradient_bytes(setup: Setup, stage: Stage) -> tuple[Number, Number]:
    """FSDP's whole gradient of the output layer while the last layer runs backward, and while the layers before do.

    A unit of its own is being reduced then, until the last layer's gradients are; in the root's it waits for the
    embedding's (torch _fsdp_param_group.py: post_backward, reduce_scatter_state; FSDPState, root's final callback).
    """
    layout, rules, precision = setup.layout, setup.framework.buffers, setup.precision
    if not rules.gathers_copies or stage.head is None or setup.framework.traffic.one_unit:
        return 0, 0
    elements = sum(sharded(setup, p) for one in stage.head.operations for p in one.parameters if p.trains)
    reduces = where((layout.zero >= 2) & (layout.zero_group > 1) & (_in_place(setup) == 0), elements, 0)
    if rules.head_unit:
        return reduces * DTYPE_BYTES[precision.reduce_dtype], 0
    waits = reduces * DTYPE_BYTES[precision.gather_dtype]
    return waits, waits


@for_parts_of_last
def flat_end_bytes(setup: Setup, stage: Stage) -> Number:
    """FSDP1's flat gradient of what belongs to no layer, which is made when backward ends, beside the gradients that it
    is joined of, or its copy in the type of the reduction (torch _runtime_utils.py, _post_backward_hook); less the
    layers that were gathered before. Where all is one unit, what it is joined of counts as backward makes it."""
    rules, precision = setup.framework, setup.precision
    if not rules.buffers.gathers_copies or rules.traffic.padding != "unit":
        return 0
    if rules.traffic.one_unit:
        apart = setup.layout.zero >= 2
        return where(apart, _trained(setup, stage) * max(unjoined_bytes(setup), DTYPE_BYTES[precision.reduce_dtype]), 0)
    rows = (one for part in (stage.embedding, stage.head) if part is not None for one in parameters_of(part.operations))
    elements = sum(sharded(setup, p) for p in rows if p.trains)
    each, wide = DTYPE_BYTES[precision.gather_dtype], DTYPE_BYTES[precision.reduce_dtype]
    reduces = (setup.layout.zero >= 2) & (_waiting_bytes(setup) == 0)
    layers = unit_parameters(setup, stage)[0] * (1 + rules.buffers.gather_ahead_units) * precision.gather_bytes
    return where(reduces, elements * (each + max(each, wide)) - where(_in_units(setup), layers, 0), 0)


def _whole(setup: Setup) -> Number:
    """Whether all parameters stay gathered through a step's passes."""
    layout, copies = setup.layout, setup.framework.buffers.gathers_copies
    kept = (layout.zero == 2) | ((layout.zero >= 3) & reduces_last(setup))
    return copies & kept & layout.shards(setup.model.experts is not None)


def _in_units(setup: Setup) -> Number:
    """Whether parameters are gathered by units, or come from host memory by them, each for its own passes."""
    layout = setup.layout
    apart = layout.shards(setup.model.experts is not None) | from_host(setup)
    return (layout.zero >= 3) & apart & (where(_whole(setup), 1, 0) == 0)


def gone_at_step(setup: Setup, stage: Stage, held: States) -> Number:
    """Bytes that are free again at the optimizer's step: torch's FSDP reshards every unit when its backward has ended,
    the root's too (torch.distributed.fsdp _runtime_utils.py, _post_backward_final_callback; fully_shard,
    reshard_after_backward); DeepSpeed releases what a module had gathered behind its backward, the buckets that it made
    ahead of backward, and before ZeRO 1 joins a rank's gradients all others (runtime/zero/stage_1_and_2.py,
    independent_gradient_partition_epilogue, step)."""
    rules, gone = setup.framework.buffers, 0
    precision = setup.trained_precision
    if rules.flat_gradients and precision.gradient_bytes <= precision.parameter_bytes:
        whole = held.dense_parameters + held.expert_parameters
        others = 1 - own_elements(setup, stage) / maximum(whole, 1)
        gone = where(setup.layout.zero == 1, held.gradients * others, 0)
    if (rules.gathers_copies or rules.gathered_elements) and some(gathers := _in_units(setup)):
        taken, arguments = gathered_at_once(setup, stage)
        gone = gone + where(gathers, 1, 0) * taken(**arguments)
    if rules.bucket_copies and some(filled := fills_buckets(setup) & (setup.layout.zero < 3)):
        elements = held.dense_parameters + held.expert_parameters
        gone = gone + where(filled, 1, 0) * bucket_bytes(**buckets_of(setup, elements))
    return gone


@for_parts_of_last
def waiting_layer_bytes(setup: Setup, block: Block) -> Number:
    """The same of one layer."""
    each = _waiting_bytes(setup)
    return each * sum(_shared(setup, p) for p in parameters_of(block.operations) if p.trains) if some(each > 0) else 0


@for_parts_of_last
def waiting_bytes(setup: Setup, stage: Stage) -> Number:
    """Bytes of all gradients that wait whole, unreduced, for the last micro-batch."""
    each = _waiting_bytes(setup)
    return each * _trained(setup, stage) if some(each > 0) else 0


def buffer_bytes(setup: Setup, stage: Stage, held: States, figures: Figures) -> Number:
    """Everything that is neither state nor activation, beside the framework's overhead."""
    layout, rules = setup.layout, setup.framework.buffers
    total: Number = 0
    if some(filled := fills_buckets(setup)):
        total = total + where(filled, 1, 0) * figures.use(
            "gradient buckets", bucket_bytes, **buckets_of(setup, held.dense_parameters + held.expert_parameters)
        )
    whole, gathers = _whole(setup), _in_units(setup)
    if some(whole):
        total = total + where(whole, 1, 0) * _whole_copies(setup, stage, figures)
    if some(gathers):
        taken, arguments = gathered_at_once(setup, stage)
        total = total + where(gathers, 1, 0) * (
            figures.use("gathered parameters", taken, **arguments) + _waiting(setup, stage, figures)
        )
    if "hpz" in (setup.job.zeropp or ""):
        total = total + _second_shard(setup, stage, figures)
    if rules.step_copy_bytes:
        total = total + figures.use(
            "gradient copies for the optimizer step", step_copy_bytes_per_rank,
            shard_elements=own_elements(setup, stage), bytes_per_parameter=rules.step_copy_bytes,
        )  # fmt: skip
    if rules.pipeline_receives and some(layout.pp > 1):
        total = total + receive_buffers(setup, stage, figures)
    return total + _of_programs(setup, stage, held, figures)


def _of_programs(setup: Setup, stage: Stage, held: States, figures: Figures) -> Number:
    """What programs keep whatever is sharded: for exchanges, transfers, replicas, modules and products."""
    rules, total = setup.framework.buffers, 0
    if setup.kernels.exchanges_held or setup.kernels.exchange_buffers:
        total = total + _exchanges(setup, stage, figures)
    if passes_host_buffer(setup):
        words = "gradient buffer for transfers to the host"
        total = total + figures.use(words, host_buffer_bytes, **host_buffer(setup, stage))
    if rules.replica_buckets is not None:
        total = total + replica_buckets(setup, held, figures)
    if setup.job.compress is not None:
        total = total + unsent(setup, held, figures)
    for kind, each, size in module_buffers(setup):
        total = total + figures.use(f"{kind} of modules", table_bytes, elements=size / each, bytes_each=each)
    total = total + gradient_place_bytes(setup, stage, figures)
    if rules.workspace_bytes:
        source = setup.framework.source_of("buffers.workspace_bytes") or "preset"
        total = total + figures.use("workspaces", workspace_bytes, source, **_workspaces(setup))
    return total


def _second_shard(setup: Setup, stage: Stage, figures: Figures) -> Number:
    """Parameters that hpZ of ZeRO++ keeps once more, shared by the ranks of a node."""
    layout = setup.layout
    return figures.use(
        "second parameter shard inside the node (hpZ)", parameter_bytes_per_rank,
        parameters=sum(sharded(setup, p) * times for p, times in stage.held()),
        bytes_per_parameter=setup.precision.gather_bytes, zero_stage=layout.zero,
        zero_group_size=minimum(layout.zero_group, setup.cluster.domain),
    )  # fmt: skip


def _workspaces(setup: Setup) -> dict[str, Number]:
    """What libraries keep for their kernels, more of it on newer chips and beside experts."""
    rules = setup.framework.buffers
    own, of_experts = rules.workspace_bytes, rules.expert_workspace_bytes
    if traits_of(setup.accelerator).small_workspaces and rules.older_workspace_bytes is not None:
        own, of_experts = rules.older_workspace_bytes, rules.older_expert_workspace_bytes
    return {"own_bytes": own, "expert_bytes": of_experts, "has_experts": int(setup.model.experts is not None)}


def _whole_copies(setup: Setup, stage: Stage, figures: Figures) -> Number:
    """Parameters that stay gathered, and gradients that are added up before they are reduced."""
    elements = sum(gathered(setup, p) * times for p, times in stage.held())
    return figures.use(
        "gathered parameters and gradients", whole_copies_bytes, parameters=elements,
        gathered_bytes=setup.precision.gather_bytes, trained=_trained(setup, stage),
        gradient_bytes=_waiting_bytes(setup),
    )  # fmt: skip


def _waiting(setup: Setup, stage: Stage, figures: Figures) -> Number:
    """Gradients that wait whole for the last micro-batch, where no parameters stay gathered."""
    each = _waiting_bytes(setup)
    if not some(each > 0):
        return 0.0
    return figures.use(
        "unsharded gradients",
        whole_copies_bytes,
        parameters=0,
        gathered_bytes=0.0,
        trained=_trained(setup, stage),
        gradient_bytes=each,
    )


def _trained(setup: Setup, stage: Stage) -> Number:
    """Elements of a stage that have gradients, whole where data parallel ranks share them."""
    return sum(_shared(setup, p) * times for p, times in stage.held() if p.trains)


@for_last
def _waiting_bytes(setup: Setup) -> Number:
    """Bytes of a gradient that waits for the last micro-batch: in the type that it will be reduced in, or, where FSDP
    has one flat tensor per unit, as backward made it; 0 if none waits."""
    flat, precision = setup.framework.traffic.padding == "unit", setup.precision
    each = DTYPE_BYTES[precision.gather_dtype if flat else precision.reduce_dtype]
    return where(gradients_wait(setup, exchange_of(setup)), each, 0)


def _in_place(setup: Setup) -> Number:
    """1 where gradients are added to those that wait as backward makes them; FSDP1 first joins a unit's in a flat one,
    which autograd adds (torch _flat_param.py, views of a flat parameter)."""
    return where(_waiting_bytes(setup) > 0, 0 if setup.framework.traffic.padding == "unit" else 1, 0)


def _exchanges(setup: Setup, stage: Stage, figures: Figures) -> Number:
    """What tensor parallel exchanges under sequence parallelism hold while the host runs ahead of the GPU."""
    layout, kernels = setup.layout, setup.kernels
    steady = where(layout.pp > 1, kernels.exchanges_held_pipelined, kernels.exchanges_held)
    held = where(layout.micro_batches == 1, kernels.exchanges_held_waiting, steady)
    alternating = where(layout.micro_batches > layout.pp, stage.in_flight, where(layout.micro_batches == 1, 1, 0))
    ahead = maximum(stage.in_flight * FORWARDS_AHEAD - 1, alternating * kernels.host_ahead)
    return where(layout.sequence_parallel, 1, 0) * figures.use(
        "exchanges", held_exchange_bytes, tokens=layout.tokens, hidden=setup.model.hidden,
        element_bytes=setup.precision.activation_bytes, held=held, per_layer=EXCHANGES_PER_LAYER,
        layers=stage.layer_count * maximum(ahead, 0), buffers=kernels.exchange_buffers,
    )  # fmt: skip
