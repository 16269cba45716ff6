"""What matrix products lose when their rows are not aligned to 16 bytes."""

from __future__ import annotations

from distsim.arrays import Number, where
from distsim.formula import formula

ALIGNED_BYTES = 16
"""What kernels load at once: rows that start at whole multiples of it cost nothing more."""
UNALIGNED = (0.6, 0.5, 0.4)
"""Rate of products whose rows start at whole 8, 4 or 2 bytes only, over that of whole 16: kernels load their operands
in narrower pieces, not by the chip's copy engines. Output layers of profiled operators on an A100 reach 110, 92 and 78
TFLOP/s with 12,564, 6,282 and 50,257 columns, 184 with 25,128 (VIA-Research/vTrain; docs/findings/chips.md). Netflix
saw output layers take three times as long with odd vocabularies ("Scaling LLM Post-Training at Netflix", February
2026)."""
UNALIGNED_PER_CYCLE = {2: (1030.0, 1030.0, 515.0), 4: (570.0, 570.0, 570.0)}
"""FLOPs a cycle and unit of such products, by the bytes of an element, on chips whose own instructions take operands
through the copy engine only (Hopper and newer), where kernels of an A100's instructions stand in. 8,192 rows on an
H100: 50,260 or 50,258 columns 230 to 294 TFLOP/s, 50,257 98 to 153 (as much a cycle as on an A100), 50,304 700 to 798;
on TF32 units 117 to 136, even ones 206 to 363 (tests/oracles/gpu_kernels.csv)."""


@formula(unit="1", source="NVIDIA, Matrix Multiplication Background User's Guide, section 3: 16-byte alignment")
def aligned_share(n: Number, k: Number, element_bytes: Number, eight: Number, four: Number, two: Number) -> Number:
    """Share of its rate that a product keeps where rows of ``n`` or ``k`` elements are not aligned to 16 bytes:
    ``eight`` if they are to 8, ``four`` if to 4, else ``two``. Operands are ``m x k`` and ``k x n``; each of the
    three products of a layer reads or writes rows of both lengths."""
    found = two
    for size, share in ((4, four), (8, eight), (ALIGNED_BYTES, 1.0)):
        whole = where((n * element_bytes) % size == 0, 1, 0) * where((k * element_bytes) % size == 0, 1, 0)
        found = where(whole > 0, share, found)
    return found
