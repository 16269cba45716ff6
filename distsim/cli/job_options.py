"""What the job options that commands share take, and what their help says."""

from __future__ import annotations

from typing import Any

from distsim.preset_kinds import DEFAULT_GPU

# name -> (type, help). The names are Job's fields; the flags follow from them.
JOB_OPTIONS: dict[str, tuple[Any, str]] = {
    "gpu": (str, f"accelerator preset (distsim show gpus) [default: {DEFAULT_GPU}]"),
    "gpus": (int, "number of accelerators [default: one node]"),
    "cluster": (str, "cluster preset or TOML, instead of the GPU's usual node and network"),
    "gpu_power": (str, "power limit of each accelerator in watts: 500 or 500W [default: the cluster's, or none]"),
    "profile": (str, "network profile written by distsim calibrate --nccl-tests"),
    "framework": (
        str,
        "software profile: kernels, overheads, defaults [default: megatron-core; TPUs, Trainium, Gaudi: their own]",
    ),
    "tp": (int, "tensor parallel degree"),
    "pp": (int, "pipeline parallel degree (stages)"),
    "cp": (int, "context parallel degree"),
    "ep": (int, "expert parallel degree, inside data parallel: divides dp*cp*tp"),
    "etp": (int, "tensor parallel degree of the experts"),
    "dp": (int, "data parallel degree [default: --gpus / (tp*pp*cp)]"),
    "vpp": (int, "model chunks per pipeline stage (interleaving) [default: 1, or the schedule's own]"),
    "schedule": (str, "pipeline schedule [default: 1f1b, or interleaved-1f1b with --vpp]"),
    "stage_layers": (
        str,
        "layers per stage or chunk: 7,8,8,9; 4*15,1; 3,...,2; balanced; or Megatron's Et*3|(tt|)*9|L",
    ),
    "vocab_parallel": (
        str,
        "vocabulary shared by all stages: vocab-1, vocab-2, interlaced [default: first and last hold it]",
    ),
    "zero": (
        int,
        "ZeRO stage: 0 shards nothing, 1 optimizer, 2 + gradients, 3 + parameters [default: the framework's, or 0]",
    ),
    "zero_group": (int, "ranks per sharding group if fewer than dp (HSDP) [default: dp*cp]"),
    "sequence_parallel": (bool, "Megatron sequence parallelism [default: the framework's, or on with tp > 1]"),
    "seq": (int, "tokens per sequence [default: the model's context length]"),
    "decoder_seq": (
        int,
        "decoder tokens per sequence in an encoder-decoder, whose encoder reads --seq [default: the model's]",
    ),
    "sample_tokens": (
        int,
        "mean tokens per packed sample, each attending only to itself [default: one sample per sequence]",
    ),
    "images": (
        float,
        "images per sequence in the mean, for models with a vision tower [default: text alone, no tower]",
    ),
    "image_size": (str, "pixels of an image, height x width: 448x672 or 448 [default: the tower's own]"),
    "vision": (
        str,
        "what of the vision part trains: trained, projector, frozen, projector-alone (decoder frozen, too), "
        "adapters [default: trained; frozen with LoRA]",
    ),
    "micro_batch": (int, "sequences per data-parallel rank per micro-step [default: 1]"),
    "global_batch": (int, "sequences per optimizer step over all ranks [default: micro-batch * dp]"),
    "recompute": (str, "activation recomputation: none, selective, full [default: the framework's, or none]"),
    "recompute_layers": (int, "layers per stage that recompute under full [default: all]"),
    "recompute_group": (int, "layers that one checkpoint covers under full [default: 1]"),
    "recompute_modules": (
        str,
        "what selective recomputes (Megatron): core_attn, moe_act, layernorm, mla_up_proj, mlp, moe, shared_experts",
    ),
    "remat_policy": (str, "what selective keeps: a policy of maxtext or axlearn, e.g. minimal_offloaded"),
    "mlp_tiles": (
        str,
        "run dense MLPs on so many tiles of tokens one after another, and again in backward; "
        "auto: as long as the model is wide (ALST's TiledMLP)",
    ),
    "attention": (str, "attention kernel: flash or eager [default: the framework's, or flash]"),
    "compile": (
        bool,
        "torch.compile, if the framework profile states what it fuses [default: the framework's, or off]",
    ),
    "cuda_graphs": (
        str,
        "CUDA graphs: none, routers, modules, iteration (a whole step) [default: the framework's recipe]",
    ),
    "expert_overlap": (
        bool,
        "overlap expert all-to-all with the compute of another micro-batch [default: the framework's recipe]",
    ),
    "expert_dispatcher": (
        str,
        "what sends tokens to experts: alltoall, allgather, deepep, hybridep [default: the framework's recipe]",
    ),
    "tp_comm_overlap": (
        bool,
        "overlap tensor parallel communication with matrix products [default: the framework's recipe]",
    ),
    "dp_comm_overlap": (
        bool,
        "overlap gradient reductions and parameter gathers with computation [default: what the framework does]",
    ),
    "dropout": (bool, "the model's dropout [default: on, at the model's own rates]"),
    "precision": (
        str,
        "precision recipe (distsim show precisions) [default: the framework's, or bf16; fp16 where a GPU lacks it]",
    ),
    "optimizer": (str, "optimizer (distsim show optimizers) [default: adamw]"),
    "optimizer_rank": (int, "rank of an optimizer that projects gradients (galore-adamw, apollo-adamw) [default: 128]"),
    "offload": (str, "what to offload from the GPU: none, optimizer, parameters, activations"),
    "offload_to": (str, "where offloaded states go: cpu, or further to nvme drives (DeepSpeed, ZeRO 3)"),
    "offload_fraction": (float, "how much of the optimizer --offload moves (Megatron, DeepSpeed) [default: all of it]"),
    "offload_modules": (
        str,
        "offload only these (Megatron): attn_norm, qkv_linear, core_attn, attn_proj, mlp_norm, expert_fc1, moe_act",
    ),
    "mtp": (int, "multi-token prediction layers to train with the model [default: none]"),
    "lora_rank": (int, "rank of LoRA adapters; the model itself is frozen"),
    "lora_targets": (
        str,
        "modules with an adapter: q,k,v,o,gate,up,down,head, in_proj ...; attention, mlp, mixers, all-linear",
    ),
    "lora_dropout": (float, "dropout on the adapters' inputs [default: 0]"),
    "lora_whole": (str, "modules trained in full besides the adapters: embedding, head, norms"),
    "dora": (bool, "weight-decomposed adapters (DoRA), which scale each output [default: off]"),
    "quantize": (str, "how frozen weights are stored (distsim show quantizations): none, nf4, nf4+experts ..."),
    "reference": (str, "frozen reference beside the model (DPO): none, copy of the weights, base without adapters"),
    "loss": (str, "loss that replaces the framework's: chunked, fused-linear, liger, cut (distsim show losses)"),
    "loss_parallel": (bool, "keep logits sharded over tp through the loss [default: the framework's, or on]"),
    "tp_mode": (str, "tensor parallel grid: 1d (row), 2d (square), 2.5d (stacked squares), 3d (cube) [default: 1d]"),
    "tp_depth": (int, "number of stacked squares in a 2.5d grid"),
    "cp_mode": (
        str,
        "context parallel communication: ring, all_gather, all_to_all (Ulysses) [default: the framework's]",
    ),
    "expert_imbalance": (
        float,
        "tokens on the busiest expert rank relative to the mean [default: 1.2 for time, else 1]",
    ),
    "capacity_factor": (
        float,
        "slots per expert relative to its mean tokens: excess tokens are dropped, empty slots computed",
    ),
    "no_sync": (bool, "reduce gradients after the last micro-batch only [default: what the framework does]"),
    "clip": (bool, "gradient clipping by the norm over all ranks [default: what the framework does]"),
    "compress": (str, "gradient compression: none, fp16, bf16, 1bit, powersgd-r4 [default: none]"),
    "zeropp": (str, "parts of ZeRO++, e.g. qwz,hpz,qgz"),
    "sync": (str, "how replicas synchronise: allreduce, parameter-server or local-sgd [default: allreduce]"),
    "sync_every": (int, "steps between synchronisations with local-sgd (DiLoCo)"),
    "sync_gbps": (float, "Gb/s of each replica's link to the others with local-sgd, shared by its ranks"),
    "servers": (int, "number of parameter servers [default: each worker serves its share]"),
}
