"""What other tools call the choices of an option, and ways to train that none of them is, for whoever types a word of
theirs; other_names.py has options."""

from __future__ import annotations

from collections.abc import Iterable

from distsim.errors import did_you_mean

_CHOICES: dict[str, str] = {
    "flash": "sdpa flash-attn flash-attention flash-attention-2 flash-attention-3 flash2 flash3 fa2 fa3 fused xformers "
    "memory-efficient",
    "eager": "math naive unfused manual",
    "full": "true on yes block uniform",
    "selective": "op sac per-op selective-op core-attn memory-budget",
    "none": "false off no",
    "3": "full-shard hybrid-shard fsdp fsdp2 always true",
    "2": "shard-grad-op hybrid-shard-zero2 never",
    "0": "no-shard ddp false off no",
    "optimizer": "cpu nvme",
    "parameters": "params param weights",
    "activations": "activation acts",
    "ring": "p2p zigzag striped ring-attention",
    "all_to_all": "a2a ulysses alltoall",
    "all_gather": "allgather ag",
    "fp16": "fp16-compress fp16-compress-hook fp16-compress-wrapper half",
    "bf16": "bf16-compress bf16-compress-hook bf16-compress-wrapper bfloat16",
    "powersgd-r4": "powersgd power-sgd powersgd-hook batched-powersgd-hook batched-powersgd",
    "1bit": "onebit 1-bit onebitadam onebitlamb",
}
"""Choice here -> the others' words for it."""
_UNDESCRIBED: dict[str, str] = {
    "answers are sequences (a pair is two of --micro-batch); a frozen reference: --reference copy, or base": "dpo "
    "kto orpo simpo cpo ipo pref-loss pref-beta precompute-ref-log-probs",
    "reinforcement learning is not described: its answers are generated between steps": "grpo ppo rloo num-generations "
    "reward-model",
    "single frozen layers are not described; a vision tower: --vision frozen; adapters: --lora-rank 16": "freeze-layers"
    " freeze freeze-trainable-layers freeze-trainable-modules freeze-parameters freeze-embeddings unfrozen-parameters",
    "projected gradients are --optimizer galore-adamw or apollo-adamw with --optimizer-rank; they take all products of "
    "the layers": "galore use-galore galore-target use-apollo apollo-target",
    "optimizers of some layers at a time are not described": "use-badam badam",
}
"""Why nothing here stands for it -> the others' options (LLaMA-Factory hparams/finetuning_args.py, TRL, axolotl)."""


def undescribed(name: str) -> str:
    """A hint line for an option of a way to train that is not described; empty for all others."""
    spelt = name.strip("-").lower().replace("_", "-")
    return next((why for why, names in _UNDESCRIBED.items() if spelt in names.split()), "")


def choice_meant(word: str, choices: Iterable[str]) -> str:
    """A hint line for a word that is none of an option's choices: the choice that another tool calls so, else the most
    like; empty where none is."""
    spelt, some = word.lower().replace("_", "-"), list(choices)
    found = next((one for one in some if spelt in _CHOICES.get(one, "").split()), "")
    return f"did you mean {found}?" if found else did_you_mean(word, some)
