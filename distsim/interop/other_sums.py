"""What several keys of another tool's configuration come to together: accelerators from nodes, chunks from layers,
shards from the ways of a tool to name them, what a file beside it states. Keys and defaults as in the tools' sources
and documentation (recalled)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distsim.errors import DistsimError
from distsim.interop.other_deepspeed import deepspeed
from distsim.interop.other_foundry import llm_foundry
from distsim.interop.other_litgpt import litgpt
from distsim.interop.other_maxtext import maxtext
from distsim.interop.other_megatron import megatron, nemo_optimizer, other_optimizer
from distsim.interop.other_paddle import paddle
from distsim.interop.other_pipelines import chunks, schedule, stages
from distsim.interop.other_precisions import NARROW
from distsim.interop.other_stated import CONFIGURED, NODES, PER_NODE, Stated, degrees_of, file_beside, last_of, ranks_of
from distsim.interop.other_switches import plugins, torchs_way
from distsim.interop.other_torchtune import torchtune

if TYPE_CHECKING:
    from distsim.specs.support import Supports

HYBRID = ("hybrid_shard", "4")
"""Words for shards over the ranks of a node, and copies over nodes."""
STRATEGIES = {
    3: ("full_shard", "hybrid_shard", "optim_grads_params", "1", "4"),
    2: ("shard_grad_op", "optim_grads", "2"),
    1: ("optim",),
    0: ("no_shard", "3"),
}
"""ZeRO stage -> what FSDP (also by accelerate's numbers) and Megatron call it."""
_FILES_STAGE = re.compile(r"z(?:ero)?[-_]?(?:stage)?[-_]?([0-3])(?!\d)", re.IGNORECASE)
"""The stage in the name of a file that DeepSpeed reads, such as zero3_bf16.json or ds_z2_config.json."""
DEEPSPEEDS = ("deepspeed", "deepspeed_config_file")
"""Keys that name the file that DeepSpeed reads."""
_FLOAT8 = ("converters", "enable_float8_linear", "fp8", "fp8_format")
_SHARDS = ("data_parallel_shard_degree", "data_parallel_shard_dim", "dp_shard_size",
           "parallelism_config_dp_shard_size")  # fmt: skip
_COPIES = ("data_parallel_replicate_degree", "data_parallel_replicate_dim", "dp_replicate_size",
           "parallelism_config_dp_replicate_size")  # fmt: skip
TO_HOST = "offload"
"""axolotl's word for checkpoints that wait in host memory."""
_NESTED_OFF = ("trl", "huggingface", "fsdp", "accelerate-fsdp2")
_NESTED = ("use_bnb_nested_quant", "bnb_4bit_use_double_quant")
"""Frameworks whose scales of 4-bit weights are not quantised unless a key asks for it (TRL's ModelConfig and
transformers' BitsAndBytesConfig, recalled)."""
_SWITCHED_OFF = ("none", "false", "no", "null", "~", "")


def shards_by_fsdp(stated: Stated) -> bool:
    """Whether accelerate or the Trainer wrap the model in FSDP."""
    return f"{stated.of('distributed_type')}".upper() == "FSDP" or bool(stated.of("fsdp", "fsdp_version", "use_fsdp"))


def add_sums(told: dict[str, str], stated: Stated) -> None:
    """Put into ``told`` (option -> text) what follows from several keys."""
    if stated.framework == "maxtext":
        maxtext(told, stated)
    _accelerators(told, stated)
    chunks(told, stated)
    stages(told, stated)
    schedule(told)
    if "tp" not in told:
        told.pop("tp_comm_overlap", None)
    if adapters := stated.of("lora_alpha", "peft_type", "target_modules") and stated.number("r"):
        told.setdefault("lora_rank", f"{adapters}")
    _shards(told, stated)
    _recomputed(told, stated)
    megatrons = stated.framework.startswith(("megatron", "nemo"))  # whose 8 bits stand beside 16
    if (narrow := _narrow(stated)) and ("precision" not in told or (megatrons and told["precision"] == "fp16")):
        told["precision"] = narrow
    if stated.framework == "nanotron":
        _nanotron(told, stated)
    if stated.framework == "torchtune":
        torchtune(told, stated)
    if stated.framework == "paddlenlp":
        paddle(told, stated)
    if megatrons:
        megatron(told, stated)
    if stated.framework == "deepspeed":
        deepspeed(told, stated)
    if stated.framework == "llm-foundry":
        llm_foundry(told, stated)
    if stated.framework == "litgpt":
        litgpt(told, stated)
    torchs_way(told, stated)
    plugins(told, stated)
    _by_trainer(told, stated)


def _by_trainer(told: dict[str, str], stated: Stated) -> None:
    """What accelerate and Trainer make of fp16 under DeepSpeed, whose weights are in 16 bits, and of TorchDynamo."""
    from distsim import catalog

    usual = catalog.load("frameworks", stated.framework).usual
    plain, sharded = usual.get("precision_fp16"), usual.get("precision_fp16_sharded")
    if sharded and told.get("precision") == plain and told.get("zero", "0") != "0" and not shards_by_fsdp(stated):
        told["precision"] = f"{sharded}"
    if f"{stated.of('dynamo_backend') or 'no'}".lower() not in _SWITCHED_OFF:
        told["compile"] = ""
    if told.get("quantize") == "nf4" and stated.framework in _NESTED_OFF and stated.of(*_NESTED) is not True:
        told["quantize"] = "nf4-single"


def _accelerators(told: dict[str, str], stated: Stated) -> None:
    nodes, each = stated.number(*NODES), stated.number(*PER_NODE)
    if not nodes and "$" in f"{stated.of(*NODES)}":
        return  # somebody's who starts the script
    launched = stated.number("nproc_per_node", "gpus_per_node", "num_gpus_per_node")
    if each and (nodes or launched):
        told["gpus"] = f"{max(nodes, 1) * each}"
    elif "gpus" not in told and (ranks := stated.number("dp", "data_parallel_size") or _data_ranks(told, stated)):
        told["gpus"] = f"{ranks * degrees_of(told)}"


def _data_ranks(told: dict[str, str], stated: Stated) -> int:
    """Data parallel ranks by shards times copies, or by the sequences of a step over those of each rank; 0 where
    neither is stated."""
    if shards := stated.number(*_SHARDS):
        return shards * max(stated.number(*_COPIES), 1)
    whole, each = int(told.get("global_batch", 0)), int(told.get("micro_batch", 0))
    each *= stated.number("gradient_accumulation_steps")
    return whole // each if each and whole % each == 0 else 0


def each_rank(told: dict[str, str], stated: Stated, steps: int) -> int:
    """Sequences of one rank in a step, after accumulation; 0 where a step is one micro-batch. Puts the micro-batch
    into ``told`` where it is stated in torchtitan's words or in tokens."""
    local, length = stated.number("local_batch_size"), int(told.get("seq", 0))
    if stated.framework in ("torchtune", "torchtitan"):  # elsewhere it may be of all ranks
        local = local or stated.number("batch_size")
    tokens = stated.number("num_tokens_per_microbatch_per_dp_rank")
    if length and tokens >= length:
        told.setdefault("micro_batch", f"{tokens // length}")
    if length and (whole := stated.number("num_tokens_per_train_step")) >= length:
        told.setdefault("global_batch", f"{whole // length}")
    if local and int(told.get("pp", 1)) > 1 and stated.framework == "torchtitan":
        return local
    if local:
        told["micro_batch"] = f"{local}"
    return int(told.get("micro_batch", 1)) * steps if steps > 1 else 0


def _shards(told: dict[str, str], stated: Stated) -> None:
    named = ["fsdp_sharding_strategy", "sharding_strategy"]
    switch = stated.of("use_megatron_fsdp", "use_custom_fsdp")
    if switch or (switch is None and not stated.arguments):  # has a default, which logs and dumps print
        named.append("data_parallel_sharding_strategy")
    strategy = f"{stated.of(*named) or ''}"
    words = {*words_of(f"{stated.of('fsdp') or ''} {strategy}")}
    kept = f"{stated.of('fsdp_reshard_after_forward', 'reshard_after_forward')}".lower() in ("false", "never")
    stage = next((stage for stage, names in STRATEGIES.items() if words & set(names)), None)
    if stage is None and kept:
        stage = 2
    if stage is None and shards_by_fsdp(stated):
        stage = 3
    if stage is not None:
        told["zero"] = f"{stage}"
    if "offload" in words:  # FSDP's, with the optimizer
        _offload(told, "optimizer", "parameters")
    for name, text in _beside(stated):
        if name == "offload":
            _offload(told, *text.split(","))
        told.setdefault(name, text)
    together = _supports(stated.framework).offload_optimizer == "with parameters" or shards_by_fsdp(stated)
    if together and "parameters" in told.get("offload", "").split(","):
        _offload(told, "optimizer")
    machines = stated.number("num_machines")
    each = stated.number(*PER_NODE) or (int(told.get("gpus", 0)) // machines if machines else 0)
    if words & {*HYBRID} and 0 < (of_node := each // degrees_of(told)) < ranks_of(told):
        told["zero_group"] = f"{of_node}"
    replicas = stated.number(*_COPIES, "num_distributed_optimizer_instances")
    sharers = ranks_of(told) * int(told.get("cp", 1))  # ranks of context parallelism share, too
    if replicas > 1 and stated.number(*_SHARDS) == 1:
        told["zero"] = "0"
    elif replicas > 1 and sharers and sharers % replicas == 0:
        told["zero_group"] = f"{sharers // replicas}"


def _offload(told: dict[str, str], *kinds: str) -> None:
    """Put more of what is offloaded into ``told``, in the order in which an answer has it."""
    moved = {*told.get("offload", "").split(","), *kinds}
    told["offload"] = ",".join(kind for kind in ("optimizer", "parameters", "activations") if kind in moved)


def words_of(value: Any) -> list[str]:
    """The words of a value such as ``full_shard auto_wrap``."""
    return re.split(r"[ ,]+", f"{value}".lower())


def _supports(framework: str) -> Supports:
    from distsim import catalog

    found: Supports = catalog.load("frameworks", framework).supports
    return found


def _beside(stated: Stated) -> Iterator[tuple[str, str]]:
    """What the file that DeepSpeed reads says, where a configuration names one: by its content, else by its name."""
    named = stated.of(*DEEPSPEEDS)
    if not isinstance(named, str) or not (named.endswith(".json") or _FILES_STAGE.match(named)):
        named = stated.of(*CONFIGURED)  # of accelerate's launcher, whose examples are called by their stage
        if not isinstance(named, str) or "deepspeed" not in named or not _FILES_STAGE.search(Path(named).name):
            return
    path = file_beside(stated.folder, named)
    if path is not None:
        from distsim.interop.other_options import told_of
        from distsim.interop.other_texts import stated_in
        from distsim.plain_files import text_of

        try:
            keys = dict(stated_in(text_of(path), ".json"))
        except (OSError, UnicodeDecodeError, DistsimError):
            keys = {}
        if keys:
            told = told_of(Stated(keys, "deepspeed", path.parent))[0]
            yield from ((name, told[name]) for name in ("zero", "offload", "offload_to") if name in told)
            return
    name = Path(named).name
    if (stage := _FILES_STAGE.search(name)) is not None:
        yield "zero", stage[1]
        if "offload" in name.lower():
            both = stage[1] == "3" and "opt" not in name.lower()
            whole = "parameters" if "param" in name.lower() else "optimizer,parameters" if both else "optimizer"
            yield "offload", whole


def _recomputed(told: dict[str, str], stated: Stated) -> None:
    layers = stated.number("recompute_num_layers", "activations_checkpoint_num_layers")
    method = f"{stated.of('recompute_method', 'activations_checkpoint_method')}".lower()
    modules = stated.of("recompute_modules")
    if isinstance(modules, str) and told.get("recompute") == "selective" and _names_modules(stated):
        told["recompute_modules"] = ",".join(re.findall(r"\w+", modules))
    if stated.of("cpu_checkpointing") is True:
        told.setdefault("recompute", "full")
    if stated.of("moe_layer_recompute") is True and "recompute" not in told:
        told |= {"recompute": "selective", "recompute_modules": "core_attn,moe"}
    if stated.of("gradient_checkpointing") == TO_HOST:
        _offload(told, "activations")
    if f"{stated.of('selective_ac_option')}".isdigit() and told.get("recompute") == "selective":
        del told["recompute"]  # whole layers, as the key's own hint says
    if told.get("recompute") == "full" and method == "block" and layers:
        told["recompute_layers"] = f"{layers * int(told.get('vpp', 1))}"
    elif told.get("recompute") == "full" and method == "uniform" and layers > 1:
        told["recompute_group"] = f"{layers}"


def _names_modules(stated: Stated) -> bool:
    return stated.framework.startswith("megatron") or (stated.framework == "nemo" and not stated.arguments)


def _narrow(stated: Stated) -> str:
    """The framework's recipe of 8 or 4 bits, where a recipe's name or a switch asks for one."""
    from distsim import catalog

    said = [f"{value}".lower() for key, value in stated.keys.items()
            if last_of(key) in ("mixed_precision", "precision", "fp8_recipe", "converters")]  # fmt: skip
    if f"{stated.of('fp4_format', 'fp4')}".lower() not in _SWITCHED_OFF:
        said.append("nvfp4")  # the one recipe of 4 bits that Megatron has
    switched = any(f"{stated.of(name)}".lower() not in _SWITCHED_OFF for name in _FLOAT8 if name != "converters")
    found = next((word for word in NARROW if any(word in one for one in said)), "")
    if not found and any(".mx" in one for one in said):
        found = "mxfp8"
    if not found and not switched:
        return ""
    word = found.replace("float8", "fp8") or "fp8"
    usual = catalog.load("frameworks", stated.framework).usual
    rows = f"{stated.of('recipe_name') or ''}".lower()
    return f"{usual.get(f'precision_{word}_{rows}') or usual.get(f'precision_{word}', word)}"


def _nanotron(told: dict[str, str], stated: Stated) -> None:
    """Modes that nanotron has keys of its own for."""
    if f"{stated.of('tp_mode')}".upper() == "ALL_REDUCE" and "tp" in told:
        told["no_sequence_parallel"] = ""
    if stated.of("recompute_layer") is True:
        told["recompute"] = "full"
    other_optimizer(told, nemo_optimizer(stated))
    if stated.of("accumulate_grad_in_fp32") is False:
        told.setdefault("precision", "bf16")
