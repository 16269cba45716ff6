"""What two copies of a model that run in opposite directions over the same ranks exchange: their gradients."""

from __future__ import annotations

from distsim.arrays import where
from distsim.engine.exchanges.data import sharings
from distsim.engine.exchanges.flows import Flow, Span
from distsim.engine.exchanges.pipeline import stages_span
from distsim.engine.jobs.exchange import Exchange
from distsim.engine.jobs.resolve import Setup
from distsim.engine.jobs.stages import Stage
from distsim.engine.jobs.tuning import reduced_in
from distsim.formulas.traffic import DTYPE_BYTES


def both_copies_flows(setup: Setup, exchange: Exchange, stage: Stage) -> list[Flow]:
    """Gradients of both copies added up: a stage and the one that mirrors it hold the same two parts of the model, and
    each part has seen half of the micro-batches on either (Li and Hoefler 2021, arXiv:2107.06925, section 3.3;
    deepseek-ai/DualPipe, examples/example_dualpipe.py).

    Each rank sums its share of what the ranks of a copy have reduced with its like's: in bytes the same as one
    all-reduce, or reduce-scatter, over the ranks of both copies.
    """
    if stage.mirror is None:
        return []
    layout, dtype, stride = setup.layout, reduced_in(setup), stages_span(setup.layout).stride
    span = Span("pp", 2, stride, (stage.index * stride, stride * (layout.pp - 1 - stage.index)),
                all_at_once=True)  # fmt: skip
    found, together = sharings(setup)
    flows = []
    for sharing in found:
        apart = exchange.sync == "local-sgd"  # replicas sum nothing in most steps, so that each has all of its own
        shares = where(layout.zero >= 1, sharing.shard.ranks, 1) if apart else sharing.data.ranks
        held = sum(p.elements * n for p, n in stage.held() if p.trains and (together or p.group == sharing.kind))
        flows.append(
            Flow("gradients of both copies", "all_reduce", span, dtype, "step", 1, held * DTYPE_BYTES[dtype] / shares)
        )
    return flows
