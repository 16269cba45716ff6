"""What tensor, context and expert parallelism exchange: the collectives of the ledger, times micro-batches."""

from __future__ import annotations

from typing import NamedTuple

from distsim.arrays import Number, nothing, where
from distsim.engine.exchanges.flows import Flow, Span, Where, dtype_name
from distsim.engine.jobs.exchange import Exchange
from distsim.engine.jobs.resolve import Setup
from distsim.engine.jobs.stages import Stage
from distsim.engine.jobs.waiting import gradients_wait
from distsim.formulas.traffic import DTYPE_BYTES
from distsim.last import for_parts_of_last
from distsim.layers.context_parallel import reads_gathered
from distsim.layers.ledger import Block, Collective, Operation, Parameter, dropped_by
from distsim.layers.mtp import checkpointed
from distsim.layers.names import BRANCHES, COMBINE, DISPATCH, EMBEDDING, INDEXER, ROUTER, SCORE_BIAS, UNUSED
from distsim.layers.router import routed_bytes
from distsim.specs.layout import Layout
from distsim.specs.traffic import Traffic

PURPOSES = {DISPATCH: "expert dispatch", COMBINE: "expert combine"}
"""What people read of operations whose exchanges are no regions of tensor parallelism."""

INNER_NORMS = ("head norm", "latent norm", "index norm")
"""Roles of norms that read what is made of the residual stream."""


def span_of(layout: Layout, group: str) -> Span:
    """The model-parallel process group that the ledger names."""
    if group == "tp":
        return Span("tp", layout.tp, 1, world=layout.gpus)
    if group == "cp":
        return Span("cp", layout.cp, layout.tp, world=layout.gpus)
    if group == "etp":
        return Span("tp", layout.etp, 1, world=layout.gpus)
    if group == "experts":
        return Span("ep", layout.ep * layout.etp, 1, world=layout.gpus)
    return Span("ep", layout.ep, layout.etp, world=layout.gpus)


def model_flows(setup: Setup, exchange: Exchange, stage: Stage) -> list[Flow]:
    """All flows of one rank of a stage that stem from operations on activations."""
    flows: list[Flow] = []
    ends: tuple[tuple[Block | None, Where], ...] = ((stage.embedding, "embedding"), (stage.head, "head"))
    for end, part in ends:
        if end is not None:
            flows += _block_flows(setup, exchange, end, part, 1, 0)
    for (block, count), again in zip(stage.layers, stage.recomputed(setup.layout), strict=True):
        flows += _block_flows(setup, exchange, block, "layers", count, again)
    return flows


def _block_flows(
    setup: Setup, exchange: Exchange, block: Block, part: Where, count: Number, again: Number
) -> list[Flow]:
    """Flows of ``count`` alike blocks, of which ``again`` are fully recomputed in backward."""
    flows: list[Flow] = []
    selected = where(setup.layout.selective, count, 0)
    for operation, exchanges in _of_layers(setup, block) if part == "layers" else _issued(setup, block, part):
        grid: list[Flow] = []
        if exchange.tp_mode != "1d" and operation.kind == "matmul":
            from distsim.engine.exchanges.grids import grid_flows

            grid = grid_flows(setup, exchange, operation, count, again)
            flows += grid
        whole = where(setup.layout.recompute_layers < 0, 1, 0) if checkpointed(operation) else again
        for one in exchanges:
            if one.group == "tp" and grid:
                continue
            repeats = whole + selected * (1 if one.selective else 0)
            times = count - repeats if one.regathers else count
            flows += [flow._replace(calls=flow.calls * times) for flow in one.flows]
            if one.forward_again:
                flows += [flow.again(flow.calls * repeats) for flow in one.flows]
    return flows


class _Issued(NamedTuple):
    """What a block issues for one of its collectives, once in a micro-batch."""

    group: str
    flows: list[Flow]
    forward_again: bool
    """Whether a recomputed forward issues it once more,"""
    selective: bool
    """and a selectively recomputed one."""
    regathers: bool
    """Whether it gathers what a recomputed forward has gathered."""


def _issued(setup: Setup, block: Block, part: Where) -> list[tuple[Operation, list[_Issued]]]:
    """The exchanges of a block's operations that have any, or may have some on a grid."""
    last = _last_exchange(setup, block) if setup.framework.traffic.recompute_stops_early else None
    found: list[tuple[Operation, list[_Issued]]] = []
    for operation in block.operations:
        mine = []
        for collective in operation.collectives:
            flow = _flow(setup, operation, collective, part)
            repeats = collective.phase == "forward" and operation is not last
            regathers = setup.framework.traffic.partitioned and _regathers(collective)
            repeated = (repeats or regathers) and part == "layers" and _repeated(setup, operation, collective)
            sent = [one for one in (*_beside_tokens(setup, operation, flow), flow) if not one.alone]
            if sent:
                mine.append(_Issued(collective.group, sent, repeats, repeated, regathers))
        if mine or operation.kind == "matmul":
            found.append((operation, mine))
    return found


@for_parts_of_last
def _of_layers(setup: Setup, block: Block) -> list[tuple[Operation, list[_Issued]]]:
    """The same of a layer, of which several stages of a pipeline have some."""
    return _issued(setup, block, "layers")


def _beside_tokens(setup: Setup, operation: Operation, flow: Flow) -> list[Flow]:
    """What ranks send beside tokens for experts, each time in a call of its own, where no kernel carries it with them:
    how many tokens each expert gets, before they are sent, not before their gradients, and under Megatron routers'
    weights, by which experts multiply. Slots that are filled up (``--capacity-factor``) need no counts there."""
    experts, rules, layout = setup.model.experts, setup.framework.traffic, setup.layout
    if experts is None or operation.name != DISPATCH or not rules.expert_counts or rules.expert_copies == "once":
        return []
    act, width = setup.precision.activation_bytes, experts.latent or setup.model.hidden
    each = routed_bytes(setup.kernels, act)
    weights = flow._replace(
        purpose="router weights", dtype=dtype_name(each, setup.precision), hides=False,
        bytes_logical=flow.bytes_logical / width / act * each,
    )  # fmt: skip
    if setup.kernels.expert_gathers == "group":  # of each expert, and first whether a token goes there
        scores = weights._replace(bytes_logical=weights.bytes_logical * experts.count)
        masks = scores._replace(purpose="expert masks", dtype="bool", bytes_logical=scores.bytes_logical / each)
        return [masks, scores] if flow.phase == "forward" else [scores]
    gathered, found = rules.expert_counts == "gathered", list[Flow]()
    if flow.phase == "forward" and flow.span.group == "ep" and not (gathered and setup.job.capacity_factor):
        size: Number = experts.count * DTYPE_BYTES["int64"]
        counts = flow._replace(purpose="expert token counts", dtype="int64", bytes_logical=size, hides=False)
        if gathered:
            span = Span("ep", layout.ep * layout.etp, 1, world=layout.gpus)
            counts = counts._replace(op="all_gather", span=span, bytes_logical=size * span.ranks)
        found.append(counts)
    if gathered and setup.kernels.expert_scale == "before":
        found.append(weights)
    return found


def _repeated(setup: Setup, operation: Operation, collective: Collective) -> bool:
    """Whether selective recomputation issues an exchange of forward again: with what it runs again or, where it is told
    by operations, whatever it does not keep itself (attention is kept with what context parallel ranks exchange within
    it; where they trade heads for tokens, XLA keeps what is sent)."""
    if setup.kernels.kept is None and "op" in setup.kernels.selective:
        apart = collective.group != "cp" or reads_gathered(setup.kernels, setup.layout)
        return apart and collective.op not in setup.framework.traffic.recompute_keeps
    traded = setup.kernels.kept is not None and collective.group == "cp" and collective.op == "all_to_all"
    return traded or _dropped(setup, operation)


def _regathers(collective: Collective) -> bool:
    """Whether it gathers once more what forward gathered: a product's input, keys and values."""
    again = collective.overlaps == "input gradient" or collective.group == "cp"
    return again and collective.phase == "backward" and collective.op == "all_gather"


def _dropped(setup: Setup, operation: Operation) -> bool:
    """Whether selective recomputation runs an operation again."""
    kernels = setup.kernels
    if kernels.kept is not None:
        from distsim.layers.recompute import kept_operations

        return operation.name not in kept_operations(kernels.kept)
    return dropped_by(operation, kernels.selective)


def _last_exchange(setup: Setup, block: Block) -> Operation | None:
    """The last operation that exchanges something in forward, where nothing after it is needed by backward. What
    experts give is, if it is weighted once it is back: the gradient of the weights reads it."""
    with_some = [op for op in block.operations if any(c.phase == "forward" for c in op.collectives)]
    last = with_some[-1] if with_some else None
    weighted = last is not None and last.name == COMBINE and setup.kernels.expert_scale == "after"
    return None if weighted else last


def _flow(setup: Setup, operation: Operation, collective: Collective, part: Where) -> Flow:
    layout, rules = setup.layout, setup.framework.traffic
    each = collective.bytes_each or setup.precision.activation_bytes
    calls = collective.calls * layout.micro_batches
    if rules.input_gradient_per_matrix if collective.op == "all_reduce" else rules.input_per_matrix:
        calls = calls * collective.matrices
    size = collective.bytes_logical * _busiest(setup, collective)
    if part == "embedding" and operation.name != EMBEDDING:
        part = "layers"  # lookups of a second stack's words and of inputs of all layers are told with the layers
    ring = collective.group == "cp" and collective.op == "send_recv"
    region = "tensor parallel " + ("loss" if operation.kind == "loss" else part)
    return Flow(
        "context parallel" if collective.group == "cp" else PURPOSES.get(operation.name, region),
        rules.ring_op if ring else collective.op,
        span_of(layout, collective.group),
        dtype_name(each, setup.precision),
        collective.phase,
        calls,
        size,
        hides=bool(collective.overlaps) and (collective.group != "tp" or rules.tp_overlap),
        priced_as="send_recv" if ring else "",
        where=part,
    )


def _busiest(setup: Setup, collective: Collective) -> Number:
    """The busiest rank's share of what experts exchange, where a job states it: ranks that share experts gather exactly
    what that rank was sent, and reduce what it sends back. Tokens that are gathered before they are routed are as many
    everywhere, and a tensor parallel region's."""
    stated = setup.job.expert_imbalance
    return 1 if stated is None or collective.group not in ("ep", "etp") else where(setup.layout.ep > 1, stated, 1)


def replicated_gradient_flows(setup: Setup, exchange: Exchange, stage: Stage) -> list[Flow]:
    """Under sequence parallelism, gradients of what every tp rank holds whole (norms, routers, products that make
    latents, biases behind a region) are sums over tp; those of norms within heads are so without it too (Megatron-LM,
    core/distributed/finalize_model_grads.py). torch's DTensors reduce each by itself (``_alone``); FSDP does so as it
    reduces a gradient over shards, of what has been added up until then (torch _fsdp_param.py), and over one rank too
    where it is what casts weights."""
    layout, rules, precision = setup.layout, setup.framework.traffic, setup.precision
    on, spread = where(layout.tp > 1, layout.sequence_parallel, 0), where(layout.tp > 1, 1, 0)
    whole = [(op, p, count) for op, count in stage.operations() if op.kind in ("norm", "matmul") for p in op.parameters
             if p.trains and not p.tensor_parallel and p.group != "expert"]  # fmt: skip
    span, purpose = span_of(layout, "tp"), "replicated gradients"
    if not rules.replicated_gradient_reads:
        each = [parameter.elements * count * _summed(row, on) for row, parameter, count in whole]
        size = sum(each) * precision.gradient_bytes
        name = dtype_name(precision.gradient_bytes, precision)
        return [Flow(purpose, "all_reduce", span, name, "step", spread, size)]
    sharded = 1 if precision.gathers_cast else where(layout.zero >= 2, where(layout.zero_group > 1, 1, 0), 0)
    waits, wide = where(gradients_wait(setup, exchange), 1, 0), precision.reduce_dtype
    syncs = exchange.syncs(layout.micro_batches) * (1 - waits)
    reads = rules.replicated_gradient_reads + (1 if exchange.clip else 0)
    flows: list[Flow] = []
    for row, parameter, count in whole:
        times = count * _alone(row, parameter, rules, on, spread)
        if parameter.name == UNUSED or nothing(times):
            continue
        inside = parameter.elements * precision.activation_bytes
        kept = parameter.elements * precision.gradient_bytes
        flows.append(Flow(purpose, "all_reduce", span, dtype_name(precision.activation_bytes, precision), "backward",
                          times * sharded * syncs, inside))  # fmt: skip
        summed = parameter.elements * DTYPE_BYTES[wide]
        flows.append(Flow(purpose, "all_reduce", span, wide, "backward", times * sharded * waits, summed))
        flows.append(Flow(purpose, "all_reduce", span, dtype_name(precision.gradient_bytes, precision), "step",
                          times * (1 - sharded) * reads, kept))  # fmt: skip
    return flows


def _alone(row: Operation, parameter: Parameter, rules: Traffic, of_tokens: Number, of_heads: Number) -> Number:
    """How often torch reduces a gradient by itself: where tensor parallel ranks have parts of the tokens of the
    residual stream, which its norms and what gates them read, or (a plan that names all) of what is made of it: heads,
    which read latents too, and experts. Biases of products are whole, and an indexer is on each rank."""
    if row.role == "norm gate" or (row.kind == "norm" and row.role not in INNER_NORMS):
        return of_tokens
    inner = row.role in ("head norm", "latent norm") or row.name == ROUTER
    made = parameter.kind == "matrix" and row.name.startswith(BRANCHES)
    named = inner or (made and not row.name.startswith(INDEXER))
    return of_heads if rules.names_replicated and named and not parameter.name.endswith(SCORE_BIAS) else 0


def _summed(row: Operation, sequence_parallel: Number) -> Number:
    """1 where tensor parallel ranks have parts of a row's gradients: of their tokens, or of their heads."""
    return 1 if row.role == "head norm" else sequence_parallel
