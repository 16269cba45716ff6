"""Which separate products a row of the ledger stands for, by the names that adapters go by (specs/products.py)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from distsim.arrays import Number
from distsim.layers.attention import heads_per_rank
from distsim.layers.ledger import Context, Operation
from distsim.layers.names import CROSS_KV, EXPERTS, QKV, ROUTER
from distsim.specs.model import Model
from distsim.specs.products import (
    CONVOLUTION,
    LIGHTNING,
    LINEAR_ROUTERS,
    MAMBA_1,
    MIXER_IN,
    MIXER_OUT,
    RECURRENCE,
    delta_of,
)
from distsim.specs.tuning import BLOCK_INDEXER, EXPERT_LATENT, NGRAMS, STREAMS, Tuning

Matrix = tuple[str, set[str], Number]
"""Label of one product within its row, the names it goes by, and its output width."""

_SINGLE = {
    "attention.query": {"q"}, "attention.query_down": {"q", "q_a_proj"}, "attention.query_up": {"q", "q_b_proj"},
    "attention.key": {"k", "v", "kv_proj"},
    "attention.kv_down": {"k", "v", "kv_a_proj_with_mqa"}, "attention.kv_up": {"k", "v", "kv_b_proj"},
    "attention.index.query": {"wq_b"}, "attention.index.key": {"wk"}, "attention.index.weight": {"weights_proj"},
    "attention.index.query_key": {BLOCK_INDEXER}, "attention.gate_projection": {"g_proj"},
    "cross.query": {"q"}, "cross.projection": {"o"}, "mlp.shared.gate": {"shared_expert_gate"},
    "mlp.latent_in": {EXPERT_LATENT[0]}, "mlp.latent_out": {EXPERT_LATENT[1]},
    "head.transform": {"transform"}, "head": {"head"}, "ngrams.key": {NGRAMS[0]}, "ngrams.value": {NGRAMS[1]},
    **{f"{where}.{row}": {name} for where in ("attention", "mlp", "head")
       for row, name in zip(("stream_down", "stream_up", "stream_weights"), STREAMS, strict=True)},
}  # fmt: skip
MLPS = ("mlp.up", "mlp.down", "mlp.shared.up", "mlp.shared.down")
_ONE_WORD = ("lfm2", "lfm2_moe")
"""Families whose attention calls its projection out as their mixers call theirs."""
ROW_PARALLEL = ("attention.projection", "cross.projection", "mlp.down", "mlp.shared.down", "delta.project_out",
                "mamba.project_out", "convolution.project_out", "lightning.project_out",
                "recurrence.project_out", EXPERTS[1])  # fmt: skip
"""Products whose input, not whose output, tensor-parallel ranks share out."""
_MIXERS: Mapping[str, Callable[[Model], tuple[str, ...]]] = {
    "delta.project_in": lambda model: delta_of(model).inputs,
    "delta.project_scalars": lambda model: delta_of(model).scalars,
    "delta.decays": lambda model: ("f_proj",),
    "delta.decays_down": lambda model: ("f_a_proj",),
    "delta.decays_up": lambda model: ("f_b_proj",),
    "delta.gate_down": lambda model: ("g_a_proj",),
    "delta.gate_up": lambda model: ("g_b_proj",),
    "delta.project_out": lambda model: (delta_of(model).output,),
    "mamba.project_in": lambda model: MAMBA_1[:1],
    "mamba.project_state": lambda model: MAMBA_1[1:2],
    "mamba.project_step": lambda model: MAMBA_1[2:3],
    "mamba.project_out": lambda model: MAMBA_1[3:],
    "convolution.project_in": lambda model: CONVOLUTION[:1],
    "convolution.project_out": lambda model: CONVOLUTION[1:],
    "recurrence.project_gate": lambda model: RECURRENCE[:1],
    "recurrence.project_in": lambda model: RECURRENCE[1:2],
    "recurrence.project_out": lambda model: RECURRENCE[2:],
    "lightning.project_in": lambda model: LIGHTNING[:1],
    "lightning.project_gate": lambda model: LIGHTNING[1:2],
    "lightning.project_out": lambda model: LIGHTNING[2:],
}
"""By row: the names of the modules it stands for, in the order in which their outputs lie."""


def matrices_of(ctx: Context, tuning: Tuning, operation: Operation) -> list[Matrix]:
    """The separate products of a row that can have an adapter."""
    if operation.kind != "matmul" or is_folded(tuning, operation):
        return []
    if operation.name in EXPERTS or (operation.name in MLPS and tuning.experts.others):
        return _of_mlp(ctx, operation)
    outer = operation.shape[1]
    if operation.name in _SINGLE:
        return [("", _SINGLE[operation.name], outer)]
    if operation.name in _MIXERS:
        return _of_mixer(ctx, operation, _MIXERS[operation.name](ctx.model))
    if operation.name == ROUTER:
        return [("", {"router"}, outer)] if ctx.model.family in LINEAR_ROUTERS else []
    if operation.name == "attention.projection":
        return [("", {"o", MIXER_OUT} if ctx.model.family in _ONE_WORD else {"o"}, outer)]
    if operation.name == QKV:
        if ctx.kernels.qkv_matrices == 1 and not tuning.splits_fused:
            return [("", {"q", "k", "v"}, outer)]
        made, kv = ctx.model.key_value_projections(ctx.layer), heads_per_rank(ctx)[1]
        rest: list[Matrix] = [("_k", {"k"}, kv * ctx.model.head_dim), ("_v", {"v"}, kv * ctx.model.value_width)][:made]
        return [("_q", {"q"}, outer - sum(width for _, _, width in rest)), *rest]
    if operation.name == CROSS_KV:
        return [("_k", {"k"}, outer / 2), ("_v", {"v"}, outer / 2)]
    return []


def is_folded(tuning: Tuning, operation: Operation) -> bool:
    """Whether a row's adapter is added to its weights before they are used, instead of running beside its product."""
    experts = tuning.experts
    if operation.name == ROUTER:
        return experts.router
    named = {"down"} if operation.name.endswith("down") else {"gate", "up"}
    return experts.how == "tensors" and operation.name in EXPERTS and bool(named & experts.targets)


def _of_mlp(ctx: Context, operation: Operation) -> list[Matrix]:
    """Gate and up, apart or as one, or down."""
    outer = operation.shape[1]
    if operation.name.endswith("down"):
        return [("", {"down"}, outer)]
    if ctx.model.gated and not ctx.kernels.gate_up_fused:
        return [("_gate", {"gate"}, outer / 2), ("_up", {"up"}, outer / 2)]
    return [("", {"gate", "up"} if ctx.model.gated else {"up"}, outer)]


def _of_mixer(ctx: Context, operation: Operation, names: tuple[str, ...]) -> list[Matrix]:
    """The modules of a mixer's projection; where a framework makes them one, it goes by any of their names."""
    weight = operation.parameters[0]
    count = int(weight.copies)
    if count == len(names) > 1:
        widths = weight.parts or (operation.shape[1] / count,) * count
        return [(f"_{name}", {name}, width) for name, width in zip(names, widths, strict=True)]
    common = MIXER_OUT if operation.name in ROW_PARALLEL else MIXER_IN
    return [("", {*names, common} if ctx.kernels.qkv_matrices == 1 else set(names), operation.shape[1])]
