"""Settings of other tools that change memory or time: each has the effect here that it has there."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from distsim import DistsimError, load_model
from distsim.cli.app import run

LLAMA = """torchrun --nproc_per_node 8 --nnodes 4 pretrain_gpt.py --num-layers 32 --hidden-size 4096
--ffn-hidden-size 14336 --num-attention-heads 32 --group-query-attention --num-query-groups 8 --swiglu
--max-position-embeddings 8192 --position-embedding-type rope --normalization RMSNorm --disable-bias-linear
--untie-embeddings-and-output-weights --vocab-size 128256 --micro-batch-size 1 --global-batch-size 64 --bf16
--seq-length 8192 --attention-dropout 0.0 --hidden-dropout 0.0 --use-distributed-optimizer --overlap-grad-reduce
"""
MIXTRAL = LLAMA + "--num-experts 8 --moe-router-topk 2 --expert-model-parallel-size 8\n"
BRIDGE = """model:
  _target_: megatron.bridge.models.llama.llama_provider.Llama3ModelProvider
  activation_func:
    _call_: false
    _target_: torch.nn.functional.silu
  gated_linear_unit: true
  num_layers: 32
  hidden_size: 4096
  ffn_hidden_size: 14336
  num_attention_heads: 32
  num_query_groups: 8
  vocab_size: 128256
  seq_length: 8192
  normalization: RMSNorm
  add_bias_linear: false
  position_embedding_type: rope
  share_embeddings_and_output_weights: false
  tensor_model_parallel_size: 1
  pipeline_model_parallel_size: 4
  hidden_dropout: 0.0
  attention_dropout: 0.0
train:
  micro_batch_size: 1
  global_batch_size: 64
"""
NEMO = """trainer:
  devices: 8
  num_nodes: 2
model:
  mcore_gpt: true
  megatron_amp_O2: true
  micro_batch_size: 1
  global_batch_size: 64
  tensor_model_parallel_size: 2
  encoder_seq_length: 4096
  num_layers: 32
  hidden_size: 4096
  num_attention_heads: 32
  activation: fast-swiglu
  fp8: true
"""
MOMENTS = " --use-precision-aware-optimizer --exp-avg-dtype bf16 --exp-avg-sq-dtype bf16"


def job(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str = "run.sh") -> tuple[str, str]:
    """What a file comes to on the command line, and what of it is told not to be read."""
    (tmp_path / name).write_text(text, encoding="utf-8")
    run(["memory", "--job", str(tmp_path / name), "--gpu", "h100-sxm", "--gpus", "32", "--show-config"])
    lines = capsys.readouterr().err.splitlines()
    read = next(line for line in lines if ": read as " in line)
    return f"{read} ", next((line for line in lines if ": not read: " in line), "")


@pytest.mark.parametrize(
    ("more", "told"),
    [
        # Megatron shards over ranks of context parallelism, too: 32 of them in two instances
        ("--context-parallel-size 2 --num-distributed-optimizer-instances 2", "--zero-group 16 "),
        ("--context-parallel-size 2 --cp-comm-type a2a", "--cp-mode all_to_all "),
        ("--context-parallel-size 2 --cp-comm-type all_gather", "--cp-mode all_gather "),
        ("--pipeline-model-parallel-size 2 --account-for-embedding-in-pipeline-split "
         "--account-for-loss-in-pipeline-split", "--stage-layers 16,16 "),
        ("--pipeline-model-parallel-size 3 --num-layers-in-last-pipeline-stage 10", "--stage-layers 11,11,10 "),
        ("--cuda-graph-impl local", "--cuda-graphs modules "),
        ("--enable-cuda-graph --cuda-graph-scope full_iteration", "--cuda-graphs iteration "),
        ("--fp4-format e2m1 --fp4-recipe nvfp4", "--precision nvfp4 "),
        ("--fine-grained-activation-offloading --offload-modules core_attn attn_proj",
         "--offload-modules core_attn,attn_proj "),
        (MOMENTS, "--precision bf16-precision-aware-fp32-grads "),
        (f"{MOMENTS} --main-grads-dtype bf16", "--precision bf16-precision-aware "),
    ],
)  # fmt: skip
def test_arguments_of_megatron(more: str, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    read, unread = job(LLAMA + more, tmp_path, capsys)
    assert told in read
    assert not unread


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ("--overlap-moe-expert-parallel-comm", "--expert-overlap "),
        ("--moe-expert-capacity-factor 1.25 --moe-pad-expert-input-to-capacity", "--capacity-factor 1.25 "),
        ("--cuda-graph-impl transformer_engine --cuda-graph-scope moe_router", "--cuda-graphs routers "),
    ],
)
def test_arguments_of_experts(more: str, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    read, unread = job(MIXTRAL + more, tmp_path, capsys)
    assert told in read
    assert not unread


def test_what_has_no_counterpart_is_told_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Switches of the optimizer that no recipe stands for, and ways of exchange that are not described, before keys
    that nobody knows."""
    ways = "--wandb-zeal 3 --transformer-impl local --context-parallel-size 4 --cp-comm-type a2a+p2p"
    states = "--use-precision-aware-optimizer --exp-avg-dtype fp8"
    read, unread = job(f"{LLAMA}{ways} {states}", tmp_path, capsys)
    assert "--cp-mode" not in read and "--precision bf16-fp32-grads " in read
    told = ["--transformer-impl (local)", "--cp-comm-type (a2a+p2p)", "--use-precision-aware-optimizer",
            "--exp-avg-dtype (fp8)", "--wandb-zeal"]  # fmt: skip
    assert unread.endswith(f"not read: {', '.join(told)}")


def test_the_gate_of_megatron_bridge(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """run_config.yaml states SwiGLU as a gate and a function: Llama 3 8B has its 8,030,261,248 parameters."""
    read, unread = job(BRIDGE, tmp_path, capsys, "run_config.yaml")
    assert load_model(str(tmp_path / "run_config.yaml")).parameters == 8_030_261_248
    assert "--framework megatron-bridge " in read and not unread.count("gated")
    plain = BRIDGE.replace("gated_linear_unit: true", "gated_linear_unit: false")
    (tmp_path / "plain.yaml").write_text(plain, encoding="utf-8")
    assert load_model(str(tmp_path / "plain.yaml")).parameters == 8_030_261_248 - 32 * 4096 * 14336


def test_a_gate_of_megatrons_own_yaml(tmp_path: Path) -> None:
    """Its width is two thirds of what it would be without the gate, in steps of 64, as on the command line."""
    text = (
        "language_model:\n  num_layers: 2\n  hidden_size: 1024\n  num_attention_heads: 16\n  ffn_hidden_size: null\n"
        "  activation_func: swiglu\n  add_bias_linear: False\n  normalization: RMSNorm\nmodel_parallel:\n"
        "  tensor_model_parallel_size: 1\n  pipeline_model_parallel_size: 1\nmicro_batch_size: 1\n"
        "global_batch_size: 8\nseq_length: 128\nposition_embedding_type: rope\nvocab_size: 1000\n"
    )
    (tmp_path / "megatron.yaml").write_text(text, encoding="utf-8")
    layer = 4 * 1024 * 1024 + 3 * 1024 * 2688 + 2 * 1024
    assert load_model(str(tmp_path / "megatron.yaml")).parameters == 2 * layer + 1024 + 1000 * 1024


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ("", "--precision fp8 "),
        ("  fp8_params: true\n", "--precision fp8-parameters-fp32-grads "),
        ("  optim:\n    grad_sync_dtype: bf16\n", "--precision fp8-bf16-grads "),
        ("  fp8_params: true\n  optim:\n    grad_sync_dtype: bf16\n", "--precision fp8-parameters "),
    ],
)
def test_eight_bits_of_nemo(more: str, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert told in job(NEMO + more, tmp_path, capsys, "nemo.yaml")[0]


def hint(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str) -> str:
    """What is told of a file that is not read, its options each with a blank behind it."""
    (tmp_path / name).write_text(text, encoding="utf-8")
    assert run(["memory", "--job", str(tmp_path / name)]) == 2
    return f"{capsys.readouterr().err} ".replace("\n", " \n")


DEEPSPEED = '{"train_micro_batch_size_per_gpu": 2, "zero_optimization": {"stage": 2}, '
WIDE = DEEPSPEED + '"bf16": {"enabled": true}, "data_types": {"grad_accum_dtype": "fp32"}}'
AUTOCAST = DEEPSPEED + '"torch_autocast": {"enabled": true, "dtype": "bfloat16"}}'
MICS = DEEPSPEED.replace("2},", '3, "mics_shard_size": 8},') + '"bf16": {"enabled": true}}'
SENT = DEEPSPEED + '"bf16": {"enabled": true}, "communication_data_type": "fp32"}'
ACCELERATE = "compute_environment: LOCAL_MACHINE\nnum_machines: 2\nnum_processes: 16\n"
BY_DEEPSPEED = ACCELERATE + "distributed_type: DEEPSPEED\ndeepspeed_config:\n  zero_stage: 3\nmixed_precision: fp16\n"
BY_FSDP2 = ACCELERATE + "distributed_type: FSDP\nfsdp_config:\n  fsdp_version: 2\nmixed_precision: bf16\n"
BY_MEGATRON = (ACCELERATE + "distributed_type: MEGATRON_LM\nmixed_precision: bf16\nmegatron_lm_config:\n"
               "  megatron_lm_tp_degree: 2\n  megatron_lm_num_micro_batches: 4\n")  # fmt: skip
COMPILED = ACCELERATE + "distributed_type: MULTI_GPU\ndynamo_config:\n  dynamo_backend: INDUCTOR\n"
AXOLOTL = "base_model: Qwen/Qwen3-8B\nsequence_len: 4096\nmicro_batch_size: 1\ngradient_accumulation_steps: 2\n"
SHARED = AXOLOTL + "dp_shard_size: 4\ndp_replicate_size: 2\ncontext_parallel_size: 2\nfsdp_version: 2\n"
KEPT = AXOLOTL + "fsdp_version: 2\nfsdp_config:\n  offload_params: true\n"
WAITING = AXOLOTL + "gradient_checkpointing: offload\ndeepspeed: deepspeed_configs/zero3_bf16_cpuoffload_all.json\n"
CUT = AXOLOTL + "plugins:\n  - axolotl.integrations.cut_cross_entropy.CutCrossEntropyPlugin\n"
FACTORY = "model_name_or_path: Qwen/Qwen3-8B\nfinetuning_type: full\ncutoff_len: 2048\nuse_unsloth_gc: true\n"
TUNE = ("model:\n  _component_: torchtune.models.llama3_1.llama3_1_8b\nfsdp_cpu_offload: true\n"
        "enable_activation_offloading: true\n")  # fmt: skip
FOUNDRY = ("model:\n  name: mpt_causal_lm\nglobal_train_batch_size: 64\ndevice_train_microbatch_size: 4\n"
           "device_eval_batch_size: 4\nmax_duration: 10ba\nprecision: amp_bf16\nfsdp_config:\n"
           "  sharding_strategy: FULL_SHARD\n")  # fmt: skip
NAMED = {"base_model": "Qwen/Qwen2.5-7B-Instruct", "per_device_train_batch_size": 1, "gradient_accumulation_steps": 4}
TRAINER = json.dumps({**NAMED, "output_dir": "out", "fsdp": "full_shard auto_wrap offload"})
SWIFT = """NPROC_PER_NODE=8 megatron sft --load Qwen3-30B-A3B-mcore --pipeline_model_parallel_size 2 \\
  --expert_model_parallel_size 4 --micro_batch_size 1 --global_batch_size 16 --max_length 8192
"""
SIGHT = """swift sft --model Qwen/Qwen2.5-7B-Instruct --train_type lora --per_device_train_batch_size 2 \\
  --freeze_vit true --attn_impl flash_attn --max_length 4096
"""
LITGPT = """checkpoint_dir: checkpoints/meta-llama/Llama-2-7b-hf
precision: bf16-true
quantize: bnb.nf4
lora_r: 32
lora_key: true
lora_mlp: true
train:
  global_batch_size: 8
  micro_batch_size: 2
  max_seq_length: 512
"""
TRL = """accelerate launch --config_file examples/accelerate_configs/deepspeed_zero3.yaml trl sft --load_in_4bit \\
  --model_name_or_path Qwen/Qwen3-8B --use_peft --dataset_name x --per_device_train_batch_size 4 --max_length 4096
"""
TITAN = """[model]
name = "llama3"
flavor = "8B"
[training]
local_batch_size = 8
seq_len = 8192
[parallelism]
data_parallel_replicate_degree = 2
data_parallel_shard_degree = 4
context_parallel_degree = 2
context_parallel_rotate_method = "alltoall"
pipeline_parallel_degree = 2
pipeline_parallel_schedule = "Interleaved1F1B"
pipeline_parallel_layers_per_stage = 4
"""


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("ds.json", WIDE, "--precision bf16-fp32-grads "),
        ("ds.json", AUTOCAST, "--precision amp-bf16 "),
        ("ds.json", MICS, "not understood: zero_optimization.mics_shard_size (8) "),
        ("ds.json", SENT, "not understood: communication_data_type (fp32) "),
        ("acc.yaml", BY_DEEPSPEED, "--precision fp16 "),
        ("acc.yaml", BY_FSDP2, "--framework accelerate-fsdp2 "),
        ("acc.yaml", BY_MEGATRON, "--framework megatron-lm --gpus 16 --tp 2 --precision bf16-fp32-grads "),
        ("acc.yaml", COMPILED, "--compile "),
        ("axolotl.yml", SHARED, "--gpus 16 --zero 3 --zero-group 8 "),
        ("axolotl.yml", KEPT, "--offload optimizer,parameters "),
        ("axolotl.yml", WAITING, "--recompute full --zero 3 --offload optimizer,parameters,activations "),
        ("axolotl.yml", CUT, "--loss cut "),
        ("factory.yaml", FACTORY, "--offload activations "),
        ("tune.yaml", TUNE, "--offload optimizer,parameters,activations "),
        ("foundry.yaml", FOUNDRY, "--precision fsdp-bf16 "),
        ("foundry.yaml", FOUNDRY + "  mixed_precision: PURE\n", "--precision fsdp-pure "),
        ("foundry.yaml", FOUNDRY + "  mixed_precision: FULL\n", "not understood: fsdp_config.mixed_precision (FULL)"),
        ("trainer.json", TRAINER, "--zero 3 --offload optimizer,parameters "),
        ("swift.sh", SWIFT, " qwen3-30b-a3b --framework megatron-core --pp 2 --ep 4 "),
        ("swift.sh", SWIFT, "--gpus 8 --zero 1 --recompute selective --precision bf16-fp32-grads "),
        ("sight.sh", SIGHT, "--lora-rank 8 "),
        ("sight.sh", SIGHT.replace("--train_type lora ", ""), "--lora-rank 8 "),
        ("litgpt.yaml", LITGPT, " llama-2-7b --framework litgpt "),
        ("litgpt.yaml", LITGPT, "--quantize nf4-single "),
        ("litgpt.yaml", LITGPT, "--lora-targets q,k,v,mlp "),
        ("trl.sh", TRL, "--quantize nf4-single "),
        ("trl.sh", TRL, "--zero 3 "),
        ("titan.toml", TITAN, "--zero-group 8 --cp-mode ring "),
        ("titan.toml", TITAN, "pipeline_parallel_layers_per_stage is --vpp (layers / pp / its value) "),
    ],
)
def test_what_other_configurations_come_to(
    name: str, text: str, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = hint(text, tmp_path, capsys, name)
    assert told in found
    assert "not understood" not in found or "not understood" in told
    assert "--vision" not in found


def test_a_variable_that_slurm_sets(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its default holds where the script asks Slurm for no nodes."""
    script = 'NNODES=${SLURM_NNODES:-"1"}\n' + LLAMA.replace("--nnodes 4", "--nnodes $NNODES")
    assert "--gpus 8 " in job(script, tmp_path, capsys)[0]
    assert "--gpus 48 " in job(f"#SBATCH --nodes=6\n{script}", tmp_path, capsys)[0]


def test_a_layer_of_experts_that_is_recomputed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    read, unread = job(MIXTRAL + "--moe-layer-recompute", tmp_path, capsys)
    assert "--recompute selective --recompute-modules core_attn,moe " in read
    assert not unread


def test_a_script_of_nobody(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = hint("python3 -m verl.trainer.main_ppo data.train_batch_size=1024\n", tmp_path, capsys, "run.sh")
    assert "is a script of no tool that is known here" in told and "TOML:" not in told
    (tmp_path / "mine.sh").write_text("#!/bin/bash\necho hello\n", encoding="utf-8")
    with pytest.raises(DistsimError, match="is a script of no tool that is known here"):
        load_model(str(tmp_path / "mine.sh"))
