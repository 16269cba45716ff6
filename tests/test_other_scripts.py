"""Scripts, recipes and configurations of other tools whose job follows from several keys together: nodes and their
accelerators, layers of a chunk, ways to name shards, files named by others."""

from __future__ import annotations

from pathlib import Path

import pytest

from distsim.cli.app import run

PER_RANK = "\n  to be stated besides: --global-batch, {} times the data parallel ranks"
MEGATRON = """#!/bin/bash
TP=4
# --tensor-model-parallel-size 64
torchrun --nproc_per_node 8 --nnodes ${NNODES:-16} pretrain_gpt.py --num-layers 80 --hidden-size 8192 \\
  --tensor-model-parallel-size $TP --pipeline-model-parallel-size 8 --num-layers-per-virtual-pipeline-stage 5 \\
  --micro-batch-size 1 --global-batch-size 512 --seq-length 8192 --use-distributed-optimizer --bf16 \\
  --recompute-granularity full --recompute-method block --recompute-num-layers 2
"""
SPARSE = MEGATRON.replace("--bf16", "--bf16 --sequence-parallel --overlap-grad-reduce --fp8-format hybrid")
LAUNCHED = (
    "accelerate launch --num_processes 16 sft.py --model_name_or_path Qwen/Qwen3-8B --max_seq_length 4096 \\\n"
    "--per_device_train_batch_size 4 --gradient_accumulation_steps 8 --gradient_checkpointing --deepspeed ds_z3.json"
)
NEMO = """trainer:
  num_nodes: 8
  devices: 8
model:
  tensor_model_parallel_size: 4
  pipeline_model_parallel_size: 4
  virtual_pipeline_model_parallel_size: 5
  sequence_parallel: false
  micro_batch_size: 1
  global_batch_size: 128
"""
BRIDGE = """from megatron.bridge.recipes.llama import llama3_70b_pretrain_config
cfg = llama3_70b_pretrain_config()
cfg.model.tensor_model_parallel_size = 2
cfg.model.pipeline_model_parallel_size = 4
cfg.train.global_batch_size = 128
cfg.train.micro_batch_size = 1
cfg.mixed_precision = "bf16_with_mxfp8_mixed"
"""
RECIPE = """from nemo.collections import llm
def recipe(nodes=2):
    made = llm.llama3_70b.pretrain_recipe(num_nodes=4, num_gpus_per_node=8)
    made.trainer.strategy.tensor_model_parallel_size = 4
    made.data.micro_batch_size = 1
"""
TITAN = '[model]\nname = "llama3"\nflavor = "70B"\n[training]\nlocal_batch_size = 8\nseq_len = 8192\n'
PIPED = f'{TITAN}[parallelism]\npipeline_parallel_degree = 2\n[float8]\nrecipe_name = "rowwise"\n'
HEAD = """[model]
flavor = "8B"
name = "llama3"
[training]
max_context_length = 4096
num_tokens_per_microbatch_per_dp_rank = 8192
num_tokens_per_train_step = 1048576
[compile]
enable = true
"""
NANOTRON = "parallelism:\n  dp: 8\n  tp: 4\n  pp: 2\n  expert_parallel_size: 1\ntokens:\n  micro_batch_size: 2\n"
FSDP = (
    "compute_environment: LOCAL_MACHINE\ndistributed_type: FSDP\nfsdp_config:\n  fsdp_reshard_after_forward: true\n"
    "  fsdp_offload_params: true\nnum_processes: 16\n"
)
GRADIENTS = FSDP.replace("fsdp_reshard_after_forward: true", "fsdp_sharding_strategy: SHARD_GRAD_OP").replace(
    "  fsdp_offload_params: true\n", ""
)
AXOLOTL = (
    "base_model: Qwen/Qwen2.5-7B\nadapter: lora\nsequence_len: 4096\nsample_packing: true\nlora_target_linear: true\n"
    "gradient_checkpointing: true\ndeepspeed: deepspeed_configs/zero3_bf16_cpuoffload_params.json\n"
)
CHECKPOINTED = (
    '{"zero_optimization": {"stage": 2}, "bf16": {"enabled": true}, '
    '"activation_checkpointing": {"cpu_checkpointing": true}}'
)
PARTED = (
    '{"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu", "ratio": 0.4}, '
    '"offload_param": {"device": "cpu"}}}'
)
TUNE = (
    "tokenizer:\n  max_seq_len: 8192\nmodel:\n  _component_: torchtune.models.llama3_1.llama3_1_70b\nbatch_size: 2\n"
    "gradient_accumulation_steps: 4\nfsdp_cpu_offload: True\n"
)
TUNE_LORA = """model:
  _component_: torchtune.models.llama3_1.qlora_llama3_1_8b
  lora_attn_modules: ['q_proj', 'v_proj', 'output_proj']
  apply_lora_to_mlp: True
  lora_rank: 8
loss:
  _component_: torchtune.modules.loss.LinearCrossEntropyLoss
"""
ADAPTED = (
    '{"peft_type": "LORA", "base_model_name_or_path": "meta-llama/Llama-2-7b-hf", "r": 16, "lora_dropout": 0.05, '
    '"modules_to_save": ["embed_tokens", "lm_head"], "target_modules": ["q_proj", "v_proj"]}'
)
LITGPT = (
    "model_name: pythia-1b\nout_dir: out\nprecision: bf16-true\ndevices: 4\ntrain:\n  global_batch_size: 512\n"
    "  micro_batch_size: 4\n  max_tokens: 3000000000\n  max_seq_length: 2048\n"
)
BY_MEGATRON = (
    "compute_environment: LOCAL_MACHINE\ndistributed_type: MEGATRON_LM\nmegatron_lm_config:\n"
    "  megatron_lm_tp_degree: 2\n  megatron_lm_pp_degree: 2\n  megatron_lm_num_micro_batches: 4\n"
    "  megatron_lm_recompute_activations: true\n"
    "  megatron_lm_use_distributed_optimizer: true\nnum_processes: 8\n"
)
MESH = FSDP.replace("  fsdp_offload_params: true\n", "") + (
    "parallelism_config:\n  parallelism_config_dp_replicate_size: 4\n  parallelism_config_dp_shard_size: 2\n"
    "  parallelism_config_tp_size: 2\n"
)
RUN_RECIPE = (
    "torchrun --nproc_per_node=8 --nnodes=2 scripts/training/run_recipe.py --recipe llama3_70b_pretrain_config "
    "train.global_batch_size=128 model.tensor_model_parallel_size=4 train.micro_batch_size=1"
)
SLURM = """#!/bin/bash
#SBATCH --job-name=sft
#SBATCH -N 4 --exclusive
#SBATCH --gres=gpu:h100:8   # all of a node
srun torchrun --nnodes $SLURM_NNODES --nproc_per_node 8 train.py --model_name_or_path Qwen/Qwen3-8B \\
  --per_device_train_batch_size 1 --gradient_accumulation_steps 4 --fsdp "full_shard auto_wrap"
"""
SUMS = """GPUS=8
NNODES=4
WORLD=$(($GPUS*$NNODES))
DP=$((WORLD / 8))
torchrun --nproc_per_node $GPUS --nnodes $NNODES pretrain_gpt.py --num-layers 32 --tensor-model-parallel-size 8 \\
  --seq-length $((4 * 1024)) --max-position-embeddings 32768 --micro-batch-size 2 \\
  --global-batch-size $((DP * 2 * 16)) --train-samples $((1/0)) --seed $((2**9)) --save-interval $((DP + OTHER))
"""
TRL = """from trl import SFTConfig, SFTTrainer
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-14B", torch_dtype=torch.bfloat16)
peft = LoraConfig(r=64, lora_alpha=16, target_modules=["q_proj", "v_proj"])
args = SFTConfig(output_dir="out", per_device_train_batch_size=2, gradient_checkpointing=True, max_seq_length=4096)
"""
TRL_RUN = (
    "trl sft --model_name_or_path Qwen/Qwen2.5-1.5B --per_device_train_batch_size 2 --max_length 2048 --use_peft "
    "--lora_r 32 --lora_target_modules q_proj v_proj --output_dir out"
)
UNSLOTH = """from unsloth import FastLanguageModel
model, tok = FastLanguageModel.from_pretrained(model_name="unsloth/Meta-Llama-3.1-8B", max_seq_length=2048,
                                               load_in_4bit=True)
model = FastLanguageModel.get_peft_model(model, r=32, lora_alpha=16)
args = SFTConfig(per_device_train_batch_size=2, optim="adamw_8bit")
"""
SWIFT = (
    "NPROC_PER_NODE=8 \\\nswift sft --model Qwen/Qwen2.5-7B-Instruct --train_type lora --lora_rank 16 --deepspeed zero2"
)
DEEPSPEED = (
    "deepspeed --num_nodes 4 --num_gpus 8 pretrain_gpt.py --micro-batch-size 4 --zero-stage 1 --deepspeed --fp16"
)
MAXTEXT = (
    "model_name: llama3.1-70b\nper_device_batch_size: 4\nmax_target_length: 8192\nici_fsdp_parallelism: 64\n"
    "ici_tensor_parallelism: 4\nremat_policy: minimal\n"
)
SLICES = (
    "python3 train.py base.yml model_name=llama3-8b per_device_batch_size=8 ici_fsdp_parallelism=64 "
    "dcn_data_parallelism=2"
)
FOUNDRY = (
    "variables:\n  max_seq_len: 2048\nglobal_train_batch_size: 1024\ndevice_train_microbatch_size: 8\nfsdp_config:\n"
    "  sharding_strategy: FULL_SHARD\n  activation_checkpointing: true\n"
)
NEMO_RUN = (
    "nemo llm pretrain --factory llama3_70b trainer.num_nodes=8 trainer.devices=8 "
    "trainer.strategy.tensor_model_parallel_size=4 data.micro_batch_size=1"
)
TITAN_RUN = (
    "torchrun --nnodes 16 --nproc_per_node 8 -m torchtitan.train --training.local_batch_size 2 --model.flavor 8B"
)
FROZEN = (
    "model_name_or_path: Qwen/Qwen2.5-VL-7B-Instruct\nfinetuning_type: lora\nlora_rank: 64\n"
    "freeze_vision_tower: true\npure_bf16: true\n"
)
TYPED = [
    ("tune.yaml", TUNE, "torchtune", "llama-3.1-70b --framework torchtune --seq 8192 --offload optimizer,parameters "
     "--micro-batch 2" + PER_RANK.format(8)),
    ("lora.yaml", TUNE_LORA, "torchtune", "llama-3.1-8b --framework torchtune "
     "--lora-targets q_proj,v_proj,output_proj,mlp --lora-rank 8 --quantize nf4-torchao --loss chunked"),
    ("adapter_config.json", ADAPTED, "peft", "llama-2-7b --framework huggingface --lora-dropout 0.05 "
     "--lora-whole embedding,head --lora-targets q_proj,v_proj --lora-rank 16"),
    ("litgpt.yaml", LITGPT, "LitGPT", "pythia-1b --framework litgpt --precision pure-bf16 --gpus 4 --global-batch 512 "
     "--micro-batch 4 --seq 2048"),
    ("megatron.yaml", BY_MEGATRON, "accelerate", "MODEL --framework megatron-lm --tp 2 --pp 2 --recompute selective "
     "--zero 1 --gpus 8 --global-batch 8"),
    ("mesh.yaml", MESH, "accelerate", "MODEL --framework fsdp --gpus 16 --tp 2 --zero 3 --zero-group 2"),
    ("run.sh", RUN_RECIPE, "a command of Megatron-Bridge", "llama-3-70b --framework megatron-bridge --global-batch 128 "
     "--tp 4 --micro-batch 1 --gpus 16"),
    ("slurm.sh", SLURM, "Trainer", "qwen3-8b --framework fsdp --micro-batch 1 --gpus 32 --zero 3 --global-batch 128"),
    ("hybrid.sh", SLURM.replace("full_shard", "hybrid_shard"), "Trainer",
     "qwen3-8b --framework fsdp --micro-batch 1 --gpus 32 --zero 3 --zero-group 8 --global-batch 128"),
    ("hybrid.yaml", GRADIENTS.replace("SHARD_GRAD_OP", "HYBRID_SHARD") + "num_machines: 4\n", "accelerate",
     "MODEL --framework fsdp --gpus 16 --zero 3 --zero-group 4"),
    ("tasks.sh", SLURM.replace("torchrun --nnodes $SLURM_NNODES --nproc_per_node 8", "python"), "Trainer",
     "qwen3-8b --framework fsdp --micro-batch 1 --gpus 32 --zero 3 --global-batch 128"),
    ("fewer.sh", SLURM.replace("$SLURM_NNODES", "2"), "Trainer",
     "qwen3-8b --framework fsdp --micro-batch 1 --gpus 16 --zero 3 --global-batch 64"),
    ("sums.sh", SUMS, "arguments of Megatron", "MODEL --framework megatron-core --tp 8 --seq 4096 --micro-batch 2 "
     "--global-batch 128 --gpus 32 --no-sequence-parallel --no-dp-comm-overlap"),
    ("factory.sh", "llamafactory-cli train --stage sft --model_name_or_path Qwen/Qwen2.5-7B --finetuning_type lora "
     "--lora_target all --cutoff_len 4096 --per_device_train_batch_size 2", "arguments of LLaMA-Factory",
     "qwen2.5-7b --framework llama-factory --lora-targets all-linear --seq 4096 --micro-batch 2 --lora-rank 8"),
    ("trl.py", TRL, "a script of TRL", "qwen2.5-14b --framework trl --lora-targets q_proj,v_proj --micro-batch 2 "
     "--recompute full --seq 4096 --lora-rank 64"),
    ("trl.sh", TRL_RUN, "arguments of TRL", "qwen2.5-1.5b --framework trl --micro-batch 2 --seq 2048 "
     "--lora-rank 32 --lora-targets q_proj,v_proj"),
    ("usual.sh", TRL_RUN.replace(" --lora_r 32", ""), "arguments of TRL", "qwen2.5-1.5b --framework trl "
     "--micro-batch 2 --seq 2048 --lora-targets q_proj,v_proj --lora-rank 16"),
    ("unsloth.py", UNSLOTH, "a script of Unsloth", "llama-3.1-8b --framework unsloth --seq 2048 --quantize nf4 "
     "--micro-batch 2 --optimizer adamw_8bit --lora-rank 32"),
    ("swift.sh", SWIFT, "arguments of ms-swift", "qwen2.5-7b --framework ms-swift --lora-rank 16 --gpus 8 --zero 2"),
    ("ds.sh", DEEPSPEED, "arguments of Megatron-DeepSpeed", "MODEL --framework megatron-deepspeed --gpus 32 "
     "--micro-batch 4 --zero 1 --precision fp16 --no-dp-comm-overlap"),
    ("maxtext.yml", MAXTEXT, "MaxText", "llama-3.1-70b --framework maxtext --micro-batch 16 --seq 8192 --tp 4 --zero 3 "
     "--gpus 256 --recompute selective --remat-policy minimal"),
    ("narrow.yml", MAXTEXT.replace("remat_policy: minimal", "quantization: int8\noptimizer_memory_host_offload: true"),
     "MaxText", "llama-3.1-70b --framework maxtext --micro-batch 16 --seq 8192 --offload optimizer "
     "--precision jax-int8 --tp 4 --zero 3 --gpus 256"),
    ("slices.sh", SLICES, "MaxText", "llama-3-8b --framework maxtext --micro-batch 8 --zero 3 --gpus 128 "
     "--zero-group 64"),
    ("foundry.yaml", FOUNDRY, "LLM Foundry", "MODEL --framework llm-foundry --seq 2048 --global-batch 1024 "
     "--micro-batch 8 --recompute full --zero 3"),
    ("nemo.sh", NEMO_RUN, "a command of NeMo", "llama-3-70b --framework nemo --gpus 64 --tp 4 --micro-batch 1"),
    ("titan.sh", TITAN_RUN, "arguments of torchtitan", "MODEL --framework torchtitan --gpus 128 --micro-batch 2"),
    ("frozen.yaml", FROZEN, "LLaMA-Factory", "qwen2.5-vl-7b --framework llama-factory --lora-rank 64 --vision frozen "
     "--precision pure-bf16"),
    ("run.sh", MEGATRON, "arguments of Megatron, which are not read", "MODEL --framework megatron-core --tp 4 --pp 8 "
     "--micro-batch 1 --global-batch 512 --seq 8192 --zero 1 --recompute full --gpus 128 --vpp 2 --recompute-layers 4 "
     "--no-sequence-parallel --no-dp-comm-overlap --precision bf16-fp32-grads"),
    ("sp.sh", SPARSE, "arguments of Megatron", "MODEL --framework megatron-core --tp 4 --pp 8 --micro-batch 1 "
     "--global-batch 512 --seq 8192 --zero 1 --recompute full --gpus 128 --vpp 2 --recompute-layers 4 "
     "--precision fp8"),
    ("sft.sh", LAUNCHED, "arguments of transformers' Trainer", "qwen3-8b --framework huggingface --gpus 16 --seq 4096 "
     "--micro-batch 4 --recompute full --zero 3 --global-batch 512"),
    ("nemo.yaml", NEMO, "a configuration of NeMo", "MODEL --framework nemo --gpus 64 --tp 4 --pp 4 --vpp 5 "
     "--micro-batch 1 --global-batch 128 --no-sequence-parallel"),
    *((f"nemo{word}.yaml", NEMO.replace("devices: 8", f"devices: 8\n  precision: {word}"), "a configuration of NeMo",
       f"MODEL --framework nemo --gpus 64{typed} --tp 4 --pp 4 --vpp 5 --micro-batch 1 --global-batch 128 "
       "--no-sequence-parallel")
      for word, typed in [("16", " --precision fp16"), ("16-mixed", " --precision fp16"), ("32", " --precision fp32"),
                          ("32-true", " --precision fp32")]),
    ("bridge.py", BRIDGE, "a recipe of Megatron-Bridge", "llama-3-70b --framework megatron-bridge --tp 2 --pp 4 "
     "--global-batch 128 --micro-batch 1 --precision mxfp8-parameters"),
    ("recipe.py", RECIPE, "a recipe of NeMo", "llama-3-70b --framework nemo --tp 4 --micro-batch 1 --gpus 32"),
    ("titan.toml", TITAN, "torchtitan", "llama-3-70b --framework torchtitan --seq 8192 --micro-batch 8"),
    ("piped.toml", PIPED.replace('recipe_name = "', 'enable_float8_linear = true\nrecipe_name = "'), "torchtitan",
     "llama-3-70b --framework torchtitan --seq 8192 --pp 2 --precision torchao-rowwise" + PER_RANK.format(8)),
    ("piped16.toml", PIPED, "torchtitan",
     "llama-3-70b --framework torchtitan --seq 8192 --pp 2" + PER_RANK.format(8)),
    ("head.toml", HEAD, "torchtitan", "llama-3-8b --framework torchtitan --seq 4096 --compile --micro-batch 2 "
     "--global-batch 256"),
    ("interleaved.toml", f"{TITAN}[parallelism]\npipeline_parallel_degree = 2\nenable_async_tensor_parallel = true\n"
     'pipeline_parallel_schedule = "Interleaved1F1B"\n', "torchtitan",
     "llama-3-70b --framework torchtitan --seq 8192 --pp 2 --schedule interleaved-1f1b" + PER_RANK.format(8)),
    ("async.toml", f"{TITAN}[parallelism]\ntensor_parallel_degree = 8\nenable_async_tensor_parallel = true\n"
     'pipeline_parallel_schedule = "1F1B"\n[compile]\nenable = true\n', "torchtitan",
     "llama-3-70b --framework torchtitan --seq 8192 --tp 8 --tp-comm-overlap --compile --micro-batch 8"),
    ("nanotron.yaml", NANOTRON, "nanotron", "MODEL --framework nanotron --tp 4 --pp 2 --micro-batch 2 --gpus 64"),
    ("fsdp.yaml", FSDP, "accelerate", "MODEL --framework fsdp --offload optimizer,parameters --gpus 16 --zero 3"),
    ("grads.yaml", GRADIENTS, "accelerate", "MODEL --framework fsdp --gpus 16 --zero 2"),
    ("ax.yaml", AXOLOTL, "axolotl", "qwen2.5-7b --framework axolotl --seq 4096 --lora-targets all-linear "
     "--recompute full --zero 3 --offload parameters --lora-rank 8"),
    ("part.json", PARTED, "DeepSpeed", "MODEL --framework deepspeed --zero 3 --offload optimizer,parameters "
     "--offload-fraction 0.4 --precision fp32"),
    ("none.json", PARTED.replace("0.4", "0.0"), "DeepSpeed", "MODEL --framework deepspeed --zero 3 "
     "--offload parameters --precision fp32"),
    ("all.json", PARTED.replace("0.4", "1.0"), "DeepSpeed", "MODEL --framework deepspeed --zero 3 "
     "--offload optimizer,parameters --precision fp32"),
    ("ds.json", CHECKPOINTED, "DeepSpeed", "MODEL --framework deepspeed --zero 2 --offload activations "
     "--recompute full --no-dp-comm-overlap"),
    ("batch.json", '{"train_batch_size": 256, "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 4, '
     '"fp16": {"enabled": true}, "zero_optimization": {"stage": 2, "overlap_comm": true, "cpu_offload": true}}',
     "DeepSpeed", "MODEL --framework deepspeed --global-batch 256 --micro-batch 2 --precision fp16 --zero 2 --gpus 32 "
     "--offload optimizer"),
    ("plus.json", '{"zero_optimization": {"stage": 3, "zero_quantized_weights": true, "zero_hpz_partition_size": 8}, '
     '"train_micro_batch_size_per_gpu": 1, "train_batch_size": "auto"}', "DeepSpeed",
     "MODEL --framework deepspeed --zero 3 --micro-batch 1 --zeropp qwz,hpz --precision fp32"),
    ("degrees.toml", f"{TITAN}[parallelism]\ndata_parallel_replicate_degree = 4\ndata_parallel_shard_degree = 16\n"
     "tensor_parallel_degree = 8\n", "torchtitan", "llama-3-70b --framework torchtitan --seq 8192 --tp 8 --gpus 512 "
     "--zero-group 16 --micro-batch 8"),
    ("copies.toml", f"{TITAN}[parallelism]\ndata_parallel_replicate_degree = 8\ndata_parallel_shard_degree = 1\n",
     "torchtitan", "llama-3-70b --framework torchtitan --seq 8192 --gpus 8 --zero 0 --micro-batch 8"),
    ("trainer.sh", 'torchrun --nproc_per_node 8 t.py --model_name_or_path meta-llama/Llama-2-7b-hf --bf16 True '
     '--per_device_train_batch_size 4 --gradient_accumulation_steps 8 --fsdp "full_shard auto_wrap"\n', "Trainer",
     "llama-2-7b --framework fsdp --micro-batch 4 --gpus 8 --zero 3 --global-batch 256"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "text", "called", "typed"), TYPED, ids=[one[0] for one in TYPED])
def test_what_is_suggested_is_the_whole_job(
    name: str, text: str, called: str, typed: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Scripts were no valid TOML; nodes were not multiplied; chunks, stages of ZeRO, micro-batches and 8 bits were
    left out, as were accelerators that follow from batches or degrees, ZeRO++ and what DeepSpeed does unless told."""
    file = tmp_path / name
    file.write_text(text, encoding="utf-8")
    assert run(["memory", str(file)]) == 2
    err = capsys.readouterr().err
    told = typed.splitlines()[0]
    assert called in err and f"e.g. {typed}\n" in err and "not understood" not in err
    words = told.replace("MODEL", "llama-3-70b").split()
    gpus = [] if "--gpus" in words else ["--gpus", "16"]
    images = ["--images", "1"] if "--vision" in words else []
    assert run(["memory", *words, *images, "--gpu", "tpu-v5p" if "maxtext" in words else "b200-sxm", *gpus]) in (0, 1)


def test_a_file_that_deepspeed_reads_says_more_than_its_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "zero3.json").write_text('{"zero_optimization": {"stage": 1, "offload_optimizer": {"device": "cpu"}}}')
    file = tmp_path / "sft.yaml"
    file.write_text("model_name_or_path: Qwen/Qwen3-8B\nfinetuning_type: full\ndeepspeed: zero3.json\n")
    assert run(["memory", str(file)]) == 2
    assert "--framework llama-factory --zero 1 --offload optimizer\n" in capsys.readouterr().err


def test_ways_to_tune_that_are_not_described_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It was the model trained whole."""
    file = tmp_path / "adapter_config.json"
    file.write_text(ADAPTED.replace("LORA", "PREFIX_TUNING"))
    assert run(["memory", str(file)]) == 2
    assert "not understood: peft_type (PREFIX_TUNING)" in capsys.readouterr().err


def test_a_configuration_that_a_launcher_is_given_counts_where_it_is_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its shards and offloading were left out in silence; what is typed beside it comes first."""
    file = tmp_path / "sft.sh"
    words = "--num_processes 8 sft.py --model_name_or_path Qwen/Qwen3-8B --per_device_train_batch_size 4"
    file.write_text(f"accelerate launch --config_file fsdp.yaml {words}\n")
    assert run(["memory", str(file)]) == 2
    alone = capsys.readouterr().err
    assert "qwen3-8b --framework huggingface --gpus 8 --micro-batch 4\n" in alone
    assert "to be stated besides: what fsdp.yaml says, which is not here" in alone
    (tmp_path / "fsdp.yaml").write_text(FSDP)
    assert run(["memory", str(file)]) == 2
    both = capsys.readouterr().err
    assert "--framework fsdp --gpus 8 --micro-batch 4 --offload optimizer,parameters --zero 3\n" in both
    assert "not here" not in both
    file.write_text(f"accelerate launch --config_file fsdp.yaml --fsdp_offload_params false {words}\n")
    assert run(["memory", str(file)]) == 2
    assert "--framework fsdp --gpus 8 --micro-batch 4 --zero 3\n" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["ds.json", "a" * 5000 + ".json"])
def test_a_file_of_deepspeed_that_is_not_there_is_told(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It was a job without ZeRO, and a name too long for a file the error of the system."""
    file = tmp_path / "sft.sh"
    file.write_text(LAUNCHED.replace("ds_z3.json", name))
    assert run(["memory", str(file)]) == 2
    assert f"to be stated besides: what {name} says, which is not here" in capsys.readouterr().err


def test_keys_that_need_a_look_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "ax.yaml"
    file.write_text(AXOLOTL)
    assert run(["memory", str(file)]) == 2
    assert "to be stated besides: sample_packing is --sample-tokens (mean tokens" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["import (", "x = 1\n", "", "--only-one 1\n"])
def test_a_script_that_is_nobodys_is_told_as_before(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "mine.py"
    file.write_text(text)
    assert run(["memory", str(file)]) == 2
    assert "looks like" not in capsys.readouterr().err
