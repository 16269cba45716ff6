"""The network in nanotron's YAML, whose ``model_config`` has the keys of transformers (huggingface/nanotron
src/nanotron/config/models_config.py, recalled), with experts in a section of their own (Qwen2Config.moe_config)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from distsim.interop.huggingface import read_config
from distsim.interop.megatron_network import Network
from distsim.interop.other_stated import Stated

SECTION = "model.model_config."
KINDS = {"is_qwen2_config": "qwen2", "is_starcoder2_config": "starcoder2", "is_mistral_config": "mistral"}
"""Switch -> the family that it stands for; all others are Llama's."""
EXPERTS = {"num_experts": "num_experts", "top_k": "num_experts_per_tok", "moe_intermediate_size":
           "moe_intermediate_size", "shared_expert_intermediate_size": "shared_expert_intermediate_size",
           "enable_shared_expert": "", "token_dispatcher_type": "", "use_haiku_gate": "", "layers": ""}  # fmt: skip
"""Key of the experts' section -> transformers' key; none where it has no other."""
_MOE = "moe_config."
_BIASED = "qwen2"
"""The family whose biases are a switch, off by default, and not its own."""


def nanotron_network(stated: Stated, path: Path) -> Network:
    """The network of a file that states the needed sizes."""
    found = {key.removeprefix(SECTION): _plain(value) for key, value in stated.keys.items() if key.startswith(SECTION)}
    data = {key: value for key, value in found.items() if not (key.startswith("is_") and key.endswith("_config"))}
    family = next((name for switch, name in KINDS.items() if found.get(switch) is True), "llama")
    experts = dict(_experts({key.removeprefix(_MOE): value for key, value in data.items() if key.startswith(_MOE)}))
    data = {key: value for key, value in data.items() if not key.startswith(_MOE.rstrip("."))}
    kind = f"{family}_moe" if experts else family
    reading = read_config({**data, **experts, "model_type": kind}, str(path), path.stem)
    model = reading.model
    if family == _BIASED:
        model = model.model_copy(update={"qkv_bias": data.get("attention_bias") is True})
    if model.experts is not None and not model.experts.shared:
        model = model.model_copy(update={"experts": model.experts.model_copy(update={"shared_gate": False})})
    assumed = (f"{key} {value}" for key, value in reading.assumed.items() if type(value) is int)
    used = {key for key in found if key not in reading.unused and not key.startswith(_MOE)}
    own = {f"{SECTION}{_MOE}{key}" for key in EXPERTS} | {"attention_bias"}
    return Network(model, tuple(assumed), frozenset({*used, *own, "model_config"}))


def _experts(stated: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Experts of all layers in transformers' keys; nothing where there are none."""
    if not stated.get("num_experts"):
        return
    yield "decoder_sparse_step", 1
    yield from ((name, stated[key]) for key, name in EXPERTS.items() if name and key in stated)
    if stated.get("enable_shared_expert") is not True:
        yield "shared_expert_intermediate_size", 0


def _plain(value: Any) -> Any:
    """A scalar of YAML that is no text, as JSON has it."""
    if not isinstance(value, str):
        return value
    if value.lower() in ("null", "~", ""):
        return None
    try:
        return float(value)
    except ValueError:
        return value
