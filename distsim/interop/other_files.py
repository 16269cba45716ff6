"""Files of other tools, recognised by their keys where one is given as a model or as a job: none is read, but what it
states is told in the options that it would be here."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from distsim.errors import DistsimError
from distsim.plain_files import text_of


class Kind(NamedTuple):
    """Files of one tool: what they are called, the framework that stands for it, and keys of which they have so
    many."""

    called: str
    framework: str
    keys: tuple[str, ...]
    least: int = 2
    rank: int = 0
    """Of adapters where a file names none; 0: it must."""
    silent: tuple[tuple[str, str], ...] = ()
    """What holds where a key is missing, and the framework's profile has it otherwise."""


KINDS = (
    Kind("a torchtitan configuration", "torchtitan",
         ("model.flavor", "training.local_batch_size", "training.seq_len", "job.dump_folder", "metrics.log_freq")),
    Kind("a torchtune recipe", "torchtune", ("model._component_", "tokenizer._component_", "optimizer._component_"), 1),
    Kind("an axolotl configuration", "axolotl",
         ("base_model", "adapter", "sequence_len", "sample_packing", "val_set_size", "datasets", "lora_r"), 2, 8,
         (("gradient_checkpointing", "none"), ("lora_target_modules", "q,v"))),
    Kind("a LLaMA-Factory configuration", "llama-factory",
         ("finetuning_type", "model_name_or_path", "cutoff_len"), 2, 8),
    Kind("an adapter's configuration of peft", "huggingface", ("peft_type", "base_model_name_or_path")),
    Kind("an accelerate configuration", "huggingface",
         ("compute_environment", "distributed_type", "fsdp_config", "deepspeed_config", "machine_rank")),
    Kind("a DeepSpeed configuration", "deepspeed",
         ("zero_optimization", "zero_optimization.stage", "train_batch_size", "train_micro_batch_size_per_gpu",
          "bf16.enabled", "fp16.enabled", "gradient_clipping")),
    Kind("a configuration of transformers' Trainer", "huggingface",
         ("per_device_train_batch_size", "gradient_accumulation_steps", "output_dir", "num_train_epochs")),
    Kind("a nanotron configuration", "nanotron",
         ("parallelism.dp", "parallelism.tp", "parallelism.pp", "tokens.sequence_length", "tokens.micro_batch_size")),
    Kind("a Megatron configuration", "megatron-core",
         ("tensor_model_parallel_size", "pipeline_model_parallel_size", "micro_batch_size", "global_batch_size",
          "encoder_seq_length", "language_model")),
)  # fmt: skip
"""The most telling first; keys as people write them (recalled)."""
_YAML = re.compile(r"^( *)([A-Za-z_][\w.-]*):(?:\s+(.*?))?\s*(?:#.*)?$")

_ITEM = re.compile(r"^ *- +([\w.-]+)\s*(?:#.*)?$")


def refuse_other(path: Path, model: str | None = None) -> None:
    """Raise for a file of another tool, or in YAML; what is wrong with others is told by whoever reads them. ``model``
    is the one that was named beside the file."""
    stated = dict(_stated(path))
    found = next((kind for kind in KINDS if _count(kind, stated) >= kind.least), None)
    if found is not None:
        from distsim.interop.other_options import model_of, options_of

        options = options_of(stated, found.framework, found.rank, dict(found.silent))
        raise DistsimError(
            f"looks like {found.called}, which is not read",
            f"name a model and state the rest as options, e.g. {model or model_of(stated)} {options}",
            where=str(path),
        )  # fmt: skip
    if path.suffix.lower() in (".yaml", ".yml") and path.is_file():
        raise DistsimError("is YAML, which is not read", "a model is a preset's name, a TOML of its shape, or a "
                           "config.json; a job file is a TOML of options", where=str(path))  # fmt: skip


def _count(kind: Kind, stated: dict[str, Any]) -> int:
    """How many of a tool's keys a file has; those without a section also inside of others."""
    inside = {key.rpartition(".")[2] for key in stated} | {key.partition(".")[0] for key in stated}
    return sum(key in stated or key in inside for key in kind.keys)


def _stated(path: Path) -> Iterator[tuple[str, Any]]:
    """Keys of a file with their sections, and their values; none of one that cannot be read."""
    try:
        text = text_of(path)
    except (OSError, UnicodeDecodeError, DistsimError):
        return
    for read in (json.loads, tomllib.loads):
        try:
            data = read(text)
        except (ValueError, RecursionError):
            continue
        yield from _flat(data) if isinstance(data, dict) else ()
        return
    yield from _yaml(text)


def _flat(table: dict[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        yield f"{before}{key}", None if isinstance(value, dict) else _joined(value)
        if isinstance(value, dict):
            yield from _flat(value, f"{before}{key}.")


def _joined(value: Any) -> Any:
    """A list of words as one, with commas; nothing of other lists."""
    if not isinstance(value, list):
        return value
    return ",".join(value) if value and all(isinstance(one, str) for one in value) else None


def _yaml(text: str) -> Iterator[tuple[str, Any]]:
    """The plain lines of a YAML file, ``key: value`` with its sections by indentation and lists of words; enough to
    know it by."""
    sections: list[tuple[int, str]] = []
    listed: list[str] = []
    for line in text.splitlines():
        if (item := _ITEM.match(line)) is not None and sections:
            listed.append(item[1])
            yield ".".join(name for _, name in sections), ",".join(listed)
            continue
        match, listed = _YAML.match(line), []
        if match is None:
            continue
        indent, key, value = len(match[1]), match[2], (match[3] or "").strip("'\"")
        while sections and sections[-1][0] >= indent:
            sections.pop()
        yield ".".join([*(name for _, name in sections), key]), _scalar(value)
        if not value:
            sections.append((indent, key))


def _scalar(text: str) -> Any:
    """A value of YAML as one of JSON, where it is a whole number or a switch."""
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    return int(text) if text.isdigit() else text
