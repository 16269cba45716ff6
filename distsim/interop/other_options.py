"""What another tool's configuration states, as the command line that means the same."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from distsim.errors import DistsimError
from distsim.interop.other_litgpt import CHECKPOINT, STORED
from distsim.interop.other_megatron import by_megatron
from distsim.interop.other_precisions import precision_recipe
from distsim.interop.other_stated import CONFIGURED, NODES, PER_NODE, Stated, file_beside, last_of, ranks_of
from distsim.interop.other_sums import DEEPSPEEDS, TO_HOST, add_sums, each_rank, shards_by_fsdp
from distsim.other_names import Here, here

DEGREES = ("tp", "pp", "cp", "ep", "etp", "vpp")
NUMBERS = ("gpus", *DEGREES, "zero", "seq", "micro_batch", "global_batch", "lora_rank", "mtp")
"""Options that a whole number says by itself."""
SWITCHES = ("compile", "dora", "tp_comm_overlap")
WORDS = ("quantize", "optimizer", "recompute", "offload", "offload_fraction", "lora_targets", "lora_whole",
         "lora_dropout", "loss", "attention", "precision", "schedule")  # fmt: skip
TAKEN = (*NUMBERS, *SWITCHES, *WORDS, "vision")
PLACES = ("cpu", "nvme")
"""Where what is offloaded goes, which configurations state beside or instead of a switch."""
BITS = {4: "nf4", 8: "int8"}
"""Quantised weights by the bits that LLaMA-Factory and others ask for (bitsandbytes)."""
ADAPTERS = ("lora", "qlora", "dora")
"""Ways to tune that some state in the place of a switch."""
ALL_PRODUCTS = ("all", "all-linear")
COMPOSED = ("eager", "unfused", "local", "math", "disabled")
FUSED = ("flash", "fused", "sdpa", "auto", "fa2", "fa3", "flash_attn", "flash_attention_2", "flash_attention_3",
         "kernels")  # fmt: skip
"""Kernels of attention by the words of Megatron, transformers and LLaMA-Factory: of plain operations, and of one."""
COMPARED = ("dpo", "kto", "ipo")
"""Aims whose steps run a frozen reference beside the model."""
LAYERS_EACH = "pipeline_parallel_layers_per_stage"
CONVERTED = "-mcore"
"""What ms-swift adds to a model's name when it writes weights for Megatron."""
MOST_TOLD = 20
"""Options that are told."""
LOOKED_AT = ("sample_tokens", "stage_layers", "cp", "zero_group", "images", "image_size", "vision", "recompute")
"""Options that nothing tells by itself where a file has a key of theirs."""
ACCUMULATED = "(micro-batch x dp x accumulation)"
ANY_MODEL = "MODEL"
_RECIPE = re.compile(r"(?<![a-z0-9])[a-z][a-z0-9_]*?_\d+(?:x\d+)?b(?:_a\d+b)?(?![a-z0-9])")
"""A model in the name of a recipe, as in ``llama3_70b_pretrain_config``."""


def options_of(stated: Stated, rank: int, silent: Mapping[str, str]) -> tuple[str, list[str]]:
    """The options that a file's keys come to as they are typed, and those of its keys that need a look."""
    told, each, framework = whole_of(stated, rank, silent)
    if "vision" in told and _reads_text(model_of(stated.keys)):
        del told["vision"]
    options = " ".join([f"--framework {framework}", *_typed(told), *_accumulated(told, each)])
    besides = [*batch_of_ranks(told, each), *_compared(stated), *_absent(stated, told), *_chunks(stated, told)]
    return options, [*besides, *left_of(stated.keys, told)]


def whole_of(stated: Stated, rank: int, silent: Mapping[str, str]) -> tuple[dict[str, str], int, str]:
    """Options and their texts, sequences of one rank in a step (0: one micro-batch, or stated otherwise), and the
    framework. ``rank`` is the adapters' where the file only says that there are some; ``silent`` has what holds where
    a key is missing, by the key."""
    by_fsdp = stated.framework == "huggingface" and shards_by_fsdp(stated)
    second = "accelerate-fsdp2" if f"{stated.of('fsdp_version')}" == "2" else "fsdp"
    stated = stated._replace(framework=second) if by_fsdp else by_megatron(stated)
    told, adapts, steps = told_of(stated)
    if adapts and rank:
        told.setdefault("lora_rank", f"{rank}")
    for key, option in silent.items():
        meant = meant_by(key)
        adapting = meant is None or meant.name != "lora_targets" or "lora_rank" in told
        if meant is not None and meant.name not in told and adapting and not _names(stated.keys, meant.name):
            told[meant.name] = option
    if "lora_rank" not in told:
        told = {name: text for name, text in told.items() if name not in ("lora_whole", "lora_dropout")}
    return told, each_rank(told, stated, steps), stated.framework


def told_of(stated: Stated) -> tuple[dict[str, str], bool, int]:
    """Options and their texts, whether adapters train, and micro-batches that a step accumulates."""
    told: dict[str, str] = {}
    adapts, stays, steps, switched = False, False, 1, ""
    for key, value in stated.keys.items():
        found = meant_by(key)
        if found is None:
            continue
        if found.name == "global_batch" and found.why:
            steps = value if type(value) is int and found.why == ACCUMULATED else steps
        elif found.name == "offload_fraction" and value == 0:
            stays = True
        elif found.name == "lora_rank" and value is True:
            switched = found.value
        elif found.name == "lora_rank" and isinstance(value, str):
            adapts = adapts or value.lower() in ADAPTERS
        elif (text := text_of(key, found, value, stated.framework)) is not None:
            together = found.name == "offload" and told.get("offload", text) != text
            told[found.name] = f"{told['offload']},{text}" if together else told.get(found.name, text)
            if value == "nvme":
                told["offload_to"] = "nvme"
    if stays and (left := [kind for kind in told.pop("offload", "").split(",") if kind not in ("", "optimizer")]):
        told["offload"] = ",".join(left)
    if switched:
        told.setdefault("lora_rank", switched)
    if "optimizer" not in told.get("offload", ""):
        told.pop("offload_fraction", None)
    add_sums(told, stated)
    return told, adapts, steps


def left_of(stated: Mapping[str, Any], told: Mapping[str, str]) -> Iterator[str]:
    """Keys that change a job in a way that somebody has to say, with the option that does."""
    for key, value in stated.items():
        if (
            isinstance(value, str)
            and "$" in value
            and (meant_by(key) is not None or last_of(key) in (*NODES, *PER_NODE))
        ):
            yield f"{key} is {value}, which the file does not set"
            continue
        found = next((one for one in here(key.removesuffix(".enabled"), LOOKED_AT) if one.why), None)
        said = value is True or value not in (None, False, "", "none", "null", "auto", 0, 1, -1)
        if found is not None and said and found.name not in told:
            yield f"{key} is {found.as_option()}"


def aim_of(stated: Stated) -> str:
    """What a configuration trains for, in its own word: sft, dpo, ..."""
    keys = {"llama-factory": ("stage",), "axolotl": ("rl",), "trl": ("rl",), "ms-swift": ("rlhf_type",)}.get(
        stated.framework, ()
    )
    return f"{stated.of(*keys) or ''}".lower()


def _compared(stated: Stated) -> Iterator[str]:
    if (aim := aim_of(stated)) in COMPARED:
        yield f"{aim} is {Here('reference', why='(copy, or base under adapters; a pair is two sequences)').as_option()}"


def _absent(stated: Stated, told: Mapping[str, str]) -> Iterator[str]:
    """A configuration that is named, says more, and is not there; the name of DeepSpeed's may tell its stage."""
    stage_known = "zero" in told
    for named in (stated.of(*CONFIGURED), None if stage_known else stated.of(*DEEPSPEEDS)):
        if isinstance(named, str) and "." in named and file_beside(stated.folder, named) is None:
            yield f"what {named} says, which is not here"


def _chunks(stated: Stated, told: Mapping[str, str]) -> Iterator[str]:
    """Layers of a chunk, by torchtitan's key, whose model's layers the file does not count."""
    if "pp" in told and "vpp" not in told and stated.number(LAYERS_EACH):
        yield f"{LAYERS_EACH} is {Here('vpp', why='(layers / pp / its value)').as_option()}"


def _names(stated: Mapping[str, Any], option: str) -> bool:
    """Whether a file has something to say about an option, if nothing that is understood."""
    return any(found.name == option for key in stated if stated[key] and (found := meant_by(key)) is not None)


def _typed(told: Mapping[str, str]) -> Iterator[str]:
    for name, text in [*told.items()][:MOST_TOLD]:
        yield Here(name, text).as_option()


def _accumulated(told: Mapping[str, str], each: int) -> Iterator[str]:
    """The global batch of so many sequences of each rank, where the file says on how many."""
    if each and "global_batch" not in told and (ranks := ranks_of(told)):
        yield f"--global-batch {ranks * each}"


def batch_of_ranks(told: Mapping[str, str], each: int) -> Iterator[str]:
    """How the global batch follows from the sequences of each rank, where the file does not say on how many."""
    if each and "global_batch" not in told and not ranks_of(told):
        yield f"--global-batch, {each} times the data parallel ranks"


def meant_by(key: str) -> Here | None:
    """The one option that a key is, with the section that switches it on or says where it is put."""
    plain = re.sub(r"\.(?:enabled?|device)$", "", key)
    last = last_of(plain)
    if last in TAKEN or (last == "type" and plain.endswith("optimizer.type")):
        return Here("optimizer" if last == "type" else last)
    if last == "pure_bf16":
        return Here("precision", "pure-bf16")
    found = [one for one in here(plain, TAKEN) if not one.why or one.name == "global_batch"]
    if not found and last.startswith(("disable_gradient_checkpointing", "peft_use_dora")):
        return Here("dora") if last.startswith("peft") else Here("recompute", "none")
    return found[0] if len(found) == 1 else None


def text_of(key: str, found: Here, value: Any, framework: str) -> str | None:
    """What is typed for an option; None where the value says nothing that is not so anyway, or is not understood."""
    name = found.name
    if name in SWITCHES:
        return "" if value is True else None
    if name == "precision":
        return precision_recipe(key, found.value if value is True else value, framework)
    if found.value and (value is True or (name == "offload" and value in PLACES)):
        return None if found.value == "flash" else found.value
    if name == "attention" and isinstance(value, str):
        return _word(name, value)
    if name == "recompute" and found.value == "full" and (value is False or value == TO_HOST):
        return "full" if value else "none"
    if isinstance(value, bool) or value is None or found.value:
        return None
    if isinstance(value, int):
        least = 2 if name in DEGREES else 0 if name == "zero" else 1
        return BITS.get(value) if name == "quantize" else f"{value}" if name in NUMBERS and value >= least else None
    return _word(name, f"{value}")


def kernel_word(text: str) -> str:
    """A kernel of attention without the class that logs of Megatron print before it (``AttnBackend.auto``)."""
    return text.lower().rpartition(".")[2]


def _word(name: str, text: str) -> str | None:
    from distsim import catalog
    from distsim.schedules.names import plain
    from distsim.schedules.registry import SCHEDULES
    from distsim.specs.tuning import whole_named

    if name == "lora_whole":
        try:
            return whole_named(text)
        except ValueError:
            return None
    if name in ("offload_fraction", "lora_dropout"):
        return text if re.fullmatch(r"0?\.\d*[1-9]\d{0,3}", text) else None
    if name == "optimizer":
        return text if re.fullmatch(r"[\w.-]{1,64}", text) and catalog.knows("optimizers", text) else None
    if name == "schedule":
        return plain(text) if plain(text) in SCHEDULES else None
    if name == "lora_targets":
        return "all-linear" if text in ALL_PRODUCTS else text if re.fullmatch(r"\w+(?:,\w+)*", text) else None
    if name == "attention":
        return "eager" if kernel_word(text) in COMPOSED else None
    if name == "quantize":
        return text if text in BITS.values() else STORED.get(text.lower())
    if name == "recompute":
        return text if text in ("full", "selective", "none") else None
    return None


def model_of(stated: Mapping[str, Any], text: str = "") -> str:
    """The preset that a file's model is, also by a name in the ``text`` of a recipe; a placeholder where it is none
    that is known."""
    said = {key: value for key, value in stated.items() if isinstance(value, str)}
    names = [value for key, value in said.items() if _names_model(key)]
    names += ["/".join(said[CHECKPOINT].split("/")[-2:])] if CHECKPOINT in said else []
    if "model.flavor" in said:  # torchtitan's
        names.insert(0, f"{said.get('model.name', '')}-{said['model.flavor']}")
    if "model._component_" in said:  # torchtune's, which may end in what is adapted
        names.append(re.sub(r"^q?lora_", "", said["model._component_"].rpartition(".")[2]))
    for name in filter(None, [*names, *dict.fromkeys(_RECIPE.findall(text.lower()))]):
        if os.path.exists(name):  # a folder or file of the user's own, which is not read for a hint
            return shlex.quote(name)
        name = name.removesuffix(CONVERTED)
        if preset := _preset(name) or _preset(re.sub(r"(?<=\d)_(?=\d+_)", ".", name)):
            return preset
    return ANY_MODEL


def _reads_text(name: str) -> bool:
    """Whether a model is a preset without a vision tower."""
    from distsim import catalog

    return catalog.knows("models", name) and catalog.load("models", name).tower is None


def _preset(name: str) -> str:
    """The preset that a name means; nothing where it is nobody's, or no name at all."""
    from distsim.interop.models import known_model

    try:
        model = known_model(name)
    except (OSError, ValueError, DistsimError):
        return ""
    return model.name if model is not None else ""


def _names_model(key: str) -> bool:
    found = here(key, ("model",))
    named = last_of(key) in ("model", "factory", "base_model_name_or_path", "load", "mcore_model")
    return named or (bool(found) and found[0].name == "model")
