"""What DeepSpeed's own configuration comes to beyond its stage and batch: parts of ZeRO++, overlap, older switches, and
fp32 where it names no precision. Keys and defaults as in deepspeed/runtime/zero/config.py (at 03dc2b9) and
deepspeed/runtime/config.py (recalled)."""

from __future__ import annotations

from distsim.interop.other_stated import Stated

_PARTS = {"qwz": "zero_quantized_weights", "qgz": "zero_quantized_gradients"}
"""Part of ZeRO++ -> its switch."""
_SIXTEEN = ("bf16", "bfloat16", "fp16", "amp", "torch_autocast")
"""Sections of which each sets a precision; without them weights stay in fp32."""
_OLDER = {"cpu_offload": "optimizer", "cpu_offload_param": "parameters"}
"""Deprecated switch -> what it moves to the host."""
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
