"""The rules of what a framework runs of a job, and what is told of those that a layout breaks."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from distsim.arrays import Number, round_up
from distsim.errors import DistsimError
from distsim.specs.context_modes import GATHERED, TRADED, context_modes, has_sinks, whole_kv_heads
from distsim.specs.cuts import common_kv_heads
from distsim.specs.layout import Layout
from distsim.specs.model import Model
from distsim.specs.offloads import offload_problems
from distsim.specs.rules import divisors, enough_to_interleave, in_rounds, listed, multiples_of_stages
from distsim.specs.support import Supports

if TYPE_CHECKING:
    from distsim.specs.framework import Framework
    from distsim.specs.job import Job


class SupportRule(NamedTuple):
    """``holds`` takes a layout of numbers or arrays; ``problem`` and ``mend`` speak of one layout."""

    dimensions: tuple[str, ...]
    """The options that it is about."""
    holds: Callable[[Supports, Model, Layout], Number]
    problem: Callable[[str, Supports, Model, Layout], str]
    mend: Callable[[Supports, Model, Layout], str]
    figure: str = ""
    """The field of ``Supports`` that it reads, where that has a source of its own."""


def _among(value: Any, allowed: tuple[Any, ...]) -> Any:
    found = value == allowed[0]
    for one in allowed[1:]:
        found = found | (value == one)
    return found


def _alone(y: Layout) -> Number:
    """Nothing is sharded among data parallel ranks."""
    return (y.dp * y.cp == 1) | (y.zero == 0)


def _interleaved(s: Supports, m: Model, y: Layout) -> Number:
    if s.interleaving == "any":
        return y.pp >= 1
    takes = {"enough": enough_to_interleave, "multiples": multiples_of_stages, "rounds": in_rounds}[s.interleaving]
    return (y.pp == 1) | (y.schedule != "interleaved-1f1b") | takes(y)


def _degree(name: str, words: str) -> SupportRule:
    return SupportRule(
        (name,),
        lambda s, m, y: (getattr(y, name) == 1) | getattr(s, name),
        lambda f, s, m, y: f"{f} has no {words}, but {name} is {getattr(y, name)}",
        lambda s, m, y: f"leave --{name} out, or name another framework",
    )


def _copies_keys(supports: Supports, model: Model) -> bool:
    copied = supports.copied_kv_heads
    return copied is True or (copied == "ungated" and not model.attention_gate)


SUPPORT_RULES: tuple[SupportRule, ...] = (
    _degree("tp", "tensor parallelism"),
    _degree("pp", "pipeline parallelism"),
    _degree("cp", "context parallelism"),
    _degree("ep", "expert parallelism"),
    SupportRule(
        ("tp",),
        lambda s, m, y: (m.experts is None) | s.experts_tp | (y.tp == 1),
        lambda f, s, m, y: f"{f} has no tensor parallelism for mixture-of-experts models, but tp is {y.tp}",
        lambda s, m, y: "leave --tp out, or name another framework",
        "experts_tp",
    ),
    SupportRule(
        ("tp",),
        lambda s, m, y: (common_kv_heads(m) % y.tp == 0) | _copies_keys(s, m),
        lambda f, s, m, y: (
            f"{f} does not replicate the {common_kv_heads(m)} key-value heads of {m.name} over ranks, but tp is {y.tp}"
        ),
        lambda s, m, y: f"valid degrees: {listed(divisors(common_kv_heads(m)))}",
        "copied_kv_heads",
    ),
    SupportRule(
        ("pp",),
        lambda s, m, y: s.tied_pipeline | (not m.tied_embeddings) | (y.pp == 1),
        lambda f, s, m, y: f"{f} cannot pipeline {m.name}, whose head is tied to its embedding, but pp is {y.pp}",
        lambda s, m, y: "leave --pp out, or name another framework",
        "tied_pipeline",
    ),
    SupportRule(
        ("tp", "sequence_parallel"),
        lambda s, m, y: (m.experts is None) | s.whole_sequence_experts | (y.tp == 1) | (y.sequence_parallel == 1),
        lambda f, s, m, y: (
            f"{f} trains experts with tensor parallelism only under sequence parallelism, which is off with tp {y.tp}"
        ),
        lambda s, m, y: "add --sequence-parallel, or use --tp 1",
        "whole_sequence_experts",
    ),
    SupportRule(
        ("ep", "etp"),
        lambda s, m, y: (m.experts is None) | s.lone_experts | (y.ep > 1) | (y.etp == y.tp),
        lambda f, s, m, y: (
            f"{f} does not add up the gradients of experts over the {y.tp} tensor parallel ranks that cut them in "
            f"{y.etp} without expert parallelism"
        ),
        lambda s, m, y: f"use --ep {y.tp // y.etp} or more, or --etp {y.tp}",
        "lone_experts",
    ),
    SupportRule(
        ("schedule",),
        lambda s, m, y: (y.pp == 1) | (s.schedules is None) | _among(y.schedule, s.schedules or ("",)),
        lambda f, s, m, y: f"{f} has no pipeline schedule {y.schedule}",
        lambda s, m, y: f"it supports: {', '.join(s.schedules or ())}",
    ),
    SupportRule(
        ("schedule", "global_batch"),
        _interleaved,
        lambda f, s, m, y: (
            f"{f} cannot interleave {y.micro_batches} micro-batch(es) over {y.pp} stages"
            + (" in equal rounds" if s.interleaving == "rounds" else "")
        ),
        lambda s, m, y: (
            f"use --schedule 1f1b, or --global-batch {y.micro_batch * y.dp * round_up(y.micro_batches, y.pp)}"
        ),
    ),
    SupportRule(
        ("zero",),
        lambda s, m, y: _among(y.zero, s.zero) | _alone(y),
        lambda f, s, m, y: f"{f} has no ZeRO {y.zero}",
        lambda s, m, y: f"it supports: --zero {', '.join(map(str, s.zero))}",
    ),
    SupportRule(
        ("zero", "pp"),
        lambda s, m, y: (y.pp == 1) | (y.zero <= s.pipeline_zero) | _alone(y),
        lambda f, s, m, y: f"{f} does not run ZeRO {y.zero} with {y.pp} pipeline stages",
        lambda s, m, y: f"use --zero {s.pipeline_zero} or less, or --pp 1",
    ),
    SupportRule(
        ("cp", "zero"),
        lambda s, m, y: (y.cp == 1) | _among(y.zero, s.context_zero) | (y.cp_mode == TRADED),
        lambda f, s, m, y: (
            f"{f} has context parallelism by {y.cp_mode} only with ZeRO {', '.join(map(str, s.context_zero))} "
            f"(FSDP2), but ZeRO is {y.zero}"
        ),
        lambda s, m, y: f"use --zero {max(s.context_zero)}, or --cp-mode {TRADED} (DeepSpeed's)",
        "context_zero",
    ),
    SupportRule(
        ("zero_group",),
        lambda s, m, y: s.zero_group | _alone(y) | (y.zero_group == y.dp * y.cp),
        lambda f, s, m, y: f"{f} shards over all {y.dp * y.cp} data parallel ranks, not over groups of {y.zero_group}",
        lambda s, m, y: "leave --zero-group out",
        "zero_group",
    ),
    SupportRule(
        ("recompute_layers",),
        lambda s, m, y: s.some_layers | (y.recompute_layers <= 0) | (y.recompute_layers * y.pp >= m.layers),
        lambda f, s, m, y: f"{f} recomputes all layers or none, not {y.recompute_layers} per stage",
        lambda s, m, y: "leave --recompute-layers out",
    ),
    SupportRule(
        ("recompute_layers", "vpp"),
        lambda s, m, y: (s.recompute_counts == "stages") | (y.recompute_layers <= 0) | (y.recompute_layers % y.vpp == 0)
        | (y.recompute_layers * y.pp >= m.layers),
        lambda f, s, m, y: (
            f"{f} recomputes the same number of layers in each of {y.vpp} model chunks, not {y.recompute_layers} per "
            "stage"
        ),
        lambda s, m, y: (
            f"use --recompute-layers {round_up(y.recompute_layers, y.vpp)}, which is {y.vpp} x --recompute-num-layers "
            f"{round_up(y.recompute_layers, y.vpp) // y.vpp}"
        ),
        "recompute_counts",
    ),
    SupportRule(
        ("cp_mode",),
        lambda s, m, y: (y.cp == 1) | (y.cp_mode in context_modes(s, m)),
        lambda f, s, m, y: (
            f"{f} has no --cp-mode {y.cp_mode} for {m.name}, which "
            + ("has attention sinks" if has_sinks(m) and not m.compressed_attention else "has windowed attention")
        ),
        lambda s, m, y: f"use --cp-mode {' or '.join(context_modes(s, m))}",
        "windowed_ring",
    ),
    SupportRule(
        ("cp_mode",),
        lambda s, m, y: (y.cp == 1) | s.traded_kv_heads | (y.cp_mode != TRADED) | whole_kv_heads(m, y.tp, y.cp),
        lambda f, s, m, y: (
            f"{f} does not copy key-value heads, of which a rank of {m.name} has {common_kv_heads(m) // y.tp}, but "
            f"all-to-all trades them over {y.cp} context parallel ranks"
        ),
        lambda s, m, y: f"valid degrees: {listed(divisors(common_kv_heads(m) // y.tp))}; or use --cp-mode {GATHERED}",
        "traded_kv_heads",
    ),
    SupportRule(
        ("cp", "seq"),
        lambda s, m, y: (y.cp == 1) | (y.seq % (s.cp_chunks * y.cp) == 0),
        lambda f, s, m, y: (
            f"{f} cuts a sequence into {s.cp_chunks} chunks per context parallel rank, but {y.seq} tokens are not "
            f"a multiple of {s.cp_chunks * y.cp}"
        ),
        lambda s, m, y: f"use a sequence that is a multiple of {s.cp_chunks * y.cp}",
    ),
)  # fmt: skip


def unsupported(supports: Supports, model: Model, layout: Layout) -> list[SupportRule]:
    """The rules of its framework that one layout breaks, in order."""
    return [rule for rule in SUPPORT_RULES if not rule.holds(supports, model, layout)]


def supported(supports: Supports, model: Model, layout: Layout) -> Any:
    """Mask over the layouts of an array-valued ``layout``: True where all rules hold."""
    mask: Any = True
    for rule in SUPPORT_RULES:
        mask = mask & rule.holds(supports, model, layout)
    return mask


class Lack(NamedTuple):
    """What a framework cannot run of a job, what it runs instead, and the field of ``Supports`` that says so."""

    problem: str
    mend: str
    figure: str


def lacks(framework: "Framework", model: Model, layout: Layout, offload: tuple[str, ...], job: "Job") -> list[Lack]:
    """What a framework cannot run of a job in one layout."""
    name, supports = framework.name, framework.supports
    broken = unsupported(supports, model, layout)
    told = [Lack(rule.problem(name, supports, model, layout), rule.mend(supports, model, layout), rule.figure)
            for rule in broken]  # fmt: skip
    moved = offload_problems(name, supports, offload, layout, bool(job.offload_modules))
    told += [Lack(problem, mend, "offload") for problem, mend in moved]
    mend = "leave --{} out, or use --framework deepspeed"
    if job.zeropp and not supports.zeropp:
        told.append(Lack(f"{name} has no ZeRO++, but --zeropp is {job.zeropp}", mend.format("zeropp"), "zeropp"))
    if job.mlp_tiles is not None and not supports.tiles_mlp:
        problem = f"{name} has no MLPs in tiles, but --mlp-tiles is {job.mlp_tiles}"
        told.append(Lack(problem, mend.format("mlp-tiles"), "tiles_mlp"))
    return told


def refuse_unsupported(
    framework: "Framework", model: Model, layout: Layout, offload: tuple[str, ...], job: "Job"
) -> None:
    """Raise what a framework cannot run of a job in one layout, with where that is written."""
    if lacking := lacks(framework, model, layout, offload, job):
        first, *more = lacking
        found = framework.source.get(f"supports.{first.figure}") or framework.source.get("supports")
        source = [f"source: {found}"] if found else []
        raise DistsimError(first.problem, first.mend, *(f"also: {other.problem}" for other in more), *source)


def all_the_same(problem: str) -> str:
    """A note on what the default framework would refuse if somebody named it."""
    return f"{problem}; computed anyway, as no --framework is given"
