"""Gradients that wait whole for the last micro-batch of a step, where ZeRO would share them."""

from dataclasses import replace

from distsim.arrays import Number
from distsim.engine.jobs.exchange import Exchange, exchange_of
from distsim.engine.jobs.resolve import Setup


def gradients_wait(setup: Setup, exchange: Exchange) -> Number:
    """Whether ranks add up whole gradients over micro-batches, apart from their shards, of layers that are gathered and
    reduced one by one: in pipelines of torch and where the reduction is put off. A rank that shares with no other has
    no shards but the whole."""
    layout = setup.layout
    shared = layout.shards(setup.model.experts is not None)
    layered = (layout.zero >= 2) & shared & setup.framework.buffers.gathers_copies
    return layered & (layout.micro_batches > 1) & exchange.no_sync


def stays_whole(setup: Setup) -> Number:
    """Whether gradients that ZeRO would share are not, as a switch puts off their reduction; software that gathers
    copies has them in buffers beside its shards (``gradients_wait``)."""
    layout = setup.layout
    if not setup.job.no_sync or setup.framework.buffers.gathers_copies:
        return False
    return (layout.zero >= 2) & (layout.micro_batches > 1)


def reduced_each(setup: Setup) -> Setup | None:
    """The job with gradients reduced in every micro-batch, where they wait unless somebody says otherwise; None where
    they do not, or wait whatever is said."""
    usual, each = (replace(setup, job=setup.job.model_copy(update={"no_sync": said})) for said in (None, False))
    waiting = [bool(gradients_wait(one, exchange_of(one))) for one in (usual, setup, each)]
    return each if waiting == [True, True, False] else None
