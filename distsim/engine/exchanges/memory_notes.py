"""What is told of a setup whose memory is asked for."""

from dataclasses import replace

from distsim.arrays import some
from distsim.engine.footprint.host_share import sub_group_note
from distsim.engine.footprint.states import filled_experts
from distsim.engine.jobs.exchange import stated_exchange
from distsim.engine.jobs.framework_notes import beyond_default
from distsim.engine.jobs.lacking import lacking
from distsim.engine.jobs.resolve import Setup
from distsim.engine.jobs.uncounted import memory_notes
from distsim.engine.jobs.waiting import gradients_wait, stays_whole
from distsim.engine.timelines.schedule_shape import weight_versions
from distsim.errors import DistsimError
from distsim.layers.attention_kernel import reads_chosen


def with_notes(setup: Setup) -> Setup:
    """The setup with notes on what its memory does not depend on; refuses what step and comm would."""
    exchange = stated_exchange(setup)
    waiting = exchange is not None and bool(some(gradients_wait(setup, exchange) | stays_whole(setup)))
    notes = (*setup.notes, *beyond_default(setup), *lacking(setup, timed=False), *filled_experts(setup),
             *memory_notes(setup.job, setup.layout, exchange, waiting, _by_mode(setup),
                           setup.framework.traffic.tp_tiles == "fitted", _keeps_more(setup)),
             *_apart(setup), *_versions(setup), *filter(None, [sub_group_note(setup)]))  # fmt: skip
    return replace(setup, notes=notes)


def _keeps_more(setup: Setup) -> bool:
    """Whether more is in flight where exchanges of experts run beside another micro-batch."""
    kernels = setup.kernels
    return kernels.overlap_passes > 0 or (kernels.overlap_layers > 0 and bool(some(setup.layout.pp > 1)))


def _by_mode(setup: Setup) -> bool:
    """Whether context parallel ranks that trade heads for tokens hold more than those that pass keys on: outputs in two
    layouts, or copies of keys of which there are fewer heads than ranks."""
    model, layout, kernels = setup.model, setup.layout, setup.kernels
    one = reads_chosen(model, layout, kernels) or model.compressed_attention is not None
    return kernels.cp_output == "kept" or layout.cp * layout.tp > (1 if one else model.kv_heads)


def _versions(setup: Setup) -> tuple[str, ...]:
    """A note where stages keep several versions of their weights."""
    layout = setup.layout
    kept = [weight_versions(layout.schedule, layout.pp, layout.micro_batches, stage) for stage in range(layout.pp)]
    if max(kept) == 1:
        return ()
    told = (
        f"{kept[0]} on each stage" if len(set(kept)) == 1 else f"{kept[0]} on the first stage to {kept[-1]} on the last"
    )
    return (f"schedule {layout.schedule} keeps several versions of the weights ({told}); parameters counts them all",)


def _apart(setup: Setup) -> tuple[str, ...]:
    """A note where nothing joins so many GPUs: their memory can be computed, their traffic cannot."""
    if setup.layout.gpus <= setup.cluster.domain:
        return ()
    from distsim.engine.exchanges.reach import refuse_beyond

    try:
        refuse_beyond(setup, setup.layout.gpus)
    except DistsimError as error:
        return (f"{error.problem}: memory can still be computed, comm and step cannot",)
    return ()
