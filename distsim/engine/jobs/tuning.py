"""From the options of fine-tuning to what trains and in how many bytes it is held."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from distsim import catalog
from distsim.arrays import some
from distsim.engine.jobs.formats import of_narrow_embeddings, plain, without_copies
from distsim.errors import DistsimError
from distsim.layers.ledger import Parameter
from distsim.specs.flags import flag
from distsim.specs.framework import Framework
from distsim.specs.kernels import Kernels
from distsim.specs.layout import Layout
from distsim.specs.model import Model
from distsim.specs.precision import Precision
from distsim.specs.tuning import LETTERS, WHOLE, ExpertAdapters, Tuning
from distsim.specs.vision import ALONE
from distsim.units import FP32_BYTES

if TYPE_CHECKING:
    from distsim.engine.jobs.resolve import Setup
    from distsim.specs.job import Job
    from distsim.specs.quantization import Quantization

EXPERTS = "experts"
"""What follows a quantization's name, after a plus, where experts are quantised though they are no linear layers."""

PACKERS = {"": "add --framework huggingface (TRL, peft) or unsloth", "nf4-torchao": "add --framework torchtune"}
"""What trains beside quantised weights, by their format."""

AS_GIVEN = (
    "peft's prepare_model_for_kbit_training casts embedding and norms to fp32; without autocast all that follows runs "
    "in fp32, with bitsandbytes up to 0.49 matrix products too, as it computes in its input's type: --precision fp32"
)

WIDE_BASE = (
    "--precision not given: using {}, under which frozen weights are fp32 in {}; models that are loaded in bf16 keep "
    "them so: --precision pure-bf16"
)
UNTIED = (
    "embedding and output layer of {} are one matrix, but {} (peft) trains a copy of each; with its "
    "ensure_weight_tying, or --lora-whole embedding alone, it is one"
)


def tuning_of(
    filled: Mapping[str, Any],
    stated: Any,
    framework: Framework,
    kernels: Kernels,
    model: Model,
    precision: Precision,
) -> Tuning | None:
    """What trains beside frozen weights; None where everything does. ``stated`` is the job as the user gave it."""
    rank = filled["lora_rank"]
    if not rank:
        _refuse_without_rank(stated)
        return _frozen_decoder(precision) if filled["vision"] == ALONE else None
    if rank > model.hidden:
        raise DistsimError(
            f"--lora-rank {rank} exceeds the hidden size {model.hidden} of {model.name}",
            "typical ranks are 8 to 256",
        )
    from distsim.engine.jobs.tuning_targets import experts_of, splits_fused, targets_of

    rules, whole = framework.adapters, frozenset((filled["lora_whole"] or "").split(",")) - {""}
    adapter = plain(precision, FP32_BYTES) if rules.fp32 else without_copies(precision)
    mixed = precision.master_bytes > 0 or precision.autocast or precision.gathers_cast
    wide = rules.fp32 and not mixed and not rules.as_inputs
    packed, every = quantization_of(filled["quantize"] or "none")
    every |= packed is not None and model.family in rules.quantises_experts
    targets = targets_of(stated.lora_targets, framework, model)
    experts = experts_of(targets, rank, bool(filled["lora_dropout"]), framework, kernels, model)
    return Tuning(
        rank, targets, whole,
        bool(filled["lora_dropout"]), adapter,
        plain(precision, precision.parameter_bytes) if rules.fp32 else precision,
        FP32_BYTES if wide else precision.activation_bytes, rules.own_inputs,
        splits_fused(framework, model),
        packed, rules.quantises_head, rules.gathers_outputs, rules.mlp,
        rules.others_fp32 and packed is not None and not packed.leaves_others, every, experts,
        rules.keeps_originals and model.tied_embeddings and "head" in whole,
        _decomposed(filled, framework, experts),
    )  # fmt: skip


def _frozen_decoder(precision: Precision) -> Tuning:
    """No adapters at all: of a decoder only gradients of inputs are made, for what stands before it."""
    return Tuning(
        0, frozenset(), frozenset(), False, without_copies(precision), precision, precision.activation_bytes,
        own_inputs=False, splits_fused=False, quantization=None, quantises_head=False,
    )  # fmt: skip


def whole_weights(filled: Mapping[str, Any], framework: Framework, strict: bool) -> Framework:
    """The framework without what the options of fine-tuning rule out: tensor parallelism cuts weights whose norms DoRA
    needs, and not those that bitsandbytes packs. ``strict``: of a framework that somebody named, and no replay."""
    cut = filled["tp"] > 1
    if filled["dora"]:
        if cut:
            raise DistsimError(f"--dora needs norms of whole weights, which --tp {filled['tp']} cuts", "leave --tp out")
    elif not (packed := _packed_whole(filled, framework)):
        return framework
    elif cut and strict:
        raise DistsimError(
            f"{framework.name} does not cut weights in {packed} (bitsandbytes), but tp is {filled['tp']}",
            "leave --tp or --quantize out",
        )
    supports = framework.supports.model_copy(update={"tp": False})
    return framework.model_copy(update={"supports": supports})


def _packed_whole(filled: Mapping[str, Any], framework: Framework) -> str:
    """The quantization of frozen weights, where it is one that the framework's tensor parallelism does not cut."""
    if not filled["lora_rank"] or framework.supports.cuts_packed:
        return ""
    packed, _ = quantization_of(filled["quantize"] or "none")
    return packed.name if packed is not None and packed.linear_only else ""


def _decomposed(filled: Mapping[str, Any], framework: Framework, experts: ExpertAdapters) -> str:
    """How weight-decomposed adapters run; empty without them."""
    if not filled["dora"]:
        return ""
    if not framework.adapters.dora:
        raise DistsimError(f"--dora: how {framework.name} runs DoRA is not described", "leave it out (LoRA), or "
                           "choose --framework huggingface, fsdp, deepspeed, torch-ddp or torchtune")  # fmt: skip
    if experts.targets or experts.router:
        raise DistsimError("--dora: experts and routers have no DoRA", "name other modules: --lora-targets attention")
    return framework.adapters.dora


def as_tuned(model: Model, tuning: Tuning | None) -> Model:
    """The model as it trains: without the tie between embedding and output layer where the latter is a copy."""
    return model.model_copy(update={"tied_embeddings": False}) if tuning is not None and tuning.unties else model


def quantization_of(text: str) -> tuple[Quantization | None, bool]:
    """How frozen weights are stored, and whether that is said of experts too: ``nf4+experts``."""
    name, plus, more = text.partition("+")
    if plus and (more != EXPERTS or name == "none"):
        raise DistsimError(
            f"--quantize {text!r} is not understood",
            f"write a quantization, and +{EXPERTS} if experts are quantised too: nf4+{EXPERTS}",
        )
    return (None if name == "none" else catalog.load("quantizations", name)), bool(plus)


def tuning_notes(
    tuning: Tuning | None,
    model: Model,
    kernels: Kernels,
    framework: Framework,
    precision: Precision,
    asked: Job,
) -> list[str]:
    """What a user may not expect of adapters, of what is frozen beside them, and of quantised experts."""
    if tuning is None or not tuning.rank:
        return []
    from distsim.engine.jobs.tuning_targets import target_notes

    told = target_notes(asked.lora_targets, tuning, framework, model)
    told += _packed_notes(tuning, model, kernels, framework.name)
    told += _unnamed_software(tuning, framework, asked)
    if tuning.unties and tuning.trains("embedding"):
        told.append(UNTIED.format(model.name, framework.name))
    if tuning.others_fp32 and precision.activation_bytes < tuning.product_bytes:
        told.append(AS_GIVEN)
    if asked.precision is None and tuning.quantization is None and precision.parameter_bytes >= FP32_BYTES:
        told.append(WIDE_BASE.format(precision.name, framework.name))
    return told


def _packed_notes(tuning: Tuning, model: Model, kernels: Kernels, framework: str) -> list[str]:
    if tuning.quantization is None:
        return []
    name = tuning.quantization.name
    if model.experts is None:
        return [f"+{EXPERTS} has no effect: {model.name} has no experts"] if tuning.quantises_experts else []
    if tuning.takes_experts(kernels.expert_modules == "each"):
        return []
    return [f"experts stay in 16 bits: {name} quantises linear layers, but {framework} holds experts as tensors of one "
            f"module; if your trainer quantises them too: --quantize {name}+{EXPERTS}"]  # fmt: skip


def with_experts(setup: Setup, name: str) -> str:
    """A quantization by name with experts, where these would stay in 16 bits without being named; else nothing."""
    found, said = quantization_of(name)
    if found is None or said or setup.model.experts is None or not found.linear_only:
        return ""
    own = setup.kernels.expert_modules == "each" or setup.model.family in setup.framework.adapters.quantises_experts
    return "" if own else f"{found.name}+{EXPERTS}"


def _unnamed_software(tuning: Tuning, framework: Framework, asked: Job) -> list[str]:
    """A note on quantised weights under a framework that nobody named and that has no switch for them."""
    if tuning.quantization is None or asked.names_framework or framework.supports.tunes:
        return []
    name = tuning.quantization.name
    return [f"computed under {framework.name}, as no --framework is given, which has no switch for weights in {name}: "
            f"{PACKERS.get(name, PACKERS[''])}"]  # fmt: skip


def tuning_options(tuning: Tuning | None, dropout: float) -> dict[str, Any]:
    """The resolved options by the names of the job, for JSON; nothing where everything trains."""
    if tuning is None or not tuning.rank:
        return {}
    return {
        "lora_rank": tuning.rank, "lora_targets": ",".join(one for one in LETTERS if one in tuning.targets),
        "lora_whole": ",".join(one for one in WHOLE if one in tuning.whole) or "none",
        "lora_dropout": dropout, "dora": bool(tuning.dora), "quantize": stored_as(tuning) or "none",
    }  # fmt: skip


def stored_as(tuning: Tuning) -> str:
    """The quantization of frozen weights as options name it; empty without one."""
    if tuning.quantization is None:
        return ""
    return tuning.quantization.name + f"+{EXPERTS}" * tuning.quantises_experts


def _refuse_without_rank(stated: Any) -> None:
    """Options of adapters without adapters; a framework's defaults for them say nothing by themselves."""
    for name in ("lora_targets", "lora_dropout", "lora_whole", "dora", "quantize"):
        value = getattr(stated, name)
        if value in (None, "none") or value is False:
            continue
        if name == "quantize":
            quantization_of(value)  # an unknown name is the first thing to mend
        why = "freezes all weights, so that nothing would train" if name == "quantize" else "has no effect"
        shown = flag(name) if value is True else f"{flag(name)} {value}"
        raise DistsimError(f"{shown} {why} without adapters", "add --lora-rank 16, or leave it out")


def recipe_of(parameter: Parameter, precision: Precision, tuning: Tuning | None) -> Precision:
    """The bytes that hold a parameter which trains."""
    if parameter.held == "narrow":
        return of_narrow_embeddings(precision)
    if tuning is None or parameter.held == "trained":
        return precision
    return tuning.adapter if parameter.held == "adapter" else tuning.whole_as


def widens_stream(precision: Precision, tuning: Tuning | None) -> bool:
    """Whether the residual stream is fp32 where every rank holds what it computes with. Embedding and norms were made
    fp32 beside quantised weights: the embedding gives fp32, and products in 16 bits are added to that."""
    if tuning is None or not tuning.others_fp32:
        return False
    return precision.master_bytes > 0 and precision.residual_bytes is None


def in_stream(precision: Precision, tuning: Tuning | None, layout: Layout) -> Precision:
    """The recipe as layers see it, with a residual stream that is wider than it says; what ZeRO shards is gathered, or
    held, in 16 bits. Layouts of one array agree in that (layouts/space.py)."""
    if not widens_stream(precision, tuning) or some(layout.zero > 0):
        return precision
    return precision.model_copy(update={"residual_bytes": float(FP32_BYTES)})


def weight_bytes(parameter: Parameter, precision: Precision, tuning: Tuning | None) -> float:
    """Bytes per element of the weight itself, whatever holds it; cast copies not counted."""
    if parameter.held == "quantised" and tuning is not None and tuning.quantization is not None:
        return tuning.quantization.weight_bytes
    if parameter.trains:
        return recipe_of(parameter, precision, tuning).parameter_bytes
    if tuning is None or not tuning.others_fp32 or parameter.group == "expert":
        return precision.parameter_bytes
    return FP32_BYTES


def reduced_in(setup: Setup) -> str:
    """Number format in which gradients travel: the recipe's, fp32 where adapters are and frozen weights are not, or the
    weights' where software adds them up in a wider one only behind the reduction."""
    tuning = setup.tuning
    if tuning is not None and tuning.adapter.gradient_bytes > setup.precision.gradient_bytes:
        return "fp32"
    if setup.framework.traffic.reduces_as_weights:
        return setup.precision.gather_dtype
    return setup.precision.reduce_dtype


def gathered_bytes(parameter: Parameter, precision: Precision, tuning: Tuning | None) -> float:
    """Bytes per element of a weight on its way to ranks that do not hold it."""
    if parameter.held == "quantised" and tuning is not None and tuning.quantization is not None:
        return tuning.quantization.weight_bytes
    return precision.gather_bytes
