"""How many sequences one optimizer step of a plan takes: as stated, or growing with the cluster."""

from __future__ import annotations

from dataclasses import dataclass

from distsim.arrays import log2
from distsim.errors import DistsimError
from distsim.units import count

USUAL_STEP_TOKENS = 4_000_000
"""Tokens per optimizer step of a cluster that they keep busy: Llama 2 (arXiv:2307.09288), section 2.2."""
TOKENS_PER_ACCELERATOR = 2048
"""Below this many tokens of a step on each accelerator, more of them hardly help: Llama 2 on 2,000 GPUs has so many
(arXiv:2307.09288, section 2.2), Llama 3 on 16,384 half of it (arXiv:2407.21783, table 4)."""
MOST_SEQUENCES = 1_000_000_000


@dataclass(frozen=True)
class StepBatch:
    """Sequences per optimizer step. ``most_tokens`` is where larger batches stop helping the model."""

    seq: int
    stated: int | None = None
    most_tokens: float = float("inf")

    def __post_init__(self) -> None:
        """Absurd numbers are named here, where they enter."""
        if self.stated is not None and not 1 <= self.stated <= MOST_SEQUENCES:
            raise DistsimError(f"--global-batch {self.stated} is out of range", f"valid: 1 to {MOST_SEQUENCES:,}")

    def sequences(self, gpus: int) -> int:
        """Sequences per step: the accelerators' odd factor times a power of two, so that ranks divide it."""
        if self.stated is not None:
            return self.stated
        wanted = min(max(USUAL_STEP_TOKENS, gpus * TOKENS_PER_ACCELERATOR), max(self.most_tokens, USUAL_STEP_TOKENS))
        odd = gpus // (gpus & -gpus)
        return int(odd * 2 ** max(round(float(log2(max(wanted / self.seq / odd, 1)))), 0))

    @property
    def words(self) -> str:
        """The rule, for notes."""
        if self.stated is not None:
            return f"{self.stated:,} sequences per step, as stated"
        most = (
            "" if self.most_tokens == float("inf") else f", at most {count(max(self.most_tokens, USUAL_STEP_TOKENS))}"
        )
        return (
            f"batch not given: {count(USUAL_STEP_TOKENS)} tokens per step, {TOKENS_PER_ACCELERATOR:,} per accelerator "
            f"where that is more{most}; --global-batch sets it"
        )
