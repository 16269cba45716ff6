"""What blank cells of a measured run's shape are taken for: heads, the width of the MLP, experts of a token."""

from __future__ import annotations

import re
from collections.abc import Callable

from distsim.arrays import ceil_div
from distsim.interop.runs.table import Run
from distsim.layers.network import count_parameters
from distsim.specs.model import Model
from distsim.units import GIGA

HEAD, SMALL_HEAD, SMALL = 128, 64, 2048
"""Width of a head, and in models narrower than ``SMALL`` (GPT-2, BERT: 64; Llama, GPT-3 from 1.3B on: 128)."""
WIDTH_MULTIPLE = 256
"""What Llama rounds widths up to (meta-llama/llama model.py, multiple_of)."""
GATED_SHARE, LATER_GATED_SHARE, PLAIN_SHARE = 8 / 3, 3.5, 4
"""Width of an MLP over hidden: gated as wide as holds a plain one's parameters (Shazeer 2020, arXiv:2002.05202), as in
Llama 2 70B, Llama 3 8B and Mistral 7B, and plain."""
NOMINAL = 0.02
"""How far counts in names are off: Llama 2 70B has 69.0 billion parameters."""
NEAR = 0.03
"""The same of sizes that leave part of the embedding out, as BigScience's do by 2%."""
_SIZE = re.compile(r"(?<![\d.x])(\d{1,4}(?:\.\d+)?)B\b")
WIDEST_SHARE = 16
PER_TOKEN = {"mixtral": 2, "grok": 2, "phi": 2, "qwen3": 8, "deepseek": 8, "olmoe": 8, "qwen2-moe": 4, "gpt-oss": 4,
             "dbrx": 4, "llama4": 1, "switch": 1}  # fmt: skip
"""Experts of a token by the start of a family's name, as its configurations have them."""
_LATENT = re.compile(
    r"\blatent (?:moe|experts?)(?: of)?(?: (?:size|width))?[ =:]+(\d{3,5})\b|"
    r"\bmoe[-_ ]latent[-_ ]size[ =:]+(\d{3,5})\b",
    re.IGNORECASE,
)
USUAL_PER_TOKEN = 2
"""NVIDIA/Megatron-LM arguments.py, --moe-router-topk; GShard (Lepikhin et al. 2020)."""


def heads_of(run: Run, hidden: int) -> int:
    """The cell, or as many heads as make up the width; of models whose width no usual head divides, as many as are at
    least that wide (BigScience's 14,400: 96 heads of 150, as GPT-3 has), if tensor parallel ranks divide them. Heads of
    keys and values that those are no multiple of are a head of queries each."""
    told, ranks, shared = run.count("heads"), run.count("tp") or 1, run.count("kv_heads") or 1
    if told:
        return told
    if not run.count("head_dim") and hidden % shared == 0 and (hidden // _usual_head(hidden)) % shared:
        return shared
    width = run.count("head_dim") or _usual_head(hidden)
    if hidden % width == 0 and (hidden // width) % ranks == 0:
        return hidden // width
    wider = [] if run.count("head_dim") else [at for at in range(width, 2 * width) if hidden % at == 0]
    return next((hidden // at for at in wider if (hidden // at) % ranks == 0), 0) or run.need("heads")  # which raises


def _usual_head(hidden: int) -> int:
    return SMALL_HEAD if hidden < SMALL else HEAD


def layers_of(run: Run, build: Callable[[int], Model]) -> int:
    """The cell, or the layers that give the model of ``build`` the parameters that the row or the model's name tells,
    as near as its stages divide them."""
    told, layers = billions(run), run.count("layers")
    if layers or told is None:
        return layers or run.need("layers")
    stages = (run.count("pp") or 1) * (run.count("vpp") or 1)
    once, twice = (count_parameters(build(times * stages)) for times in (1, 2))
    rounds = max(round((told * GIGA - (2 * once - twice)) / (twice - once)), 1)
    found = once + (rounds - 1) * (twice - once)
    return rounds * stages if abs(found - told * GIGA) <= NEAR * told * GIGA else run.need("layers")


def billions(run: Run) -> float | None:
    """The parameters that a row's cell or its model's name tells."""
    named = _SIZE.search(run.text("model") or "")
    return run.positive("n_params_b") or (float(named[1]) if named else None)


def experts_per_token(run: Run, family: str) -> int:
    """The cell, or what the family's models have."""
    lower = "-".join(family.lower().replace("_", "-").split())
    known = next((count for start, count in PER_TOKEN.items() if lower.startswith(start)), USUAL_PER_TOKEN)
    return run.count("top_k") or min(known, run.count("n_experts") or known)


def expert_latent(run: Run) -> int | None:
    """Width to which notes say that tokens are projected before they go to experts (Megatron's moe_latent_size)."""
    found = _LATENT.search(run.notes)
    return int(found[1] or found[2]) if found else None


def usual_width(hidden: int, gated: bool) -> int:
    """The MLP's width where nothing tells it."""
    return ceil_div(round(GATED_SHARE * hidden), WIDTH_MULTIPLE) * WIDTH_MULTIPLE if gated else PLAIN_SHARE * hidden


def width_of(run: Run, hidden: int, gated: bool, build: Callable[[int], Model]) -> int:
    """The width that gives the model of ``build`` the parameters that the row tells: a usual one where that does, else
    the one that does; the usual one where the row tells none, or too few or too many."""
    usual, told = usual_width(hidden, gated), run.positive("n_params_b")
    if told is None:
        return usual
    wanted, allowed = told * GIGA, nominal(run, told) * GIGA
    least = count_parameters(build(hidden))
    per_width = (count_parameters(build(2 * hidden)) - least) / hidden
    for width in (usual, round((LATER_GATED_SHARE if gated else PLAIN_SHARE) * hidden)):
        if abs(least + (width - hidden) * per_width - wanted) <= allowed:
            return width
    exact = hidden + (wanted - least) / per_width
    width = max(round(exact / WIDTH_MULTIPLE), 1) * WIDTH_MULTIPLE
    return width if 0 < exact <= WIDEST_SHARE * hidden else usual


def nominal(run: Run, told: float) -> float:
    """How far the count of parameters that a row tells may be off, in billions."""
    return max(NOMINAL * told, _half_a_digit(run.text("n_params_b") or ""))


def _half_a_digit(text: str) -> float:
    """Half of what the last printed digit of a number counts."""
    return 0.5 * 10.0 ** -len(text.partition(".")[2].rstrip("bB")) if text.rstrip("bB")[-1:].isdigit() else 0.0


def assumed_shape(run: Run, model: Model) -> str:
    """Which blank cells of a shape that has no preset were filled, and with what; a plain MLP is four times as wide as
    hidden by definition."""
    experts = model.experts
    told = []
    if run.count("layers") is None:
        told.append(f"layers is blank: assumed {model.layers} from {billions(run):g}B parameters")
    told += [f"heads is blank: assumed {model.heads}"] * (run.count("heads") is None)
    if run.count("ffn_hidden") is None and experts is None and (model.gated or model.ffn != PLAIN_SHARE * model.hidden):
        by = (
            " from n_params_b"
            if run.positive("n_params_b") and model.ffn != usual_width(model.hidden, model.gated)
            else ""
        )
        told.append(f"ffn_hidden is blank: assumed {model.ffn:,}{by}")
    if experts is not None and run.count("top_k") is None:
        told.append(f"top_k is blank: assumed {experts.per_token}")
    return "; ".join(told)
