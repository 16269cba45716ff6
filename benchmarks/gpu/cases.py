"""The training steps that are measured: models, lengths, precisions, optimizers and ways of running them.

Run by ``python benchmarks/gpu/steps.py FOLDER``, which takes those with the words of ``--only``; needs nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

WARM_STEPS, TIMED_STEPS = 4, 10
"""Steps before the clock starts, and those that it times."""


@dataclass(frozen=True)
class Case:
    """One job: what distsim is told of it, and how it is run."""

    model: str
    seq: int
    micro_batch: int
    precision: str = "amp-bf16"
    loop: str = "own"
    """``own``: a plain loop around the model; ``trainer``: transformers' Trainer; ``adapters``: peft's LoRA in a loop;
    ``hand``: a plain loop around a network written by hand."""
    attention: str = "sdpa"
    recompute: str = "none"
    optimizer: str = "adamw"
    compiled: bool = False
    accumulate: int = 1
    changes: dict[str, Any] = field(default_factory=dict)
    """Arguments of the model's configuration that differ from the published ones."""

    @property
    def name(self) -> str:
        """Words that ``--only`` looks for."""
        told = [self.model, f"s{self.seq}", f"b{self.micro_batch}", self.precision, self.loop, self.attention]
        told += [self.optimizer] + ["compiled"] * self.compiled + ["checkpoint"] * (self.recompute != "none")
        told += [f"x{self.accumulate}"] * (self.accumulate > 1)
        return " ".join(told + [f"{key}={value}" for key, value in self.changes.items()])


LLAMA_8B_CUT = {"num_hidden_layers": 8}
CASES = [
    # Precisions of the same job.
    Case("llama-3.2-1b", 2048, 4, "pure-bf16"),
    Case("llama-3.2-1b", 2048, 4, "amp-bf16"),
    Case("llama-3.2-1b", 2048, 4, "amp-fp16"),
    Case("llama-3.2-1b", 2048, 2, "tf32"),
    Case("llama-3.2-1b", 2048, 2, "fp32"),
    # Hosts and lengths.
    Case("llama-3.2-1b", 512, 1, "pure-bf16"),
    Case("llama-3.2-1b", 2048, 1, "pure-bf16"),
    Case("llama-3.2-1b", 8192, 1, "pure-bf16"),
    Case("llama-3.2-1b", 16384, 1, "pure-bf16"),
    Case("llama-3.2-1b", 2048, 2, "pure-bf16", attention="eager"),
    Case("llama-3.2-1b", 2048, 4, "pure-bf16", recompute="full"),
    Case("llama-3.2-1b", 2048, 4, "pure-bf16", optimizer="adamw-fused"),
    Case("llama-3.2-1b", 2048, 4, "pure-bf16", optimizer="sgd"),
    Case("llama-3.2-1b", 2048, 4, "pure-bf16", accumulate=4),
    Case("llama-3.2-1b", 2048, 4, "pure-bf16", compiled=True),
    Case("llama-3.2-1b", 2048, 4, "amp-bf16", compiled=True),
    # transformers' Trainer.
    Case("llama-3.2-1b", 2048, 4, "amp-bf16", loop="trainer", optimizer="adamw-fused"),
    Case("llama-3.2-1b", 2048, 4, "pure-bf16", loop="trainer", optimizer="adamw-fused"),
    Case("llama-3.2-1b", 512, 1, "pure-bf16", loop="trainer", optimizer="adamw-fused"),
    Case("llama-3.2-1b", 2048, 4, "pure-bf16", loop="trainer", recompute="full", optimizer="adamw-fused"),
    Case("llama-3.2-1b", 2048, 4, "pure-bf16", loop="trainer", compiled=True, optimizer="adamw-fused"),
    Case("llama-3.2-1b", 2048, 4, "amp-bf16", loop="trainer", compiled=True, optimizer="adamw-fused"),
    Case("llama-3.2-1b", 2048, 4, "pure-bf16", loop="adapters"),
    # Wide layers, few of them.
    Case("llama-3-8b", 4096, 2, "pure-bf16", changes=LLAMA_8B_CUT),
    Case("llama-3-8b", 4096, 2, "pure-bf16", changes=LLAMA_8B_CUT, compiled=True),
    Case("llama-3-8b", 4096, 2, "pure-bf16", changes=LLAMA_8B_CUT, recompute="full"),
    Case("llama-3-8b", 4096, 1, "tf32", changes={"num_hidden_layers": 4}),
    Case("llama-2-7b", 4096, 2, "pure-bf16", changes={"num_hidden_layers": 8}),
    Case("llama-2-7b", 4096, 2, "amp-bf16", changes={"num_hidden_layers": 8}),
    Case("qwen2.5-0.5b", 2048, 4, "pure-bf16"),
    Case("qwen2.5-1.5b", 2048, 4, "pure-bf16"),
    Case("qwen2.5-1.5b", 2048, 4, "amp-bf16", recompute="full"),
    Case("tinyllama-1.1b", 2048, 4, "pure-bf16"),
    Case("gemma-2-2b", 2048, 2, "pure-bf16", attention="eager"),
    # Mixtures.
    Case("olmoe-1b-7b", 2048, 4, "pure-bf16"),
    Case("olmoe-1b-7b", 2048, 1, "pure-bf16"),
    Case("mixtral-8x7b", 2048, 4, "pure-bf16", changes={"num_hidden_layers": 3}),
    # GPT-2, encoders, images.
    Case("gpt2", 1024, 16, "amp-bf16"),
    Case("gpt2", 1024, 16, "amp-bf16", attention="eager"),
    Case("gpt2", 1024, 16, "amp-bf16", compiled=True),
    Case("gpt2", 1024, 16, "fp32", attention="eager"),
    Case("gpt2", 1024, 16, "tf32", attention="eager"),
    Case("gpt2-xl", 1024, 4, "amp-bf16"),
    Case("gpt2-xl", 1024, 4, "amp-bf16", recompute="full"),
    Case("bert-large-uncased", 512, 16, "amp-bf16"),
    Case("bert-large-uncased", 128, 64, "amp-bf16"),
    Case("bert-large-uncased", 512, 16, "amp-fp16", attention="eager"),
    Case("bert-large-uncased", 512, 16, "fp32", attention="eager"),
    Case("bert-large-uncased", 128, 64, "tf32", attention="eager"),
    Case("vit-large-patch16-224", 197, 64, "amp-bf16"),
    Case("vit-large-patch16-224", 197, 64, "tf32", attention="eager"),
    Case("vit-large-patch16-224", 197, 64, "amp-bf16", compiled=True),
    Case("t5-base", 512, 32, "tf32", attention="eager"),
    Case("t5-base", 512, 32, "amp-bf16", attention="eager"),
    # Networks written by hand.
    Case("gpt2 by hand", 1024, 16, loop="hand"),
    Case("gpt2 by hand", 1024, 16, loop="hand", attention="eager"),
    Case("gpt2 by hand", 1024, 16, "tf32", loop="hand", attention="eager"),
    Case("gpt2 by hand", 1024, 32, loop="hand", compiled=True, optimizer="adamw-fused"),
    Case("gpt2 by hand, odd vocabulary", 1024, 16, loop="hand", compiled=True, optimizer="adamw-fused"),
    Case("gpt2 by hand, odd vocabulary", 1024, 16, loop="hand"),
    Case("gpt2-medium by hand", 1024, 16, loop="hand", compiled=True, optimizer="adamw-fused"),
    Case("gpt2-medium by hand", 1024, 8, loop="hand"),
    Case("llama-3.2-1b by hand", 2048, 4, loop="hand", compiled=True, optimizer="adamw-fused"),
    Case("llama-3.2-1b by hand", 2048, 4, "pure-bf16", loop="hand", optimizer="adamw-fused"),
    Case("llama-3-8b by hand, 6 layers", 8192, 1, "pure-bf16", loop="hand", compiled=True, optimizer="adamw-fused"),
    Case("llama-3-8b by hand, 6 layers", 8192, 1, "pure-bf16", loop="hand", optimizer="adamw-fused"),
    Case("llama-2-7b by hand, 8 layers", 4096, 2, loop="hand", compiled=True, optimizer="adamw-fused"),
    Case("llama-2-7b by hand, 8 layers", 4096, 2, loop="hand", optimizer="adamw-fused"),
]
