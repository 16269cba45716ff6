"""How many sequences one optimizer step of a plan takes: as stated, or growing with the cluster."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from distsim.arrays import log2
from distsim.errors import DistsimError
from distsim.specs.limits import LARGEST_BATCH
from distsim.units import count, least_to_most

USUAL_STEP_TOKENS = 4_000_000
"""Tokens per optimizer step of a cluster that they keep busy: Llama 2 (arXiv:2307.09288), section 2.2."""
TOKENS_PER_ACCELERATOR = 2048
"""Below this many tokens of a step on each accelerator, more of them hardly help: Llama 2 on 2,000 GPUs has so many
(arXiv:2307.09288, section 2.2), Llama 3 on 16,384 half of it (arXiv:2407.21783, table 4)."""
ROUNDED = 2**0.5 * (1 + 1e-9)
"""By how much rounding to a power of two times an odd factor exceeds what was wanted, at most."""
ADAPTED_SEQUENCES = 64
"""Sequences per optimizer step with which adapters are tuned: 16 for 7B and 13B and 64 for 33B and 65B (QLoRA,
arXiv:2305.14314, table 9), 128 (tloen/alpaca-lora README)."""
ADAPTED = (
    f"{ADAPTED_SEQUENCES} sequences, as adapters are tuned with, about {count(USUAL_STEP_TOKENS)} tokens where these "
    "are fewer, or one sequence per accelerator where that is more"
)


def adapted_batch(seq: int, gpus: int, divided_by: int) -> int:
    """Sequences of ``seq`` tokens per step that tunes adapters on up to so many accelerators; ranks of ``divided_by``
    divide them."""
    return divided_batch(max(min(ADAPTED_SEQUENCES, USUAL_STEP_TOKENS / seq), gpus), divided_by)


def divided_batch(wanted: float, gpus: int) -> int:
    """About so many sequences: the accelerators' odd factor times a power of two, so that ranks divide them."""
    odd = gpus // (gpus & -gpus)
    return int(odd * 2 ** max(round(float(log2(max(wanted / odd, 1)))), 0))


@dataclass(frozen=True)
class StepBatch:
    """Sequences per optimizer step. ``most_tokens`` is where larger batches stop helping the model."""

    seq: int
    stated: int | None = None
    most_tokens: float = float("inf")
    sparse: bool = False
    """Mixtures of experts take the most that helps at once: each expert sees few of the tokens, and DeepSeek-V2 and V3
    took twice that (arXiv:2405.04434, section 3.1.2; arXiv:2412.19437, section 4.2)."""
    adapted: bool = False
    """Adapters train, in steps of few sequences."""

    def __post_init__(self) -> None:
        """Absurd numbers are named here, where they enter."""
        if self.stated is not None and not 1 <= self.stated <= LARGEST_BATCH:
            raise DistsimError(f"--global-batch {self.stated} is out of range", f"valid: 1 to {LARGEST_BATCH:,}")

    def sequences(self, gpus: int) -> int:
        """Sequences per step on so many accelerators."""
        if self.stated is not None:
            return self.stated
        if self.adapted:
            return adapted_batch(self.seq, gpus, gpus)
        most = max(self.most_tokens, USUAL_STEP_TOKENS)
        wanted = most if self.sparse else min(max(USUAL_STEP_TOKENS, gpus * TOKENS_PER_ACCELERATOR), most)
        return divided_batch(wanted / self.seq, gpus)

    def words(self, taken: Iterable[int]) -> str:
        """The rule, and the sequences per step that options took by it, for notes."""
        sizes = sorted(set(taken))
        tokens = " to ".join(dict.fromkeys(count(size * self.seq) for size in (sizes[0], sizes[-1])))
        return (
            f"--global-batch not given: using {least_to_most(sizes)} sequences ({tokens} tokens) per step: "
            f"{self._rule}, rounded so that ranks divide the batch{self._beyond(sizes)}"
        )

    def _beyond(self, sizes: Iterable[int]) -> str:
        """Which of these sequences per step are more than the rule allows, and why; empty where none are."""
        most = ROUNDED * max(self.most_tokens, USUAL_STEP_TOKENS)
        odd = [size for size in sizes if size * self.seq > most and not self.adapted]
        if not odd:
            return ""
        return (
            f"; {least_to_most(odd)} is more: an odd factor of the accelerators, which tensor parallel ranks and "
            "stages of powers of two leave to data parallelism"
        )

    @property
    def _rule(self) -> str:
        most = count(max(self.most_tokens, USUAL_STEP_TOKENS))
        if self.adapted:
            return ADAPTED
        if self.sparse:
            return f"the {most} tokens up to which larger batches help a mixture of experts"
        return (
            f"about {count(USUAL_STEP_TOKENS)} tokens, or {TOKENS_PER_ACCELERATOR:,} per accelerator where that is "
            f"more, up to about {most}"
        )
