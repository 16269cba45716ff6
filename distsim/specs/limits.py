"""The largest counts that anybody means: a larger one is a typing slip. Assumed, each beyond what exists."""

LARGEST_DEGREE = 10_000_000
"""Accelerators, and so degrees and micro-batches: beyond any machine."""
LARGEST_BATCH = 1_000_000_000
"""Sequences of a step."""
LARGEST_SIZE = 1_000_000_000
"""Tokens of a sequence, and widths, counts and lengths of a network."""
