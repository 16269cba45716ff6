"""What ``distsim plan`` says to those who decide: wrong input by name, what was left out, small and large amounts."""

from __future__ import annotations

from pathlib import Path

import pytest
from shell import Done, piped

from distsim import catalog
from distsim.engine.prices import price_lists, quotes
from distsim.errors import DistsimError

ASKED = ("llama-2-7b", "--tokens", "300B", "--gpu", "h100-sxm", "--gpus", "64")
CONTRACT = """
provider = "Our contract"
currency = "USD"

[[offers]]
instance = "8x H100"
gpu = "h100-sxm"
gpus = 8
cluster = "dgx-h100"
on_demand = 2.40
reserved_1y = 1.95
date = "2026-11-01"
source = "offer 4711"
"""


def run(*words: str) -> Done:
    return piped("plan", *words)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--deadline", "30"), "--deadline 30 has no unit\n  write e.g. 30d, 30h or 30min"),
        (("--maintenance-every", "7"), "--maintenance-every 7 has no unit"),
        (("--gpus", "100000000"), "each 1 to 10,000,000"),
        (("--facility", "nowhere"), "unknown facility 'nowhere'"),
        (("--failures", "none"), "unknown failures preset 'none'"),
        (("--provider", "coreweav"), "unknown price list 'coreweav'\n  did you mean coreweave"),
    ],
)
def test_wrong_input_is_named_and_mended(words: tuple[str, ...], told: str) -> None:
    done = run(*ASKED, *words)
    assert done.returncode == 2
    assert told in done.stderr


def test_whole_nodes_near_what_was_asked() -> None:
    done = run("llama-2-7b", "--tokens", "300B", "--gpu", "h100-sxm", "--gpus", "100,20")
    assert done.returncode == 1
    assert "use whole nodes: --gpus 96,16" in done.stderr


def test_an_accelerator_without_a_price_is_not_silently_left_out() -> None:
    done = run("llama-2-7b", "--tokens", "300B", "--gpu", "h100-sxm,tpu-v5e", "--gpus", "64")
    assert done.returncode == 0
    assert "no on-demand price for whole nodes of tpu-v5e is known: left out" in done.stderr


def test_sizes_beyond_the_largest_are_a_note_unless_asked_for() -> None:
    words = ("llama-3.1-405b", "--tokens", "15T", "--gpu", "h100-sxm", "--provider", "nebius", "--pp", "16")
    capped = run(*words, "--deadline", "5d")
    assert capped.returncode == 1
    assert "sizes up to 32,768 accelerators are tried" in capped.stderr
    asked = run(*words, "--gpus", "65536")
    assert asked.returncode == 0
    assert "65,536 x h100-sxm" in asked.stdout


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("dgx-h100", "dgx-a100-80gb", "the offer is of h100-sxm, its cluster dgx-a100-80gb has a100-sxm4-80gb"),
        ('gpu = "h100-sxm"', 'gpu = "h100-smx"', "price list mine, 8x H100: unknown gpu 'h100-smx'"),
        ("dgx-h100", "dgx-h10", "price list mine, 8x H100: unknown cluster 'dgx-h10'"),
    ],
)
def test_an_offer_that_contradicts_itself_is_refused(tmp_path: Path, old: str, new: str, told: str) -> None:
    own = tmp_path / "mine.toml"
    own.write_text(CONTRACT.replace(old, new), encoding="utf-8")
    with pytest.raises(DistsimError) as refused:
        quotes(price_lists([str(own)]), "on-demand")
    assert told in refused.value.text()


def test_every_shipped_offer_is_of_what_its_cluster_has() -> None:
    assert len(quotes(price_lists(), "on-demand", doubtful=True)) > 50
    assert catalog.names("prices")


def test_a_price_dated_in_the_future_is_told_as_such(tmp_path: Path) -> None:
    own = tmp_path / "mine.toml"
    own.write_text(CONTRACT.replace("2026-11-01", "2199-11-01"), encoding="utf-8")
    told = " ".join(run(*ASKED, "--provider", str(own)).stdout.split())
    assert "(price of 2199-11-01, dated in the future)" in told
