"""Beside which passes an exchange can run, and how much of it these can hide at most, before the step's own timeline
says it exactly."""

from __future__ import annotations

from distsim.arrays import Number, maximum, where
from distsim.engine.exchanges.data import reduced_to_owners
from distsim.engine.exchanges.flows import Role
from distsim.engine.jobs.exchange import Exchange, gathers_once, reduces_each
from distsim.engine.jobs.flops import peak_of
from distsim.engine.jobs.reference import runs_reference
from distsim.engine.jobs.resolve import Setup
from distsim.engine.jobs.stages import Stage
from distsim.formulas.step import LEAST_SECONDS, exposed_seconds

STATES = ("dp", "zero")
"""Groups of ranks that share states."""


def beside_each(setup: Setup, exchange: Exchange, group: str, role: Role, phase: str) -> Number:
    """1 where an exchange that hides does so beside each micro-batch's own pass; 0 where there is one in a step, beside
    the first forward (parameters that are gathered once, or behind the optimizer) or the last backward (gradients that
    are reduced once)."""
    if phase == "step":
        return 0
    if group == "host":
        return copies_each(setup, exchange) if role == "copies" else int(role != "last copies")
    if group not in STATES:
        return 1
    if role == "parameters":
        return where(gathers_once(setup, exchange), 0, 1) if phase == "forward" else 1
    each = reduces_each(setup, exchange)
    if not setup.framework.traffic.replicas_reduce_once:
        return each
    whole = 1 if role == "replicas" else 1 - reduced_to_owners(setup)
    return each * where(setup.layout.micro_batches == 1, 1, 1 - whole)


def copies_each(setup: Setup, exchange: Exchange) -> Number:
    """1 where gradients of an offloaded optimizer go to the host with each micro-batch, 0 where once, behind the last
    one."""
    layout = setup.layout
    if setup.framework.traffic.host_gradients == "step":
        return 0
    return where((layout.zero >= 2) & (exchange.syncs(layout.micro_batches) == layout.micro_batches), 1, 0)


def compute_seconds(setup: Setup, stage: Stage, phase: str, passes: Number) -> Number:
    """The least time of the matrix products and attention of so many passes: at the chip's peak rate. What follows the
    optimizer hides beside a forward of the next step. A reference model's forwards hide what is exchanged in them."""
    field = "flops_backward" if phase == "backward" else "flops_forward"
    passes = passes * (1 + (phase == "forward" and runs_reference(setup)))
    flops = sum(getattr(operation, field) * count for operation, count in stage.operations())
    peak = peak_of(setup)
    return flops * passes / peak if peak else 0.0


def hidden_fraction(setup: Setup, stage: Stage, phase: str, seconds: Number, passes: Number) -> Number:
    """The share (0 to 1) of ``seconds`` of exchanges that computation of so many passes can hide."""
    left = exposed_seconds(seconds, compute_seconds(setup, stage, phase, passes), 0.0)
    return 1 - left / maximum(seconds, LEAST_SECONDS)
