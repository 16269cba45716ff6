"""What another tool's configuration says and nothing here understood, by the keys that say it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from distsim.interop.other_deepspeed import FORMATS, GONE, as_told
from distsim.interop.other_foundry import MIXED
from distsim.interop.other_megatron import ADAMS, names_optimizer
from distsim.interop.other_options import (
    ACCUMULATED,
    ADAPTERS,
    COMPARED,
    COMPOSED,
    DEGREES,
    FUSED,
    NUMBERS,
    aim_of,
    kernel_word,
    meant_by,
    text_of,
)
from distsim.interop.other_precisions import plain_precision, understood
from distsim.interop.other_stated import NODES, PER_NODE, Stated, last_of
from distsim.interop.other_sums import STRATEGIES, words_of
from distsim.interop.other_switches import CONTEXT_WAYS, GRAPHS, STATES_AWARE
from distsim.other_names import Here

_NOTHING = ("", "none", "null", "~", "auto", "no", "false", "default", "native")
"""Words that leave a setting as it is."""
_WHOLE = ("full",)
"""Ways to tune that adapters are not."""
_METHODS = ("block", "uniform")
_CHOICES: dict[str, tuple[str, ...]] = {
    "recompute_method": _METHODS,
    "activations_checkpoint_method": _METHODS,
    "recompute_granularity": ("full", "selective", "full_attn", "core_attn"),
    "recompute": ("full", "selective", "0", "1"),
    "tp_mode": ("all_reduce", "reduce_scatter"),
    "data_parallel_sharding_strategy": tuple(word for words in STRATEGIES.values() for word in words),
    "fp8_format": ("hybrid", "e4m3"),
    "cp_comm_type": tuple(CONTEXT_WAYS),
    "fp4_recipe": ("nvfp4",),
    "transformer_impl": ("transformer_engine",),
    "cuda_graph_impl": ("none", *GRAPHS),
    "fp8_recipe": ("delayed", "tensorwise", "mxfp8"),
    "moe_token_dispatcher_type": ("alltoall", "allgather", "flex"),
    "moe_flex_dispatcher_backend": ("deepep", "hybridep"),
    "peft_type": ("lora",),
    "grad_sync_dtype": ("bf16", "fp32", "bfloat16", "float32", "torch.bfloat16", "torch.float32"),
}
"""Key that is read together with others -> the words of it that are known."""
_BELONGS = {"fp8_recipe": ("fp8", "fp8_format"), "fp4_recipe": ("fp4", "fp4_format"),
            "moe_token_dispatcher_type": ("num_experts", "num_moe_experts"),
            "data_parallel_sharding_strategy": ("use_megatron_fsdp", "use_custom_fsdp")}  # fmt: skip
"""Key whose default logs print -> what it belongs to, one of which is on where it says anything."""


_ELSE = ("use_galore", "use_apollo", "use_badam", "use_adam_mini", "use_muon", "use_llama_pro", "use_unsloth",
         "unfrozen_parameters")  # fmt: skip
"""Switches of LLaMA-Factory and axolotl that change what trains, or the software that does (recalled)."""
_PLAIN = ("", "pt", "sft", "orpo", "cpo", "simpo", *COMPARED)
"""Aims that are described; some compare answers without a reference."""


def not_understood(stated: Stated, told: dict[str, str]) -> Iterator[str]:
    """Keys that are about an option and whose values say nothing that is known; with a value, where it is a word.
    ``told`` has the options that were understood."""
    for key, value in stated.keys.items():
        word = f"{value}".lower()
        if value is None or value is False or word in _NOTHING or "$" in word:
            continue
        if not _known(key, value, word, stated, told):
            yield key if value is True else f"{key} ({value})"


def _known(key: str, value: Any, word: str, stated: Stated, told: dict[str, str]) -> bool:
    last = last_of(key)
    if last in _ELSE:
        return False
    if last in ("stage", "rl", "rlhf_type") and word == aim_of(stated):
        return word in _PLAIN
    if last in _CHOICES:
        return word in _CHOICES[last] or not any(map(stated.of, _BELONGS.get(last, (last,))))
    if last == "mixed_precision" and stated.framework == "llm-foundry":
        return word in MIXED
    if last in (*FORMATS, *GONE) and stated.framework == "deepspeed":
        return as_told(last, value, told.get("precision", "bf16"))
    if last in STATES_AWARE:
        return "aware" in told.get("precision", "") or plain_precision(value) == "fp32"
    if last == "quantization" and stated.framework == "maxtext":
        return "precision" in told
    if last == "fsdp":
        return any(word in names for names in STRATEGIES.values() for word in words_of(value))
    if last == "num_layers_per_virtual_pipeline_stage":
        return "vpp" in told or value == stated.number("num_layers") // int(told.get("pp", 1))
    if last in (*NODES, *PER_NODE):
        return type(value) is int or "gpus" in told
    if names_optimizer(key):
        return word in ADAMS or told.get("optimizer") == word
    found = meant_by(key)
    return found is None or text_of(key, found, value, stated.framework) is not None or _as_it_is(key, found, value)


def _as_it_is(key: str, found: Here, value: Any) -> bool:
    """Whether a value asks for what holds anyway, or for what is read with other keys."""
    name, word = found.name, f"{value}".lower()
    if name == "precision":
        return understood(key, value)
    if name == "attention":
        return value is True or kernel_word(word) in (*FUSED, *COMPOSED)
    if name == "lora_rank" and isinstance(value, str):
        return word in (*ADAPTERS, *_WHOLE)
    if name == "offload_fraction":
        return word in ("0", "0.0", "1", "1.0")
    if name == "lora_dropout":
        return word in ("0", "0.0")
    if name in DEGREES or name in NUMBERS:
        return type(value) is int or word == "-1" or (name == "global_batch" and found.why not in ("", ACCUMULATED))
    return False
