"""From a job as stated to a setup in which nothing is open: presets loaded, degrees solved, rules checked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from distsim import catalog
from distsim.engine.jobs.attention import settle_attention
from distsim.engine.jobs.dispatch import dispatcher_named, dispatcher_of, refuse_long_queues, with_dispatcher
from distsim.engine.jobs.dp_overlap import with_data_overlap
from distsim.engine.jobs.drives import DRIVEN, refuse_drives
from distsim.engine.jobs.filled import fill, refuse_options
from distsim.engine.jobs.foreign_losses import refuse_foreign_loss
from distsim.engine.jobs.formats import with_narrow_stream
from distsim.engine.jobs.framework_notes import framework_notes
from distsim.engine.jobs.graphs import settled
from distsim.engine.jobs.hardware import hardware
from distsim.engine.jobs.images import image_notes, images_of, with_images
from distsim.engine.jobs.lacking import refuse_missing_units, refuse_without_triton
from distsim.engine.jobs.layout import check_capacity, laid_out
from distsim.engine.jobs.models import as_asked, asked_of, load_model, named, reading_notes, without_effect
from distsim.engine.jobs.modules import modules_of, with_modules
from distsim.engine.jobs.offloading import kept_where_it_is, offload_told, on_host
from distsim.engine.jobs.placement import chunk_layers, placement_note, stage_sums
from distsim.engine.jobs.predictions_apart import apart_note, chunk_of_predictions
from distsim.engine.jobs.profile import (
    as_stored,
    job_kernels,
    optimizer_of,
    padded_vocab,
    tower_kernels,
    usual_precision,
)
from distsim.engine.jobs.projected import rank_told, update_notes, with_rank
from distsim.engine.jobs.reference import gathered_note
from distsim.engine.jobs.remat import settle_policy
from distsim.engine.jobs.schedule_chunks import chunks_of_stages, settle_chunks
from distsim.engine.jobs.software import framework_of
from distsim.engine.jobs.tiling import tile_notes, tiles_of
from distsim.engine.jobs.tp_overlap import overlapped, with_overlap
from distsim.engine.jobs.tuning import as_tuned, in_stream, tuning_notes, tuning_of, tuning_options, whole_weights
from distsim.layers.ledger import Context
from distsim.specs.accelerator import Accelerator
from distsim.specs.cluster import Cluster
from distsim.specs.context_modes import context_modes
from distsim.specs.framework import Framework
from distsim.specs.job import Job
from distsim.specs.kernels import Kernels
from distsim.specs.layout import Layout
from distsim.specs.model import Model
from distsim.specs.optimizer import Optimizer
from distsim.specs.precision import Precision
from distsim.specs.support_rules import refuse_unsupported
from distsim.specs.tuning import Tuning
from distsim.specs.written import as_written

if TYPE_CHECKING:
    from collections.abc import Mapping

    from distsim.engine.jobs.exchange import Exchange


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
    """What leaves the GPU for its host: optimizer, parameters, activations."""
    tuning: Tuning | None = None
    """Adapters on frozen weights; None where everything trains."""
    tower_kernels: Kernels | None = None
    """Those of the layers of a vision tower; None where none is counted."""
    offload_share: float = 1.0
    """How much of the activations that live in host memory does; only replays have less than all."""
    states_return: bool = False
    """Optimizer states in host memory come back to be updated; only replays have them do so."""
    mtp_chunk: int | None = None
    """The chunk that has the layers of multi-token prediction; None where they are beside the loss."""
    evaluated: float = 0.0
    """Forward passes over a whole batch beside each step of a measured run (engine/runs/evaluation.py)."""

    @property
    def stage_layers(self) -> tuple[int, ...]:
        """Layers of each pipeline stage, all its chunks together."""
        return stage_sums(self.chunk_layers, self.layout.pp, self.layout.schedule)

    @property
    def drives(self) -> tuple[str, ...]:
        """What of that lives on NVMe drives instead."""
        return tuple(kind for kind in self.offload if kind in DRIVEN and self.job.offload_to == "nvme")

    @property
    def compiled(self) -> bool:
        """Whether torch.compile runs: as the job says, or else the framework's defaults."""
        return bool(self.framework.defaults.get("compile") if self.job.compile is None else self.job.compile)

    @property
    def _adapter_dropout(self) -> float:
        """Dropout of adapters' inputs: as the job says, or else the framework's defaults."""
        stated = self.job.lora_dropout
        return float(self.framework.defaults.get("lora_dropout") or 0) if stated is None else stated

    @property
    def gpu_power(self) -> float | None:
        """Watts of the limit under which the accelerators run; None where they have all that they are rated for."""
        return self.accelerator.power if self.accelerator.rated_power else None

    @property
    def gpu_words(self) -> str:
        """``h100-sxm``, or ``h100-sxm at 500 W`` under a limit that the job or its cluster states."""
        stated = self.gpu_power and (self.job.gpu_power or self.cluster.gpu_power)
        return f"{self.accelerator.name} at {self.gpu_power:g} W" if stated else self.accelerator.name

    @property
    def trained_precision(self) -> Precision:
        """The recipe of what trains: that of the adapters where all else is frozen."""
        return self.precision if self.tuning is None else self.tuning.adapter

    def context(self) -> Context:
        """What the layers need to state their operations."""
        return Context(
            self.model, self.layout, in_stream(self.precision, self.tuning, self.layout), self.kernels,
            dropout=self.job.dropout is not False, vocab_padded=self.vocab_padded, tuning=self.tuning,
            tower_kernels=self.tower_kernels, capacity=self.job.capacity_factor,
            expert_imbalance=self.job.expert_imbalance, mlp_tiles=tiles_of(self.job, self.layout, self.model),
        )  # fmt: skip

    def written(self, exchange: Exchange | None = None) -> dict[str, Any]:
        """The JSON's ``job``: every resolved field, and the options from which ``Job(**job)`` makes the same job."""
        return as_written(named(self.job), self.to_dict(exchange))

    def to_dict(self, exchange: Exchange | None = None) -> dict[str, Any]:
        """Every resolved field; what concerns traffic as an ``exchange`` has it, or else as the job has it."""
        from distsim.engine.jobs.exchange import exchange_of

        layout = self.layout
        return {
            "model": self.model.name, "gpu": self.accelerator.name, "gpus": layout.gpus, "cluster": self.cluster.name,
            "gpu_power": self.gpu_power, "framework": self.framework.name,
            "tp": layout.tp, "pp": layout.pp, "cp": layout.cp, "ep": layout.ep, "etp": layout.etp, "dp": layout.dp,
            "vpp": layout.vpp, "schedule": layout.schedule, "stage_layers": list(self.stage_layers),
            "zero": layout.zero, "zero_group": layout.zero_group,
            "sequence_parallel": bool(layout.sequence_parallel), "loss_parallel": bool(layout.loss_parallel),
            "cp_mode": layout.cp_mode, "seq": layout.seq, "micro_batch": layout.micro_batch,
            "global_batch": layout.global_batch, "micro_batches": layout.micro_batches,
            "recompute": self.recompute, "recompute_layers": layout.recompute_layers,
            "recompute_group": layout.recompute_group, **modules_of(self.job),
            "attention": layout.attention, "compile": self.compiled, "cuda_graphs": self.kernels.graphs,
            "expert_overlap": self.kernels.expert_overlap, "tp_comm_overlap": overlapped(self),
            "dp_comm_overlap": self.framework.traffic.overlap_gradients,
            "dropout": self.job.dropout is not False, "precision": self.precision.name,
            "optimizer": self.optimizer.name, **rank_told(self.optimizer),
            **offload_told(self),
            "vocab_padded": self.vocab_padded, **tuning_options(self.tuning, self._adapter_dropout),
            **asked_of(self.model, layout, self.job), **images_of(self.model), **dispatcher_of(self),
            **({"reference": self.job.reference} if self.job.reference else {}),
            **({"vocab_parallel": layout.vocab_parallel} if layout.vocab_parallel else {}),
            **(exchange_of(self) if exchange is None else exchange).to_dict(),
        }  # fmt: skip


@catalog.settled()
def resolve(job: Job, overrides: Mapping[str, Any] | None = None, *, replayed: bool = False) -> Setup:
    """Fill what the job leaves open; raises DistsimError for what does not exist or does not fit together.
    ``overrides`` replaces loaded specs by name (accelerator, cluster, framework …). A job that is ``replayed`` was
    measured: its software is the one that it names, and did what the job says.
    """
    given = dict(overrides or {})
    framework: Framework = given.get("framework") or framework_of(job)
    filled, origins = fill(job, framework)
    chunks_of_stages(filled, origins)
    policy = settle_policy(filled, origins, framework)
    refuse_options(filled, framework)
    framework = whole_weights(filled, framework, job.names_framework and not replayed)
    model, model_notes = _network(job, filled, origins, framework, replayed)
    accelerator, cluster, limit_notes = hardware(filled, given)
    kept_where_it_is(filled, origins, accelerator)
    refuse_drives(filled, framework if job.names_framework else None, cluster)
    precision, precision_notes = usual_precision(filled, origins, accelerator, framework)
    precision = with_narrow_stream(precision, model)
    layout, notes = laid_out(filled, origins, model, cluster, framework, precision)
    notes += [*precision_notes, *limit_notes, *model_notes, *tile_notes(filled, model, layout)]
    offload = () if filled["offload"] == "none" else tuple(filled["offload"].split(","))
    framework, precision = on_host(framework, precision, offload, job.names_framework or replayed)
    if job.names_framework and not replayed:
        _refuse_unrun(job, filled["loss"], framework, model, layout, offload, accelerator, precision)
    refuse_without_triton(accelerator, job)
    framework, kernels = _exchanged(job, filled, framework, model, accelerator, precision, policy, replayed)
    if model.experts is not None and not replayed:
        refuse_long_queues(dispatcher_named(job, framework, kernels, cluster), layout, cluster)
    kernels, left_out = settled(job, kernels, framework, model, accelerator, precision, layout, offload)
    tuning = tuning_of(filled, job, framework, kernels, model, precision)
    optimizer = with_rank(optimizer_of(framework, filled["optimizer"], "optimizer" in offload), filled, layout)
    notes += [*left_out, *framework_notes(framework, model, layout, kernels, origins, precision, job, tuning is None)]
    notes += _training_notes(job, filled, framework, model, kernels, precision, optimizer, layout, tuning)
    model = as_tuned(model, tuning)
    chunks, layout, placed = _placed(filled["stage_layers"], model, layout, framework)
    predicts = chunk_of_predictions(filled["stage_layers"], model, layout, framework)
    notes += [*placed, *apart_note(predicts, model, layout)]
    return Setup(
        job, model, accelerator, cluster, framework, kernels, precision,
        optimizer, layout, chunks, filled["recompute"],
        padded_vocab(framework, model, layout.vocab_ranks), origins, tuple(notes),
        offload, tuning, tower_kernels(framework, model, bool(filled["compile"])), mtp_chunk=predicts,
    )  # fmt: skip


def _network(
    job: Job, filled: dict[str, Any], origins: dict[str, str], framework: Framework, replayed: bool
) -> tuple[Model, list[str]]:
    """The model as the job asks for it and its framework stores it, with notes; and what of the options it settles:
    attention, chunks, and how context parallel ranks exchange."""
    model, stored = as_stored(load_model(job.model).spec, framework)
    attention_notes = settle_attention(filled, origins, framework, model, replayed=replayed)
    check_capacity(filled, model)
    model = as_asked(model, filled["mtp"] or 0, filled["lora_rank"], filled["decoder_seq"])
    model = with_images(model, filled)
    chunk_notes = settle_chunks(filled, origins, model, framework)
    if origins.get("cp_mode") == "default":
        filled["cp_mode"] = context_modes(framework.supports, model)[0]
    return model, [*chunk_notes, *reading_notes(job.model), *stored, *attention_notes]


def _refuse_unrun(
    job: Job, loss: str | None, framework: Framework, model: Model, layout: Layout, offload: tuple[str, ...],
    accelerator: Accelerator, precision: Precision,
) -> None:  # fmt: skip
    """Raise what the framework that somebody named does not run."""
    refuse_unsupported(framework, model, layout, offload, job)
    refuse_missing_units(accelerator, precision, framework)
    refuse_foreign_loss(framework, loss)


def _exchanged(
    job: Job, filled: Mapping[str, Any], framework: Framework, model: Model, accelerator: Accelerator,
    precision: Precision, policy: Mapping[str, Any], replayed: bool,
) -> tuple[Framework, Kernels]:  # fmt: skip
    """The framework as the job has it exchange, and the kernels that this means."""
    compiles = bool(filled["compile"])
    framework = with_data_overlap(job, with_overlap(job, framework, compiles))
    kernels = job_kernels(framework, model, accelerator, precision.name, compiles, filled["loss"])
    kernels = with_modules(job, kernels, framework, model, policy, replayed=replayed)
    return with_dispatcher(job, framework, kernels, model, accelerator)


def _training_notes(
    job: Job, filled: Mapping[str, Any], framework: Framework, model: Model, kernels: Kernels, precision: Precision,
    optimizer: Optimizer, layout: Layout, tuning: Tuning | None,
) -> list[str]:  # fmt: skip
    """Notes on what trains and how it is updated, and on options that change nothing of that."""
    return [
        *tuning_notes(tuning, model, kernels, framework, precision, job), *update_notes(optimizer, layout),
        *image_notes(model, filled["image_size"], tuning is not None),
        *filter(None, [gathered_note(job, kernels)]), *without_effect(model, job, kernels),
    ]  # fmt: skip


def _placed(
    stated: tuple[int, ...] | None, model: Model, layout: Layout, framework: Framework
) -> tuple[tuple[int, ...], Layout, list[str]]:
    """Layers of each model chunk; the layout, where recomputing so many layers means all; and notes of both."""
    chunks = chunk_layers(stated, model, layout, framework)
    notes = [note] if (note := placement_note(stated, chunks, model, layout, framework)) else []
    most, again = max(stage_sums(chunks, layout.pp, layout.schedule)), layout.recompute_layers
    if again > most:
        notes.append(f"--recompute-layers {again} recomputes every layer: stages have at most {most} layers")
    if again >= most:
        layout = layout._replace(recompute_layers=-1)
    if (group := layout.recompute_group) > (most := max(chunks)):
        notes.append(f"--recompute-group {group}: a checkpoint covers {most} layers, all of a stage's chunk")
        layout = layout._replace(recompute_group=most)
    return chunks, layout, notes
