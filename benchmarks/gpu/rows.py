"""What ``steps.py`` writes: a row for each case in the columns of docs/runs.md, and one for each kernel of a step.

Run by ``python benchmarks/gpu/steps.py FOLDER [--profile]``; needs torch, transformers and a GPU.
"""

from __future__ import annotations

import csv
import datetime
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import transformers
from cases import Case
from models import SEQ2SEQ, shape_of
from plain import PLAIN
from torch.profiler import ProfilerActivity, profile

KINDS = (  # kernels by words of their names, the first that fits
    ("attention", ("flash", "fmha", "sdpa", "attention", "mha_", "cudnn::fusion")),
    ("optimizer", ("multi_tensor_apply", "fused_adam")),
    ("products", ("gemm", "nvjet", "cutlass", "xmma", "cublas", "s16816", "splitk", "wgmma", "gemv")),
    ("copies", ("memcpy", "memset")),
)


SKIPS_MASKS = "2.14"
"""The release of torch from which on compiled models of transformers leave a causal mask to attention's kernel."""
UNMASKED = ("bert-large-uncased", "vit-large-patch16-224")


def kind_of(name: str) -> str:
    """The kind of a kernel by its name; what moves bytes is the rest."""
    low = name.lower()
    return next((kind for kind, words in KINDS if any(word in low for word in words)), "passes")


def kernels_of(step: Callable[[], None]) -> Iterator[tuple[str, str, int, float]]:
    """Kind, name, count and seconds of the kernels of one step, under torch's profiler."""
    with profile(activities=[ProfilerActivity.CUDA]) as found:
        step()
        torch.cuda.synchronize()
    for row in found.key_averages():
        if row.device_time_total:
            yield kind_of(row.key), row.key, row.count, row.device_time_total / 1e6


def row_of(case: Case, seconds: float, peak: float, told: list[str]) -> dict[str, Any]:
    """A row in the columns of docs/runs.md."""
    plain = "own training loop that keeps the loss alone, no clipping"
    hand = f"{plain}, network written by hand, no dropout"
    loops = {"own": plain, "adapters": plain, "hand": hand, "trainer": "Trainer"}
    notes = [case.name, f"torch {torch.__version__}, transformers {transformers.__version__}", loops[case.loop], *told]
    if case.precision == "pure-bf16":
        notes.append("weights bfloat16, no autocast")
    if case.compiled and case.loop != "hand" and case.model not in UNMASKED and torch.__version__ < SKIPS_MASKS:
        notes.append("dense causal mask")
    framework = "huggingface" if case.loop != "hand" else "torch-compile" if case.compiled else "torch-ddp"
    row: dict[str, Any] = {"model": "" if case.changes else case.model}
    if case.loop == "hand":
        row = plain_cells(case)
    if case.model in SEQ2SEQ:
        row["decoder_seq"] = SEQ2SEQ[case.model]
    if case.changes:
        row |= shape_of(case.model, case.changes)
    return row | {
        "year": datetime.date.today().strftime("%Y-%m"), "seq_len": case.seq, "n_gpus": 1, "gpus_per_node": 1,
        "micro_batch": case.micro_batch, "grad_accum": case.accumulate,
        "global_batch": case.micro_batch * case.accumulate, "precision": case.precision, "recompute": case.recompute,
        "attention": case.attention, "optimizer": case.optimizer, "compile": int(case.compiled),
        "framework": framework, "step_time_s": f"{seconds:.5f}", "mem_peak_gb_per_gpu": f"{peak:.3f}",
        "mem_kind": "allocated", "finetune_kind": "lora" if case.loop == "adapters" else "",
        "lora_rank": 16 if case.loop == "adapters" else "",
        "lora_targets": "q,k,v,o,gate,up,down" if case.loop == "adapters" else "", "notes": "; ".join(notes),
    }  # fmt: skip


def plain_cells(case: Case) -> dict[str, Any]:
    """Cells that tell the shape of a network written by hand."""
    shape = PLAIN[case.model]
    return {
        "model": case.model, "family": "llama" if shape.gated else "gpt2", "layers": shape.layers,
        "hidden": shape.hidden, "heads": shape.heads, "kv_heads": shape.kv_heads, "ffn_hidden": shape.ffn,
        "gated_mlp": int(shape.gated), "vocab": shape.vocab, "tied_embeddings": int(not shape.gated),
    }  # fmt: skip


def write_rows(path: Path, rows: list[dict[str, Any]]) -> None:
    """All rows so far, under the union of their columns."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    with open(path, "w", newline="") as file:
        writer = csv.DictWriter(file, columns, restval="")
        writer.writeheader()
        writer.writerows(rows)
