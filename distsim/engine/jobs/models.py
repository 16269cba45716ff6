"""A model by name, path or configuration, with its exact parameter counts."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from distsim import keywords
from distsim.errors import DistsimError
from distsim.layers.network import count_parameters, network_parameters, plain_context
from distsim.specs.flags import flag
from distsim.specs.job import Job
from distsim.specs.kernels import Kernels
from distsim.specs.layout import Layout
from distsim.specs.model import Model
from distsim.specs.named import Named


@dataclass(frozen=True, repr=False, eq=False)
class LoadedModel:
    """A model spec and what follows from it."""

    spec: Model

    def __repr__(self) -> str:
        return f"LoadedModel({self.name}: parameters={self.parameters:,})"

    @cached_property
    def parameters(self) -> int:
        """Exact parameter count."""
        return count_parameters(self.spec)

    @cached_property
    def vision_parameters(self) -> int:
        """Exact parameter count of its vision tower with what makes tokens of patches; 0 without one."""
        tower = self.spec.tower
        if tower is None or tower.images:
            return 0
        shown = tower.model_copy(update={"images": 1.0, "seen": tower.patches_of(tower.image, tower.image)})
        return count_parameters(self.spec.model_copy(update={"tower": shown})) - self.parameters

    @property
    def name(self) -> str:
        """The model's name."""
        return self.spec.name

    def parts(self) -> dict[str, int]:
        """Parameters by part of the network: embedding, each kind of layer (all layers of it), head."""
        counted = network_parameters(plain_context(self.spec))
        return {part: round(times * sum(p.elements for p in own)) for part, (own, times) in counted.items()}

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "schema": "distsim.model/1",
            "parameters": self.parameters,
            **({"vision_parameters": self.vision_parameters} if self.vision_parameters else {}),
            "parts": self.parts(),
            "spec": self.spec.model_dump(mode="json"),
        }


def load_model(name: Named) -> LoadedModel:
    """The model that ``name`` stands for: a preset, a TOML path, or a Hugging Face config.json (or its folder). Raises
    DistsimError where there is none."""
    spec = getattr(name, "spec", name)
    if isinstance(spec, Model):
        return LoadedModel(spec)
    from distsim.interop.models import read_model

    return LoadedModel(read_model(keywords.word("model", spec)))


def as_asked(model: Model, layers: int, lora_rank: int | None, decoder_seq: int | None) -> Model:
    """The model with so many layers of multi-token prediction, and so many tokens behind its encoder."""
    if decoder_seq and not model.encoder_layers:
        raise DistsimError(f"--decoder-seq {decoder_seq}: {model.name} has no decoder behind an encoder", "use --seq")
    if decoder_seq:
        model = model.model_copy(update={"decoder_context": decoder_seq})
    if layers and not model.causal:
        raise DistsimError(f"--mtp {layers}: {model.name} is an encoder, which predicts no later tokens")
    reasons = (
        (model.encoder_layers > 0, f"{model.name} has a decoder behind an encoder"),
        (bool(model.pattern) and not model.mtp_pattern, f"{model.name} is a hybrid without mtp_pattern"),
        (model.residual_streams > 1 and not model.stream_mixing, f"{model.name} has several residual streams"),
        (model.experts is not None and model.experts.beside_dense, f"each layer of {model.name} is a pair of layers"),
        (bool(lora_rank), "only adapters train"),
    )
    if layers and (why := next((reason for holds, reason in reasons if holds), "")):
        raise DistsimError(f"--mtp {layers}: multi-token prediction is not covered where {why}")
    return model.model_copy(update={"mtp_trained": layers}) if layers else model


def asked_of(model: Model, layout: Layout, job: Job) -> dict[str, Any]:
    """A job's rarer settings under the names of its options, for JSON; without those that do not apply."""
    prediction = {"mtp": model.mtp_trained} if model.mtp_trained else {}
    packed = {"sample_tokens": layout.sample_tokens} if layout.sample_tokens else {}
    decoder = {"decoder_seq": model.decoder_context} if model.decoder_context else {}
    stated = {name: getattr(job, name) for name in ("loss", "capacity_factor", "mlp_tiles", "profile", "sync_gbps")}
    return prediction | packed | decoder | {name: value for name, value in stated.items() if value}


def named(job: Job) -> Job:
    """The job with its model named, where the model was given whole and a preset of that name is the same."""
    if isinstance(job.model, str):
        return job
    try:
        alike = load_model(job.model.name).spec == job.model
    except DistsimError:
        alike = False
    return job.model_copy(update={"model": job.model.name}) if alike else job


def packed_samples(asked: int | None, model: Model, layout: Layout) -> Layout:
    """The layout whose sequences hold samples of so many tokens; raises DistsimError where none fits or it says
    nothing."""
    if not asked:
        return layout
    if asked > layout.seq:
        raise DistsimError(
            f"--sample-tokens {asked:,} is more than the {layout.seq:,} tokens of a sequence",
            f"use --seq {asked} or more, or leave --sample-tokens out",
        )
    why = ""
    if layout.attention != "flash":
        why = "--attention eager computes the scores of whole sequences"
    elif model.encoder_layers or model.text or model.patches or model.composed_attention:
        why = f"packed samples are not covered for {model.name}"
    elif not model.attention_layers:
        why = f"{model.name} has no attention"
    if why:
        raise DistsimError(f"--sample-tokens {asked:,}: {why}", "leave --sample-tokens out")
    return layout.with_(sample_tokens=asked)


def reading_notes(model: str | Model) -> list[str]:
    """What a user should know of how a model's file was read."""
    if isinstance(model, Model):
        return []
    from distsim.interop import models

    return models.reading_notes(model)


ATTENTION = ("core_attention",)
"""What ``--recompute selective`` computes again under most frameworks."""
USUAL_SEQUENCE = 8192
"""Most tokens of a run are trained at no more than this, whatever the context in the end: Llama 3 (arXiv:2407.21783),
sections 3.2 and 3.4."""


def length_notes(model: Model, layout: Layout, stated: bool = True) -> list[str]:
    """What a user should know of the tokens per sequence; ``stated`` says whether they were asked for."""
    notes, seq = [], layout.seq
    if not stated and seq > USUAL_SEQUENCE:
        notes.append(
            f"--seq not given: using {seq:,} tokens, the whole context of {model.name}; most training is at "
            f"{USUAL_SEQUENCE:,} or fewer, which distsim plan takes: --seq {USUAL_SEQUENCE}"
        )
    if seq > model.context:
        notes.append(f"{seq:,} tokens per sequence exceed the {model.context:,} that {model.name} was built for")
    if model.encoder_layers:
        read = model.decoder_context
        notes.append(f"token counts are for {model.name}'s encoder; its decoder reads {read:,} per sequence")
        if model.positions == "learned" and read and read > model.position_rows:
            notes.append(f"{read} tokens exceed the {model.position_rows} positions of {model.name}'s decoder")
    if patches := model.patches:
        squares = f"tokens are patches of {patches.size} x {patches.size} pixels"
        notes.append(f"{squares} plus {patches.learned_tokens} learned: {seq} per image for {model.name}")
    if text := model.text:
        notes.append(
            f"each image has a text of {text.context} tokens, and is contrasted with all texts of its micro-batch"
        )
    return notes


def without_effect(model: Model, job: Job, kernels: Kernels) -> list[str]:
    """Options that a job states and nothing of its model reads."""
    scans = model.mamba is not None and model.mamba.step_rank  # Mamba's first scan is fused like attention
    told = []
    if job.attention is not None and not model.attention_layers and not scans:
        told.append(f"--attention {job.attention} has no effect: {model.name} has no attention")
    if job.recompute == "selective" and not model.attention_layers and recomputes_attention_alone(kernels):
        told.append(f"--recompute selective has no effect: it computes attention again, and {model.name} has none")
    if job.dropout is not None and not any((model.attention_dropout, model.hidden_dropout, model.embedding_dropout)):
        told.append(f"{flag('dropout', job.dropout)} has no effect: {model.name} has none")
    return told


def recomputes_attention_alone(kernels: Kernels) -> bool:
    """Whether selective recomputation leaves all but attention."""
    return kernels.kept is None and kernels.selective == ATTENTION


def refuse_untimed(model: Model, attention: str, kernels: Kernels) -> None:
    """Raise DistsimError for what memory can be told of, and time cannot."""
    if model.recurrence and kernels.linear_attention == "composed":
        raise DistsimError(
            f"the framework runs the recurrences of {model.name} unfused, token by token; their time is not covered",
            "distsim memory covers them; other frameworks are assumed to have a fused kernel: --framework fsdp",
        )
    if attention != "flash" and model.mamba is not None and model.mamba.step_rank:
        raise DistsimError(
            f"--attention {attention} runs the scans of {model.name} unfused, token by token; that time is not covered",
            "leave --attention out for the fused kernel; distsim memory covers both",
        )
