"""What a framework can run: which degrees, schedules and ZeRO stages it has, and which of them go together."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from distsim.arrays import Number, round_up
from distsim.errors import DistsimError
from distsim.specs.base import Spec
from distsim.specs.context_modes import GATHERED, TRADED, context_modes, has_sinks, whole_kv_heads
from distsim.specs.cuts import common_kv_heads
from distsim.specs.layout import OFFLOADS, ZERO_STAGES, Layout, Offload
from distsim.specs.model import Model
from distsim.specs.offloads import offload_problems
from distsim.specs.quantity import Count, ZeroStage
from distsim.specs.rules import divisors, enough_to_interleave, in_rounds, listed, multiples_of_stages

if TYPE_CHECKING:
    from distsim.specs.framework import Framework
    from distsim.specs.job import Job


class Supports(Spec):
    """Only what a framework's documentation or code rules out is stated; all else is taken to run."""

    tp: bool = True
    pp: bool = True
    cp: bool = True
    ep: bool = True
    experts_tp: bool = True
    """Models with experts run tensor parallel, too."""
    copied_kv_heads: bool = True
    """Tensor parallel ranks may be more than key-value heads, which are then copied."""
    tied_pipeline: bool = True
    """A word embedding that is the output layer too may be on two pipeline stages."""
    whole_sequence_experts: bool = True
    """Experts go with tensor parallelism without sequence parallelism, whose ranks all hold whole sequences."""
    schedules: tuple[str, ...] | None = None
    """Pipeline schedules that it has; None where nobody looked."""
    interleaving: Literal["any", "enough", "multiples", "rounds"] = "any"
    """Micro-batches that interleaved 1F1B takes: ``enough`` is at least as many as stages (Megatron-LM, which now deals
    them in groups of a size to choose), ``multiples`` of the stages, or equal ``rounds`` (torch)."""
    zero: tuple[int, ...] = ZERO_STAGES
    pipeline_zero: ZeroStage = 3
    """The highest ZeRO stage that goes with pipeline stages."""
    no_sync_zero: ZeroStage = 3
    """The highest ZeRO stage under which the reduction of gradients can be put off to the last micro-batch."""
    zero_group: bool = True
    """Sharding groups may be smaller than the data parallel ranks."""
    cp_chunks: Count = 1
    """Context parallelism cuts the sequence into so many chunks per rank (2: causal work is balanced)."""
    windowed_ring: bool = True
    """The ring of context parallelism attends in windows, and it and gathered keys beside sinks."""
    traded_kv_heads: bool = True
    """All-to-alls of context parallel ranks copy key-value heads of which there are fewer."""
    cp_modes: tuple[Literal["ring", "all_gather", "all_to_all"], ...] = ()
    """What a switch lets context parallel ranks exchange; none where nobody looked."""
    offload: tuple[Offload, ...] = OFFLOADS
    offload_optimizer: Literal["alone", "with parameters"] = "alone"
    """``with parameters``: torch moves shards to host memory, and the optimizer is where its shards are; an optimizer
    that lives there alone (torchao's) is for a single GPU."""
    offload_zero: ZeroStage = 0
    """The lowest ZeRO stage from which optimizer states leave the GPU."""
    offload_layers: Literal["anywhere", "alone", "checkpoints"] = "anywhere"
    """``alone``: activations of whole layers leave it only without pipeline stages and recomputation (those of modules
    go with both); ``checkpoints``: only the inputs of layers that are computed again."""
    zeropp: bool = False
    """It has the parts of ZeRO++."""
    drives: bool = False
    """Offloaded states and parameters may go on to NVMe drives."""
    cuda_graphs: tuple[Literal["modules", "iteration"], ...] = ()
    """CUDA graphs that switches turn on."""
    expert_overlap: bool = False
    """A switch pairs the forward of one micro-batch with the backward of another, whose exchanges of experts hide."""
    dispatchers: tuple[Literal["alltoall", "deepep", "hybridep"], ...] = ()
    """What a switch lets send tokens to experts: to each of them, or once to each node and rank that has some; none
    where nobody looked."""
    dp_overlap: bool = False
    """A switch turns off that data parallel exchanges run beside computation."""
    tp_pieces: bool = False
    """A switch makes the compiler cut tensor parallel exchanges into pieces beside products."""
    modules: bool = False  # lists of modules say what selective recomputation runs again, and which tensors leave
    losses: tuple[str, ...] = ()
    """Losses that a switch puts in the place of its own."""
    pure_bf16: bool = False
    """A switch, or the dtype that a model is loaded in, trains weights and states in bf16 without a master copy."""
    master_zero: ZeroStage = 0
    """The lowest ZeRO stage at which an fp32 master copy stands beside weights of 16 bits."""
    tiles_mlp: bool = False  # dense MLPs may run on one tile of tokens after another (ALST's TiledMLP)
    tunes: bool = False
    """It fine-tunes with adapters by a switch of its own, or through peft."""
    some_layers: bool = True
    """Some layers of a stage may be computed again while others are not; off where all follow one policy."""
    recompute_groups: bool = False
    """One checkpoint may cover several layers."""
    uneven: bool = True
    """Pipeline stages may hold unlike numbers of layers, if only where the user places them."""


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
        lambda s, m, y: (common_kv_heads(m) % y.tp == 0) | s.copied_kv_heads,
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
        ("zero_group",),
        lambda s, m, y: s.zero_group | _alone(y) | (y.zero_group == y.dp * y.cp),
        lambda f, s, m, y: f"{f} shards over all {y.dp * y.cp} data parallel ranks, not over groups of {y.zero_group}",
        lambda s, m, y: "leave --zero-group out",
    ),
    SupportRule(
        ("recompute_layers",),
        lambda s, m, y: s.some_layers | (y.recompute_layers <= 0) | (y.recompute_layers * y.pp >= m.layers),
        lambda f, s, m, y: f"{f} recomputes all layers or none, not {y.recompute_layers} per stage",
        lambda s, m, y: "leave --recompute-layers out",
    ),
    SupportRule(
        ("cp_mode",),
        lambda s, m, y: (y.cp == 1) | (y.cp_mode in context_modes(s, m)),
        lambda f, s, m, y: (
            f"{f} has no --cp-mode {y.cp_mode} for {m.name}, which "
            + ("has attention sinks" if has_sinks(m) else "has windowed attention")
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
