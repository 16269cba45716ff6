"""distsim in a notebook: names are complete, a model may come first, reports show in a line, mistakes are told."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest

import distsim


def test_public_names_are_complete_and_documented() -> None:
    assert set(distsim.__all__) <= set(dir(distsim))
    for name in distsim.__all__:
        assert inspect.getdoc(getattr(distsim, name)), name


@pytest.mark.parametrize("ask", [distsim.memory, distsim.comm, distsim.step])
def test_the_model_may_come_first(ask: Any) -> None:
    options = {"gpu": "h100-sxm", "gpus": 8, "zero": 2}
    whole = ask(distsim.Job(model="llama-7b", **options)).to_dict()
    spec = distsim.load_model("llama-7b").spec
    assert whole == ask("llama-7b", **options).to_dict() == ask(spec, **options).to_dict()
    assert whole == ask(model="llama-7b", **options).to_dict()


def test_a_path_is_a_model(tmp_path: Path) -> None:
    config = '{"model_type": "llama", "hidden_size": 512, "num_hidden_layers": 2, "vocab_size": 1000}'
    (tmp_path / "config.json").write_text(config, encoding="utf-8")
    assert distsim.memory(tmp_path, gpus=1, seq=128).peak > 0  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "options", "told"),
    [
        ({"model": "llama-7b"}, {}, "dict is no Job"),
        (42, {}, "int is no Job"),
        ("llama-7b", {"model": "gpt2"}, "the model is given twice"),
        (distsim.Job(model="gpt2"), {"gpus": 8}, "a Job and gpus are given"),
        ("llama-7b", {"gpuss": 8}, "unknown field 'gpuss'"),
        ("llama-7b", {"gpus": "many"}, "gpus .many. is not a whole number"),
        ("llama-7b", {"compile": "maybe"}, "compile .maybe. is not true or false"),
    ],
)
def test_what_is_no_job_is_told(given: Any, options: dict[str, Any], told: str) -> None:
    with pytest.raises(distsim.DistsimError, match=told):
        distsim.step(given, **options)


def test_reports_show_in_a_line() -> None:
    job = distsim.Job(model="llama-7b", gpu="h100-sxm", gpus=8, zero=2)
    for report in (distsim.memory(job), distsim.comm(job), distsim.step(job), distsim.load_model("llama-7b")):
        assert "llama-7b" in repr(report) and len(repr(report)) < 120
    assert "fits=True" in repr(distsim.step(job))


def test_sizes_of_collectives_may_be_texts() -> None:
    plain = distsim.collective("all_reduce", gpus=16, bytes=10**9)
    assert distsim.collective("all_reduce", gpus=16, bytes="1 GB").seconds == plain.seconds
    for wrong in ("lots", "3 s", -1, float("nan")):
        with pytest.raises(distsim.DistsimError, match="bytes"):
            distsim.collective("all_reduce", gpus=16, bytes=wrong)


def test_advice_is_for_steps_and_memory() -> None:
    found = distsim.advise(distsim.memory("llama-3-8b", gpu="h100-sxm", gpus=8))
    assert found[0].flags == "--zero 2" and len(found) > 1
    assert distsim.advise(distsim.memory("llama-7b", gpus=8, zero=2)) == []
    quick = distsim.step("llama-3-8b", gpu="h100-sxm", gpus=8, zero=3, framework="torchtitan", seq=4096)
    assert distsim.advise(quick)[0].gain > 0
    with pytest.raises(distsim.DistsimError, match="no advice on a TrafficReport"):
        distsim.advise(distsim.comm("llama-7b", gpus=8))


def test_data_of_a_report_are_the_callers_own() -> None:
    report = distsim.step("llama-7b", gpus=8, zero=2)
    seconds, data = report.seconds, report.to_dict()
    data["breakdown"].clear()
    assert report.seconds == seconds


def test_numbers_longer_than_floats_are_refused() -> None:
    with pytest.raises(distsim.DistsimError, match="not a finite number"):
        distsim.collective("all_reduce", gpus=8, bytes=10**400)
