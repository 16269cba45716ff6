"""The model of a measured run: a preset where the row names one, else a model of the family in the row's own shape."""

from __future__ import annotations

import functools
import re
from typing import Any

from distsim import catalog
from distsim.errors import DistsimError, did_you_mean
from distsim.interop.runs.denials import affirmed
from distsim.interop.runs.families import (
    READ_IMAGES,
    family_in,
    known_family,
    stand_in,
    stored_family,
    traits_of,
    usual_vocab,
)
from distsim.interop.runs.hits import hit
from distsim.interop.runs.layer_kinds import as_counted, told_by_count
from distsim.interop.runs.named_presets import preset_named
from distsim.interop.runs.patches import patches_of
from distsim.interop.runs.shapes import (
    assumed_shape,
    billions,
    expert_latent,
    experts_per_token,
    heads_of,
    layers_of,
    usual_width,
    width_of,
)
from distsim.interop.runs.table import MissingCell, Run
from distsim.interop.runs.told_traits import NANOCHAT, told_traits
from distsim.interop.runs.training import fine_tunes
from distsim.last import for_last
from distsim.preset_files import plain
from distsim.specs.base import Sourced
from distsim.specs.model import Model
from distsim.specs.output import Output

_REBUILT = re.compile(r"\blineari[sz]ed\b", re.IGNORECASE)
"""Checkpoints whose experts were taken apart into linear layers, which run and shard as nobody published."""
TASK = {"predicts": "classes", "classes": 2}
"""What fine-tuned encoders are taken to tell of each token: where a span starts and ends (Devlin et al. 2018, 4.2)."""

_CLASSIFIES = re.compile(
    r"(?<!without a )(?<!not a )(?<!not for )"
    + affirmed(r"(?:\w+For)?SequenceClassification|sequence classification|classification head")
    + r"|\bnot a language model head\b",
    re.IGNORECASE,
)
"""What notes say of models that tell classes of whole sequences and have no logits over a vocabulary (transformers'
GPT2ForSequenceClassification and the like, rewards among them)."""
_OPEN_CLIP = re.compile(r"open[-_ ]?clip", re.IGNORECASE)
_QUICK = re.compile(r"quick[-_ ]?gelu", re.IGNORECASE)
"""open_clip trains CLIP with torch's GELU, and by OpenAI's quick one only models whose names end in -quickgelu
(mlfoundations/open_clip README, QuickGELU; src/open_clip/model.py, act_layer)."""
SMALL_VOCAB = 1024
"""Words of a row that is one layer by itself; what they cost is not timed."""
CLASSIFIER = {"predicts": "sequence-classes", "classes": 2}


def model_of(run: Run) -> Model:
    """The run's model; an encoder that is fine-tuned has the output of a task, a decoder where notes tell of one."""
    model = _pretrained(run)
    if model.activation == "quick_gelu" and _by_open_clip(run):
        model = model.model_copy(update={"activation": "gelu"})
    if model.output.predicts == "tokens" and hit(_CLASSIFIES, run.notes):
        task = CLASSIFIER if model.causal else {**CLASSIFIER, "pooler": True}
        return model.model_copy(update={"output": Output.read(task), "tied_embeddings": False})
    if model.causal or not fine_tunes(run):
        return model
    return model.model_copy(update={"output": Output.read(TASK), "tied_embeddings": False})


def _by_open_clip(run: Run) -> bool:
    """Whether open_clip trained the model, and no name asks for OpenAI's activation."""
    told = f"{run.text('model')} {run.notes}"
    return _OPEN_CLIP.search(run.text("framework") or "") is not None and _QUICK.search(told) is None


def assumed_model(run: Run) -> str:
    """What is taken for granted of a model that only cells describe: layers of an unknown family, blank cells."""
    if _given(run) is not None:
        return ""
    family = _family_of(run)
    by = "the model's name" if family_in(run.text("model") or "") or preset_named(_meant(run)) else "its cells"
    told = (f"family is blank: assumed {family} from {by}" if run.text("family") is None else "",
            "" if known_family(family) else f"family {family!r} is not known: layers assumed as {stand_in(family)}'s",
            assumed_shape(run, _pretrained(run)), told_by_count(_pretrained(run), run))  # fmt: skip
    return "; ".join(words for words in told if words)


def only_described(run: Run) -> bool:
    """Whether cells describe the model that no preset and no configuration of transformers does."""
    return _given(run) is None


@for_last
def _pretrained(run: Run) -> Model:
    """The model before a task's output is put on it; the replay of a run asks several times."""
    return _alike_once(_described(run))


@functools.lru_cache(maxsize=256)
def _alike_once(model: Model) -> Model:
    """Equal models as one object, of which what was counted for one run is known for the next."""
    return model


def _described(run: Run) -> Model:
    """Cells overrule a preset of the same name; what neither says comes from the family."""
    if _REBUILT.search(run.text("model") or ""):
        raise MissingCell(f"model {run.text('model')!r} has experts rebuilt as linear layers, which are not modelled")
    name = run.text("model") or "?"
    try:
        return _given(run) or _from_cells(run, name, _family_of(run))
    except DistsimError as error:
        told = ", ".join(f"{cell} {count:,}" for cell in _SHAPE if (count := run.count(cell)))
        raise MissingCell(f"{told} do not make a valid {name}: {error.problem}") from None


def _family_of(run: Run) -> str:
    """The cell, unless it calls nanochat's network GPT as any decoder; or what the model's name tells: the family of a
    preset that is called so, or its first word."""
    name = run.text("model") or ""
    told = run.text("family")
    if told and not (told.lower() == "gpt" and NANOCHAT.search(name)):
        return told
    preset = preset_named(_meant(run))
    return preset.family if preset else family_in(name) or _by_shape(run)


def _by_shape(run: Run) -> str:
    """Llama's layers where cells tell of gated MLPs or of keys that queries share, GPT's where MLPs are not gated."""
    gated, heads, shared = run.flag("gated_mlp"), run.count("heads"), run.count("kv_heads")
    if gated or (gated is None and heads and shared and shared < heads):
        return "llama"
    return "" if gated is None else "gpt"


def _meant(run: Run) -> str:
    """The model's name; MLPerf's BERT is the large one (mlcommons/training_policies, benchmarks)."""
    name = run.text("model") or "?"
    told = f"{run.text('source')} {run.text('framework')}"
    large = plain(name) == "bert" and re.search("mlperf|mlcommons", told)
    return "bert-large" if large else name


def _given(run: Run) -> Model | None:
    """The preset that the row names, with the row's own counts where its special parts hold; None where only cells tell
    what the layers are."""
    name = _meant(run)
    preset = preset_named(name)
    if preset is not None and _same_shape(preset, run):
        own = _with_words(preset, run)
        return None if own is not preset and _told_by_cells(own, run) else own
    if run.count("layers") is None or run.count("hidden") is None:
        if preset is not None:
            return _partly(preset, run)
        if run.count("hidden") and billions(run) and run.count("n_experts") is None:
            return None  # its layers are counted
        near = did_you_mean(name, catalog.names("models"))
        raise MissingCell(f"layers or hidden is blank and {name!r} is not a preset{near and '; '}{near}")
    return _reshaped(preset, run) if preset is not None and _variant(preset) else None


def _partly(preset: Model, run: Run) -> Model:
    """A preset of which the row states layers or the width alone: with so many layers, but of no other width."""
    hidden = run.count("hidden")
    if hidden is not None and hidden != preset.hidden:
        raise MissingCell(f"hidden {hidden:,} is not {preset.name}'s {preset.hidden:,}, and layers is blank")
    return _reshaped(preset, run)


_SHAPE = {"layers": "layers", "hidden": "hidden", "heads": "heads", "kv_heads": "kv_heads", "ffn_hidden": "ffn"}
_EXPERTS = {"n_experts": "count", "top_k": "per_token", "moe_ffn_hidden": "ffn"}


def _same_shape(preset: Model, run: Run) -> bool:
    told = {cell: run.count(cell) for cell in _SHAPE}
    if preset.encoder_layers and told["layers"] == preset.encoder_layers:  # rows count the layers of one stack
        told["layers"] = preset.layers
    same = all(told[cell] in (None, getattr(preset, field)) for cell, field in _SHAPE.items())
    experts = preset.experts
    return same and (
        experts is None or all(run.count(cell) in (None, getattr(experts, field)) for cell, field in _EXPERTS.items())
    )


def _with_words(preset: Model, run: Run) -> Model:
    """The preset with the row's vocabulary and tie, which change with a tokenizer and how it was padded, and with
    nothing else of what makes it that network."""
    vocab, tied = run.count("vocab"), run.flag("tied_embeddings")
    update: dict[str, Any] = {}
    if vocab not in (None, preset.vocab) and preset.vocab:  # networks of images have none
        update["vocab"] = vocab
    if tied not in (None, preset.tied_embeddings) and preset.output.over_vocabulary:
        update["tied_embeddings"] = tied
    return preset.model_copy(update=update) if update else preset


_ASIDE = {*Sourced.model_fields, "name", "aliases", "family", "context", "position_rows"}
"""What does not make a network another one."""


def _told_by_cells(preset: Model, run: Run) -> bool:
    """Whether the row's cells and its family's layers make the same network as the preset of its name."""
    if run.count("layers") is None or run.count("hidden") is None or _variant(preset):
        return False
    try:
        told = _from_cells(run, preset.name, _family_of(run))
    except MissingCell:
        return False
    gelus = all(one.activation.startswith("gelu") for one in (preset, told))  # one curve, three ways to compute it
    aside = {*_ASIDE, "activation"} if gelus else _ASIDE
    return preset.model_dump(exclude=aside) == told.model_dump(exclude=aside)


def _variant(preset: Model) -> bool:
    """Whether a preset with other counts is of its kind still: it has special parts (experts, latent attention)."""
    return preset.experts is not None or preset.latent_attention is not None


def _reshaped(preset: Model, run: Run) -> Model:
    update: dict[str, Any] = {field: run.count(cell) for cell, field in _SHAPE.items() if run.count(cell)}
    layers = update.get("layers", preset.layers)
    if layers != preset.layers and (preset.pattern or preset.encoder_layers or preset.text or preset.shared_keys):
        raise MissingCell(f"layers {layers} is not {preset.name}'s {preset.layers}, whose layers are of several kinds")
    if preset.experts is not None:
        dense = tuple(layer for layer in preset.experts.dense_layers if layer < layers)
        experts: dict[str, Any] = {"dense_layers": dense}
        for cell, field in _EXPERTS.items():
            if run.count(cell):
                experts[field] = run.count(cell)
        update["experts"] = preset.experts.model_copy(update=experts)
        update.pop("ffn", None)
    return Model.read(dict(_with_words(preset, run).model_copy(update=update)))


def layer_alone(run: Run) -> bool:
    """Whether the row is of one layer by itself: neither it nor a preset of its name has words."""
    return _wordless_layer(run) and only_described(run)


def _wordless_layer(run: Run) -> bool:
    return run.count("layers") == 1 and run.text("vocab") is None


def _from_cells(run: Run, name: str, family: str) -> Model:
    traits = dict(traits_of(family, name))
    traits |= told_traits(run, traits)
    hidden = run.need("hidden")
    heads = heads_of(run, hidden)
    gated, tied = run.flag("gated_mlp"), run.flag("tied_embeddings")
    if gated is not None and gated != traits["gated"]:
        traits["gated"] = gated
        traits["activation"] = "silu" if gated else "gelu"
    if tied is not None:
        traits["tied_embeddings"] = tied
    vocab = run.count("vocab") or (SMALL_VOCAB if _wordless_layer(run) else usual_vocab(family))
    context = run.count("seq_len") or 2048
    if known_family(family) in READ_IMAGES:
        vocab, traits["patches"] = 0, patches_of(run, context)
    if traits["positions"] == "learned":
        traits["position_rows"] = context
    experts = _experts(run, family)
    shape = {
        "name": name, "family": stored_family(family) or "gpt",
        "layers": run.count("layers") or 1, "hidden": hidden, "heads": heads,
        "kv_heads": run.count("kv_heads") or heads, "head_dim": run.count("head_dim") or hidden // heads,
        "vocab": vocab, "context": context, "experts": experts, **traits,
    }  # fmt: skip

    def as_wide(ffn: int) -> Model:
        return Model.read({**shape, "ffn": ffn}, where=f"run {run.id}")

    ffn = run.count("ffn_hidden") or (experts["ffn"] if experts else 0)
    if run.count("layers") is None:
        ffn = ffn or usual_width(hidden, bool(traits["gated"]))
        shape["layers"] = layers_of(run, lambda layers: as_wide(ffn).model_copy(update={"layers": layers}))
    return as_counted(as_wide(ffn or width_of(run, hidden, bool(traits["gated"]), as_wide)), run)


def _experts(run: Run, family: str) -> dict[str, Any] | None:
    count = run.count("n_experts")
    if count is None or count == 1:
        return None
    width = run.count("moe_ffn_hidden") or run.need("ffn_hidden")
    shared = run.count("shared_experts") or 0
    return {
        "count": count, "per_token": experts_per_token(run, family), "ffn": width,
        "shared": shared, "shared_ffn": shared * width, "latent": expert_latent(run),
    }  # fmt: skip
