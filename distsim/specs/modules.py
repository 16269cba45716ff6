"""Modules of Megatron's layers by name: what selective recomputation computes again, and whose saved tensors leave the
GPU (NVIDIA/Megatron-LM core/transformer/transformer_config.py: recompute_modules, offload_modules)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from distsim.specs.flags import flag

if TYPE_CHECKING:
    from distsim.specs.model import Model

RECOMPUTABLE = ("core_attn", "moe_act", "layernorm", "mla_up_proj", "mlp", "moe", "shared_experts")
"""What ``--recompute-modules`` takes."""
CHEAP = ("moe_act", "layernorm", "mla_up_proj")
"""Of these what takes little time and keeps much memory beside experts and latent attention."""
OFFLOADABLE = ("attn_norm", "qkv_linear", "core_attn", "attn_proj", "mlp_norm", "expert_fc1", "moe_act")
"""What ``--offload-modules`` takes (core/pipeline_parallel/fine_grained_activation_offload.py)."""
STAYING_LAYERS = 1
"""Layers whose tensors stay: the last one's of each module, which backward reads first (the same file)."""
OF_EXPERTS = ("expert_fc1", "moe_act")
"""Of these what runs outside of CUDA graphs of modules."""
CHOICES = {"recompute_modules": RECOMPUTABLE, "offload_modules": OFFLOADABLE}
IMPLIED = {"recompute_modules": ("recompute", "selective"), "offload_modules": ("offload", "activations"),
           "remat_policy": ("recompute", "selective")}  # fmt: skip
"""Options that a list of modules or a policy needs, and the value that it implies."""

EXPERTS, LATENT, SHARED, DENSE = "experts", "latent attention", "shared experts", "dense layers"
MLP = ("mlp.up", "mlp.activation", "mlp.down")
SHARED_MLP = ("mlp.shared.up", "mlp.shared.activation", "mlp.shared.down", "mlp.shared.gate")
WHOLE_EXPERTS = ("mlp.router", "mlp.latent_in", "mlp.latent_norm", "mlp.dispatch", "mlp.experts.up",
                 "mlp.experts.activation", "mlp.experts.down", "mlp.experts.output_norm", "mlp.combine",
                 "mlp.latent_out", *SHARED_MLP)  # fmt: skip
OWN_MODULES = {
    "moe_act": (EXPERTS, ("mlp.experts.activation",)),
    "mla_up_proj": (LATENT, ("attention.query_up", "attention.kv_up")),
    "mlp": (DENSE, MLP),
    "moe": (EXPERTS, WHOLE_EXPERTS),
    "shared_experts": (SHARED, SHARED_MLP),
}
"""Parts that only layers with such a thing have, as names of operations (core/transformer/moe/experts.py and
moe_layer.py, core/transformer/multi_latent_attention.py): ``mlp`` of models with experts is that of their layers
without."""
NORM_BEFORE_MLP, NORM_BEFORE_LATENT = "mlp.norm", "attention.norm"
"""The norms that ``layernorm`` computes again: those that are modules of their own, as before experts and latent
attention. Elsewhere Transformer Engine's products have them (core/transformer/transformer_layer.py,
recompute_input_layernorm and recompute_pre_mlp_layernorm; core/models/gpt/gpt_layer_specs.py)."""


class Recomputed(NamedTuple):
    """Kernels that a list of modules means, and what of it the model does not have."""

    kernels: Mapping[str, Any]
    without: tuple[str, ...]


def parts_of(model: Model) -> frozenset[str]:
    """What a model has of the things that modules are named for."""
    experts = model.experts
    found = {EXPERTS: experts is not None, LATENT: model.latent_attention is not None,
             SHARED: experts is not None and experts.shared > 0,
             DENSE: experts is not None and bool(experts.dense_layers)}  # fmt: skip
    return frozenset(name for name, has in found.items() if has)


def recomputed(modules: Collection[str], has: Collection[str], kinds: Iterable[str] = ()) -> Recomputed:
    """What selective recomputation of modules changes, of a model that ``has`` experts, latent attention, dense layers
    beside experts or shared experts; ``kinds`` are further kinds of operations (``activation``, ``norm``)."""
    classes = [*kinds]
    if "core_attn" in modules:
        classes.append("core_attention")
    norms = [*((NORM_BEFORE_MLP,) if EXPERTS in has else ()), *((NORM_BEFORE_LATENT,) if LATENT in has else ())]
    if "layernorm" in modules or (norms and "norm" in classes):
        classes = [one for one in classes if one != "norm"] + norms
    without = ["layernorm"] if "layernorm" in modules and not norms else []
    for one, (where, names) in OWN_MODULES.items():
        if one not in modules:
            continue
        if where in has:
            classes += names
        elif one == "mlp" and EXPERTS not in has:
            classes += (NORM_BEFORE_MLP, *MLP)  # the first product's module has the norm
        else:
            without.append(one)
    named = tuple(dict.fromkeys(classes))
    return Recomputed({"selective": named, "kept": None} if named else {}, tuple(without))


def offloaded(modules: Collection[str], has: Collection[str]) -> Recomputed:
    """What offloading only of these modules' saved tensors changes. Norms are modules of their own before experts and
    before latent attention; elsewhere the product that follows has them (``qkv_linear`` of plain attention)."""
    lacking = {*(() if EXPERTS in has else (*OF_EXPERTS, "mlp_norm")), *(() if LATENT in has else ("attn_norm",))}
    named = tuple(one for one in modules if one not in lacking)
    without = tuple(one for one in modules if one in lacking)
    return Recomputed({"offloads": "modules", "offload_modules": named, "offload_stash": STAYING_LAYERS}, without)


def modules_named(name: str, text: str) -> str:
    """A list of modules in the canonical order, of what Megatron writes (``[moe_act layernorm]``) or with commas."""
    choices = CHOICES[name]
    words = [word.strip("\"'") for word in text.lower().replace("-", "_").strip("[]").replace(",", " ").split()]
    if unknown := [word for word in words if word not in choices] or (() if words else [text]):
        from distsim.other_choices import choice_meant

        near = choice_meant(unknown[0], choices)
        raise ValueError(f"{unknown[0]!r} is not a module; {near or 'choices: ' + ', '.join(choices)}")
    return ",".join(word for word in choices if word in words)


def implied(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options with what their modules and policies imply: selective recomputation, activations that are offloaded."""
    found = dict(options)
    for name, (needed, value) in IMPLIED.items():
        if not found.get(name):
            continue
        stated = found.get(needed)
        words = [str(one) for one in stated] if isinstance(stated, (list, tuple)) else str(stated or value).split(",")
        if words != [value] and (needed == "recompute" or "none" in words):
            mend = f"leave {flag(needed)} out, or use {flag(needed)} {value}"
            raise ValueError(f"{name} has no effect with {flag(needed)} {stated}; {mend}")
        found[needed] = ",".join(words if value in words else (*words, value))
    return found
