"""Files of other tools, recognised by their keys where one is given as a model or as a job: none is read, but what it
states is told in the options that it would be here."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from distsim.errors import DistsimError
from distsim.interop.other_stated import CONFIGURED, Stated, file_beside, last_of, referred, with_targets
from distsim.interop.other_structure import refuse_json, yaml_fault
from distsim.interop.other_texts import arguments, stated_in
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
    many: bool = False
    """Whether what it is called is a plural."""
    mark: str = ""
    """Text that each of them has, for their keys are another tool's."""


_MEGATRON = ("tensor_model_parallel_size", "pipeline_model_parallel_size", "micro_batch_size", "global_batch_size",
             "context_parallel_size", "seq_length")  # fmt: skip
_TRAINER = ("per_device_train_batch_size", "gradient_accumulation_steps", "output_dir", "num_train_epochs",
            "model_name_or_path", "max_seq_length")  # fmt: skip
_PADDLE = ("sharding", "tensor_parallel_degree", "pipeline_parallel_degree", "sharding_parallel_degree",
           "virtual_pp_degree", "fp16_opt_level", "use_fused_rms_norm", "unified_checkpoint")  # fmt: skip
_MAXTEXT = ("per_device_batch_size", "max_target_length", "ici_fsdp_parallelism", "ici_tensor_parallelism",
            "remat_policy", "base_emb_dim", "base_config")  # fmt: skip
_SWIFT = (("use_distributed_optimizer", "1"), ("recompute_granularity", "selective"),
          ("torch_dtype", "bf16-fp32-grads"))  # fmt: skip
"""What ms-swift's Megatron has on where nothing says so (its document Megatron-SWIFT, command line parameters,
recalled)."""
KINDS = (
    Kind("arguments of Megatron-DeepSpeed", "megatron-deepspeed",
         ("--zero-stage", "--deepspeed", "--deepspeed_config", "--deepspeed-activation-checkpointing"), many=True,
         mark="--micro-batch-size"),
    Kind("arguments of torchtitan", "torchtitan",
         ("--job.config_file", "--training.local_batch_size", "--training.seq_len", "--model.flavor",
          "--parallelism.tensor_parallel_degree", "--parallelism.data_parallel_shard_degree"), many=True,
         mark="torchtitan"),
    *(Kind("arguments of ms-swift's Megatron", "megatron-core",
           tuple(f"--{key}" for key in (*_MEGATRON[:5], "expert_model_parallel_size", "max_length")), many=True,
           mark=f"megatron {aim}", rank=8, silent=_SWIFT) for aim in ("sft", "pt", "rlhf")),
    Kind("arguments of ms-swift", "ms-swift",
         ("--model", "--train_type", "--tuner_type", "--per_device_train_batch_size", "--torch_dtype"), many=True,
         mark="swift ",
         rank=8, silent=(("train_type", "8"),)),
    Kind("arguments of Megatron", "megatron-core",
         ("--tensor-model-parallel-size", "--pipeline-model-parallel-size", "--num-layers", "--micro-batch-size",
          "--seq-length", "--use-distributed-optimizer"), many=True),
    *(Kind("arguments of TRL", "trl",
           ("--per_device_train_batch_size", "--model_name_or_path", "--dataset_name", "--use_peft", "--max_length"),
           many=True, mark=f"trl {aim}") for aim in ("sft", "dpo", "kto")),
    Kind("arguments of LLaMA-Factory", "llama-factory",
         ("--finetuning_type", "--model_name_or_path", "--cutoff_len", "--stage"), 2, 8, many=True,
         mark="llamafactory-cli"),
    Kind("arguments of PaddleNLP's Trainer", "paddlenlp", tuple(f"--{key}" for key in _PADDLE), many=True),
    Kind("arguments of transformers' Trainer", "huggingface",
         ("--per_device_train_batch_size", "--gradient_accumulation_steps", "--model_name_or_path", "--deepspeed"),
         many=True),
    Kind("a recipe of Megatron-Bridge", "megatron-bridge", _MEGATRON, mark="megatron.bridge"),
    Kind("a command of Megatron-Bridge", "megatron-bridge", _MEGATRON, mark="run_recipe.py"),
    Kind("a recipe of NeMo", "nemo", _MEGATRON, mark="nemo.collections"),
    Kind("a command of NeMo", "nemo", _MEGATRON, mark="nemo llm"),
    Kind("a script of Unsloth", "unsloth", (*_TRAINER, "load_in_4bit", "r"), mark="from unsloth import"),
    Kind("a script of TRL", "trl", _TRAINER, mark="from trl import"),
    Kind("a configuration of MaxText", "maxtext", _MAXTEXT),
    Kind("a configuration of LLM Foundry", "llm-foundry",
         ("device_train_microbatch_size", "global_train_batch_size", "device_eval_batch_size", "max_duration")),
    Kind("a torchtitan configuration", "torchtitan",
         ("model.flavor", "training.local_batch_size", "training.seq_len", "training.max_context_length",
          "training.num_tokens_per_train_step", "job.dump_folder", "metrics.log_freq")),
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
    Kind("a configuration of PaddleNLP's Trainer", "paddlenlp", _PADDLE),
    Kind("a configuration of transformers' Trainer", "huggingface", _TRAINER[:4]),
    Kind("a configuration of LitGPT", "litgpt",
         ("train.micro_batch_size", "train.global_batch_size", "train.max_seq_length", "train.max_tokens",
          "train.save_interval", "eval.interval", "out_dir", "checkpoint_dir", "tokenizer_dir"), 3),
    Kind("a nanotron configuration", "nanotron",
         ("parallelism.dp", "parallelism.tp", "parallelism.pp", "tokens.sequence_length", "tokens.micro_batch_size")),
    Kind("a configuration of NeMo", "nemo",
         ("trainer.num_nodes", "trainer.devices", "model.tensor_model_parallel_size",
          "model.pipeline_model_parallel_size", "model.micro_batch_size", "exp_manager"), 3),
    Kind("a Megatron configuration", "megatron-core",
         ("tensor_model_parallel_size", "pipeline_model_parallel_size", "micro_batch_size", "global_batch_size",
          "encoder_seq_length", "language_model"), 3),
)  # fmt: skip
"""The most telling first; keys as people write them (recalled)."""
READ = ("megatron", "nemo", "nanotron")
"""How the frameworks begin whose files are read where they state a network's sizes."""
MOST_LEFT = 4
"""Keys that are told to need a look."""


def refuse_other(path: Path, model: str | None = None, as_job: bool = False) -> None:
    """Raise for a file of another tool, in YAML, or with an answer of distsim; what is wrong with others is told by
    whoever reads them. ``model`` is the one that was named beside the file, ``as_job`` whether it was named as a
    job."""
    if path.suffix.lower() == ".csv":
        raise DistsimError("is a table", f"measured runs are replayed with: distsim validate {path}", where=str(path))
    stated, text = keys_and_text(path)
    found = found_kind(stated, text)
    if found is None and path.suffix.lower() not in (".toml", ".json", ".yaml", ".yml", ".py"):
        stated = dict(arguments(text))  # so few that they make no command line of others
        found = found_kind(stated, text)
    if found is not None:
        from distsim.interop.megatron_network import NEEDED, lacks
        from distsim.interop.other_options import model_of, options_of, whole_of
        from distsim.interop.other_unread import not_understood

        name = model or model_of(stated, text if found.mark else "")
        keys = Stated(stated, found.framework, path.parent)
        options, left = options_of(keys, found.rank, dict(found.silent))
        odd = [*not_understood(keys, whole_of(keys, found.rank, dict(found.silent))[0])]
        missing = lacks(keys)
        sizes = f"a network's sizes would be read; {_lacking(missing)}"
        raise DistsimError(
            f"looks like {found.called}, which {'are' if found.many else 'is'} not read",
            f"name a model and state the rest as options, e.g. {name} {options}",
            f"to be stated besides: {'; '.join(left[:MOST_LEFT])}" if left else "",
            f"not understood: {', '.join(odd[:MOST_LEFT])}" if odd else "",
            sizes if len(missing) < len(NEEDED) and found.framework.startswith(READ) else "", where=str(path),
        )  # fmt: skip
    if path.suffix.lower() in (".yaml", ".yml") and path.is_file():
        raise _yaml_error(path, stated, text)
    refuse_json(path, as_job)


def _lacking(names: Sequence[str]) -> str:
    return f"{', '.join(names)} {'is' if len(names) == 1 else 'are'} missing"


def _yaml_error(path: Path, stated: dict[str, Any], text: str) -> DistsimError:
    """What is wrong with YAML that is nobody's who is known."""
    from distsim.interop.megatron_network import NEEDED, lacks

    if fault := yaml_fault(text):
        return DistsimError(f"is malformed YAML: {fault}", where=str(path))
    missing = lacks(Stated(stated, READ[0])) or [f"a layout ({', '.join(_MEGATRON[:3])})"]
    return DistsimError(
        f"is YAML, which is not read: of NeMo, Megatron or nanotron it would have {', '.join(NEEDED)} and a layout",
        _lacking(missing) if len(missing) < len(NEEDED) else "",
        "a model is a preset's name, a TOML of its shape, or a config.json; a job file is a TOML of options",
        where=str(path),
    )


def found_kind(stated: dict[str, Any], text: str) -> Kind | None:
    """What a file of these keys and this text is; None where it is nobody's that is known."""
    return next((kind for kind in KINDS if kind.mark in text and _count(kind, stated) >= kind.least), None)


def is_others(path: Path) -> bool:
    """Whether a file is another tool's."""
    return found_kind(*keys_and_text(path)) is not None


def _count(kind: Kind, stated: dict[str, Any]) -> int:
    """How many of a tool's keys a file has; those without a section also inside of others."""
    inside = {key.rpartition(".")[2] for key in stated} | {key.partition(".")[0] for key in stated}
    return sum(key in stated or key in inside for key in kind.keys)


def keys_and_text(path: Path) -> tuple[dict[str, Any], str]:
    """Keys of a file with their sections, their values, and its text; nothing of one that cannot be read."""
    try:
        text = text_of(path)
    except (OSError, UnicodeDecodeError, DistsimError):
        return {}, ""
    stated = dict(stated_in(text, path.suffix.lower()))
    return with_targets(referred({**stated, **_configured(stated, path.parent)})), text


def _configured(stated: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Keys of the configuration that a launch script names, where it is there, but for those that arguments set."""
    named = Stated(stated, "").of(*CONFIGURED)
    path = file_beside(folder, named) if isinstance(named, str) else None
    if path is None:
        return {}
    try:
        keys = dict(stated_in(text_of(path), path.suffix.lower()))
    except (OSError, UnicodeDecodeError, DistsimError):
        return {}
    typed = {key.lstrip("-") for key in stated}
    return {key: value for key, value in keys.items() if not typed & {key, last_of(key)}}


def stated_twice(path: Path) -> list[str]:
    """Keys that a file states more than once, with different values."""
    values: dict[str, Any] = {}
    twice: dict[str, None] = {}
    for key, value in stated_in(text_of(path), path.suffix.lower()):
        before = values.get(key, "")
        if before not in ("", None, value) and not f"{value}".startswith(f"{before},"):  # else a list, line by line
            twice[key] = None
        values[key] = value
    return [*twice]
