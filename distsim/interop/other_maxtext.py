"""What MaxText's configuration comes to: meshes of devices by axes, each in a slice and over slices, remat policies,
and products in 8 bits. Keys as in its configs/base.yml (recalled; words of ``quantization`` looked up, 2026-11)."""

from __future__ import annotations

import math

from distsim.interop.other_stated import Stated

_AXES = {"tp": ("tensor", "tensor_sequence", "tensor_transpose"), "pp": ("pipeline",), "ep": ("expert",),
         "cp": ("context", "sequence")}  # fmt: skip
"""Degree -> MaxText's axes of it, each in a slice (ici) and over slices (dcn)."""
_SHARDING, _COPYING = ("fsdp", "fsdp_transpose"), ("data",)
_NARROW = {"int8": "jax-int8", "fp8": "jax-fp8", "fp8_gpu": "jax-fp8", "fp8_full": "jax-fp8",
           "nanoo_fp8": "jax-fp8", "te_fp8_delayedscaling": "jax-fp8", "te_fp8_currentscaling": "jax-fp8"}  # fmt: skip
"""Word of MaxText's ``quantization`` -> the recipe in which products train."""


def maxtext(told: dict[str, str], stated: Stated) -> None:
    """Put into ``told`` (option -> text) degrees of meshes, the sequences of a rank (those of a device times the
    devices of the rank), and products in 8 bits."""
    if recipe := _NARROW.get(f"{stated.of('quantization')}"):
        told.pop("quantize", None)
        told["precision"] = recipe

    def ranks(axes: tuple[str, ...]) -> int:
        names = [f"{mesh}_{axis}_parallelism" for axis in axes for mesh in ("ici", "dcn")]
        return math.prod(stated.number(name) or 1 for name in names)

    degrees = {name: size for name, axes in _AXES.items() if (size := ranks(axes)) > 1}
    told.update({name: f"{size}" for name, size in degrees.items()})
    shards, copies = ranks(_SHARDING), ranks(_COPYING)
    whole = not any(value == "-1" for key, value in stated.keys.items() if key.endswith("_parallelism"))
    if shards > 1:
        told["zero"] = "3"
    if shards > 1 and whole:
        told.setdefault("gpus", f"{shards * copies * math.prod(degrees.values())}")
        told |= {"zero_group": f"{shards}"} if copies > 1 else {}
    if isinstance(policy := stated.of("remat_policy"), str) and policy not in ("full", "custom"):
        told |= {"recompute": "selective", "remat_policy": policy}
    if each := stated.number("per_device_batch_size"):
        rank = math.prod(size for name, size in degrees.items() if name != "ep")
        told["micro_batch"] = f"{each * rank}"
