"""Buckets that gradients pass through on their way to other ranks."""

from __future__ import annotations

from distsim.arrays import Number, maximum, minimum, where
from distsim.engine.jobs.resolve import Setup
from distsim.engine.jobs.tuning import reduced_in
from distsim.formulas.traffic import DTYPE_BYTES


def fills_buckets(setup: Setup) -> Number:
    """Whether gradients pass through buckets; ZeRO 2 and 3 of DeepSpeed have them on one GPU too."""
    layout, rules = setup.layout, setup.framework.buffers
    filled = (layout.dp * layout.cp > 1) | (rules.flat_shards & (layout.zero >= 2))
    return filled & (rules.gradient_buckets > 0)


def buckets_of(setup: Setup, parameters: Number) -> dict[str, Number]:
    """Gradient buckets that are there at once, of so many gradients, in the format that these travel in. ZeRO has them
    ready in their full size however small a model is; without it no more is joined than there is (DeepSpeed)."""
    rules, zero = setup.framework.buffers, setup.layout.zero
    buckets = where(rules.bucket_copies & (zero >= 3), 1, rules.gradient_buckets)
    most = where(zero >= 1, rules.gradient_bucket_elements, parameters / maximum(buckets, 1))
    return {
        "bucket_elements": minimum(rules.gradient_bucket_elements, most), "buckets": buckets,
        "bytes_per_element": DTYPE_BYTES[reduced_in(setup)],
    }  # fmt: skip
