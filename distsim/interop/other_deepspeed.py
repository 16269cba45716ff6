"""What DeepSpeed's own configuration comes to beyond its stage and batch: parts of ZeRO++, overlap, older switches, and
fp32 where it names no precision. Keys and defaults as in deepspeed/runtime/zero/config.py (at 03dc2b9) and
deepspeed/runtime/config.py (recalled); torch_autocast as in docs/code-docs/source/training.rst and
runtime/torch_autocast.py (looked up 2026-12): weights are in fp32, and neither bf16 nor fp16 is on beside it."""

from __future__ import annotations

from distsim.interop.other_precisions import plain_precision
from distsim.interop.other_stated import Stated

_PARTS = {"qwz": "zero_quantized_weights", "qgz": "zero_quantized_gradients"}
"""Part of ZeRO++ -> its switch."""
_SIXTEEN = ("bf16", "bfloat16", "fp16", "amp", "torch_autocast")
"""Sections of which each sets a precision; without them weights stay in fp32."""
_OLDER = {"cpu_offload": "optimizer", "cpu_offload_param": "parameters"}
"""Deprecated switch -> what it moves to the host."""
_AUTOCAST = "torch_autocast"
FORMATS = ("grad_accum_dtype", "communication_data_type")
"""What gradients are added up and reduced in; the network's own format where nothing says so."""
GONE = ("mics_shard_size",)
"""What releases of today refuse (presets/frameworks/deepspeed.toml, supports.zero_group)."""
_OVERLAPS_ITSELF = "3"
"""The stage that overlaps unless told not to."""


def deepspeed(told: dict[str, str], stated: Stated) -> None:
    """Put into ``told`` (option -> text) what the configuration says, and what it leaves at DeepSpeed's defaults."""
    parts = [part for part, key in _PARTS.items() if stated.of(key) is True]
    parts += ["hpz"] if stated.number("zero_hpz_partition_size") > 1 else []
    if parts and told.get("zero") == "3":
        told["zeropp"] = ",".join(parts)
    if moved := [what for key, what in _OLDER.items() if stated.of(key) is True]:
        told.setdefault("offload", ",".join(moved))
    overlaps, stage = stated.of("overlap_comm"), told.get("zero", "0")
    if overlaps is False or (overlaps is None and stage not in ("0", _OVERLAPS_ITSELF)):
        told["no_dp_comm_overlap"] = ""
    if not any(key.partition(".")[0] in _SIXTEEN for key in stated.keys):
        told.setdefault("precision", "fp32")
    if stated.keys.get(f"{_AUTOCAST}.enabled") is True:
        half = plain_precision(stated.keys.get(f"{_AUTOCAST}.dtype", "bfloat16"))
        told["precision"] = f"amp-{half or 'bf16'}"
    wide = plain_precision(stated.of(FORMATS[0])) == "fp32"
    if wide and stated.keys.get("bf16.enabled") is True and stage != "0":
        told["precision"] = "bf16-fp32-grads"


def as_told(key: str, value: object, recipe: str) -> bool:
    """Whether a format, or a switch of before, asks for no more than what a recipe of precision has."""
    if key in GONE:
        return not isinstance(value, int) or value < 1
    sums = "fp32" if key == FORMATS[0] and recipe.endswith("fp32-grads") else recipe.partition("-")[0]
    return plain_precision(value) == ("fp32" if recipe.startswith("amp-") else sums)
