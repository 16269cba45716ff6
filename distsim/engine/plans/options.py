"""The options of a plan: those of its layouts, of its job, and its own with what holds where they are not stated."""

from typing import Any

BOUNDED = ("tp", "pp", "vpp", "cp", "ep", "etp", "zero", "zero_group", "micro_batch", "recompute", "recompute_layers",
           "schedule", "sequence_parallel")  # fmt: skip
"""Job options of which several values are tried."""
JOB = ("seq", "decoder_seq", "sample_tokens", "gpu_power", "framework", "precision", "optimizer", "compile", "offload",
       "offload_to", "cuda_graphs", "expert_overlap", "tp_comm_overlap", "expert_imbalance", "capacity_factor",
       "cp_mode", "attention", "dropout", "no_sync", "clip", "loss_parallel", "mtp", "loss", "lora_rank",
       "lora_targets", "lora_dropout", "lora_whole", "quantize")  # fmt: skip
"""Job options that hold for all layouts."""
NUMBERS: dict[str, Any] = {"global_batch": int, "spares": int, "keep": int, "pace": (int, float)}
"""Those of a plan's own options that are bare numbers, with their types."""
DEFAULTS: dict[str, Any] = {
    **dict.fromkeys((*BOUNDED, *JOB, *NUMBERS)),
    "compute_optimal": False, "deadline": None, "budget": None, "gpu": None, "gpus": None, "cluster": None,
    "provider": None, "price": "on-demand", "price_age": None,
    "failures": "default", "storage": "default", "facility": "default", "blocking_checkpoints": False,
    "checkpoint_every": None, "stragglers": None, "preempted_every": None, "maintenance_every": None,
    "margin": None,
}  # fmt: skip
