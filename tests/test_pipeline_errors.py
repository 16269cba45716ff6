"""Wrong input is told once, with its numbers, and never with a traceback."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import distsim
from distsim.cli.app import run
from distsim.errors import DistsimError

BAD: list[tuple[str, dict[str, Any]]] = [
    ("number of stages is 0", {"stages": 0, "micro": 8}),
    ("number of micro-batches is -3", {"stages": 4, "micro": -3}),
    ("not a whole number", {"stages": 4, "micro": 2.5}),
    ("optimizer step takes 1e+308", {"stages": 4, "micro": 8, "optimizer": 1e308}),
    ("optimizer step takes nan", {"stages": 4, "micro": 8, "optimizer": float("nan")}),
    ("number of micro-batches is missing", {"stages": 4}),
    ("8,000,000,000 actions", {"stages": 4, "micro": 10**9}),
    ("actions", {"stages": 10**9, "micro": 1}),
    ("cannot take 2 chunks", {"stages": 4, "micro": 8, "chunks": 2, "schedule": "1f1b"}),
    ("cannot take 3 chunks", {"stages": 4, "micro": 8, "chunks": 3, "schedule": "zb-v"}),
    ("micro % 4 == 0", {"stages": 4, "micro": 9, "schedule": "interleaved-1f1b"}),
    ("micro % 4 == 0", {"stages": 4, "micro": 9, "schedule": "interleaved-zb"}),
    ("at least 4", {"stages": 4, "micro": 6, "schedule": "interleaved-1f1b-megatron"}),
    ("micro % 4 == 0", {"stages": 4, "micro": 6, "schedule": "hanayo"}),
    ("even number of chunks", {"stages": 4, "micro": 8, "chunks": 3, "schedule": "hanayo"}),
    ("even number of stages", {"stages": 3, "micro": 8, "schedule": "dualpipe"}),
    ("at least twice", {"stages": 4, "micro": 6, "schedule": "dualpipe"}),
    ("at least twice", {"stages": 4, "micro": 7, "schedule": "dualpipe-v"}),
    ("even number of stages", {"stages": 3, "micro": 8, "schedule": "chimera"}),
    ("did you mean 1f1b", {"stages": 4, "micro": 8, "schedule": "1fib"}),
    ("takes no memory limit", {"stages": 4, "micro": 8, "memory_limit": 4}),
    ("kept for weight gradients is 1.5", {"stages": 4, "micro": 8, "weight_memory": 1.5, "schedule": "zb-auto"}),
    ("'half' is not a number", {"stages": 4, "micro": 8, "weight_memory": "half", "schedule": "zb-auto"}),
    ("takes no memory share of weight gradients", {"stages": 4, "micro": 8, "weight_memory": 0.5}),
    ("memory limit of 0", {"stages": 4, "micro": 8, "memory_limit": 0, "schedule": "zb-auto"}),
    ("takes no group", {"stages": 4, "micro": 8, "group": 4}),
    ("has no fused pairs", {"stages": 4, "micro": 8, "fused": "split"}),
    ("fused is 'half'", {"stages": 4, "micro": 8, "fused": "half"}),
    ("p2p is 'eager'", {"stages": 4, "micro": 8, "p2p": "eager"}),
    ("lists 3 times", {"stages": 4, "micro": 8, "forward": [1, 2, 3]}),
    ("not a time", {"stages": 4, "micro": 8, "forward": -1}),
    ("not a time", {"stages": 4, "micro": 8, "backward": float("nan")}),
    ("longer than the whole", {"stages": 4, "micro": 8, "backward": 1, "input_gradient": 2}),
    ("lists 2 delays", {"stages": 4, "micro": 8, "hop": [1, 2]}),
    ("hop is '1', which is not a time", {"stages": 4, "micro": 8, "hop": "1", "schedule": "zb-auto"}),
    ("takes no placement", {"stages": 4, "micro": 8, "placement": [0, 1]}),
    ("takes no schedule", {"order": ["0F0 0B0"], "schedule": "1f1b"}),
]

ORDERS: list[tuple[str, list[str]]] = [
    ("0B1 is missing", ["0F0 0F1 0B0", "1F0 1B0 1F1 1B1"]),
    ("1F1 is missing", ["0F0 0F1 0B0 0B1", "1F0 1B0"]),
    ("0W0 is missing", ["0F0 0I0"]),
    ("0B1 appears twice", ["0F0 0F1 0B0 0B1 0B1", "1F0 1B0 1F1 1B1"]),
    ("both whole and in halves", ["0F0 0B0 0I0"]),
    ("0B0 comes before 0F0", ["0B0 0F0"]),
    ("0W0 comes before 0I0", ["0F0 0W0 0I0"]),
    ("only 4 actions", ["0F0 0F9 0B0 0B1"]),
    ("belongs to stage 1", ["0F0 1F0 0B0 1B0", "1F0"]),
    ("'0X0' is not an action", ["0F0 0X0"]),
    ("names chunk 99999", ["0F0 99999F0"]),
    ("names no stage", ["", "# nothing"]),
    ("not a message", ["0F0 x{q1f}", "x{r0f} 1F0"]),
    ("never posted", ["0F0 x{s1f} 0B0", "1F0 1B0"]),
]


@pytest.mark.parametrize(("words", "options"), BAD)
def test_wrong_settings(words: str, options: dict[str, Any]) -> None:
    with pytest.raises(DistsimError) as caught:
        distsim.pipeline(**options)
    assert words in caught.value.text()


@pytest.mark.parametrize(("words", "order"), ORDERS)
def test_wrong_orders(words: str, order: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(DistsimError) as caught:
        distsim.pipeline(order=order)
    assert words in caught.value.text()
    file = tmp_path / "order.txt"
    file.write_text("\n".join(order))
    assert run(["pipeline", "--order", str(file)]) == 2
    assert words in capsys.readouterr().err


def test_a_deadlock_is_explained_around_its_circle() -> None:
    with pytest.raises(DistsimError) as caught:
        distsim.pipeline(order=["0F0 0B0 0F1 0B1", "1F1 1B1 1F0 1B0"])
    assert caught.value.problem.startswith("the order deadlocks")
    assert caught.value.hints == (
        "stage 0 waits at 0B0 for 1B0, which stage 1 runs only after 1F1",
        "stage 1 waits at 1F1 for 0F1, which stage 0 runs only after 0B0",
    )


def test_micro_batches_of_an_order_are_counted() -> None:
    with pytest.raises(DistsimError, match="runs 2 micro-batches, not 3"):
        distsim.pipeline(order=["0F0 0F1 0B0 0B1"], micro=3)


@pytest.mark.parametrize(
    "arguments",
    [
        "--stages 0 --micro 8",
        "--stages 4 --micro 1000000000",
        "--stages 4 --micro 8 --forward 1,x",
        "--stages 4 --micro 8 --forward 1*999999999",
        "--stages 4 --micro 8 --no-sync",
        "--stages 4 --micro 8 --blocking",
        "--stages 4 --micro 8 --contention",
        "--stages 4 --micro 8 --p2p rendezvous",
        "--stages 4 --micro 8 --compare --contention --blocking",
        "--stages 4 --micro 8 --compare --schedule 1f1b",
        "--stages 4 --micro 8 --balance 1,2",
        "--stages 4 --micro 8 --forward 1,1,1,1 --balance 1*8",
        "--stages 4 --micro 8 --forward 4 --balance 1*16",
        "--stages 4 --micro 8 --backward 1,1,1,1 --balance 1*8",
        "--stages 4 --micro 8 --model llama-3-8b --loss 0.1",
        "--order /nowhere/order.txt",
        "--stages 4 --micro 8 --svg /nowhere/a.svg",
        "--stages 4 --micro 8 --svg a.png",
        "--stages 4 --micro eight",
    ],
)
def test_the_command_line_refuses_with_exit_code_2(arguments: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["pipeline", *arguments.split()]) == 2
    out, err = capsys.readouterr()
    assert not out and "rror" in err and "Traceback" not in err


@pytest.mark.parametrize("times", ["--hop 0.5", "--hop 0", "--model llama-7b"])
@pytest.mark.parametrize("ways", ["--blocking --contention", "--p2p rendezvous"])
def test_ways_of_transfers_that_take_time_are_taken(times: str, ways: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["pipeline", *f"--stages 4 --micro 8 {times} {ways}".split()]) == 0
    assert "makespan" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("named", "ways"),
    [
        ("blocking", {"overlap": False}),
        ("contention", {"contention": True}),
        ("blocking or contention", {"overlap": False, "contention": True}),
    ],
)
def test_ways_that_rendezvous_and_programs_leave_no_room_for_are_refused(named: str, ways: dict[str, Any]) -> None:
    """They had been taken, and changed nothing."""
    with pytest.raises(DistsimError, match=f"p2p rendezvous takes no {named}\n"):
        distsim.pipeline(4, 8, "dualpipe", hop=0.3, p2p="rendezvous", **ways)
    program = ["0F0 x{s1f,r1b} 0B0", "x{r0f} 1F0 1B0 x{s0b}"]
    assert distsim.pipeline(order=program, hop=0.5).makespan == 7
    with pytest.raises(DistsimError, match=f"an order that posts its messages takes no {named}\n"):
        distsim.pipeline(order=program, hop=0.5, **ways)


def test_counts_and_times_may_be_numpys() -> None:
    plain = distsim.pipeline(stages=4, micro=8, chunks=2, schedule="interleaved-1f1b", forward=2)
    same = distsim.pipeline(
        stages=np.int64(4), micro=np.int64(8), chunks=np.int64(2), schedule="interleaved-1f1b", forward=np.int64(2)
    )
    assert json.dumps(same.to_dict()) == json.dumps(plain.to_dict())
    found = (distsim.pipeline(4, 8, "zb-auto", hop=one).makespan for one in (1, np.int64(1), np.ones(4)))
    assert len(set(found)) == 1
    with pytest.raises(DistsimError, match=r"8\.5.*, not a whole number"):
        distsim.pipeline(stages=4, micro=np.float64(8.5))  # type: ignore[arg-type]


def test_an_array_is_no_value_of_a_job() -> None:
    with pytest.raises(DistsimError, match=r"micro_batch .* is not a whole number"):
        distsim.step("llama-7b", gpus=8, micro_batch=np.array([1, 2]))


@pytest.mark.parametrize(
    ("words", "problem", "hint"),
    [
        ("--stages 4 --model t5-large", "--stages 4 given, but t5-large is an encoder-decoder, which only tp",
         "use --stages 1"),
        ("--stages 64 --model llama-7b", "64 pipeline stages need more than the 32 layers of llama-7b",
         "--stages * --chunks may be at most 34"),
    ],
)  # fmt: skip
def test_errors_of_a_model_are_in_this_command_s_words(
    words: str, problem: str, hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["pipeline", "--micro", "8", *words.split()]) == 2
    told = capsys.readouterr().err
    assert told.startswith(f"error: {problem}") and told.endswith(f"\n  {hint}\n")


def test_a_keyword_that_nothing_has_is_told_as_unknown() -> None:
    with pytest.raises(DistsimError, match=r"pipeline has no option forwad\n  did you mean forward\?"):
        distsim.pipeline(stages=4, micro=8, forwad=3)
    with pytest.raises(DistsimError, match="tp: only valid with model"):
        distsim.pipeline(stages=4, micro=8, tp=3)
    with pytest.raises(DistsimError, match="exclude each other"):
        distsim.pipeline(stages=4, micro=8, model="llama-3-8b", loss=0.1)
