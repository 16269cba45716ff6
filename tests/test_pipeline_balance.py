"""``distsim.pipeline(balance=…)``, as on the command line, and what programs are told that take its other names."""

from __future__ import annotations

import json
from typing import Any

import pytest

import distsim
from distsim.cli.app import run

SHAPE: dict[str, Any] = {"stages": 4, "micro": 8}
LAYERS = [0.5, *[1.0] * 14, 2.0]


@pytest.mark.parametrize("more", [{}, {"schedule": "zb-v"}, {"schedule": "dualpipe"}, {"backward": 3}])
def test_programs_split_layers_as_the_command_line_does(
    more: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    report = distsim.pipeline(**SHAPE, balance=LAYERS, **more)
    words = [part for name, value in more.items() for part in (f"--{name}", str(value))]
    assert run(["pipeline", "--stages", "4", "--micro", "8", "--balance", "0.5,1*14,2", *words, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer == json.loads(json.dumps(report.to_dict())) and sum(answer["layers"]) == len(LAYERS)
    assert report.split is not None and report.makespan == answer["makespan"]


def test_nothing_is_split_without_layers() -> None:
    report = distsim.pipeline(**SHAPE)
    assert report.split is None and "layers" not in report.to_dict()


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"sync": False}, "optimizer_sync=0.0, or None for none"), ({"blocking": True}, "overlap=False"),
        ({"vpp": 2}, "here it is chunks"), ({"pp": 4}, "here it is stages"),
        ({"compare": True}, "in a program call it once for each schedule"),
        ({"svg": "x.svg"}, "only the command line has it"), ({"list": True}, "distsim pipeline --list"),
        ({"balance": LAYERS, "forward": 2}, "balance and forward exclude each other"),
        ({"balance": LAYERS, "backward": [1, 2, 3, 4]}, "backward is a list of times"),
        ({"balance": LAYERS, "backward": "2"}, "backward '2' is not a number"),
        ({"balance": 3}, "balance is 3\n  list the forward time of each layer"),
        ({"balance": "1,2"}, "list the forward"), ({"balance": [1, "x"]}, "balance 'x' is not a number"),
        ({"balance": [1, 2]}, "2 layers cannot be split into 4"),
        ({"balance": LAYERS, "model": "llama-7b"}, "balance takes no model"),
        ({"balance": LAYERS, "order": ["0F0 0B0"]}, "balance takes no order"),
    ],
)  # fmt: skip
def test_other_names_are_answered_with_those_of_programs(options: dict[str, Any], told: str) -> None:
    with pytest.raises(distsim.DistsimError) as raised:
        distsim.pipeline(**SHAPE, **options)
    assert told in str(raised.value)
