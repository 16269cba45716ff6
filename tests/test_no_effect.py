"""Options of exchanges that a layout does not have: told so where, and only where, no answer depends on them."""

from __future__ import annotations

from typing import Any

import pytest
from shell import piped

import distsim

EXPERTS: dict[str, Any] = {"model": "qwen3-30b-a3b", "gpu": "gb200", "gpus": 4, "tp": 4, "seq": 2048, "global_batch": 8}
DENSE: dict[str, Any] = {"model": "gpt2", "gpu": "h100-sxm", "seq": 1024}


def told(job: dict[str, Any], words: str) -> bool:
    """Whether both traffic and time say so."""
    notes = [distsim.comm(**job).notes, distsim.step(**job).notes]
    found = {any(words in note for note in some) for some in notes}
    assert len(found) == 1
    return found.pop()


@pytest.mark.parametrize(
    ("job", "option", "reason"),
    [
        ({**DENSE, "gpus": 1, "global_batch": 8}, {"no_sync": False}, "without data parallel ranks"),
        ({**DENSE, "gpus": 8, "global_batch": 8}, {"no_sync": False}, "with one micro-batch per step"),
        ({**DENSE, "gpus": 8, "global_batch": 8}, {"loss_parallel": False}, "with tp 1"),
        ({**EXPERTS, "etp": 4}, {"no_sync": False}, "without data parallel ranks"),
    ],
)
def test_what_changes_nothing_is_told_by_traffic_and_step(
    job: dict[str, Any], option: dict[str, Any], reason: str
) -> None:
    assert told({**job, **option}, f"has no effect {reason}")
    assert distsim.step(**job, **option).seconds == distsim.step(**job).seconds
    assert not told(job, "has no effect")


def test_replicas_that_average_after_every_step_are_told() -> None:
    """They are slower than those that reduce gradients, which backward hides."""
    job = {**DENSE, "gpus": 16, "sync": "local-sgd"}
    assert told(job, "--sync-every not given: replicas average parameters after every step")
    assert not told({**job, "sync_every": 1}, "--sync-every not given")
    assert distsim.step(**job).seconds == distsim.step(**job, sync_every=1).seconds
    assert distsim.step(**job, sync_every=500).seconds < distsim.step(**DENSE, gpus=16).seconds


@pytest.mark.parametrize(("group", "told"), [(1, "ZeRO 3 over 1 rank;"), (2, "ZeRO 3 over 2 ranks;")])
def test_groups_of_one_are_one_rank(group: int, told: str) -> None:
    words = ("memory", "gpt2", "--gpu", "h100-sxm", "--gpus", "8", "--zero", "3", "--zero-group", str(group))
    assert told in piped(*words).stdout


def test_a_choice_of_sharded_logits_on_one_rank_is_told_by_memory_too() -> None:
    assert "--no-loss-parallel has no effect with tp 1" in distsim.memory(**DENSE, gpus=8, loss_parallel=False).notes


@pytest.mark.parametrize("option", [{"no_sync": False}, {"dp_comm_overlap": False}])
def test_experts_that_tensor_parallelism_leaves_whole_have_ranks_to_share_them(option: dict[str, Any]) -> None:
    """Four tensor parallel ranks hold all experts each, and reduce their gradients: in each micro-batch, or where
    nothing hides it."""
    job = {**EXPERTS, "etp": 1, "zero": 1}
    if "no_sync" in option:
        rows = [distsim.comm(**job, **more).collectives for more in (option, {})]
        sent, once = (sum(row.wire_bytes_per_rank for row in each if row.purpose == "gradients") for each in rows)
        assert sent > once > 0
    else:
        assert distsim.step(**job, **option).seconds > distsim.step(**job).seconds
    assert not any("without data parallel ranks" in note for note in distsim.step(**job, **option).notes)


def test_zero_shares_states_of_experts_that_tensor_parallelism_leaves_whole() -> None:
    """So that it saves something, without a note that it does not."""
    whole, shared = (distsim.memory(**EXPERTS, etp=1, zero=zero) for zero in (0, 1))
    assert shared.stages[0].categories["optimizer"] < 0.3 * whole.stages[0].categories["optimizer"]
    assert not any("saves nothing" in note for note in shared.notes)
    assert any("saves nothing" in note for note in distsim.memory(**EXPERTS, etp=4, zero=1).notes)
