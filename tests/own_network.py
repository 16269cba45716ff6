"""A run of a network that somebody wrote for plain torch: the cells of its row."""

NETWORK = {
    "id": "own", "family": "llama", "layers": "24", "hidden": "1024", "heads": "16", "ffn_hidden": "4096",
    "gated_mlp": "1", "vocab": "10000", "tied_embeddings": "0", "seq_len": "512", "gpu": "a100-sxm4-40gb",
    "n_gpus": "1", "micro_batch": "4", "global_batch": "4", "precision": "bf16", "recompute": "none",
    "attention": "eager", "optimizer": "adamw", "compile": "0", "framework": "plain-torch", "year": "2025",
    "step_time_s": "0.195",
}  # fmt: skip
