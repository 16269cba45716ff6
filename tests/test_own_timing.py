"""A user's own files of fitted numbers: what nothing reads, or nobody means, is one clear error."""

from __future__ import annotations

from pathlib import Path

import pytest
from shell import piped

import distsim
from distsim import catalog
from distsim.engine.calibrated import check
from distsim.engine.jobs.kin import kin_of
from distsim.errors import DistsimError
from distsim.preset_files import read_toml
from distsim.specs.fitted import FILES
from distsim.specs.timing import combined

STEP = ("step", "llama-7b", "--gpus", "8", "--zero", "3", "--framework", "torchtitan")
TOGETHER = "[general]\nmatmul = 1.8\n[architecture.ampere]\nmatmul = 1.5"


@pytest.mark.parametrize(
    ("text", "told"),
    [("[general]\nmatmul = -1", "general.matmul -1 is too small"),
     ("[general]\nmatmul = 0", "it must be at least 0.01"),
     ("[general]\nmatmul = nan", "general.matmul nan is not a number"),
     ("[general]\nstep_seconds = -3", "general.step_seconds -3 is too small"),
     ("[general]\nstep_seconds = nan", "is not a number"), ("[general]\nmatmul = 50", "it must be at most 2"),
     ("[general]\njitter = 1e9", "general.jitter 1,000,000,000 is too large"),
     ("[general]\nmatmull = 0.9", "did you mean matmul?"),
     ("[general]\n[archtecture.ampere]\nmatmul = 1.1", "did you mean architecture"),
     ("[general]\n[architecture.amper]\nmatmul = 1.1", "did you mean ampere?"),
     ("[general]\n[framework.torchtitn]\nmatmul = 1.1", "did you mean torchtitan?"),
     ("[general]\n[framework.torchtitan.set]\nmatmul = 9", "framework.torchtitan.set.matmul 9 is too large"),
     (TOGETHER, "all factors of torchtitan on ampere together: matmul 2.7 is too large")],
)  # fmt: skip
def test_numbers_that_nobody_means_are_refused(text: str, told: str, tmp_path: Path) -> None:
    file = tmp_path / "presets" / "timing" / "fitted.toml"
    file.parent.mkdir(parents=True)
    file.write_text(text)
    done = piped(*STEP, folder=tmp_path)
    assert done.returncode == 2 and told in done.stderr and "Traceback" not in done.stderr
    assert "presets/timing/fitted.toml" in done.stderr


@pytest.mark.parametrize("name", ["pace", "peaks", "residuals"])
def test_other_files_of_the_kind_are_checked_too(name: str, tmp_path: Path) -> None:
    file = tmp_path / "presets" / "timing" / f"{name}.toml"
    file.parent.mkdir(parents=True)
    shipped = (catalog.shipped_folder() / "timing" / f"{name}.toml").read_text(encoding="utf-8")
    file.write_text(f"unread = 1\n{shipped}")
    plan = ("plan", "llama-7b", "--tokens", "1B", "--gpu", "a100-sxm4-80gb", "--gpus", "8")
    done = piped(*(plan if name == "pace" else STEP), folder=tmp_path)
    assert done.returncode == 2 and f"timing/{name}.toml: " in done.stderr and "'unread'" in done.stderr


def test_own_names_of_chips_and_frameworks_stay(tmp_path: Path) -> None:
    """Runs may be of what no preset describes."""
    check("fitted", {"name": "fitted", "general": {}, "architecture": {"rhea": {"matmul": 1.1}},
                     "framework": {"ours": {"stream": 0.9, "on": {"rhea": {"matmul": 0.9}}}}}, "mine.toml")  # fmt: skip


@pytest.mark.parametrize("name", FILES)
def test_shipped_files_hold_nothing_else(name: str) -> None:
    file = catalog.shipped_folder() / "timing" / f"{name}.toml"
    check(name, read_toml(file), str(file))


def test_shipped_numbers_are_within_their_bounds_together() -> None:
    tables = catalog.raw("timing", "fitted")
    kins = {kin_of(catalog.load("frameworks", name)) for name in catalog.names("frameworks")}
    for chip in {catalog.load("gpus", name).generation for name in catalog.names("gpus")}:
        for kin in kins:
            try:
                combined(tables, kin, chip)
            except DistsimError as error:
                pytest.fail(f"{kin.name} on {chip}: {error}")


def test_a_script_that_a_compiler_fuses_is_one_thing_under_both_names() -> None:
    plain, other = (catalog.load("frameworks", name) for name in ("plain-torch", "torch-compile"))
    assert kin_of(plain, compiled=True) == kin_of(other) != kin_of(plain)
    assert kin_of(other, compiled=True) == kin_of(other)
    job = {"model": "llama-3.2-1b", "gpu": "h100-sxm"}
    timed = [distsim.step(**job, framework="plain-torch", compile=True), distsim.step(**job, framework="torch-compile")]
    assert timed[0].timing == timed[1].timing


def test_a_fit_of_ones_own_is_told_wherever_it_sets_a_time(own_folder: Path) -> None:
    """A calibration to nine runs of one software, forgotten in a folder, times all other software there, too."""
    told = "step times are by your own calibration, presets/timing/fitted.toml"
    job = {"gpu": "h100-sxm", "gpus": 8, "tp": 1, "pp": 1, "framework": "megatron-core"}
    assert not any(told in note for note in distsim.step("llama-2-7b", **job).notes)
    shipped = catalog.path("timing", "fitted")
    own = own_folder / "presets" / "timing"
    own.mkdir(parents=True)
    (own / "fitted.toml").write_text(shipped.read_text(encoding="utf-8"), encoding="utf-8")
    assert any(told in note for note in distsim.step("llama-2-7b", **job).notes)
    assert any(told in note for note in distsim.search("llama-2-7b", **job).notes)
    assert any(told in note for note in distsim.plan("llama-2-7b", "1B", price="2", **job).notes)
