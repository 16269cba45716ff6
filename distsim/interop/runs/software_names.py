"""Names that measured runs give to their software, beside those of presets, and whose profile stands for them."""

from __future__ import annotations

import re

from distsim import catalog
from distsim.preset_files import plain

_XLA, _MEGATRON, _TORCH = "maxtext", "megatron-core", "fsdp"
NEAREST: tuple[tuple[re.Pattern[str], str, str], ...] = tuple(
    (re.compile(rf"(?<![a-z])(?:{words})", re.IGNORECASE), profile, split) for words, profile, split in (
        (r"gpt-?neox|megatron-?(?:deepspeed|ds)|deepspeed.?megatron", "megatron-deepspeed", ""),
        (r"fms|foundation.?model.?stack", "fms-fsdp", ""),
        (r"megatron.?bridge", "megatron-bridge", ""),
        (r"megatron.?(?:lm|llama)|pai.?megatron|vocabulary.?parallel|zero.?bubble", "megatron-lm", ""),
        (r"neuron\w*.?nemo", "neuronx-nemo", ""),
        (r"(?:nemo.?)?automodel", "nemo-automodel", ""),
        (r"torchtitan", "torchtitan", ""),
        (r"(?:bio)?nemo(?!tron)", "nemo", ""),
        (r"megatron|mcore|simumax|primus|fast-?llm", _MEGATRON, ""),  # fused kernels, gradients in buffers
        (r"paddle\W?(?:nlp|formers)|(?:paddle)?fleet.?x", "paddlenlp", ""),  # Paddle's static graphs are fused, below
        (r"intern.?(?:evo|lm)", "internevo", ""),
        (r"paddle|oneflow", "megatron-lm", ""),  # fused norms and rotation, layers split as there
        (r"mesh.?tensorflow|mesh.?tf|gshard|lingvo|praxis|saxml", "paxml", ""),
        (r"tensorflow", "tensorflow", ""),
        (r"axlearn", "axlearn", ""),
        (r"levanter|haliax", "levanter", ""),
        (r"t5-?x", "t5x", ""),
        (r"maxtext|easylm|jax|flax|haiku|xla|torch.?xla|torchprime|scalax|kauldron|gemma-?jax", _XLA, ""),
        (r"deepspeed", "deepspeed", ""),
        (r"neuron|nxd", "neuronx", ""),
        (r"habana|gaudi|synapse", "habana", ""),
        (r"torchtune", "torchtune", ""),
        (r"prime.?rl", "prime-rl", ""),
        (r"kempner.?forge", "kempnerforge", ""),
        (r"olmo.?core", "olmo-core", ""),
        (r"nanotron|picotron", "nanotron", ""),
        (r"unsloth", "unsloth", ""),
        (r"flash.?att(?:entio)?n", "flash-attn", ""),
        (r"hugging.?face|hf(?![a-z])|transformers|trainer|accelerate|peft|trl|swift|optimum|axolotl|llama.?factory",
         "huggingface", "megatron-lm"),
        (r"fsdp.?2", "torchtitan", ""),
        (r"ddp|distributed.?data.?parallel|horovod|apex|deep.?learning.?examples", "torch-ddp", "megatron-lm"),
        (r"transformer.?engine", _MEGATRON, ""),
        (r"fsdp|torch|lightning|fabric|olmo|fairscale|fairseq|metaseq|colossal|vescale|veomni|open.?(?:instruct|lm)",
         _TORCH, "torchtitan"),
        (r"zero", "deepspeed", ""),
    )
)  # fmt: skip
"""Words of a framework's name, the profile that is nearest, and the one where the run splits its model if that one
cannot. What trains comes before what it is built of: NeMo before Megatron, JAX and transformers before Transformer
Engine, which brings fused layers to any of them."""
TOLD_BY_NOTES = ("axolotl", "llama-factory", "ms-swift", "trl")
"""Shipped profiles of trainers around transformers that state their defaults alone. Notes of measured runs tell what
they did (engine/runs/adapters.py), and losses and checkpoints have changed with releases: replays take the profile of
transformers and peft, which was held against such runs."""
WAYS = (_TORCH, "torch-ddp")
"""Profiles whose names are ways to spread a model, which many programs take."""


def nearest_profile(name: str, *, split: bool) -> str | None:
    """The preset that a framework's name is nearest to; None where no word of it is known."""
    found = next((one for one in NEAREST if one[0].search(name)), None)
    if found is None:
        return _named_in(name)
    own = _named_in(name) if found[1] in WAYS else None
    if own and own not in (*WAYS, "deepspeed"):  # litgpt (FSDP): who trains says more than how it is spread
        return own
    return found[2] if split and found[2] else found[1]


def replayed_name(name: str) -> str:
    """The framework of a row as it is replayed: by its own name, but for trainers whose runs notes tell apart."""
    if not catalog.knows("frameworks", name) or catalog.origin("frameworks", name) != "shipped":
        return name
    return "huggingface" if catalog.load("frameworks", name).name in TOLD_BY_NOTES else name


def _named_in(name: str) -> str | None:
    """The preset whose name or alias stands in a longer name (``axolotl 0.6``), the longest first."""
    told = plain(name)
    presets = {**catalog.aliases("frameworks"), **{one: one for one in catalog.names("frameworks")}}
    words = (one for one in presets if re.search(rf"(?<![a-z0-9]){re.escape(one)}(?![a-z0-9])", told))
    longest = max(words, key=len, default=None)
    return presets[longest] if longest else None
