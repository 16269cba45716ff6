"""What a user installs: wheel, source archive and editable install find their presets, without any network."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
pytestmark = pytest.mark.slow


def run(*command: str | Path, cwd: Path) -> str:
    own = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}  # it would hide what is installed
    done = subprocess.run(
        [str(word) for word in command], cwd=cwd, env=own, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the source archive, and the wheel built from it."""
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT, cwd=folder)
    return folder


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of a new environment that sees this one's libraries, but not distsim."""
    folder = tmp_path_factory.mktemp("fresh")
    venv.create(folder, with_pip=False, symlinks=True)
    site = next(folder.glob("lib/python*/site-packages"))
    libraries = next(Path(entry) for entry in sys.path if (Path(entry) / "pydantic").is_dir())
    for entry in libraries.iterdir():  # one link per library: a path file would bring the editable distsim too
        if "distsim" not in entry.name and not entry.name.endswith(".pth"):
            (site / entry.name).symlink_to(entry)
    return folder / "bin" / "python"


def install(python: Path, wheel: Path) -> None:
    run(sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", "--no-index", "--force-reinstall",
        "--quiet", wheel, cwd=wheel.parent)  # fmt: skip


def test_archives_hold_what_they_should(built: Path) -> None:
    wheel = zipfile.ZipFile(next(built.glob("*.whl"))).namelist()
    assert "distsim/presets/gpus/h100-sxm.toml" in wheel
    assert "distsim/presets/models/llama-7b.toml" in wheel
    assert "distsim/presets/architectures/hopper.toml" in wheel  # without it every chip would be one of no kind
    assert "distsim/py.typed" in wheel
    assert not [name for name in wheel if name.startswith(("tests/", "docs/"))]
    with zipfile.ZipFile(next(built.glob("*.whl"))) as whole:
        (metadata,) = (name for name in wheel if name.endswith("/METADATA"))
        assert "License-Expression: MIT\nLicense-File: LICENSE\n" in whole.read(metadata).decode()
    with tarfile.open(next(built.glob("*.tar.gz"))) as sdist:
        inside = {name.partition("/")[2] for name in sdist.getnames()}
    assert {"README.md", "LICENSE", "Makefile", "pyproject.toml", "presets/gpus/h100-sxm.toml"} <= inside


def test_wheel_answers_in_a_fresh_environment(built: Path, fresh: Path, tmp_path: Path) -> None:
    install(fresh, next(built.glob("*.whl")))
    where = run(fresh, "-c", "import distsim; print(distsim.__file__)", cwd=tmp_path)
    assert str(fresh.parent.parent) in where
    script = fresh.parent / "distsim"
    assert json.loads(run(script, "show", "--json", cwd=tmp_path))["kinds"]["gpus"] >= 49
    told = json.loads(run(script, "memory", "llama-7b", "--zero", "2", "--json", cwd=tmp_path))
    assert told["fits"]


def test_editable_install_answers_too(fresh: Path, tmp_path: Path) -> None:
    run(sys.executable, "-m", "pip", "--python", fresh, "install", "--no-deps", "--no-index", "--no-build-isolation",
        "--quiet", "--force-reinstall", "-e", ROOT, cwd=tmp_path)  # fmt: skip
    assert str(ROOT) in run(fresh, "-c", "import distsim; print(distsim.__file__)", cwd=tmp_path)
    assert "distsim" in run(fresh.parent / "distsim", "--version", cwd=tmp_path)
    assert json.loads(run(fresh.parent / "distsim", "show", "--json", cwd=tmp_path))["kinds"]["models"] >= 1
