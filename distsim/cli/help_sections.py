"""``--help`` in sections: what the job runs on, how it is laid out, what it trains, what the answer looks like."""

from __future__ import annotations

from typing import Any

from typer.core import TyperCommand

# Title -> options by name, in the order of the page; a command's own options, which stand in none, come last.
SECTIONS: dict[str, tuple[str, ...]] = {
    "Hardware and software": ("gpu", "gpus", "cluster", "profile", "framework", "compile", "attention"),
    "Layout": ("tp", "pp", "cp", "ep", "etp", "dp", "vpp", "schedule", "stage_layers", "vocab_parallel",
               "sequence_parallel", "loss_parallel", "tp_mode", "tp_depth", "cp_mode"),
    "Batch": ("seq", "decoder_seq", "sample_tokens", "micro_batch", "global_batch"),
    "Memory": ("zero", "zero_group", "recompute", "recompute_layers", "offload", "offload_to"),
    "Training": ("precision", "optimizer", "dropout", "mtp", "expert_imbalance"),
    "Fine-tuning": ("lora_rank", "lora_targets", "lora_dropout", "lora_whole", "quantize"),
    "Exchange of gradients": ("no_sync", "clip", "compress", "zeropp", "sync", "sync_every", "sync_gbps", "servers"),
    "Where options come from": ("job", "show_config"),
}  # fmt: skip
OWN = "This command"


class SectionedCommand(TyperCommand):
    """A command whose options are told by what they are about."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Arguments, then the sections in their order."""
        titles = {name: title for title, names in SECTIONS.items() for name in names}
        found: dict[str, list[tuple[str, str]]] = {title: [] for title in ("Arguments", *SECTIONS, OWN)}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None:
                argument = parameter.param_type_name == "argument"
                found["Arguments" if argument else titles.get(parameter.name or "", OWN)].append(record)
        for title, rows in found.items():
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)
