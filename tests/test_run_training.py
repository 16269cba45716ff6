"""What a row says that its run trains for."""

from __future__ import annotations

import pytest

from distsim.engine.evidence import replay
from distsim.engine.runs.setup import setup_of
from distsim.interop.runs import MissingCell, Run
from distsim.interop.runs.training import fine_tunes

ROW = {"id": "a", "model": "llama-2-7b", "gpu": "a100-sxm4-80gb", "n_gpus": "8", "seq_len": "4096", "zero_stage": "3",
       "micro_batch": "1", "global_batch": "8", "framework": "huggingface", "precision": "bf16",
       "step_time_s": "5"}  # fmt: skip


@pytest.mark.parametrize(
    "kind", ["pretrain", "Pre-Training", "none", "no", "N/A", "from scratch", "cpt", "continued pretraining",
             "mid-training", "mlm"],
)  # fmt: skip
def test_a_run_that_does_not_fine_tune_is_as_one_that_does_not_say(kind: str) -> None:
    """Each of them had recomputed all layers and packed samples of 200 tokens."""
    assert not fine_tunes(Run({"finetune_kind": kind}, 2))
    assert vars(setup_of(Run({**ROW, "finetune_kind": kind}, 2))) == vars(setup_of(Run(ROW, 2)))


@pytest.mark.parametrize("kind", ["full", "sft", "lora", "continued pretraining (lora)", "full SFT of pretrained"])
def test_a_run_that_fine_tunes(kind: str) -> None:
    assert fine_tunes(Run({"finetune_kind": kind}, 2))


@pytest.mark.parametrize("kind", ["dpo", "GRPO", "ppo", "RLHF", "kto", "orpo", "reward model", "distillation",
                                  "embedding", "contrastive", "lora dpo", "ia3"])  # fmt: skip
def test_steps_that_do_more_than_train_on_sequences_are_refused(kind: str) -> None:
    with pytest.raises(MissingCell, match="is not modelled; known: full, lora, qlora"):
        setup_of(Run({**ROW, "finetune_kind": kind}, 2))


@pytest.mark.parametrize(
    "cells",
    [{"optimizer": "galore_adamw8bit_per_layer"}, {"optimizer": "Q-GaLore"}, {"optimizer": "apollo_adamw"},
     {"optimizer": "AdaLOMO"}, {"optimizer": "lomo"}, {"optimizer": "BAdam"}, {"finetune_kind": "galore"}],
)  # fmt: skip
def test_optimizers_that_keep_a_part_are_refused(cells: dict[str, str]) -> None:
    """GaLore's 7B on a 4090 had been replayed as 8-bit AdamW of all gradients: 43 GiB where it took 23."""
    with pytest.raises(MissingCell, match="only part of what trains, which is not modelled"):
        setup_of(Run({**ROW, **cells}, 2))


@pytest.mark.parametrize(("kind", "told"), [("foo", True), ("OFT", True), ("full", False), ("lora", False),
                                            ("SFT", False), ("dpo", False), ("", False)])  # fmt: skip
def test_a_way_to_fine_tune_that_nobody_knows_is_told(kind: str, told: bool) -> None:
    cells = {"model": "llama-3-8b", "gpu": "h100-sxm", "n_gpus": "8", "seq_len": "2048", "micro_batch": "1",
             "global_batch": "8", "framework": "huggingface", "zero_stage": "3", "finetune_kind": kind}  # fmt: skip
    words = f"finetune_kind {kind!r} is not understood"
    assert (words in replay(Run(cells, 2)).assumed) is told
