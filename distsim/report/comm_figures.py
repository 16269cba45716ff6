"""How the bytes and the time of one kind of exchange come about, with numbers filled in. Each formula is held against
what was made of the flow, as in engine/steps/figures.py: another one is shown where it does not give that."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from distsim.arrays import where
from distsim.engine.exchanges.flows import Flow
from distsim.engine.exchanges.variants import BLOCK_ELEMENTS, INT4_BITS, INT8_BITS
from distsim.engine.figures import Figures
from distsim.engine.jobs.exchange import exchange_of
from distsim.engine.jobs.resolve import Setup
from distsim.engine.networks.network import Network
from distsim.engine.networks.pricing import terms_of
from distsim.formulas import traffic as forms
from distsim.formulas.collectives import call_seconds

LINKS = "presets/links and docs/collectives.md"
QUANTISED = {"int8": INT8_BITS, "int4": INT4_BITS}
"""Bits of what ZeRO++ quantises in blocks."""
OF_TOKENS = ("tensor parallel", "vocabulary", "context parallel", "pipeline boundary")
"""How purposes begin whose bytes are those of a micro-batch's tokens."""
EXPERTS = ("expert dispatch", "expert combine")


def size_figure(figures: Figures, label: str, setup: Setup, flow: Flow, origin: str) -> None:
    """Bytes of one call; ``origin`` says what its numbers are of."""
    size, each = float(flow.bytes_logical), forms.DTYPE_BYTES.get(flow.dtype, 1.0)
    for function, arguments in _forms(setup, flow, size, each):
        if math.isclose(function(**arguments), size, rel_tol=1e-9):
            figures.use(label, function, origin, **arguments)
            return
    figures.use(label, forms.logical_bytes, origin, elements=size / each, bytes_each=each)


def _forms(setup: Setup, flow: Flow, size: float, each: float) -> Iterator[tuple[Any, dict[str, Any]]]:
    """Formulas that may give a flow's bytes, the most telling first."""
    layout, model, experts = setup.layout, setup.model, setup.model.experts
    hidden = model.hidden * model.residual_streams
    if flow.purpose.startswith(("pipeline activations", "pipeline gradients")):
        parts = where(layout.sequence_parallel, layout.tp, layout.tp if setup.framework.traffic.scatter_gather else 1)
        yield forms.pipeline_boundary_bytes, {"tokens": layout.tokens, "hidden": hidden, "bytes_each": each,
                                              "shards": parts}  # fmt: skip
    if flow.purpose.startswith(EXPERTS) and experts is not None:
        imbalance = exchange_of(setup).expert_imbalance or 1
        for shards in (1, layout.tp, layout.etp):
            yield forms.expert_exchange_bytes, {
                "tokens": layout.tokens, "hidden": model.hidden, "choices": experts.per_token, "imbalance": imbalance,
                "shards": shards, "bytes_each": each,
            }  # fmt: skip
    if exchange_of(setup).zeropp and flow.dtype in QUANTISED:
        bits = QUANTISED[flow.dtype]
        elements = round(size / forms.quantised_bytes(1, bits, BLOCK_ELEMENTS), 3)
        yield forms.quantised_bytes, {"elements": elements, "bits": bits, "block_elements": BLOCK_ELEMENTS}
    if flow.purpose.startswith(OF_TOKENS):
        width = size / each / layout.tokens
        if width.is_integer():
            yield forms.token_bytes, {"tokens": layout.tokens, "numbers_per_token": int(width), "bytes_each": each}


def call_figure(figures: Figures, label: str, flow: Flow, network: Network, seconds: float) -> None:
    """Time of one call, which takes ``seconds``."""
    if flow.fixed is not None:
        assert flow.fixed.function is not None
        source = f"{flow.fixed.algorithm} over {flow.fixed.link}"
        figures.use(label, flow.fixed.function, source, **(flow.fixed.arguments or {}))
        return
    group = flow.span.placed(network)
    terms, way = terms_of(flow.pattern, float(flow.bytes_logical), group)
    if math.isclose(call_seconds(**terms), seconds, rel_tol=1e-9):
        link = network.inter if group.nodes > 1 else network.intra
        figures.use(label, call_seconds, f"{way} over {link}: latency, bandwidth and factors from {LINKS}", **terms)
        return
    for floor in flow.floors:
        if math.isclose(floor.seconds, seconds, rel_tol=1e-9):
            figures.use(label, floor.function, floor.source, **floor.arguments)
            return
    source = "the framework's own kernel (engine/exchanges/sent_once.py, OWN_SHARE)"
    figures.use(label, forms.copy_seconds, source, size_bytes=float(flow.bytes_logical), rate=float(flow.own_rate))
