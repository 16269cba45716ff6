"""``--tp-comm-overlap``: tensor parallel exchanges beside products, as a job or its framework has it."""

from __future__ import annotations

import json
from typing import Any

import pytest

import distsim
from distsim.cli.app import run
from distsim.engine.jobs.resolve import resolve
from distsim.engine.jobs.tp_overlap import overlap_words, overlapped
from distsim.engine.memory import memory_of
from distsim.engine.step import step_of
from distsim.engine.steps.work import TILED_SHARE, work_of
from distsim.errors import DistsimError
from distsim.specs.job import Job

SHAPE = {"model": "llama-2-70b", "gpu": "h100-sxm", "gpus": 64, "tp": 8, "pp": 2, "global_batch": 64}


def setup_of(**more: Any) -> Any:
    return resolve(Job.read({**SHAPE, **more}))


def exchanged(setup: Any) -> float:
    """Seconds per step of tensor parallel exchanges, before overlap."""
    traffic = work_of(setup).stages[0].traffic
    return float(sum(traffic[name] for name in ("tp_forward", "tp_backward", "tp_beside")))


def test_tiles_can_be_turned_off_and_are_on_where_the_framework_was_fitted_with_them() -> None:
    usual, on, off = (setup_of(**more) for more in ({}, {"tp_comm_overlap": True}, {"tp_comm_overlap": False}))
    assert exchanged(on) == exchanged(usual)
    assert exchanged(off) == pytest.approx(exchanged(usual) / TILED_SHARE)
    assert [one.to_dict()["tp_comm_overlap"] for one in (usual, on, off)] == [True, True, False]
    assert step_of(off).seconds > step_of(usual).seconds
    assert memory_of(off).peak == memory_of(usual).peak


@pytest.mark.parametrize(("precision", "gathered"), [("bf16", 2), ("fp8", 1), ("nvfp4", 2)])
def test_buffers_of_tiles_count_where_they_are_asked_for(precision: str, gathered: int) -> None:
    """Eight of what is gathered, in 8 bits for products in 8 bits, and four of what is scattered, each of a
    micro-batch's hidden state."""
    usual, asked = (
        memory_of(setup_of(precision=precision, seq=4096, **more)) for more in ({}, {"tp_comm_overlap": True})
    )
    held = 4096 * 8192 * (8 * gathered + 4 * 2)
    assert asked.peak - usual.peak == held
    apart = {"precision": precision, "seq": 4096, "tp": 16}  # over two NVLink domains
    assert memory_of(setup_of(**apart, tp_comm_overlap=True)).peak == memory_of(setup_of(**apart)).peak


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"tp": 16}, "tp 16 spans 2 NVLink domains"),
        ({"gpu": "l40s"}, "l40s has no direct links between accelerators"),
    ],
)
def test_where_tiles_cannot_be_a_note_says_why(more: dict[str, Any], why: str) -> None:
    asked = step_of(setup_of(**more, tp_comm_overlap=True))
    assert f"--tp-comm-overlap has no effect: {why}" in asked.notes
    assert not overlapped(asked.setup) and why in overlap_words(asked.setup)
    assert exchanged(asked.setup) == exchanged(setup_of(**more, tp_comm_overlap=False))


def test_one_rank_has_nothing_to_exchange() -> None:
    alone = step_of(setup_of(tp=1, tp_comm_overlap=True))
    assert "--tp-comm-overlap has no effect with tp 1" in alone.notes
    assert not overlapped(alone.setup) and overlap_words(alone.setup) == ""


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (
            {"framework": "deepspeed"},
            "the profile deepspeed does not overlap tensor parallel communication with matrix products",
        ),
        ({"framework": "torchtitan"}, "with matrix products only if compiled"),
        ({"sequence_parallel": False}, "needs sequence parallelism over tp 8"),
    ],
)
def test_what_cannot_be_is_refused(more: dict[str, Any], words: str) -> None:
    with pytest.raises(DistsimError, match=words):
        setup_of(**more, tp_comm_overlap=True)
    setup_of(**more, tp_comm_overlap=False)  # which is what they do


def test_torchtitan_cuts_exchanges_into_pieces_when_asked_to() -> None:
    shape = {"framework": "torchtitan", "compile": True, "pp": 1}
    apart, pieces = setup_of(**shape), setup_of(**shape, tp_comm_overlap=True)
    assert exchanged(pieces) < exchanged(apart)
    assert (overlapped(apart), overlapped(pieces)) == (False, True)
    assert "async tensor parallelism" in overlap_words(pieces)
    fits = {**shape, "zero": 3, "global_batch": 16, "micro_batch": 2, "recompute": "full"}
    offered = {one.words: one.options for one in distsim.advise(step_of(setup_of(**fits)))}
    assert offered["asynchronous tensor parallelism"] == {"tp_comm_overlap": True}


def test_the_command_line_says_what_is_assumed(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["llama-2-70b", "--gpu", "h100-sxm", "--gpus", "64", "--tp", "8", "--pp", "2", "--global-batch", "64"]
    told = {
        (): "overlaps with matrix products in tiles (userbuffers), as in the runs that megatron-core was fitted to",
        ("--no-tp-comm-overlap",): "does not overlap with matrix products: as asked for",
        ("--framework", "megatron-lm"): "does not overlap with matrix products: megatron-lm runs it so",
    }
    for more, text in told.items():
        assert run(["step", *words, *more, "--explain"]) in (0, 1)
        assert text in " ".join(capsys.readouterr().out.split())
    assert run(["memory", *words, "--no-tp-comm-overlap"]) in (0, 1)
    assert "--no-tp-comm-overlap affects time, not memory" in capsys.readouterr().err


def test_a_search_and_a_file_can_say_it(tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["llama-2-13b", "--gpu", "h100-sxm", "--gpus", "16", "--tp", "8", "--global-batch", "64", "--json",
             "--pp", "1", "--recompute", "none"]  # fmt: skip
    file = tmp_path / "job.toml"
    file.write_text("tp_comm_overlap = false\n", encoding="utf-8")
    seconds = []
    for more in ([], ["--no-tp-comm-overlap"], ["--job", str(file)]):
        assert run(["search", *words, *more]) == 0
        seconds.append(json.loads(capsys.readouterr().out)["layouts"][0]["seconds"])
    assert seconds[0] < seconds[1] == seconds[2]
