"""``--help`` in sections: what the job runs on, how it is laid out, what it trains, what the answer looks like."""

from __future__ import annotations

from typing import Any

from typer.core import TyperCommand

# Title -> options by name, in the order of the page; a command's own options, which stand in none, come last.
SECTIONS: dict[str, tuple[str, ...]] = {
    "Hardware and software": ("gpu", "gpus", "cluster", "gpu_power", "profile", "framework", "compile",
                              "cuda_graphs", "attention"),
    "Layout": ("tp", "pp", "cp", "ep", "etp", "dp", "vpp", "schedule", "stage_layers", "vocab_parallel",
               "sequence_parallel", "loss_parallel", "tp_mode", "tp_depth", "cp_mode", "expert_overlap",
               "expert_dispatcher", "tp_comm_overlap", "dp_comm_overlap"),
    "Batch": ("seq", "decoder_seq", "sample_tokens", "images", "image_size", "micro_batch", "global_batch"),
    "Memory": ("zero", "zero_group", "recompute", "recompute_layers", "recompute_group", "recompute_modules",
               "remat_policy", "mlp_tiles", "offload", "offload_to", "offload_fraction", "offload_modules",
               "loss"),
    "Training": ("precision", "optimizer", "optimizer_rank", "dropout", "vision", "mtp", "expert_imbalance",
                 "capacity_factor"),
    "Fine-tuning": ("lora_rank", "lora_targets", "lora_dropout", "lora_whole", "dora", "quantize", "reference"),
    "Gradient communication": ("no_sync", "clip", "compress", "zeropp", "sync", "sync_every", "sync_gbps", "servers"),
    "Where options come from": ("job", "show_config"),
}  # fmt: skip
SEARCH: dict[str, tuple[str, ...]] = {
    "Objective": ("objective", "within", "tokens", "deadline", "margin", "exclude", "top", "all_ranks", "diff"),
    "Prices": ("price", "provider"),
    **SECTIONS,
    "Time of the search": ("jobs", "dask"),
}
PLAN: dict[str, tuple[str, ...]] = {
    "The run": ("tokens", "compute_optimal", "deadline", "confidence", "budget", "seq", "decoder_seq",
                "sample_tokens", "images", "image_size", "global_batch"),
    "Hardware and software": ("gpu", "gpus", "cluster", "gpu_power", "framework", "compile", "cuda_graphs",
                              "attention"),
    "Prices and energy": ("price", "provider", "price_age", "facility"),
    "Failures and checkpoints": ("failures", "storage", "checkpoint_every", "blocking_checkpoints", "keep", "spares",
                                 "stragglers", "pace", "preempted_every", "maintenance_every", "seed"),
    "Layouts to try": ("tp", "pp", "vpp", "cp", "ep", "etp", "zero", "zero_group", "micro_batch", "recompute",
                       "recompute_layers", "schedule", "sequence_parallel", "cp_mode", "expert_overlap",
                       "expert_dispatcher", "recompute_modules", "remat_policy", "mlp_tiles", "tp_comm_overlap",
                       "dp_comm_overlap", "loss_parallel", "offload", "offload_to", "offload_fraction",
                       "offload_modules", "margin"),
    "Training": ("precision", "optimizer", "optimizer_rank", "dropout", "vision", "mtp", "loss", "expert_imbalance",
                 "capacity_factor", "no_sync", "clip"),
    "Fine-tuning": SECTIONS["Fine-tuning"],
    "Where options come from": ("job",),
    "Time of the plan": ("jobs",),
}  # fmt: skip
PIPELINE: dict[str, tuple[str, ...]] = {
    "Schedule": ("stages", "micro", "schedule", "chunks", "memory_limit", "weight_memory", "group", "compare", "list_"),
    "Times per micro-batch, in any unit": ("forward", "backward", "input_gradient", "weight_gradient", "balance",
                                           "loss", "optimizer", "sync"),
    "Transfers": ("hop", "p2p", "blocking", "contention"),
    "Times from a model instead, in seconds": ("model", "gpu", "gpu_power", "tp", "cp", "ep", "etp",
                                               "micro_batch", "seq", "images", "image_size", "vision", "recompute",
                                               "recompute_modules", "remat_policy", "framework", "cuda_graphs",
                                               "stage_layers", "lora_rank", "quantize"),
    "A custom order instead of a schedule": ("order", "placement", "chains"),
    "Fused pairs": ("fused", "fused_time"),
}  # fmt: skip
BY_COMMAND = {
    "memory": SECTIONS, "comm": SECTIONS, "step": SECTIONS, "search": SEARCH, "plan": PLAN, "pipeline": PIPELINE,
}  # fmt: skip
OWN = "This command"


class _SectionedCommand(TyperCommand):
    """A command whose options are told by what they are about."""

    sections: dict[str, tuple[str, ...]]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Arguments, then the sections in their order."""
        titles = {name: title for title, names in self.sections.items() for name in names}
        found: dict[str, list[tuple[str, str]]] = {title: [] for title in ("Arguments", *self.sections, OWN)}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None:
                argument = parameter.param_type_name == "argument"
                found["Arguments" if argument else titles.get(parameter.name or "", OWN)].append(record)
        for title, rows in found.items():
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)


def sectioned(name: str) -> type[TyperCommand]:
    """The class of a command whose help has sections."""
    return type("SectionedCommand", (_SectionedCommand,), {"sections": BY_COMMAND[name]})
