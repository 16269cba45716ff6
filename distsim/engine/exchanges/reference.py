"""What a frozen reference model exchanges in its forward passes: what the model that trains exchanges there, but for
its adapters."""

from __future__ import annotations

from dataclasses import replace

from distsim.engine.exchanges.flows import Flow
from distsim.engine.exchanges.offloading import DOWN
from distsim.engine.jobs.reference import PURPOSE, copies_weights, of_reference
from distsim.engine.jobs.resolve import Setup
from distsim.engine.jobs.stages import Stage
from distsim.layers.ledger import Block


def without_adapters(setup: Setup, stage: Stage) -> Stage:
    """A stage as a reference model has it."""
    if setup.tuning is None:
        return stage

    def bare(block: Block) -> Block:
        return block._replace(operations=tuple(filter(of_reference, block.operations)))

    return replace(
        stage,
        embedding=stage.embedding and bare(stage.embedding),
        layers=tuple((bare(block), count) for block, count in stage.layers),
        head=stage.head and bare(stage.head),
    )


def reference_flows(setup: Setup, flows: list[Flow]) -> list[Flow]:
    """Of the flows of a stage without adapters those of a reference: nothing that it saves goes to hosts, and weights
    that stay gathered from forward to backward are there for a reference that shares them."""
    again = any(flow.role == "parameters" and flow.phase == "backward" for flow in flows)
    stays = not copies_weights(setup) and not again
    return [
        flow._replace(purpose=flow.purpose + PURPOSE) for flow in flows
        if flow.phase == "forward" and flow.op != DOWN and not (flow.role == "parameters" and stays)
    ]  # fmt: skip
