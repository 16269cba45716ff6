"""What torch.compile keeps of layers and logits, against inductor's programs of small networks on fake tensors."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest

from distsim.engine.jobs.resolve import resolve
from distsim.engine.jobs.stages import build_stages
from distsim.formulas.loss import compiled_logit_kept, compiled_logit_transit
from distsim.interop.huggingface import read_config
from distsim.layers.ledger import distinct_saved
from distsim.specs.job import Job

# Recorded with torch 2.13: AOTAutograd's partition and inductor's program for an H100, run on fake tensors with buffers
# donated to backward; 512 wide, 8 heads, 8 sequences of 1,024 tokens, MLPs 2,048 (GPT) and 1,408 wide, norms of the
# network's own. Bytes of a logit: kept after forward, and all of its tensors at the highest point of backward. Bytes
# of a layer: for each token and channel, without cast weights.
ROWS = list(csv.DictReader((Path(__file__).parent / "oracles" / "torch_compiled.csv").open()))
SEQ, BATCH, WIDTH = 1024, 8, 512
GPT = {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "vocab_size": 512, "n_embd": WIDTH, "n_layer": 2,
       "n_head": 8, "n_positions": SEQ, "activation_function": "gelu"}  # fmt: skip
LLAMA = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 512, "hidden_size": WIDTH,
         "num_hidden_layers": 2, "num_attention_heads": 8, "num_key_value_heads": 8, "intermediate_size": 1408,
         "tie_word_embeddings": True}  # fmt: skip
QWEN = {**LLAMA, "model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"], "head_dim": 64}
CONFIGS: dict[str, dict[str, Any]] = {"gpt": GPT, "llama": LLAMA, "qwen3": QWEN}


@pytest.mark.parametrize("row", [row for row in ROWS if row["what"] == "logit"], ids=lambda row: "-".join(row.values()))
def test_logits(row: dict[str, str]) -> None:
    act = 4 if row["precision"] == "fp32" else 2
    given = {"nothing": 0, "narrow": act, "wide": 4}[row["gives"]]
    kept = compiled_logit_kept(act, given, int(row["capped"]))
    assert kept == float(row["kept"])
    assert kept + compiled_logit_transit(act, given) == float(row["backward"])


@pytest.mark.parametrize("row", [row for row in ROWS if row["what"] == "layer"], ids=lambda row: "-".join(row.values()))
@pytest.mark.parametrize("framework", ["torch-compile", "plain-torch"])
def test_layers(row: dict[str, str], framework: str) -> None:
    setup = resolve(
        Job(
            model=read_config(CONFIGS[row["network"]]).model, gpu="h100-sxm", gpus=1, framework=framework, seq=SEQ,
            precision=row["precision"], micro_batch=BATCH, global_batch=BATCH, attention="flash", dropout=False,
            **({"compile": True} if framework == "plain-torch" else {}),
        )
    )  # fmt: skip
    layer = build_stages(setup)[0].layers[0][0]
    kept = sum(distinct_saved(layer.operations).values())
    assert kept / (SEQ * BATCH * WIDTH) == pytest.approx(float(row["kept"]), rel=1e-3)
