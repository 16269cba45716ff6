"""What LitGPT's configurations state in words of their own: a switch for each module with an adapter, and how
bitsandbytes stores weights. Keys and words as in Lightning-AI/litgpt litgpt/finetune/lora.py and config_hub/finetune
(recalled)."""

from __future__ import annotations

from distsim.interop.other_stated import Stated

_TARGETS = {"lora_query": ("q", True), "lora_key": ("k", False), "lora_value": ("v", True),
            "lora_projection": ("o", False), "lora_mlp": ("mlp", False), "lora_head": ("head", False)}  # fmt: skip
"""Switch -> the module here, and whether it is on where nothing says so."""
STORED = {"bnb.nf4": "nf4-single", "bnb.nf4-dq": "nf4", "bnb.int8": "int8", "bnb.int8-training": "int8"}
"""Word of ``quantize`` -> how weights are stored here."""
CHECKPOINT = "checkpoint_dir"
"""Key whose folder is called as a model of the Hub."""


def litgpt(told: dict[str, str], stated: Stated) -> None:
    """Put adapters and their modules, and the store of frozen weights, into ``told`` (option -> text)."""
    if stored := STORED.get(f"{stated.of('quantize')}".lower()):
        told["quantize"] = stored
    if "lora_rank" in told:
        said = {name: stated.of(key) for key, (name, _) in _TARGETS.items()}
        usual = dict(_TARGETS.values())
        on = [name for name, value in said.items() if (usual[name] if value is None else value is True)]
        told["lora_targets"] = ",".join(on)
