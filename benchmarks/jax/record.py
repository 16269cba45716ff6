"""Record what JAX keeps of a layer that a loop stacks, and what XLA plans for a TPU; no device is needed.

Run with ``python benchmarks/jax/record.py OUT.json [--plans]``; needs jax and optax, and libtpu for ``--plans``, which
takes minutes for each case. tests/oracles/jax_saved.json has its shapes, and two of the plans rounded to 0.1 MB.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import sys
from pathlib import Path
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")

import jax
from decoder import POLICIES, Case, narrow, shapes, step_of, wrapped
from jax.experimental import topologies

GPT = {"family": "gpt", "kv_heads": 8}
CASES = [
    Case("llama"), Case("llama grouped", kv_heads=1), Case("llama wide", hidden=2048, heads=16, ffn=5632),
    Case("llama composed", attention="composed", seq=1024, batch=8), Case("gpt", **GPT),
    Case("gpt wide", **GPT | {"hidden": 2048, "heads": 16, "kv_heads": 16, "ffn": 8192}),
    Case("llama full", remat="full"),
    *(Case(f"llama {name}", remat=name) for name in (*POLICIES, "minimal", "dots_saveable")),
]  # fmt: skip
PLANS = [
    Case("llama"), Case("llama full", remat="full"), Case("llama minimal", remat="minimal"), Case("gpt", **GPT),
    Case("llama unrolled", scan=False), Case("llama accumulated", accumulate=2),
]  # fmt: skip


def stacked(case: Case) -> list[list[Any]]:
    """What differentiation of the loop keeps, as [how many, shape of one layer's, format], without the weights."""
    weights = shapes(case)["layers"]
    x = jax.ShapeDtypeStruct((case.batch, case.seq, case.hidden), narrow)

    def backward(x: jax.Array, weights: Any) -> Any:
        return jax.vjp(lambda x, p: jax.lax.scan(wrapped(case), x, p)[0], x, weights)[1]

    leaves = jax.tree.leaves(jax.eval_shape(backward, x, weights))
    given = collections.Counter((leaf.shape, str(leaf.dtype)) for leaf in jax.tree.leaves(weights))
    found = collections.Counter((leaf.shape, str(leaf.dtype)) for leaf in leaves if leaf.shape[:1] == (case.layers,))
    return [[count, list(shape[1:]), kind] for (shape, kind), count in (found - given).items()]


def planned(case: Case) -> dict[str, int]:
    """Bytes that XLA plans for a step on one TPU v6e."""
    device = topologies.get_topology_desc("v6e:2x2", platform="tpu").devices[0]
    placed = jax.sharding.SingleDeviceSharding(device)
    step, given = step_of(case)
    given = jax.tree.map(lambda one: jax.ShapeDtypeStruct(one.shape, one.dtype, sharding=placed), given)
    found = jax.jit(step, donate_argnums=(0, 1)).lower(*given).compile().memory_analysis()
    return {"layers": case.layers, "temporary": found.temp_size_in_bytes, "arguments": found.argument_size_in_bytes}


def main() -> int:
    """Write all cases."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--plans", action="store_true")
    options = parser.parse_args()
    saved = [{"case": case._asdict(), "stacked": stacked(case)} for case in CASES]
    plans = [
        {"case": case._asdict(), "plans": [planned(case._replace(layers=count)) for count in (4, 8)]}
        for case in (PLANS if options.plans else [])
    ]
    made = {"jax": jax.__version__, "saved": saved, "plans": plans}
    options.out.write_text(json.dumps(made, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
