"""From a job as stated to a setup in which nothing is open: presets loaded, degrees solved, rules checked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from distsim import catalog
from distsim.arrays import round_up
from distsim.engine.jobs.graphs import settled
from distsim.engine.jobs.hardware import hardware
from distsim.engine.jobs.models import as_asked, asked_of, length_notes, load_model, packed_samples, reading_notes
from distsim.engine.jobs.placement import chunk_layers, placement_note, stage_sums
from distsim.engine.jobs.profile import as_stored, framework_notes, job_kernels, padded_vocab
from distsim.engine.jobs.tuning import tuning_notes, tuning_of, tuning_options
from distsim.engine.jobs.vocabulary import check_vocabulary
from distsim.engine.timelines.schedule_chunks import chunks_of_stages, settle_chunks
from distsim.errors import DistsimError
from distsim.layers.ledger import Context
from distsim.specs.accelerator import Accelerator
from distsim.specs.cluster import Cluster
from distsim.specs.experts import check_capacity
from distsim.specs.framework import Framework
from distsim.specs.job import Job
from distsim.specs.kernels import Kernels
from distsim.specs.layout import Layout
from distsim.specs.model import Model
from distsim.specs.optimizer import Optimizer
from distsim.specs.precision import Precision
from distsim.specs.rules import broken, listed
from distsim.specs.support import refuse_unsupported
from distsim.specs.tuning import Tuning

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, repr=False, eq=False)
class Setup:
    """A job with every preset loaded and every number known."""

    job: Job
    model: Model
    accelerator: Accelerator
    cluster: Cluster
    framework: Framework
    kernels: Kernels
    precision: Precision
    optimizer: Optimizer
    layout: Layout
    chunk_layers: tuple[int, ...]
    """Layers of each model chunk in model order; stage s holds chunks s, s + pp, s + 2 pp …"""
    recompute: str
    vocab_padded: int
    origins: Mapping[str, str]
    """Where each option's value comes from: you, the framework, the model, or a default."""
    notes: tuple[str, ...] = ()
    offload: tuple[str, ...] = ()
    """What lives in host memory: optimizer, parameters, activations."""
    tuning: Tuning | None = None
    """Adapters on frozen weights; None where everything trains."""
    offload_share: float = 1.0
    """How much of the activations that live in host memory does; only replays have less than all."""
    evaluated: float = 0.0
    """Forward passes over a whole batch beside each step of a measured run (engine/runs/evaluation.py)."""

    @property
    def stage_layers(self) -> tuple[int, ...]:
        """Layers of each pipeline stage, all its chunks together."""
        return stage_sums(self.chunk_layers, self.layout.pp, self.layout.schedule)

    @property
    def compiled(self) -> bool:
        """Whether torch.compile runs: as the job says, or else the framework's defaults."""
        return bool(self.framework.defaults.get("compile") if self.job.compile is None else self.job.compile)

    @property
    def gpu_power(self) -> float | None:
        """Watts of the limit under which the accelerators run; None where they have all that they are rated for."""
        return self.accelerator.power if self.accelerator.rated_power else None

    @property
    def gpu_words(self) -> str:
        """``h100-sxm``, or ``h100-sxm at 500 W`` under a limit that the job or its cluster states."""
        stated = self.gpu_power and (self.job.gpu_power or self.cluster.gpu_power)
        return f"{self.accelerator.name} at {self.gpu_power:g} W" if stated else self.accelerator.name

    def context(self) -> Context:
        """What the layers need to state their operations."""
        return Context(
            self.model, self.layout, self.precision, self.kernels,
            dropout=self.job.dropout is not False, vocab_padded=self.vocab_padded, tuning=self.tuning,
            capacity=self.job.capacity_factor, expert_imbalance=self.job.expert_imbalance,
        )  # fmt: skip

    def to_dict(self) -> dict[str, Any]:
        """Every resolved field, as the JSON's ``job``."""
        y = self.layout
        return {
            "model": self.model.name, "gpu": self.accelerator.name, "gpus": y.gpus, "cluster": self.cluster.name,
            "gpu_power": self.gpu_power, "framework": self.framework.name,
            "tp": y.tp, "pp": y.pp, "cp": y.cp, "ep": y.ep, "etp": y.etp, "dp": y.dp, "vpp": y.vpp,
            "schedule": y.schedule, "stage_layers": list(self.stage_layers), "zero": y.zero, "zero_group": y.zero_group,
            "sequence_parallel": bool(y.sequence_parallel), "loss_parallel": bool(y.loss_parallel),
            "cp_mode": y.cp_mode, "seq": y.seq, "micro_batch": y.micro_batch,
            "global_batch": y.micro_batch * y.micro_batches * y.dp, "micro_batches": y.micro_batches,
            "recompute": self.recompute, "recompute_layers": y.recompute_layers,
            "attention": y.attention, "cuda_graphs": self.kernels.graphs,
            "expert_overlap": self.kernels.expert_overlap,
            "dropout": self.job.dropout is not False, "precision": self.precision.name,
            "optimizer": self.optimizer.name, "offload": ",".join(self.offload) or "none",
            "vocab_padded": self.vocab_padded, **tuning_options(self.tuning),
            **asked_of(self.model, y, self.job),
            **({"vocab_parallel": y.vocab_parallel} if y.vocab_parallel else {}),
        }  # fmt: skip


def resolve(job: Job, overrides: Mapping[str, Any] | None = None) -> Setup:
    """Fill what the job leaves open; raises DistsimError for what does not exist or does not fit together.

    ``overrides`` replaces loaded specs by name (accelerator, cluster, framework …), for replaying measured runs.
    """
    given = dict(overrides or {})
    framework: Framework = given.get("framework") or catalog.load("frameworks", job.framework)
    filled, origins = _fill(job, framework)
    chunks_of_stages(filled, origins)
    chunk_notes = settle_chunks(filled, origins, framework.supports)
    _refuse_unsupported(filled, framework)
    model, stored = as_stored(load_model(job.model).spec, framework)
    check_capacity(filled, model.name, model.experts)
    model = as_asked(model, filled["mtp"] or 0, filled["lora_rank"], filled["decoder_seq"])
    accelerator, cluster, limit_notes = hardware(filled, given)
    filled["etp"] = filled["etp"] or _usual_etp(filled, model, framework)
    layout, notes = _layout(filled, model, cluster)
    check_vocabulary(model, layout)
    notes += [*limit_notes, *chunk_notes, *reading_notes(job.model), *stored]
    problems = broken(model, layout)
    if problems:
        raise DistsimError(
            problems[0].problem(model, layout), problems[0].mend(model, layout),
            *(f"also: {rule.problem(model, layout)}" for rule in problems[1:]),
        )  # fmt: skip
    offload = () if filled["offload"] == "none" else tuple(filled["offload"].split(","))
    if "framework" in job.model_fields_set and not given.get("framework"):
        refuse_unsupported(framework, model, layout, offload)
    precision = catalog.load("precisions", filled["precision"])
    kernels = job_kernels(framework, model, accelerator, precision.name, bool(filled["compile"]), filled["loss"])
    kernels, left_out = settled(job, kernels, framework, model, accelerator, precision, layout, offload)
    tuning = tuning_of(filled, job, framework, kernels, model, precision)
    notes += left_out
    notes += framework_notes(framework, model, layout, kernels, origins, precision.name)
    notes += tuning_notes(tuning, model, kernels, framework, precision, job.lora_targets)
    rates = (model.attention_dropout, model.hidden_dropout, model.embedding_dropout)
    if job.dropout is not None and not any(rates) and not kernels.dropout_always:
        notes.append(f"--{'' if job.dropout else 'no-'}dropout has no effect: {model.name} has none")
    chunks = chunk_layers(filled["stage_layers"], model, layout, framework)
    if note := placement_note(filled["stage_layers"], chunks, model, layout, framework):
        notes.append(note)
    most = max(stage_sums(chunks, layout.pp, layout.schedule))
    if layout.recompute_layers > most:
        all_of = f"no stage has more than {most} layers"
        notes.append(f"--recompute-layers {layout.recompute_layers} recomputes all: {all_of}")
    return Setup(
        job, model, accelerator, cluster, framework, kernels, precision,
        catalog.load("optimizers", filled["optimizer"]), layout, chunks, filled["recompute"],
        padded_vocab(framework, model, layout.vocab_ranks), origins, tuple(notes),
        offload, tuning,
    )  # fmt: skip


_DEFAULTS: dict[str, Any] = {
    "tp": 1, "cp": 1, "pp": 1, "ep": 1, "vpp": 1, "zero": 0, "micro_batch": 1, "recompute": "none",
    "attention": "flash", "precision": "bf16", "optimizer": "adamw", "offload": "none", "quantize": "none",
    "cp_mode": "ring", "loss_parallel": True,
}  # fmt: skip


def _fill(job: Job, framework: Framework) -> tuple[dict[str, Any], dict[str, str]]:
    """Options from the job, then the framework's defaults, then distsim's; and where each came from."""
    filled: dict[str, Any] = {}
    origins: dict[str, str] = {}
    unknown = [name for name in framework.defaults if name not in Job.model_fields]
    if unknown:
        raise DistsimError(f"framework {framework.name} sets unknown options: {', '.join(unknown)}")
    for name in Job.model_fields:
        for origin, source in (
            ("you", getattr(job, name)),
            (f"framework {framework.name}", framework.defaults.get(name)),
            ("default", _DEFAULTS.get(name)),
        ):
            if source is not None:
                filled[name], origins[name] = source, origin
                break
        else:
            filled[name] = None
    return filled, origins


def _refuse_unsupported(filled: Mapping[str, Any], framework: Framework) -> None:
    """Options of the contract whose physics is not there yet are refused, never ignored."""
    if filled["offload_to"] and filled["offload"] == "none":
        raise DistsimError(
            f"--offload-to {filled['offload_to']} has no effect without --offload", "add --offload optimizer"
        )
    if filled["offload_to"] == "nvme":
        raise DistsimError("--offload-to nvme is not supported yet", "use --offload-to cpu, or leave it out")
    if "parameters" in filled["offload"] and filled["zero"] != 3:
        raise DistsimError(
            f"--offload parameters needs sharded parameters, but --zero is {filled['zero']}", "add --zero 3"
        )
    if filled["compile"] and not framework.compiled:
        raise DistsimError(
            f"--compile has no effect with framework {framework.name}: its profile does not say what it fuses",
            "leave --compile out",
        )
    if filled["recompute_layers"] and filled["recompute"] != "full":
        raise DistsimError(
            f"--recompute-layers {filled['recompute_layers']} has no effect with --recompute {filled['recompute']}",
            "add --recompute full, or leave --recompute-layers out",
        )


def _degrees(filled: dict[str, Any], cluster: Cluster) -> tuple[dict[str, int], list[str]]:
    """tp, pp, cp, dp and gpus that agree; what is open follows from the rest."""
    tp, pp, cp, dp, gpus = (filled[name] for name in ("tp", "pp", "cp", "dp", "gpus"))
    parallel, notes = tp * pp * cp, []
    spelled = " * ".join(f"{name} {filled[name]}" for name in ("tp", "pp", "cp") if filled[name] > 1) or "tp 1"
    if gpus is None:
        node = cluster.gpus_per_node
        gpus = parallel * dp if dp else round_up(max(node, parallel), parallel)
        if not dp and gpus != node:
            notes.append(f"--gpus not given: {gpus} taken, the fewest that {spelled} needs")
    if gpus % parallel:
        near = sorted({gpus // parallel * parallel, -(-gpus // parallel) * parallel} - {0})
        raise DistsimError(
            f"{spelled} = {parallel} GPUs per model copy does not divide {gpus} GPUs",
            f"valid --gpus nearby: {listed(near)}",
        )
    if dp is not None and dp * parallel != gpus:
        raise DistsimError(
            f"dp {dp} times {spelled} = {dp * parallel} GPUs, but --gpus says {gpus}",
            f"leave --dp out (it would be {gpus // parallel}), or use --gpus {dp * parallel}",
        )
    return {"tp": tp, "pp": pp, "cp": cp, "dp": gpus // parallel}, notes


def _layout(filled: dict[str, Any], model: Model, cluster: Cluster) -> tuple[Layout, list[str]]:
    degrees, notes = _degrees(filled, cluster)
    sharers = degrees["dp"] * degrees["cp"]
    if filled["zero_group"] and not filled["zero"]:
        raise DistsimError(f"--zero-group {filled['zero_group']} has no effect with --zero 0", "add --zero 1, 2 or 3")
    if filled["zero"] and sharers == 1:
        notes.append(f"ZeRO {filled['zero']} has no effect: there are no data parallel ranks to share the states")
    if filled["sequence_parallel"] and degrees["tp"] == 1 and filled.get("sequence_parallel") is True:
        notes.append("sequence parallelism has no effect with tp 1")
    sp = filled["sequence_parallel"] if filled["sequence_parallel"] is not None else True
    sp = sp and filled["tp_mode"] in (None, "1d")
    micro_batches = _micro_batches(filled, degrees["dp"])
    vpp, schedule = filled["vpp"], filled["schedule"]
    if vpp > 1 and degrees["pp"] == 1:
        raise DistsimError(f"--vpp {vpp} needs pipeline stages, but pp is 1", "add --pp 2 or more, or leave --vpp out")
    layout = Layout(
        **degrees, vpp=vpp, ep=filled["ep"], etp=filled["etp"], zero=filled["zero"],
        zero_group=filled["zero_group"] or sharers, sequence_parallel=int(sp and degrees["tp"] > 1),
        cp_mode=filled["cp_mode"], vocab_parallel=filled["vocab_parallel"] or "", seq=filled["seq"] or model.context,
        loss_parallel=int(filled["loss_parallel"]), micro_batch=filled["micro_batch"], micro_batches=micro_batches,
        selective=int(filled["recompute"] == "selective"), recompute_layers=_recompute_layers(filled),
        schedule=schedule or ("interleaved-1f1b" if vpp > 1 else "1f1b"), attention=filled["attention"],
    )  # fmt: skip
    layout = packed_samples(filled["sample_tokens"], model, layout)
    return layout, [*notes, *length_notes(model, layout, filled["seq"] is not None)]


def _usual_etp(filled: dict[str, Any], model: Model, framework: Framework) -> int:
    """Experts shard like the rest of the layer, unless the framework's expert parallelism takes the tensor-parallel
    ranks."""
    if model.experts is None:
        return 1
    return 1 if filled["ep"] > 1 and not framework.usual.get("experts_like_tp") else int(filled["tp"])


def _recompute_layers(filled: dict[str, Any]) -> int:
    if filled["recompute"] != "full":
        return 0
    return filled["recompute_layers"] or -1


def _micro_batches(filled: dict[str, Any], dp: int) -> int:
    micro, whole = filled["micro_batch"], filled["global_batch"]
    if whole is None:
        return 1
    if whole % (micro * dp):
        step = micro * dp
        near = sorted({whole // step * step, -(-whole // step) * step} - {0})
        raise DistsimError(
            f"global batch {whole} is not a multiple of micro batch {micro} times dp {dp} = {step}",
            f"valid nearby: --global-batch {' or '.join(map(str, near))}",
        )
    return int(whole // (micro * dp))
