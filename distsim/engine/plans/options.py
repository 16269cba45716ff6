"""The options of a plan: those of its layouts, of its job, and its own with what holds where they are not stated."""

from typing import Any

BOUNDED = ("tp", "pp", "vpp", "cp", "ep", "etp", "zero", "zero_group", "micro_batch", "recompute", "recompute_layers",
           "schedule", "sequence_parallel")  # fmt: skip
"""Job options that tell a layout apart, of which several values are tried."""
JOB = ("seq", "decoder_seq", "sample_tokens", "images", "image_size", "vision", "gpu_power", "framework",
       "precision", "optimizer", "optimizer_rank", "compile", "offload", "offload_to", "offload_fraction",
       "cuda_graphs", "expert_overlap", "expert_dispatcher", "tp_comm_overlap", "dp_comm_overlap",
       "expert_imbalance", "capacity_factor", "cp_mode", "attention", "dropout",
       "no_sync", "clip", "loss_parallel", "mtp", "loss", "lora_rank", "lora_targets",
       "lora_dropout", "lora_whole", "dora", "quantize", "reference", "recompute_modules", "remat_policy",
       "offload_modules", "mlp_tiles")  # fmt: skip
"""Job options that hold for all layouts."""
COUNTS = ("global_batch", "spares", "keep")
"""A plan's own options that are whole numbers."""
SWITCHES = ("compute_optimal", "blocking_checkpoints")
LISTS = (*BOUNDED, "gpu", "gpus", "cluster", "provider", "price")
"""Those that take several values, in a text with commas."""
PRESETS = ("failures", "storage", "facility")
QUANTITIES = ("deadline", "budget", "price_age", "checkpoint_every", "preempted_every", "maintenance_every")
"""Those in seconds or dollars, or texts with a unit."""
SHARES = ("margin", "stragglers", "confidence")
DEFAULTS: dict[str, Any] = {
    **dict.fromkeys((*LISTS, *JOB, *COUNTS, *QUANTITIES, *SHARES, "pace")), **dict.fromkeys(SWITCHES, False),
    **dict.fromkeys(PRESETS, "default"), "price": "on-demand",
}  # fmt: skip
