"""A framework preset of a user's own: a renamed copy is timed like its original, and what it states itself holds."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from shell import piped

from distsim import catalog
from distsim.engine.fitting.write import priors_of
from distsim.engine.jobs.kin import kin_of
from distsim.engine.jobs.resolve import Setup, resolve
from distsim.engine.step import step_of
from distsim.engine.steps.breakdown import timing_of
from distsim.engine.steps.report import StepReport
from distsim.engine.steps.work import TILED_SHARE
from distsim.errors import DistsimError
from distsim.specs.framework import Framework
from distsim.specs.job import Job
from distsim.specs.timing import CORE_SECONDS, NAMES, OPERATION_SECONDS, Timing

JOB = Job(model="llama-2-7b", gpu="h100-sxm", gpus=16)
SHIPPED = catalog.shipped_folder() / "frameworks"


@pytest.fixture
def presets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a user's own framework presets."""
    folder = tmp_path / "presets" / "frameworks"
    folder.mkdir(parents=True)
    monkeypatch.setenv("DISTSIM_PRESETS", str(tmp_path / "presets"))
    return folder


def copied(folder: Path, name: str, own: str = "ours") -> Path:
    """A preset under another name."""
    text = (SHIPPED / f"{name}.toml").read_text(encoding="utf-8")
    text = re.sub(r"(?m)^name = .*$|^aliases = .*$", "", text)
    file = folder / f"{own}.toml"
    file.write_text(text, encoding="utf-8")
    return file


def under(name: str) -> Setup:
    """The job under a framework, at the highest ZeRO stage that it has."""
    supports = catalog.load("frameworks", name).supports
    return resolve(JOB.model_copy(update={"framework": name, "zero": max(supports.zero)}))


def told(report: StepReport) -> str:
    return "; ".join(note for note in report.notes if "runs of framework" in note)


@pytest.mark.parametrize("name", [file.stem for file in sorted(SHIPPED.glob("*.toml"))])
def test_a_renamed_copy_is_timed_like_its_original(name: str, presets: Path) -> None:
    copied(presets, name)
    theirs, ours = step_of(under(name)), step_of(under("ours"))
    assert ours.setup.framework.name == "ours"
    assert (ours.breakdown, ours.memory.peak) == (theirs.breakdown, theirs.memory.peak)
    assert (ours.interval, ours.correction.logarithm) == (theirs.interval, theirs.correction.logarithm)
    like = kin_of(theirs.setup.framework).like
    assert told(ours) == f"nothing was fitted to runs of framework 'ours': timed like {like}, as its preset says"


@pytest.mark.parametrize("words", [("search", "gpt2", "--gpus", "8"), ("plan", "gpt2", "--tokens", "1B")])
def test_searches_and_plans_tell_it_too(words: tuple[str, ...], presets: Path) -> None:
    copied(presets, "torchtitan")
    for name, times in (("ours", 1), ("torchtitan", 0)):
        done = piped(*words, "--gpu", "h100-sxm", "--seq", "1024", "--framework", name)
        assert (done.returncode, done.stderr.count("runs of framework 'ours': timed like torchtitan")) == (0, times)


@pytest.mark.parametrize("name", [file.stem for file in sorted(SHIPPED.glob("*.toml"))])
def test_shipped_presets_say_whom_they_are_timed_like(name: str) -> None:
    own: Framework = catalog.load("frameworks", name)
    assert own.model_fields_set >= {"family", "timed_like"}
    assert own.only_on in {"", *(catalog.load("gpus", one).generation for one in catalog.names("gpus"))}
    like: Framework = catalog.load("frameworks", own.timed_like)
    assert (own.family, like.name) == (like.family, like.timed_like)


def test_priors_that_stand_for_a_constant_have_its_value() -> None:
    def priors(name: str) -> dict[str, float]:
        return dict(kin_of(catalog.load("frameworks", name)).prior)

    for name in ("huggingface", "torchtune", "litgpt"):
        assert priors(name) == {"kernel_issue_seconds": OPERATION_SECONDS}
    for name in ("megatron-core", "megatron-lm", "megatron-bridge", "nemo"):
        assert priors(name)["kernel_issue_seconds"] == CORE_SECONDS
    tiled = {name for name in catalog.names("frameworks") if priors(name).get("tensor_factor") == TILED_SHARE}
    assert tiled == {"megatron-core", "megatron-bridge", "nemo", "nemo-mlperf"}


def test_a_prior_of_ones_own_holds_at_once_and_moves_as_the_general_number_did(presets: Path) -> None:
    file = copied(presets, "torchtitan")
    file.write_text(file.read_text().replace("step_seconds = 0.05", "step_seconds = 0.5\njitter = 0.03"))
    theirs, ours = timing_of(under("torchtitan")), timing_of(under("ours"))
    default = float(Timing.model_fields["jitter"].default)
    assert ours.jitter == pytest.approx(theirs.jitter * 0.03 / default)
    assert ours.step_seconds == pytest.approx(10 * theirs.step_seconds, rel=1e-3)
    same = set(NAMES) - {"jitter", "step_seconds"}
    assert all(getattr(ours, name) == getattr(theirs, name) for name in same)
    assert told(step_of(under("ours"))).endswith("with its own step_seconds and jitter")


def test_a_framework_without_relatives_takes_what_holds_for_all(presets: Path) -> None:
    file = copied(presets, "nanotron")
    text = re.sub(r"(?m)^(family|timed_like) = .*$", "", file.read_text())
    file.write_text(text)
    report = step_of(under("ours"))
    assert "timed by what is common to all frameworks; to time it like the preset it was copied from" in told(report)
    assert report.timing.stall_seconds == 0.46  # its prior, which nothing moves
    file.write_text('family = "torhc"\n' + text)
    assert "family 'torhc' has no runs; known: jax, megatron, nanotron, neuronx, torch" in told(step_of(under("ours")))
    file.write_text('family = "torch"\n' + text)
    assert "timed like the mean of the torch family" in told(step_of(under("ours")))


@pytest.mark.parametrize(
    ("written", "problem"),
    [
        ('timed_like = "torchtitn"', "unknown framework 'torchtitn'"),
        ('timed_like = "other"', "frameworks refer to each other by timed_like: ours -> other -> ours"),
        ("[prior]\nstep_second = 1.0", "unknown field 'prior.step_second'"),
        ("[prior]\nmatmul = 0", "prior.matmul 0 is too small"),
    ],
)
def test_what_a_preset_says_wrongly_is_told(written: str, problem: str, presets: Path) -> None:
    (presets / "ours.toml").write_text(written)
    (presets / "other.toml").write_text('timed_like = "ours"')
    with pytest.raises(DistsimError, match=re.escape(problem)):
        step_of(under("ours"))


def test_a_preset_may_be_timed_like_one_that_is_timed_like_another(presets: Path) -> None:
    (presets / "ours.toml").write_text('family = "jax"\ntimed_like = "axlearn"')
    assert kin_of(under("ours").framework).like == "maxtext"


def test_fitted_presets_state_no_prior_of_who_is_timed_like_another(presets: Path) -> None:
    """It would hide what its relative's runs gave."""
    copied(presets, "torchtitan")
    found = priors_of([])
    assert "ours" not in found and found["torchtitan"] == {"step_seconds": 0.05}
