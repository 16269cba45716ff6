"""A parser of only the options that a command line mentions answers like the whole one."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from distsim.cli import comm, memory, pipeline, plan, search, step
from distsim.cli.app import run
from distsim.cli.narrow import narrowed

COMMANDS = {"memory": memory.memory, "comm": comm.comm, "step": step.step, "search": search.search,
            "plan": plan.plan, "pipeline": pipeline.pipeline}  # fmt: skip


def names(function: Any) -> set[str]:
    return set(inspect.signature(function).parameters)


@pytest.mark.parametrize("command", list(COMMANDS))
def test_help_and_mistakes_see_every_option(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    function = COMMANDS[command]
    for arguments in ([], ["--help"], ["llama-7b", "--gpuss", "8"], ["llama-7b", "-3"]):
        assert narrowed(function, arguments) is function
    assert run([command, "--gpuss", "8"]) == 2
    assert "unknown option" in capsys.readouterr().err


def test_only_what_is_mentioned_is_parsed() -> None:
    assert names(narrowed(step.step, ["llama-7b", "--gpus=8", "--no-clip"])) == {"model", "gpus", "clip"}
    assert names(narrowed(step.step, ["--from", "1", "--sync-every-micro-batch"])) == {"model", "begin", "no_sync"}
    assert narrowed(comm.comm, ["--gbps", "400"]) is comm.comm  # the parameter's name, no flag
    assert names(narrowed(memory.memory, ["llama-7b"])) == {"model"}
    assert {"stages", "micro"} == names(narrowed(pipeline.pipeline, ["--stages", "4", "--micro", "8"]))


def test_options_that_are_left_out_keep_their_defaults() -> None:
    got: dict[str, Any] = {}

    def command(**values: Any) -> None:
        got.update(values)

    command.__signature__ = inspect.signature(pipeline.pipeline, eval_str=True)  # type: ignore[attr-defined]
    narrowed(command, ["--stages", "4"])(stages=4)
    defaults = {name: one.default for name, one in inspect.signature(pipeline.pipeline).parameters.items()}
    assert got == {**defaults, "stages": 4}
