"""Networks that nanotron's YAML states beyond transformers' keys: switches of biases, and experts."""

from __future__ import annotations

from pathlib import Path

import pytest

from distsim import load_model
from distsim.cli.app import run

NANOTRON = """model:
  model_config:
    is_qwen2_config: true
    hidden_size: 2048
    intermediate_size: 8192
    max_position_embeddings: 4096
    num_attention_heads: 32
    num_hidden_layers: 24
    num_key_value_heads: 8
    tie_word_embeddings: true
    vocab_size: 49152
parallelism:
  dp: 8
  tp: 4
  pp: 1
tokens:
  sequence_length: 4096
  micro_batch_size: 1
"""
EXPERTS = """    moe_config:
      num_experts: 16
      top_k: 2
      moe_intermediate_size: 1024
      shared_expert_intermediate_size: 1024
      enable_shared_expert: true
"""
HIDDEN, KEYS, LAYERS, WORDS = 2048, 512, 24, 49152
ATTENTION = 2 * HIDDEN * HIDDEN + 2 * HIDDEN * KEYS
EXPERT = 3 * HIDDEN * 1024


@pytest.mark.parametrize(
    ("more", "attention", "mlp"),
    [
        ("", ATTENTION, 3 * HIDDEN * 8192),
        ("    attention_bias: true\n", ATTENTION + HIDDEN + 2 * KEYS, 3 * HIDDEN * 8192),
        (EXPERTS, ATTENTION, 17 * EXPERT + 16 * HIDDEN + HIDDEN),
        (EXPERTS.replace("expert: true", "expert: false"), ATTENTION, 16 * EXPERT + 16 * HIDDEN),
    ],
)
def test_networks_of_nanotron(
    more: str, attention: int, mlp: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Biases of Qwen 2 are a switch there, and its experts a section."""
    text = NANOTRON.replace("parallelism:", f"{more}parallelism:")
    file = tmp_path / "nanotron.yaml"
    file.write_text(text, encoding="utf-8")
    assert run(["memory", "--job", str(file), "--gpu", "h100-sxm"]) == 0
    assert "not read" not in capsys.readouterr().err
    parameters = load_model(str(file)).parameters
    assert parameters == LAYERS * (attention + mlp + 2 * HIDDEN) + HIDDEN + WORDS * HIDDEN
