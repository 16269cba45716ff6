"""A job in words, as the headlines of memory, comm and step have it."""

from __future__ import annotations

from collections.abc import Iterable

from distsim.engine.jobs.resolve import Setup
from distsim.engine.jobs.tp_overlap import overlapped
from distsim.engine.jobs.tuning import stored_as
from distsim.report.prose import folded_to
from distsim.report.style import Style, bare
from distsim.specs.tuning import LETTERS, MIXERS, WHOLE

DEGREES = ("tp", "pp", "vpp", "cp", "ep", "etp", "dp")
GRAPHS = {"modules": "CUDA graphs of modules", "iteration": "CUDA graphs of whole steps"}
USUAL_SCHEDULES = ("1f1b", "interleaved-1f1b")


def job_lines(setup: Setup, term: Style, cluster: bool = False) -> list[str]:
    """What was computed, in a few lines; with the name of the cluster where links matter."""
    layout = setup.layout
    times = f"{layout.micro_batches:,} micro-batch{'es' if layout.micro_batches > 1 else ''}"
    on = f" on {layout.gpus:,} x {setup.gpu_words}" + (f" ({setup.cluster.name})" if cluster else "")
    packed = f" (samples of {layout.sample_tokens:,})" if layout.sample_tokens else ""
    read = f" (decoder {setup.model.decoder_context:,})" if setup.model.encoder_layers else ""
    also = packed + read + image_words(setup)
    parts = [
        term.bold(setup.model.name) + on,
        ", ".join(_layout_words(setup)),
        f"{times} of {layout.micro_batch:,} x {layout.seq:,} tokens{also} per rank and step",
        ", ".join(_software_words(setup)),
        *trained_words(setup),
    ]
    return folded_to(term.width, flowed([term.plain(part) for part in parts], "; ", term.width), 4)


def image_words(setup: Setup) -> str:
    """How many images there are in a sequence, and the tokens of each."""
    tower = setup.model.shown_tower
    if tower is None:
        return ""
    each = tower.tokens_of(tower.seen)
    return f" with {tower.images:g} image{'s' * (tower.images != 1)} of {each:,} tokens"


OVERLAPS = {True: "tp communication overlapped", False: "tp communication not overlapped"}

DATA_OVERLAPS = {True: "dp communication overlapped", False: "dp communication not overlapped"}


SEQUENCES = {True: "sequence parallel", False: "not sequence parallel"}


def _layout_words(setup: Setup) -> list[str]:
    """``tp 2``, ``pp 4``, ``ZeRO 1`` …; without degrees of one, and without some parts that the user did not set."""
    layout, asked = setup.layout, setup.job
    stated = ("etp",) if asked.etp is not None and setup.model.experts else ()
    degrees = [
        f"{name} {getattr(layout, name):,}"
        for name in DEGREES
        if (getattr(layout, name) > 1 and name != "etp") or name in stated
    ]
    degrees = degrees or ["one GPU"]
    degrees += (
        [SEQUENCES[bool(layout.sequence_parallel)]] if asked.sequence_parallel is not None and layout.tp > 1 else []
    )
    shards = f" over {layout.zero_group:,} rank{'s' * (layout.zero_group != 1)}"
    group = shards if layout.zero and layout.zero_group != layout.dp * layout.cp else ""
    schedule = [f"schedule {layout.schedule}"] if layout.pp > 1 and layout.schedule not in USUAL_SCHEDULES else []
    shared = [f"{layout.vocab_parallel} over the stages"] if layout.vocab_parallel else []
    return [*degrees, *schedule, *shared, f"ZeRO {layout.zero}{group}"]


def _software_words(setup: Setup) -> list[str]:
    """Recipe, optimizer and framework, and whatever is not the default."""
    return [setup.precision.name, _optimizer(setup), setup.framework.name, *further_words(setup)]


def _optimizer(setup: Setup) -> str:
    """The optimizer, and the rank of what it projects gradients to."""
    optimizer = setup.optimizer
    return f"{optimizer.name} of rank {optimizer.rank:,}" if optimizer.projection else optimizer.name


def further_words(setup: Setup) -> list[str]:
    """What a run does otherwise than by default: recomputation, kernels, graphs, overlap, offloading."""
    return [*_recompute_words(setup), *kernel_words(setup), *offload_words(setup)]


def _recompute_words(setup: Setup) -> list[str]:
    """What is computed again."""
    layout = setup.layout
    count = layout.recompute_layers
    some = f" of {count} layer{'s' if count > 1 else ''} per stage" if count > 0 else ""
    some += f", {layout.recompute_group} layers a checkpoint" if layout.recompute_group > 1 else ""
    some += _listed(setup.job.recompute_modules)
    some += f" by policy {setup.job.remat_policy}" if setup.job.remat_policy else ""
    return [f"{setup.recompute} recompute{some}"] if setup.recompute != "none" else []


def kernel_words(setup: Setup) -> list[str]:
    """How it is computed, where not as by default: attention, compiler, graphs, overlap, loss."""
    layout, tiles = setup.layout, setup.job.mlp_tiles
    return [
        *([f"{layout.attention} attention"] if layout.attention != "flash" else []),
        *(["compiled"] if setup.compiled else []),
        *([GRAPHS[setup.job.cuda_graphs]] if setup.job.cuda_graphs in GRAPHS else []),
        *(["expert all-to-all overlapped"] if setup.job.expert_overlap else []),
        *([f"{setup.job.expert_dispatcher} dispatcher"] if setup.job.expert_dispatcher else []),
        *([OVERLAPS[overlapped(setup)]] if setup.job.tp_comm_overlap is not None and layout.tp > 1 else []),
        *([DATA_OVERLAPS[setup.job.dp_comm_overlap]] if setup.job.dp_comm_overlap is not None else []),
        *([f"{setup.job.loss} loss"] if setup.job.loss else []),
        *([f"MLPs in {tiles:,} tiles"] if isinstance(tiles, int) else []),
        *([f"MLPs in tiles of up to {setup.model.hidden:,} tokens"] if tiles == "auto" else []),
        *([f"{setup.model.mtp_trained} MTP"] if setup.model.mtp_trained else []),
    ]  # fmt: skip


def _listed(modules: str | None) -> str:
    """`` of moe_act, layernorm and core_attn``; nothing where no modules are named."""
    return " of " + " and ".join(modules.rsplit(",", 1)).replace(",", ", ") if modules else ""


def offload_words(setup: Setup) -> list[str]:
    """What leaves the GPU, and where to."""
    part, told = setup.job.offload_fraction, dict[str, str]()
    if part is not None and part < 1:
        told["optimizer"] = f"{part:.0%} of the optimizer"
    told["activations"] = f"activations{_listed(setup.job.offload_modules)}"
    hosts = [told.get(kind, kind) for kind in setup.offload if kind not in setup.drives]
    places = ((setup.drives, "on NVMe drives"), (hosts, "in host memory"))
    return [f"{' and '.join(kinds)} {place}" for kinds, place in places if kinds]


REFERENCES = {"copy": ["a frozen copy as reference"], "base": ["the base as reference"]}


def trained_words(setup: Setup) -> list[str]:
    """What trains, where that is not everything."""
    tuning, beside = setup.tuning, REFERENCES.get(setup.job.reference or "", [])
    if tuning is None:
        return beside
    if not tuning.rank:
        return ["the projector alone trains", *beside]
    whole = "".join(f", {part}" for part in WHOLE if part in tuning.whole)
    name = stored_as(tuning)
    stored = f" on {name} weights" if name else ""
    kind = "DoRA adapters" if tuning.dora else "adapters"
    return [f"{kind} of rank {tuning.rank}{stored} ({_products(tuning.targets)}){whole} train", *beside]


MOST_NAMED = 4
"""Above so many projections of mixers they are counted, not named."""


def _products(targets: frozenset[str]) -> str:
    """The adapted products in the order in which they run."""
    mixers = [name for name in MIXERS if name in targets]
    counted = mixers[0] if len(mixers) > MOST_NAMED else ""
    named = [name for name in LETTERS if name in targets and (name == counted or not counted or name not in mixers)]
    return ", ".join(f"{len(mixers)} mixer projections" if name == counted else name for name in named)


def flowed(parts: list[str], joint: str, width: int) -> list[str]:
    """Parts on as few lines as hold them whole; one that is longer than a line goes on below."""
    made = [parts[0]]
    for part in parts[1:]:
        if len(bare(made[-1] + joint + part)) <= width - 1:
            made[-1] += joint + part
        else:
            made[-1] += joint.rstrip()
            made.append(part)
    return folded_to(width, made, 4)


def batch_words(batch: int, proposed: Iterable[int]) -> list[str]:
    """What is said below changes to a job of so many sequences per step, some of which have another number."""
    if all(one == batch for one in proposed):
        return []
    few = f"The job has {batch:,} sequence{'s' * (batch != 1)} per step"
    return [f"{few}; where --global-batch says otherwise, the ranks cannot share them equally."]
