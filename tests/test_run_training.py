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
    [{"optimizer": "Q-GaLore"}, {"optimizer": "galore_adafactor"}, {"optimizer": "BAdam"}, {"finetune_kind": "badam"}],
)
def test_optimizers_that_keep_a_part_are_refused(cells: dict[str, str]) -> None:
    with pytest.raises(MissingCell, match="only part of what trains, which is not modelled"):
        setup_of(Run({**ROW, **cells}, 2))


@pytest.mark.parametrize(
    ("cells", "name", "rank"),
    [
        ({"optimizer": "galore_adamw8bit_per_layer"}, "galore-adamw-8bit-layerwise", 128),
        ({"optimizer": "GaLore", "notes": "GaLore of rank 1024 on all layers"}, "galore-adamw", 1024),
        ({"finetune_kind": "galore", "optimizer": "adamw_8bit", "lora_rank": "16"}, "galore-adamw-8bit", 16),
        ({"optimizer": "apollo_adamw"}, "apollo-adamw", 128), ({"optimizer": "APOLLO-Mini"}, "apollo-mini", 1),
        ({"optimizer": "AdaLOMO"}, "adalomo", 0), ({"optimizer": "lomo"}, "lomo", 0),
    ],
)  # fmt: skip
def test_optimizers_that_project_are_read(cells: dict[str, str], name: str, rank: int) -> None:
    setup = setup_of(Run({**ROW, "framework": "huggingface", "zero_stage": "0", **cells}, 2))
    assert (setup.optimizer.name, setup.optimizer.rank) == (name, rank)
    assert setup.tuning is None


def test_galores_7b_fits_a_4090() -> None:
    """It took 22.0 GB (Zhao et al. 2024, figure 1: rank 1024, batches of 256 tokens); it had been replayed as 8-bit
    AdamW of all gradients, 43 GiB."""
    cells = {"model": "llama-7b", "gpu": "rtx-4090", "n_gpus": "1", "seq_len": "256", "micro_batch": "1",
             "global_batch": "1", "framework": "huggingface", "precision": "pure-bf16", "zero_stage": "0",
             "optimizer": "galore_adamw8bit_per_layer", "notes": "GaLore rank 1024"}  # fmt: skip
    peak = replay(Run(cells, 2)).predicted_peak
    assert peak is not None
    assert peak / 22.0e9 == pytest.approx(1, abs=0.06)


@pytest.mark.parametrize(("kind", "told"), [("foo", True), ("OFT", True), ("full", False), ("lora", False),
                                            ("SFT", False), ("dpo", False), ("", False)])  # fmt: skip
def test_a_way_to_fine_tune_that_nobody_knows_is_told(kind: str, told: bool) -> None:
    cells = {"model": "llama-3-8b", "gpu": "h100-sxm", "n_gpus": "8", "seq_len": "2048", "micro_batch": "1",
             "global_batch": "8", "framework": "huggingface", "zero_stage": "3", "finetune_kind": kind}  # fmt: skip
    words = f"finetune_kind {kind!r} is not understood"
    assert (words in replay(Run(cells, 2)).assumed) is told
