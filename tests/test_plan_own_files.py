"""Plans on hardware that only files of one's own describe, wherever these are and wherever one stands."""

from __future__ import annotations

from pathlib import Path

import pytest
from shell import piped

import distsim
from distsim.report.file_names import apart

CARD = """
based_on = "b200-sxm"
name = "our-b200"
aliases = []
default_cluster = "rack.toml"
[source]
other = "our own data sheet"
checked = 2026-11-01
"""
RACK = """
name = "our-rack"
gpu = "card.toml"
gpus_per_node = 8
domain = 8
power = "14 kW"
[fabric]
kind = "nvswitch"
rate = "900 GB/s"
[network]
kind = "roce"
nics = 8
nic_rate = "400 Gb/s"
[source]
other = "our own data sheet"
checked = 2026-11-01
"""
PRICES = """
provider = "Our contract"
currency = "USD"
[[offers]]
instance = "8x ours"
gpu = "card.toml"
gpus = 8
on_demand = 2.5
date = "2026-11-01"
source = "offer 4711"
[[purchases]]
item = "8x ours"
kind = "system"
gpu = "card.toml"
gpus = 8
price = 270000
with_network = true
date = "2026-11-01"
source = "quote 12"
"""


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that holds the files, seen from another."""
    folder = tmp_path / "ours"
    folder.mkdir()
    for name, text in {"card": CARD, "rack": RACK, "prices": PRICES}.items():
        (folder / f"{name}.toml").write_text(text)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    return folder


def test_a_card_of_ones_own_is_in_the_node_that_its_file_names(files: Path) -> None:
    step = distsim.step("llama-2-7b", gpu=str(files / "card.toml"), gpus=16, zero=1)
    assert step.setup.cluster.name == "our-rack" and step.setup.accelerator.name == "our-b200"


@pytest.mark.parametrize("asked", [{"gpu": "card.toml"}, {"cluster": "rack.toml"}])
def test_a_plan_takes_a_card_whose_name_is_no_presets(files: Path, asked: dict[str, str]) -> None:
    named = {option: str(files / file) for option, file in asked.items()}
    plan = distsim.plan("llama-2-7b", "10B", gpus=8, tp=1, pp=1, price="2.5", **named)
    assert plan.cheapest is not None and plan.cheapest.gpu == "our-b200"


def test_a_price_list_names_cards_beside_it(files: Path) -> None:
    asked = {"gpus": 8, "tp": 1, "pp": 1, "provider": str(files / "prices.toml")}
    plan = distsim.plan("llama-2-7b", "10B", **asked)
    assert [(one.gpu, one.quote.usd_per_gpu_hour) for one in plan.options] == [("our-b200", 2.5)]


def test_a_system_with_a_card_of_ones_own_can_be_bought(files: Path) -> None:
    asked = {"gpus": 8, "tp": 1, "pp": 1, "provider": str(files / "prices.toml"), "gpu": str(files / "card.toml")}
    plan = distsim.plan("llama-2-7b", "10B", price="owned", **asked)
    assert [(one.gpu, one.committed_dollars) for one in plan.options] == [("our-b200", 270_000)]


def test_a_plan_names_files_by_no_more_of_their_path_than_tells_them_apart(files: Path) -> None:
    one = piped("plan", "llama-2-7b", "--tokens", "10B", "--provider", str(files / "prices.toml"), "--gpus", "8,16")
    assert "8 x our-b200 (rack.toml) from Our contract" in one.stdout
    step, table = one.stdout.split("\nOptions", 1)
    assert f"--cluster {files / 'rack.toml'}" in step and str(files) not in table


def test_files_of_one_name_keep_their_folders() -> None:
    names = ("dgx-h100", "/quotes/a/hall.toml", "/quotes/b/hall.toml", "/quotes/b/rack.toml", "hall.toml")
    told = ["dgx-h100", "a/hall.toml", "b/hall.toml", "rack.toml", "hall.toml"]
    assert [apart(names)[name] for name in names] == told
