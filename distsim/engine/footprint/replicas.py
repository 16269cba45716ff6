"""Gradients that replicas hold once more: in the buckets that they reduce, and what compression has not yet sent."""

from distsim.arrays import Number, some, where
from distsim.engine.figures import Figures
from distsim.engine.footprint.states import States, in_buckets
from distsim.engine.jobs.exchange import exchange_of
from distsim.engine.jobs.resolve import Setup
from distsim.engine.jobs.tuning import reduced_in
from distsim.formulas.buffers import replica_bucket_bytes, unsent_bytes
from distsim.formulas.traffic import DTYPE_BYTES
from distsim.units import FP32_BYTES


def replica_buckets(setup: Setup, held: States, figures: Figures) -> Number:
    """DDP's second copy of all gradients."""
    wrapped = in_buckets(setup)
    return 0 if not some(wrapped) else where(wrapped, 1, 0) * figures.use(
        "gradients in DDP's buckets", replica_bucket_bytes,
        parameters=held.dense_parameters + held.expert_parameters, bytes_per_gradient=setup.precision.parameter_bytes,
    )  # fmt: skip


def unsent(setup: Setup, held: States, figures: Figures) -> Number:
    """Errors of compressed gradients, which are added to the next step's: PowerSGD's as wide as what is reduced; those
    of signs in fp32, and once more for the part that a rank reduces itself."""
    kind = exchange_of(setup).compress
    if kind not in ("powersgd", "1bit"):
        return 0
    signs, layout, total = kind == "1bit", setup.layout, 0.0
    parts = [("gradients", held.dense_parameters, layout.dp * layout.cp)]
    if setup.model.experts is not None:
        parts.append(("experts' gradients", held.expert_parameters, layout.expert_data_parallel))
    for words, elements, ranks in parts:
        if some(ranks > 1):  # what one rank has alone is not reduced
            total = total + figures.use(
                f"compression error feedback of {words}", unsent_bytes, parameters=where(ranks > 1, elements, 0),
                bytes_per_gradient=FP32_BYTES if signs else DTYPE_BYTES[reduced_in(setup)],
                reducers=ranks if signs else 0,
            )  # fmt: skip
    return total
