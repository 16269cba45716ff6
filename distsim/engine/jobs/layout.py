"""The layout that a job's options come to: degrees that agree, micro-batches, what is sharded and computed again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from distsim.arrays import round_up
from distsim.engine.jobs.images import check_images
from distsim.engine.jobs.models import length_notes, packed_samples
from distsim.engine.jobs.profile import least_zero
from distsim.errors import DistsimError
from distsim.specs.cluster import Cluster
from distsim.specs.flags import flag
from distsim.specs.framework import Framework
from distsim.specs.layout import EVERY_LAYER, Layout
from distsim.specs.model import Model
from distsim.specs.precision import Precision
from distsim.specs.rules import broken, divisors, listed, most_imbalance
from distsim.specs.stage_layers import BALANCED


def layout_of(
    filled: Mapping[str, Any], origins: Mapping[str, str], model: Model, cluster: Cluster, least: int = 0
) -> tuple[Layout, list[str]]:
    """The layout of a job's options, whose replicas share states by at least the ``least`` stage of ZeRO; and what a
    user should know of it."""
    degrees, notes = _degrees(filled, model, cluster)
    sharers = degrees["dp"] * degrees["cp"]
    zero = raised(filled["zero"], least, sharers)
    if filled["zero_group"] and not zero:
        raise DistsimError(f"--zero-group {filled['zero_group']} has no effect with --zero 0", "add --zero 1, 2 or 3")
    if filled["sequence_parallel"] and degrees["tp"] == 1:
        notes.append("sequence parallelism has no effect with tp 1")
    if degrees["pp"] == 1 and tuple(filled["stage_layers"] or ()) == BALANCED:
        notes.append("--stage-layers balanced has no effect with pp 1")
    seq = filled["seq"] or model.context
    uneven = seq % (degrees["tp"] * degrees["cp"]) != 0
    sp = filled["sequence_parallel"] if filled["sequence_parallel"] is not None else not uneven
    sp = sp and filled["tp_mode"] in (None, "1d")
    if uneven and filled["sequence_parallel"] is None and degrees["tp"] > 1:
        notes.append(_uncut(degrees, seq, model))
    micro_batches = _micro_batches(filled, degrees["dp"])
    vpp, schedule = filled["vpp"], filled["schedule"]
    if vpp > 1 and degrees["pp"] == 1:
        raise DistsimError(f"--vpp {vpp} needs pipeline stages, but pp is 1", "add --pp 2 or more, or leave --vpp out")
    layout = Layout(
        **degrees, vpp=vpp, ep=filled["ep"], etp=filled["etp"], zero=zero,
        zero_group=filled["zero_group"] or sharers, sequence_parallel=int(sp and degrees["tp"] > 1),
        cp_mode=filled["cp_mode"], vocab_parallel=filled["vocab_parallel"] or "", seq=seq,
        loss_parallel=int(filled["loss_parallel"]), micro_batch=filled["micro_batch"], micro_batches=micro_batches,
        selective=int(filled["recompute"] == "selective"), recompute_layers=_recompute_layers(filled),
        recompute_group=filled["recompute_group"] or 1,
        schedule=schedule or ("interleaved-1f1b" if vpp > 1 else "1f1b"), attention=filled["attention"],
    )  # fmt: skip
    layout = packed_samples(filled["sample_tokens"], model, layout)
    told = origins.get("zero") == "you" and filled["offload"] in ("none", "activations")
    if zero and told and layout.sharers(model.experts is not None) == 1:
        notes.append(f"ZeRO {zero} saves nothing: there are no data parallel ranks to share the states")
    notes += _batch_notes(filled, layout)
    return layout, [*notes, *length_notes(model, layout, filled["seq"] is not None)]


def _uncut(degrees: Mapping[str, int], seq: int, model: Model) -> str:
    """A note where ranks do not divide what sequence parallelism would cut."""
    cut = f"tp {degrees['tp']}" + (f" x cp {degrees['cp']}" if degrees["cp"] > 1 else "")
    whole = "an image" if model.patches is not None else "a sequence"
    return f"no sequence parallelism: {cut} does not divide the {seq:,} tokens of {whole}"


def needs_replicas(filled: Mapping[str, Any]) -> bool:
    """Whether options ask for what only ranks with whole gradients do: compressing them, or another way to agree."""
    return (filled.get("compress") or "none") != "none" or (filled.get("sync") or "allreduce") != "allreduce"


def raised(zero: int, least: int, sharers: int) -> int:
    """The ZeRO stage that runs where software shards over several ranks by at least one."""
    return max(zero, least) if sharers > 1 else zero


def _batch_notes(filled: Mapping[str, Any], layout: Layout) -> list[str]:
    """A note where nobody says how many micro-batches a pipeline has, and one neither fills it nor its memory."""
    if layout.pp == 1 or filled["global_batch"] is not None:
        return []
    full = layout.pp * layout.micro_batch * layout.dp
    return [
        f"--global-batch not given: one micro-batch per step, so each of {layout.pp} pipeline stages holds the "
        f"activations of one and mostly waits; --global-batch {full} makes {layout.pp} micro-batches"
    ]


def check_capacity(options: Mapping[str, Any], model: Model) -> None:
    """Raise DistsimError for a capacity factor or an imbalance that nothing reads, or that contradict each other."""
    for name in ("capacity_factor", "expert_imbalance"):
        if options[name] is not None and model.experts is None:
            typed = f"{flag(name)} {options[name]:g}"
            raise DistsimError(f"{typed} has no effect: {model.name} has no experts", "leave it out")
    factor, busiest = options["capacity_factor"], options["expert_imbalance"]
    if busiest is None or model.experts is None:
        return
    refuse_imbalance(model, busiest, model.experts.count, "no rank has more than")
    if factor is not None:
        raise DistsimError(
            f"--expert-imbalance has no effect with --capacity-factor {factor:g}: all experts have equally many slots",
            "keep one of them",
        )


def refuse_imbalance(model: Model, stated: float, ep: int, limit: str) -> None:
    """Raise DistsimError for an imbalance over the most that one of ``ep`` ranks can have; ``limit`` stands before that
    number."""
    if model.experts is None or stated <= (most := most_imbalance(model, ep)):
        return
    chosen = f"{model.experts.per_token} of {model.experts.choices} experts per token"
    raise DistsimError(
        f"--expert-imbalance {stated:g} is impossible: with {chosen} {limit} {most:g} times the mean",
        f"give 1 to {most:g}",
    )


def usual_etp(filled: Mapping[str, Any], model: Model, framework: Framework) -> int:
    """Experts shard like the rest of the layer, unless the framework's expert parallelism takes the tensor-parallel
    ranks."""
    if model.experts is None:
        return 1
    return 1 if filled["ep"] > 1 and not framework.usual.get("experts_like_tp") else int(filled["tp"])


def _degrees(filled: Mapping[str, Any], model: Model, cluster: Cluster) -> tuple[dict[str, int], list[str]]:
    """tp, pp, cp, dp and gpus that agree; what is open follows from the rest."""
    tp, pp, cp, dp, gpus = (filled[name] for name in ("tp", "pp", "cp", "dp", "gpus"))
    parallel, notes = tp * pp * cp, []
    spelled = " * ".join(f"{name} {filled[name]}" for name in ("tp", "pp", "cp") if filled[name] > 1) or "tp 1"
    if gpus is None:
        node = cluster.gpus_per_node
        gpus = parallel * dp if dp else round_up(max(node, parallel), parallel)
        if not dp and gpus != node:
            notes.append(f"--gpus not given: using {gpus}, the fewest that {spelled} needs")
    if gpus % parallel:
        problem = f"{spelled} = {parallel} GPUs per model copy does not divide {gpus} GPUs"
        raise DistsimError(problem, *_that_divide(filled, model, gpus, parallel))
    if dp is not None and dp * parallel != gpus:
        raise DistsimError(
            f"dp {dp} times {spelled} = {dp * parallel} GPUs, but --gpus says {gpus}",
            f"leave --dp out (it would be {gpus // parallel}), or use --gpus {dp * parallel}",
        )
    return {"tp": tp, "pp": pp, "cp": cp, "dp": gpus // parallel}, notes


def _that_divide(filled: Mapping[str, Any], model: Model, gpus: int, parallel: int) -> list[str]:
    """What would be right where a copy of the model does not divide the GPUs: other degrees, or as many GPUs nearby,
    where the model can be cut so."""
    most = {"tp": model.heads or model.hidden, "cp": filled["seq"] or model.context}

    def fits(name: str, degree: int) -> bool:
        return degree <= model.layers if name == "pp" else not most[name] % degree

    found = []
    for name in ("tp", "pp", "cp"):
        left, rest = divmod(gpus * filled[name], parallel)
        if filled[name] > 1 and not rest:
            found.append(f"valid --{name}: {listed([one for one in divisors(left) if fits(name, one)])}")
    if all(fits(name, filled[name]) for name in ("tp", "pp", "cp")):
        near = sorted({gpus // parallel * parallel, round_up(gpus, parallel)} - {0})
        found.append(f"valid --gpus nearby: {listed(near)}")
    return found


def _recompute_layers(filled: Mapping[str, Any]) -> int:
    if filled["recompute"] != "full":
        return 0
    return filled["recompute_layers"] or EVERY_LAYER


def _micro_batches(filled: Mapping[str, Any], dp: int) -> int:
    micro, whole = filled["micro_batch"], filled["global_batch"]
    if whole is None:
        return 1
    if whole % (micro * dp):
        step = micro * dp
        near = sorted({whole // step * step, round_up(whole, step)} - {0})
        raise DistsimError(
            f"global batch {whole} is not a multiple of micro batch {micro} times dp {dp} = {step}",
            f"valid nearby: --global-batch {' or '.join(map(str, near))}",
        )
    return int(whole // (micro * dp))


def refuse_broken(model: Model, layout: Layout) -> None:
    """Raise the rules between a model and a layout that do not hold."""
    if problems := broken(model, layout):
        raise DistsimError(
            problems[0].problem(model, layout), problems[0].mend(model, layout),
            *(f"also: {rule.problem(model, layout)}" for rule in problems[1:]),
        )  # fmt: skip


def laid_out(
    filled: dict[str, Any], origins: dict[str, str], model: Model, cluster: Cluster, framework: Framework,
    precision: Precision,
) -> tuple[Layout, list[str]]:  # fmt: skip
    """The layout that options come to where no rule between it and the model is broken, and notes on it."""
    filled["etp"] = filled["etp"] or usual_etp(filled, model, framework)
    least = 0 if needs_replicas(filled) else least_zero(framework, precision.name, filled["pp"])
    layout, notes = layout_of(filled, origins, model, cluster, least)
    layout = layout.with_(experts_whole=int(framework.traffic.experts_whole))
    check_images(model, layout)
    refuse_broken(model, layout)
    return layout, notes
