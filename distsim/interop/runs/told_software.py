"""Which software ran, where notes or the publisher of a measured run tell it and its cell does not."""

from __future__ import annotations

import re

from distsim.interop.runs.denials import affirmed
from distsim.interop.runs.hits import hit
from distsim.interop.runs.table import Run

_TOLD = ((re.compile(r"\bpaxml (?:on |\()jax", re.I), "paxml"),
        (re.compile(r"\bmaxtext(?: \(jax|;| args)", re.I), "maxtext"),
        (re.compile(r"\baxlearn(?: \(jax|;)", re.I), "axlearn"),
        (re.compile(r"\blevanter(?: \(jax|;)", re.I), "levanter"),
        (re.compile(r"\bautocast:bf16\+sr\b", re.I), "neuronx-nemo"))  # fmt: skip
"""How notes name the software where the cell names its relative, or the container that it came in; bf16 with stochastic
rounding all through is what NeMo Megatron for Neuron runs, its successor keeps fp32 in the optimizer."""
_PUBLISHERS = {"jzhang38/TinyLlama": "tinyllama", "foundation-model-stack/fms-fsdp": "fms-fsdp",
              "VIA-Research/vTrain data/ground_truth_single": "vtrain",
              "Dao-AILab/flash-attention training": "flash-attn", "openai/parameter-golf": "torch-compile"}  # fmt: skip
"""Sources whose runs are of their own software, or composed as no software runs (presets/frameworks/vtrain.toml); all
of openai/parameter-golf's are of train_gpt.py, after modded-nanogpt, whole models and updates of which are compiled."""
_LAYERS = {"DeepSpeed on Azure post": "megatron-deepspeed"}
"""Sources whose models under DeepSpeed are those of another profile: GPT of 175B to 1T are Megatron-DeepSpeed's
(deepspeedai/Megatron-DeepSpeed examples/azure)."""
_MLPERF = re.compile(r"mlperf|mlcommons", re.IGNORECASE)
_ITS_OPTIMIZER = re.compile(
    affirmed("(?:apex )?Distributed ?Fused ?LAMB|distributed_lamb|NVIDIA(?:'s)? (?:PyTorch )?code"), re.IGNORECASE
)
_SUBMITTED = re.compile(r"\btraining_results_v\d", re.IGNORECASE)
"""MLPerf's repositories of results, and copies of them."""


def publishers_software(run: Run) -> str | None:
    """The framework whose runs a source publishes, where it is its own."""
    return _of_source(run, _PUBLISHERS)


def layers_from(run: Run) -> str | None:
    """The profile whose layers ran, where it is not that of what trained them."""
    return _of_source(run, _LAYERS)


def _of_source(run: Run, known: dict[str, str]) -> str | None:
    source = run.text("source") or ""
    return next((name for who, name in known.items() if source.startswith(who)), None)


def noted_software(run: Run) -> str | None:
    """The framework that notes name where the cell names its relative, or its container."""
    return next((known for pattern, known in _TOLD if hit(pattern, run.notes)), None)


def runs_mlperf_bert(run: Run) -> bool:
    """Whether BERT trained for MLPerf by NVIDIA's PyTorch code, as the notes say or its optimizer tells, or by Baidu's
    in Paddle, which does the same (training_results_v2.0 Baidu XMan4.0_1_node_8_A100_PaddlePaddle: external_ops/fmhalib
    and acc_merge, bert_padding.py)."""
    if "bert" not in (run.text("model") or "").lower() or _MLPERF.search(f"{run.source} {run.notes}") is None:
        return False
    framework = (run.text("framework") or "").lower()
    return "paddle" in framework or ("torch" in framework and hit(_ITS_OPTIMIZER, run.notes) is not None)


def submitted_to_mlperf(run: Run) -> bool:
    """Whether the source is a repository of MLPerf's results."""
    return _SUBMITTED.search(run.source) is not None
