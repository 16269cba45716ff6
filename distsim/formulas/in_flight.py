"""How many micro-batches a pipeline stage holds at once, in whole-stage units."""

from __future__ import annotations

from distsim.arrays import Number, minimum
from distsim.formula import formula


@formula(unit="micro-batches", source="Huang et al. 2019, GPipe (arXiv:1811.06965): all forwards before any backward")
def gpipe_in_flight(micro_batches: Number) -> Number:
    """GPipe holds every micro-batch."""
    return micro_batches


@formula(unit="micro-batches", source="Narayanan et al. 2021 (arXiv:2104.04473), section 2.2.1")
def one_f_one_b_in_flight(micro_batches: Number, stages: Number, stage: Number) -> Number:
    """1F1B holds as many micro-batches as there are stages from this one to the last."""
    return minimum(micro_batches, stages - stage)


@formula(
    unit="micro-batches", source="Narayanan et al. 2021 (arXiv:2104.04473), section 2.2.2, as Megatron-LM schedules it"
)
def interleaved_in_flight(micro_batches: Number, stages: Number, stage: Number, chunks: Number) -> Number:
    """Interleaved 1F1B: 2(p-1-r) + (v-1)p + 1 chunks of a v-th of a stage each, all m*v of them at most."""
    return minimum(micro_batches * chunks, 2 * (stages - 1 - stage) + (chunks - 1) * stages + 1) / chunks
