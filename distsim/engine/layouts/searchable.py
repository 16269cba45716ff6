"""Which job options a search takes: those that it tries values of, and those that hold for all layouts."""

BOUNDED = ("gpus", "tp", "pp", "vpp", "cp", "ep", "etp", "dp", "zero", "zero_group", "micro_batch", "recompute",
           "recompute_layers", "schedule", "sequence_parallel", "global_batch", "precision", "offload")  # fmt: skip
"""Of these one value, several or a range is tried."""
FIXED = ("gpu", "cluster", "gpu_power", "profile", "framework", "seq", "decoder_seq", "sample_tokens", "images",
         "image_size", "vision", "attention", "compile", "cuda_graphs", "expert_overlap", "expert_dispatcher",
         "tp_comm_overlap", "dp_comm_overlap", "dropout", "optimizer", "optimizer_rank", "mtp", "lora_rank",
         "lora_targets", "lora_dropout", "lora_whole", "dora", "quantize", "reference", "loss", "loss_parallel",
         "no_sync", "clip", "expert_imbalance", "capacity_factor", "cp_mode", "offload_to", "offload_fraction",
         "recompute_modules", "offload_modules", "remat_policy", "mlp_tiles")  # fmt: skip
VARIED = {"global_batch": "batches", "precision": "precisions", "offload": "offloads"}
"""Of the bounded ones those that are no degrees, with the names of their lists in a request."""
