"""Presets with one wrong value, as users write them: an answer or one clear error, never a traceback."""

from __future__ import annotations

import contextlib
import json
import random
import re
import tomllib
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from shell import piped

import distsim
from distsim import catalog
from distsim.errors import DistsimError
from distsim.specs.accelerator import Peak
from distsim.specs.job import Job
from distsim.specs.precision import Rate

PRESETS = Path(__file__).parent.parent / "presets"
JOB: dict[str, Any] = {"model": "llama-3-8b", "gpu": "h100-sxm", "gpus": 8, "tp": 2, "zero": 1, "seq": 512}
FILES: dict[str, tuple[tuple[str, ...], dict[str, Any]]] = {
    "models": (("mixtral-8x7b", "gemma-2-2b", "deepseek-v2-lite", "granite-4.0-h-small"), {"model": "mine"}),
    "gpus": (("h100-sxm", "mi300x", "tpu-v5p"), {"gpu": "mine"}),
    "architectures": (("nvidia", "volta", "cdna", "hopper", "blackwell", "tpu", "neuron"), {"gpu": "ours"}),
    "clusters": (("dgx-h100", "meta-24k-roce", "tpu-v5p-pod"), {"gpu": None, "cluster": "mine"}),
    "frameworks": (("megatron-core", "huggingface", "torchtitan", "fms-fsdp"), {"framework": "mine"}),
    "precisions": (("fp8", "fsdp-bf16", "mxfp8"), {"precision": "mine"}),
    "optimizers": (("adamw", "adafactor", "adamw-8bit"), {"optimizer": "mine"}),
    "quantizations": (("nf4", "gptq-int4"), {"lora_rank": 8, "quantize": "mine"}),
    "losses": (("liger", "cut"), {"loss": "mine"}),
}
WRONG: tuple[Any, ...] = (0, -1, 1e30, 1e-30, 1.5, "", "zzz", "bf16", "1 GB", [], {}, True)
EACH = 60
"""Mutations of every kind of preset."""


def _leaves(table: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    for key, value in table.items() if isinstance(table, dict) else enumerate(table):
        if isinstance(value, dict | list) and value:
            yield from _leaves(value, (*path, key))
        else:
            yield (*path, key)


def _toml(value: Any) -> str:
    """Values as TOML writes them; tables inline."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{json.dumps(key)} = {_toml(one)}" for key, one in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    if isinstance(value, bool):
        return "true" if value else "false"
    return repr(value) if isinstance(value, int | float) else json.dumps(str(value))


def _broken(kind: str, chance: random.Random) -> tuple[str, tuple[Any, ...], Any]:
    """A preset with a wrong value: its text, where, and the value."""
    file = PRESETS / kind / f"{chance.choice(FILES[kind][0])}.toml"
    table = tomllib.loads(file.read_text(encoding="utf-8"))
    table.pop("aliases", None)
    if "name" in table:
        table["name"] = "mine"
    path = chance.choice([path for path in _leaves(table) if path[0] != "source"])
    inner = table
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value = chance.choice(WRONG)
    return "\n".join(f"{json.dumps(key)} = {_toml(one)}" for key, one in table.items()), path, value


@pytest.mark.parametrize("kind", FILES)
def test_a_wrong_value_ends_in_no_other_error(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "presets" / kind).mkdir(parents=True)
    options = {name: value for name, value in {**JOB, **FILES[kind][1]}.items() if value is not None}
    if kind == "architectures":
        (tmp_path / "presets" / "gpus").mkdir()
        card = (PRESETS / "gpus" / "h100-sxm.toml").read_text(encoding="utf-8")
        (tmp_path / "presets" / "gpus" / "ours.toml").write_text(card.replace('"hopper"', '"mine"'), encoding="utf-8")
    chance = random.Random(kind)
    for _ in range(EACH):
        text, path, value = _broken(kind, chance)
        (tmp_path / "presets" / kind / "mine.toml").write_text(text, encoding="utf-8")
        try:
            with contextlib.suppress(DistsimError):
                job = Job.read(options)
                distsim.comm(job)
                distsim.step(job)
        except Exception as error:
            pytest.fail(f"{kind}: {path} = {value!r} ends in {error!r}")


@pytest.mark.parametrize(
    ("kind", "old", "new", "told"),
    [("precisions", 'math = "bf16"', 'math = "bf17"', "math"), ("frameworks", "zero = 3", 'zero = "three"', "zero"),
     ("frameworks", "zero = 3", "interleave = true", "'interleave' is not a job option"),
     ("precisions", 'gather_dtype = "bf16"', "gather_dtype = []", "gather_dtype"),
     ("gpus", 'architecture = "hopper"', 'architecture = " "', "architecture"),
     ("gpus", 'architecture = "hopper"', 'architecture = "hopper"\ntraits.lane = 2', "unknown field 'traits.lane'"),
     ("architectures", "attention_age = 1", "atention_age = 1", "did you mean attention_age")],
)  # fmt: skip
def test_errors_name_the_field(
    kind: str, old: str, new: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from distsim import catalog

    name = {"precisions": "fsdp-bf16", "frameworks": "fsdp", "gpus": "h100-sxm",
            "architectures": "hopper"}[kind]  # fmt: skip
    text = (PRESETS / kind / f"{name}.toml").read_text(encoding="utf-8")
    assert old in text
    monkeypatch.chdir(tmp_path)
    (tmp_path / "presets" / kind).mkdir(parents=True)
    (tmp_path / "presets" / kind / f"{name}.toml").write_text(text.replace(old, new), encoding="utf-8")
    with pytest.raises(DistsimError, match=told):
        catalog.load(kind, name)


BROKEN = {"prices/mine": ("[[offers\n", "offers = 3"), "gpus/h900": ("name =", 'vendor = "NVIDIA"\nmemory = "many"')}


@pytest.mark.parametrize("which", range(2))
@pytest.mark.parametrize("command", ["memory", "step", "search"])
def test_advice_does_without_files_that_cannot_be_read(command: str, which: int, tmp_path: Path) -> None:
    """A price list that is no TOML had refused the whole answer for a job that does not fit."""
    for place, texts in BROKEN.items():
        file = tmp_path / "presets" / f"{place}.toml"
        file.parent.mkdir(parents=True)
        file.write_text(texts[which])
    done = piped(command, "gpt2-xl", "--gpu", "rtx-4090", "--gpus", "1", "--seq", "8192", folder=tmp_path)
    assert done.returncode == 1 and "What makes it fit" in done.stdout
    assert "what makes it fit: presets/gpus/h900.toml" in done.stderr
    assert ("presets/prices/mine.toml:1: not valid TOML" in done.stderr) == (which == 0)
    assert "at line" not in done.stderr  # which stands before


def test_a_price_list_without_a_list_is_told(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text("offers = 3")
    with pytest.raises(DistsimError, match=re.escape(str(file))):
        catalog.load("prices", str(file))


def test_recipes_multiply_at_rates_that_accelerators_state() -> None:
    assert set(typing.get_args(Rate)) == set(Peak.model_fields)
