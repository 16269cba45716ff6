"""Presets based on another: what they have of it, what not, whose sources count, and what is refused."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from shell import piped

from distsim import catalog, step
from distsim.errors import DistsimError
from distsim.preset_bases import lines, merged
from distsim.preset_files import read_toml
from distsim.specs.framework import Framework

BASE = """
aliases = ["the-base"]
family = "torch"
timed_like = "torchtitan"
memory_counts = "reserved"
[usual]
zero = 3
trains_whole = true
[kernels]
rope = "eager"
norm = "eager"
[earlier."2024.8"]
norm = "fused"
[earlier.2023]
norm = "fused"
[scripts.any]
gpt2 = { seq = 1024 }
[source]
kernels = "of kernels"
"kernels.norm" = "of norms"
usual = "of runs"
other = "the rest"
checked = 2026-11-01
"""


@pytest.fixture
def presets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a user's own framework presets, with a base."""
    folder = tmp_path / "presets" / "frameworks"
    folder.mkdir(parents=True)
    monkeypatch.setenv("DISTSIM_PRESETS", str(tmp_path / "presets"))
    (folder / "base.toml").write_text(BASE, encoding="utf-8")
    return folder


def ours(folder: Path, text: str, name: str = "ours") -> Framework:
    (folder / f"{name}.toml").write_text(text, encoding="utf-8")
    found: Framework = catalog.load("frameworks", name)
    return found


def test_tables_are_merged_key_by_key_and_own_lines_win(presets: Path) -> None:
    own = ours(
        presets, 'based_on = "base"\n[kernels]\nnorm = "fused"\n[usual]\nzero = 1\n[earlier.2023]\nrope = "fused"'
    )
    assert (own.name, own.aliases, own.scripts) == ("ours", (), {})
    assert (own.family, own.timed_like, own.memory_counts) == ("torch", "torchtitan", "reserved")
    assert (own.kernels.norm, own.kernels.rope) == ("fused", "eager")
    assert own.usual == {"zero": 1, "trains_whole": True}
    assert own.earlier == {2024.8: {"norm": "fused"}, 2023: {"norm": "fused", "rope": "fused"}}


def test_what_is_left_out_is_as_if_the_base_had_not_stated_it(presets: Path) -> None:
    own = ours(presets, 'based_on = "base"\nwithout = ["kernels.norm", "earlier.2024.8", "usual", "family"]')
    assert own.kernels.model_fields_set == {"rope"}
    assert own.earlier == {2023: {"norm": "fused"}}
    assert (own.usual, own.family) == ({}, "ours")
    assert not {"kernels.norm", "usual"} & own.source.keys()


def test_a_line_has_the_source_that_its_own_file_gives_it(presets: Path) -> None:
    text = (
        'based_on = "base"\n[kernels]\nnorm = "fused"\nsoftmax = "eager"\n[usual]\nzero = 1\n[source]\nkernels = "ours"'
    )
    own = ours(presets, text)
    assert [own.source_of(f"kernels.{name}") for name in ("norm", "softmax", "rope")] == ["ours"] * 3
    assert (own.source_of("usual.zero"), own.source_of("usual.trains_whole")) == ("", "of runs")
    assert own.source_of("memory_counts") == "the rest" and f"{own.checked}" == "2026-11-01"


def test_a_base_may_have_a_base_and_be_a_file(presets: Path, tmp_path: Path) -> None:
    ours(presets, 'based_on = "base"\n[kernels]\nnorm = "fused"', "middle")
    file = tmp_path / "elsewhere.toml"
    file.write_text('based_on = "presets/frameworks/middle.toml"\nmemory_counts = "allocated"', encoding="utf-8")
    own: Framework = catalog.load("frameworks", str(file))
    assert (own.kernels.norm, own.kernels.rope, own.memory_counts) == ("fused", "eager", "allocated")


def test_a_changed_base_changes_what_is_based_on_it(presets: Path) -> None:
    assert ours(presets, 'based_on = "base"').usual["zero"] == 3
    before = catalog.state("frameworks", "ours")
    (presets / "base.toml").write_text(BASE.replace("zero = 3", "zero = 2"), encoding="utf-8")
    os.utime(presets / "base.toml", ns=(1, 1))
    assert catalog.load("frameworks", "ours").usual["zero"] == 2
    assert catalog.state("frameworks", "ours") != before


def test_a_preset_of_ones_own_changes_no_shipped_one(presets: Path) -> None:
    shipped = catalog.load("frameworks", "megatron-lm")
    ours(presets, 'family = "torch"', "megatron-core")
    assert catalog.load("frameworks", "megatron-lm") == shipped
    assert ours(presets, 'based_on = "megatron-core"').family == "torch"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('based_on = "bsae"', "ours.toml: based_on: unknown framework 'bsae'\n  did you mean base?"),
        ('based_on = "./gone.toml"', "ours.toml: based_on: no file './gone.toml'"),
        ('based_on = "other"', "presets are based on each other: ours -> other -> ours"),
        ('based_on = "ours"', "presets are based on each other: ours -> ours"),
        ("based_on = 3", "based_on 3 is not a string"),
        ('based_on = "base"\nwithout = ["kernels.nrom"]', "without 'kernels.nrom': base states nothing of that name"),
        ('based_on = "base"\nwithout = "usual"', "without takes a list of names"),
        ('without = ["usual"]', "unknown field 'without'"),
    ],
)
def test_what_is_wrong_is_told(text: str, problem: str, presets: Path) -> None:
    (presets / "other.toml").write_text('based_on = "ours"')
    with pytest.raises(DistsimError, match=re.escape(problem)):
        ours(presets, text)


def test_other_kinds_have_no_base(tmp_path: Path) -> None:
    file = tmp_path / "small.toml"
    file.write_text('based_on = "llama-7b"\nlayers = 2')
    with pytest.raises(DistsimError, match="unknown field 'based_on'"):
        catalog.load("models", str(file))


def test_a_card_under_a_limit_states_that_alone(tmp_path: Path) -> None:
    file = tmp_path / "card.toml"
    file.write_text('based_on = "h100-sxm"\npower = "500 W"\nrated_power = "700 W"\n[source]\npower = "our racks"\n')
    card, whole = catalog.load("gpus", str(file)), catalog.load("gpus", "h100-sxm")
    assert (card.name, card.power, card.rated_power, card.aliases) == ("card", 500, 700, ())
    assert (card.memory, card.peak, card.chip, card.source["bandwidth"]) == (
        whole.memory, whole.peak, whole.chip, whole.source["bandwidth"])  # fmt: skip
    assert card.source["power"] == "our racks"
    limited, stated = (
        step("llama-3-8b", gpus=8, zero=3, **asked).seconds
        for asked in ({"gpu": str(file)}, {"gpu": "h100-sxm", "gpu_power": 500})
    )
    assert limited == pytest.approx(stated, rel=1e-9)


def test_shipped_cards_that_are_based_on_others_name_no_memory_in_vain() -> None:
    """A size in a name is held against the label, which the base may have."""
    assert catalog.load("gpus", "rtx-pro-6000-max-q 96GB").name == "rtx-pro-6000-max-q"
    assert not catalog.knows("gpus", "rtx-pro-6000-max-q 48GB")


def test_a_base_that_is_no_text_is_told(presets: Path) -> None:
    (presets / "base.toml").write_bytes(b'name = "\xff"')
    with pytest.raises(DistsimError, match="is not a text file"):
        ours(presets, 'based_on = "base"')


def test_what_is_shown_is_merged(presets: Path) -> None:
    ours(presets, 'based_on = "base"\n[kernels]\nnorm = "fused"')
    shown = piped("show", "framework", "ours").stdout
    assert all(re.search(line, shown) for line in (r"based_on +base", r"kernels\.rope +eager", r"kernels\.norm +fused"))
    assert "seq = 1024" not in shown


@pytest.mark.parametrize("name", catalog.names("frameworks"))
def test_shipped_presets_repeat_nothing_of_their_base(name: str) -> None:
    whole = catalog.raw("frameworks", name)
    if "based_on" in whole:
        base = catalog.raw("frameworks", whole["based_on"])
        own = read_toml(catalog.path("frameworks", name))
        stated = {key: own[key] for key in own if key not in ("name", "aliases", "source", "scripts", "layouts")}
        assert all(_at(own, line) != ... for line in lines(stated))
        twice = [line for line in lines(stated) if _at(own, line) == _at(base, line)]
        assert not twice, f"{name} repeats {twice} of {whole['based_on']}"


def _at(table: dict[str, object], line: str) -> object:
    for key, value in table.items():
        if key == line:
            return value
        # a year may stand before a point of its own: earlier.2025, earlier."2025.6"
        if (
            isinstance(value, dict)
            and line.startswith(f"{key}.")
            and (found := _at(value, line[len(key) + 1 :])) != ...
        ):
            return found
    return ...


def test_merging_changes_neither(presets: Path) -> None:
    base, own = {"usual": {"zero": 3}, "source": {"usual": "one"}}, {"based_on": "b", "usual": {"zero": 1}}
    merged(base, own)
    assert base == {"usual": {"zero": 3}, "source": {"usual": "one"}}
    assert own == {"based_on": "b", "usual": {"zero": 1}}
