"""run_config.yaml, which Megatron-Bridge writes beside its checkpoints: all settings, most as they are by default."""

from __future__ import annotations

from pathlib import Path

import pytest

from distsim import load_model
from distsim.cli.app import run

DUMP = """_target_: megatron.bridge.training.config.ConfigContainer
ddp:
  data_parallel_sharding_strategy: no_shard
  grad_reduce_in_fp32: true
  overlap_grad_reduce: true
  use_distributed_optimizer: true
  use_megatron_fsdp: false
mixed_precision:
  bf16: true
  fp16: false
  fp8: null
  fp8_param: false
  fp8_recipe: tensorwise
  params_dtype:
    _call_: false
    _target_: torch.bfloat16
model:
  activation_func:
    _call_: false
    _target_: torch.nn.functional.silu
  add_bias_linear: false
  attention_dropout: 0.0
  context_parallel_size: 1
  cp_comm_type: null
  cuda_graph_impl: none
  cuda_graph_scope: full
  expert_model_parallel_size: 8
  ffn_hidden_size: 4096
  gated_linear_unit: true
  hidden_dropout: 0.0
  hidden_size: 1024
  moe_ffn_hidden_size: 512
  moe_layer_freq:
  - 0
  - 1
  - 1
  - 1
  moe_router_topk: 2
  normalization: RMSNorm
  num_attention_heads: 16
  num_layers: 4
  num_moe_experts: 8
  num_query_groups: 16
  pipeline_model_parallel_size: 1
  position_embedding_type: rope
  recompute_granularity: selective
  recompute_modules:
  - layernorm
  - moe_act
  seq_length: 4096
  share_embeddings_and_output_weights: false
  tensor_model_parallel_size: 1
  vocab_size: 32000
  window_size: null
optimizer:
  exp_avg_dtype:
    _call_: false
    _target_: torch.bfloat16
  exp_avg_sq_dtype:
    _call_: false
    _target_: torch.bfloat16
  main_grads_dtype:
    _call_: false
    _target_: torch.float32
  optimizer: adam
  optimizer_offload_fraction: 0.0
  use_precision_aware_optimizer: true
train:
  global_batch_size: 64
  micro_batch_size: 1
"""
PARAMETERS = (
    4 * (4 * 1024 * 1024 + 2 * 1024) + 3 * 1024 * 4096 + 3 * (8 * 3 * 1024 * 512 + 8 * 1024) + 2 * 32000 * 1024 + 1024
)
"""Attention and norms, a dense MLP, experts with routers, words twice and the last norm."""


@pytest.fixture
def said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> str:
    file = tmp_path / "run_config.yaml"
    file.write_text(DUMP, encoding="utf-8")
    assert load_model(str(file)).parameters == PARAMETERS
    assert run(["memory", "--job", str(file), "--gpu", "h100-sxm", "--gpus", "8"]) == 0
    return capsys.readouterr().err


def test_defaults_that_are_printed_say_nothing(said: str) -> None:
    """The strategy of an FSDP that is off is no ZeRO 0, and a list on several lines is stated once."""
    assert "--zero 1 " in said and "--cuda-graphs" not in said and "fp8" not in said
    assert "more than once" not in said and "not read" not in said and "assumed" not in said


def test_formats_in_sections_of_their_own(said: str) -> None:
    assert "--precision bf16-precision-aware-fp32-grads" in said
    assert "--recompute-modules layernorm,moe_act " in said
