"""What torchtune's recipes say by switches and by the names of what they build. Keys and names as in its configurations
(pytorch/torchtune recipes/configs, recalled)."""

from __future__ import annotations

from distsim.interop.other_stated import Stated

_ADAPTED = {"apply_lora_to_mlp": "mlp", "apply_lora_to_output": "head"}
"""Switch -> what has adapters besides attention's."""
_CHUNKED = ("ChunkedOutputLoss", "LinearCrossEntropyLoss")


def torchtune(told: dict[str, str], stated: Stated) -> None:
    """Put into ``told`` (option -> text) adapters besides those of a list, 4-bit weights and losses in chunks."""
    named = [told["lora_targets"]] if "lora_targets" in told else []
    if targets := [*named, *(part for key, part in _ADAPTED.items() if stated.of(key) is True)]:
        told["lora_targets"] = ",".join(targets)
    model, loss = (f"{stated.keys.get(f'{part}._component_')}" for part in ("model", "loss"))
    if stated.of("quantize_base") is True or model.rpartition(".")[2].startswith("qlora_"):
        told["quantize"] = "nf4-torchao"
    if loss.endswith(_CHUNKED):
        told["loss"] = "chunked"
