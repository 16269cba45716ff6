"""What other tools call what a job or a model states here, for whoever types a name of theirs.

The names are arguments of Megatron-LM and torchrun, keys of DeepSpeed's and accelerate's configurations, fields of
transformers' TrainingArguments and config.json, of torchtitan, torchtune, nanotron, NeMo, MaxText, TRL, axolotl and
LLaMA-Factory (looked up in their sources, 2026-11), and words that people say.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from distsim.errors import nearest
from distsim.other_choices import undescribed


class Here(NamedTuple):
    """A name of distsim's for what another tool calls otherwise."""

    name: str
    value: str = ""
    """What it is set to, where the other name says that too."""
    why: str = ""
    off: bool = False
    """Whether it is a switch, and turned off."""

    def as_option(self) -> str:
        """As it is typed on the command line."""
        return " ".join(filter(None, (f"--{'no-' * self.off}{self.name.replace('_', '-')}", self.value, self.why)))

    def as_field(self) -> str:
        """As it is written in a TOML file."""
        if self.off:
            return f"{self.name} = false"
        value = self.value if self.value.isdigit() else f'"{self.value}"'
        return " ".join(filter(None, (self.name, self.value and f"= {value}", self.why)))


_SWITCHES = ("clip", "compile", "dora", "dropout", "dp_comm_overlap", "expert_overlap", "loss_parallel",
             "sequence_parallel", "tp_comm_overlap")  # fmt: skip
"""Options whose opposite is their name with ``no-``."""
_BATCH = "batch-size batch bs bsz"
_VIRTUAL = (
    "virtual-pipeline-model-parallel-size virtual-pipeline-parallel-size num-virtual-stages-per-pipeline-rank "
    "virtual-stages interleave"
)
_LAYERS_OF_CHUNK = "num-layers-per-virtual-pipeline-stage pipeline-parallel-layers-per-stage"
_DEGREES = {"tp": "tensor", "pp": "pipeline", "stages": "pipeline", "cp": "context", "ep": "expert",
            "etp": "expert-tensor", "dp": "data"}  # fmt: skip
_ENDINGS = ("parallel", "parallelism", "parallel-size", "parallel-degree", "parallel-dim", "model-parallel-size")
_NAMES: dict[str, str] = {
    "model": "model-name model-name-or-path base-model model-id model-type pretrained",
    "gpu": "gpu-type gpu-name gpu-model device device-type hardware accelerator chip card",
    "gpus": "num-gpus n-gpus ngpus gpu-count num-devices n-devices devices world-size num-processes nproc",
    "gpu_power": "power power-limit tdp",
    "framework": "backend software library trainer",
    "micro": "num-micro-batches num-microbatches micro-batches microbatches",
    "chunks": f"vpp {_VIRTUAL}",
    "vpp": _VIRTUAL,
    "tp": "model-parallel-size megatron-lm-tp-degree autotp-size parallelism-config-tp-size",
    "pp": "megatron-lm-pp-degree num-stages",
    "cp": "sequence-parallel-degree parallelism-config-cp-size",
    "stages": "pp num-stages n-stages",
    "stage_layers": "pipeline-model-parallel-layout",
    "schedule": "pipeline-schedule pipeline-parallel-schedule pp-schedule pp-engine",
    "sequence_parallel": "sp sequence-parallelism enable-sequence-parallel",
    "seq": "seq-len seqlen seq-length sequence-length sequence-len max-seq-len max-seq-length max-sequence-length "
    "max-length model-max-length cutoff-len context context-length context-len max-context-length block-size n-ctx "
    "max-position-embeddings tokens-per-sequence max-target-length encoder-seq-length",
    "micro_batch": f"{_BATCH} micro-batch-size mbs train-micro-batch-size-per-gpu per-device-train-batch-size "
    "per-device-batch-size device-train-microbatch-size microbatch microbatch-size pipeline-parallel-microbatch-size",
    "global_batch": f"{_BATCH} global-batch-size gbs train-batch-size global-train-batch-size total-batch-size",
    "zero": "zero-stage zero-optimization zero-optimization-stage deepspeed-stage",
    "zero_group": "dp-shard dp-shard-size data-parallel-shard-degree data-parallel-shard-dim mics-shard-size hsdp-size "
    "parallelism-config-dp-shard-size",
    "recompute": "recompute-granularity activations-checkpoint-granularity recomputation remat ac-mode "
    "activation-checkpoint-mode",
    "precision": "dtype torch-dtype param-dtype data-type mixed-precision mixed-precision-param amp fp8-format "
    "fp8-recipe weight-dtype",
    "optimizer": "optim optimizer-type optimizer-name opt-type", "optimizer_rank": "galore-rank apollo-rank",
    "lora_rank": "lora-r lora-dim rank", "dora": "use-dora lora-use-dora",
    "lora_targets": "target-modules lora-target-modules lora-target lora-attn-modules",
    "reference": "ref-model ref-model-path reference-model ref-policy",
    "lora_whole": "modules-to-save lora-modules-to-save additional-target",
    "quantize": "quantization quantization-bit bnb-4bit-quant-type",
    "loss": "cross-entropy-loss-fusion cross-entropy-fusion-impl",
    "loss_parallel": "enable-loss-parallel disable-loss-parallel",
    "cp_mode": "cp-comm-type context-parallel-rotate-method parallelism-config-cp-comm-strategy",
    "dp_comm_overlap": "overlap-grad-reduce overlap-param-gather overlap-comm ddp-overlap",
    "tp_comm_overlap": "enable-async-tensor-parallel async-tp enable-async-tp micro-pipeline-tp ub-tp-comm-overlap",
    "compress": "comm-hook ddp-comm-hook register-comm-hook gradient-compression",
    "attention": "attn-implementation attention-backend attn-impl",
    "compile": "torch-compile use-torch-compile compile-mode torch-compile-mode",
    "cuda_graphs": "cuda-graph enable-cuda-graph cuda-graph-impl",
    "mtp": "mtp-num-layers num-nextn-predict-layers",
    "expert_dispatcher": "moe-token-dispatcher-type moe-flex-dispatcher-backend moe-enable-deepep dispatcher deepep "
    "expert-parallel-comm-backend",
    "expert_overlap": "overlap-moe-expert-parallel-comm moe-a2a-overlap",
    "offload_fraction": "optimizer-offload-fraction zero-optimization-offload-optimizer-ratio",
    "capacity_factor": "moe-expert-capacity-factor expert-capacity-factor moe-capacity-factor",
    "clip": "clip-grad grad-clip gradient-clipping gradient-clip-val max-grad-norm",
    "tokens": "num-tokens train-tokens total-tokens max-tokens n-tokens",
    "within": "step-time max-step-time",
    "deadline": "within days time max-days max-time duration",
    "budget": "cost max-cost dollars usd",
    "checkpoint_every": "save-interval save-steps checkpoint-interval",
    "provider": "cloud vendor",
    "layers": "num-layers num-hidden-layers n-layer n-layers num-decoder-layers base-num-decoder-layers",
    "hidden": "hidden-size n-embd d-model dim model-dim embed-dim hidden-dim base-emb-dim",
    "heads": "num-attention-heads n-head n-heads num-heads base-num-query-heads",
    "kv_heads": "num-key-value-heads num-kv-heads n-kv-heads num-query-groups n-head-kv group-query-attention "
    "base-num-kv-heads",
    "head_dim": "kv-channels attention-head-dim d-kv",
    "ffn": "intermediate-size ffn-hidden-size ffn-dim n-inner moe-intermediate-size moe-ffn-hidden-size base-mlp-dim",
    "vocab": "vocab-size padded-vocab-size n-vocab make-vocab-size-divisible-by",
    "context": "max-position-embeddings n-positions n-ctx max-seq-len seq-length",
    "tied_embeddings": "tie-word-embeddings tie-embeddings untie-embeddings-and-output-weights",
    "gated": "swiglu glu",
    "norm": "normalization norm-type",
    "activation": "hidden-act activation-function",
    "experts": "num-experts num-local-experts n-routed-experts moe-num-experts",
    "count": "num-experts num-local-experts n-routed-experts moe-num-experts",
    "per_token": "num-experts-per-tok num-experts-per-token experts-per-token top-k moe-router-topk moe-top-k",
}  # fmt: skip
"""Name here -> the others' names for it, with hyphens."""
_VALUED: dict[tuple[str, str], str] = {
    **{("precision", name): name for name in ("bf16", "fp16", "fp32", "tf32", "fp8", "mxfp8", "nvfp4")},
    ("zero", "3"): "fsdp fsdp2 fsdp-version use-fsdp fully-shard full-shard zero3 use-megatron-fsdp use-custom-fsdp "
    "use-torch-fsdp2",
    ("zero", "2"): "shard-grad-op zero2",
    ("zero", "1"): "use-distributed-optimizer distributed-optimizer zero-redundancy-optimizer",
    ("recompute", "full"): "activation-checkpointing activation-checkpoint gradient-checkpointing checkpointing ac "
    "enable-activation-checkpointing checkpoint-activations fsdp-activation-checkpointing",
    ("recompute", "selective"): "recompute-activations",
    ("offload", "optimizer"): "cpu-offload offload-optimizer optimizer-cpu-offload cpu-offload-optimizer "
    "offload-optimizer-device optimizer-memory-host-offload",
    ("offload", "parameters"): "cpu-offload offload-param offload-params offload-param-device fsdp-offload-params "
    "fsdp-cpu-offload enable-cpu-offload parameter-memory-host-offload",
    ("offload_to", "nvme"): "nvme-path offload-optimizer-nvme-path offload-param-nvme-path",
    ("offload", "activations"): "activation-offloading enable-activation-offloading cpu-checkpointing save-on-cpu "
    "offload-activations activation-cpu-offload activations-cpu-offload cpu-offloading "
    "fine-grained-activation-offloading use-unsloth-gc",
    ("lora_rank", "16"): "lora peft use-peft use-lora adapter finetuning-type train-type tuner-type",
    ("lora_targets", "all-linear"): "lora-target-linear",
    ("loss", "liger"): "liger use-liger use-liger-kernel enable-liger-kernel liger-fused-linear-cross-entropy",
    ("loss", "cut"): "cut-cross-entropy",
    ("loss", "chunked"): "chunked-cross-entropy",
    ("zeropp", "qwz"): "zero-quantized-weights",
    ("zeropp", "qgz"): "zero-quantized-gradients",
    ("zeropp", "hpz"): "zero-hpz-partition-size",
    ("quantize", "nf4"): "qlora load-in-4bit double-quantization bnb-4bit-use-double-quant",
    ("quantize", "int8"): "load-in-8bit",
    ("attention", "eager"): "eager-attention",
    ("attention", "flash"): "flash flash-attn flash-attention use-flash-attn use-flash-attention sdp-attention "
    "xformers-attention",
}  # fmt: skip
"""Name and value here -> the others' names that mean both."""
_PARTS: dict[Here, str] = {
    Here("global_batch", why="(micro-batch x dp x accumulation)"): "gradient-accumulation-steps gradient-accumulation "
    "grad-accum grad-acc accumulation accumulation-steps accumulate-grad-batches batch-accumulation-per-replica "
    "num-micro-batches num-microbatches micro-batches microbatches num-pp-microbatches",
    Here("global_batch", why="(tokens / seq)"): "num-tokens-per-train-step",
    Here("micro_batch", why="(tokens / seq)"): "num-tokens-per-microbatch-per-dp-rank",
    Here("micro_batch", why="(under pipelines pipeline_parallel_microbatch_size, which is 1 if left out)"):
    "local-batch-size",
    Here("gpus", why="(nodes x GPUs per node)"): "nodes num-nodes nnodes n-nodes num-machines nproc-per-node "
    "gpus-per-node",
    Here("tokens", why="(steps x global batch x sequence)"): "steps train-iters train-steps max-steps train-samples",
    Here("tokens", why="(epochs x tokens of the dataset)"): "epochs num-epochs num-train-epochs",
    Here("vpp", why="(layers / pp / its value)"): _LAYERS_OF_CHUNK,
    Here("chunks", why="(layers / stages / its value)"): _LAYERS_OF_CHUNK,
    Here("cp", why="(Ulysses: with cp-mode all_to_all)"): "sequence-parallel-size ulysses-sequence-parallel-size "
    "ds-sequence-parallel-size parallelism-config-sp-size sp-size sp-degree ulysses-size ulysses-degree",
    Here("recompute_layers", why="(block: its value x vpp; uniform: recompute-group)"): "recompute-num-layers",
    Here("recompute_group"): "checkpoint-num-layers activation-checkpoint-interval checkpoint-interval",
    Here("recompute", "full", "(block: with recompute-layers)"): "recompute-method",
    Here("recompute", "selective", "(the framework decides what is recomputed)"): "context-fn",
    Here("recompute", "selective", "(for op; for a number: full, with recompute-layers = layers / its value)"):
    "selective-ac-option",
    Here("recompute", "full", "(with recompute-layers = layers x its value)"): "selective-checkpointing",
    Here("recompute", why="(0: full; 1: none; in between: selective, whose share the framework decides)"):
    "activation-memory-budget memory-budget",
    Here("offload", "activations", "(all that all layers save)"): "cpu-offloading-num-layers "
    "fine-grained-activation-offloading",
    Here("zero", why="(True or always: 3; False or never: 2; GPUs per node: 3, with zeropp hpz)"):
    "reshard-after-forward fsdp-reshard-after-forward",
    Here("zero", why="(FULL_SHARD: 3; SHARD_GRAD_OP: 2; NO_SHARD: 0; HYBRID_SHARD: 3, with zero-group)"):
    "sharding-strategy fsdp-sharding-strategy data-parallel-sharding-strategy",
    Here("zero", why="(the stage that the file names)"): "deepspeed deepspeed-config fsdp-config",
    Here("zero_group", why="(ranks per node)"): "hybrid-shard use-hsdp hsdp",
    Here("no_sync", why="(False for all micro-batches but the last)"): "set-requires-gradient-sync "
    "requires-gradient-sync require-backward-grad-sync",
    Here("framework", why="(a copy of torch-ddp without buffers.replica_buckets)"): "gradient-as-bucket-view",
    Here("stage_layers", why="(layers of every stage, e.g. 7,8,8,9)"): "decoder-first-pipeline-num-layers "
    "decoder-last-pipeline-num-layers num-layers-in-first-pipeline-stage num-layers-in-last-pipeline-stage "
    "pipeline-parallel-first-stage-less-layers pipeline-parallel-last-stage-less-layers",
    Here("stage_layers", "balanced"): "account-for-embedding-in-pipeline-split account-for-loss-in-pipeline-split",
    Here("zero_group", why="(dp x cp / its value)"): "dp-replicate dp-replicate-size data-parallel-replicate-degree "
    "data-parallel-replicate-dim num-distributed-optimizer-instances parallelism-config-dp-replicate-size",
    Here("precision", why="(a recipe sets it: distsim show precisions)"): "accumulate-allreduce-grads-in-fp32 "
    "grad-reduce-in-bf16 grad-reduce-in-fp32 use-precision-aware-optimizer main-grads-dtype main-params-dtype "
    "exp-avg-dtype exp-avg-sq-dtype mixed-precision-reduce communication-data-type fp8-param-gather "
    "reduce-dtype fsdp-reduce-dtype buffer-dtype mp-policy mixed-precision-policy keep-low-precision-grads",
    Here("dropout", why="(a switch; off for a value of 0)"): "attention-dropout hidden-dropout enable-dropout "
    "dropout-rate attention-dropout-prob hidden-dropout-prob",
    Here("vision", "frozen"): "freeze-vit freeze-vision-tower freeze-vision-model freeze-vision-encoder "
    "freeze-vision-modules freeze-vision freeze-visual-encoder freeze-vision-backbone",
    Here("vision", "projector-alone"): "tune-mm-mlp-adapter",
    Here("image_size", why="(height x width in pixels)"): "image-resolution image-max-pixels max-pixels img-size img-h",
    Here("images", why="(of a sequence; a tile or two frames are one)"): "num-images num-crops num-frames image-tokens",
    Here("sample_tokens", why="(mean tokens of a packed sample)"): "packing packed sample-packing packed-sequence "
    "neat-packing padding-free",
    Here("zero", "3", "(zero-group: ici x dcn of this axis)"): "ici-fsdp-parallelism dcn-fsdp-parallelism "
    "ici-fsdp-transpose-parallelism dcn-fsdp-transpose-parallelism",
}  # fmt: skip
"""What others' names are a part of, or say in another unit or under a condition -> the names."""

_AXES = {"dp": "data", "tp": "tensor tensor-sequence tensor-transpose", "pp": "pipeline", "cp": "context sequence",
         "ep": "expert"}  # fmt: skip
"""Degree here -> the axes of MaxText's meshes that make it, each in a slice (ici) and over slices (dcn)."""
_OF_AXIS = "(ici x dcn of this axis)"
LEAVE_OUT = "leave it out"
_NO_EFFECT: dict[str, str] = {
    "it affects neither memory nor time": "lora-alpha use-rslora loraplus-lr-ratio neftune-noise-alpha "
    "completion-only-loss assistant-only-loss train-on-prompt train-on-inputs mask-history "
    "learning-rate lr min-lr lr-decay-style lr-decay-iters "
    "lr-warmup-iters lr-warmup-fraction lr-scheduler-type warmup-steps warmup-ratio weight-decay adam-beta1 adam-beta2 "
    "adam-eps adam-epsilon adam-b1 adam-b2 init-method-std seed moe-aux-loss-coeff moe-z-loss-coeff "
    "rope-theta rotary-base norm-epsilon data-path train-data-path dataset dataset-path "
    "tokenizer-type tokenizer-model tokenizer-path output-dir",
    "only one step is predicted, without saving, logging and evaluation": "save load save-interval save-steps "
    "log-interval logging-steps eval-interval eval-iters eval-steps eval-batch-size per-device-eval-batch-size "
    "dataloader-num-workers steps train-iters train-steps max-steps "
    "train-samples epochs num-epochs num-train-epochs",
    "it follows from --framework": "contiguous-gradients transformer-impl use-mcore-models bucket-cap-mb "
    "ddp-bucket-cap-mb static-graph find-unused-parameters ddp-find-unused-parameters broadcast-buffers "
    "limit-all-gathers backward-prefetch forward-prefetch use-orig-params auto-wrap-policy sync-module-states "
    "cast-forward-inputs "
    "use-reentrant early-stop preserve-rng-state ddp-bucket-size reduce-bucket-size allgather-bucket-size "
    "moe-grouped-gemm moe-permute-fusion fsdp-backward-prefetch fsdp-forward-prefetch "
    "fsdp-use-orig-params fsdp-auto-wrap-policy gradient-accumulation-fusion bias-swiglu-fusion apply-rope-fusion",
}
"""Why an option of another tool has no counterpart here -> the others' names for it."""


def all_names() -> Iterator[tuple[str, Here]]:
    """Every name of another tool, with hyphens, and what it is here."""
    for name, names in _NAMES.items():
        yield from ((other, Here(name)) for other in names.split())
    for name, long in _DEGREES.items():
        short = "pp" if name == "stages" else name
        yield from ((f"{long}-{ending}", Here(name)) for ending in _ENDINGS)
        yield from ((f"{short}-{ending}", Here(name)) for ending in ("size", "degree"))
    for name, axes in _AXES.items():
        meshes = [f"{mesh}-{axis}-parallelism" for axis in axes.split() for mesh in ("ici", "dcn")]
        yield from ((other, Here(name, why=_OF_AXIS)) for other in meshes)
    for (name, value), names in _VALUED.items():
        yield from ((other, Here(name, value)) for other in names.split())
    for found, names in _PARTS.items():
        yield from ((other, found) for other in names.split())


def here(name: str, known: Iterable[str]) -> list[Here]:
    """What another tool's name is called here, of the names in ``known``; spelt with underscores or hyphens, with or
    without the section that it stands in."""
    some = frozenset(known)
    for spelt in _spellings(name):
        if found := [found for other, found in all_names() if other == spelt and found.name in some]:
            return found
        if spelt.startswith("no-") and (turned := spelt.removeprefix("no-")) not in _spellings(name):
            switches = (one for other, one in all_names() if other == turned and one.name in some & set(_SWITCHES))
            if found := [one._replace(off=True) for one in switches if not one.value]:
                return found
    return []


def _spellings(name: str) -> tuple[str, ...]:
    """As the tables have a name: whole, then what follows its section (``parallelism.tensor_parallel_degree``)."""
    plain = name.strip("-").lower().replace("_", "-")
    return (plain.replace(".", "-"), plain.rpartition(".")[2]) if "." in plain else (plain,)


def without_effect(name: str) -> str:
    """A hint line for what another tool asks and no answer here depends on; empty where it is none of that."""
    spelt = {other for one in _spellings(name) for other in (one, one.removeprefix("no-"))}
    return next((f"{LEAVE_OUT}: {why}" for why, names in _NO_EFFECT.items() if spelt & set(names.split())), "")


def meant(name: str, known: Iterable[str], option: bool = False) -> str:
    """A hint line: what another tool's name is called here, else the names most like it; empty where none is. As an
    ``option`` of the command line, or as a field of a file."""
    known = list(known)
    plain = name.strip("-").replace("-", "_")
    least = 0.6 if option else 0.5
    told = here(name, known)
    if not told and (option or "global_batch" in known) and (why := without_effect(name) or undescribed(name)):
        return why
    found = told or [Here(one) for one in nearest(plain, known, least=least)]
    words = [one.as_option() if option else one.as_field() for one in found]
    return f"did you mean {', '.join(words)}?" if words else ""
