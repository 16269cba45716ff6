"""Settings that a search does not try: those that make one of its layouts faster than its best are told."""

from __future__ import annotations

import json

import pytest
from shell import piped

import distsim
from distsim.engine.advice.search_settings import Quicker, quicker
from distsim.engine.layouts.report import SearchReport
from distsim.units import GIB

MIXTURE = {"gpu": "h100-sxm", "gpus": 16, "seq": 4096, "global_batch": 256, "tp": "1,2", "pp": "1,2", "cp": 1,
           "zero": 1}  # fmt: skip


@pytest.fixture(scope="module")
def found() -> SearchReport:
    return distsim.search("qwen3-30b-a3b", **MIXTURE)


def test_a_mixture_is_told_of_its_exchanges_and_graphs(found: SearchReport) -> None:
    best = quicker(found)
    assert best is not None and best.gain > 0.02 and best.rank
    assert best.settings.options["expert_dispatcher"] == "deepep"
    assert best.choice.found.name == found.best[best.rank - 1].found.name
    again = distsim.step("qwen3-30b-a3b", **best.to_dict()["options"])
    assert again.fits and again.seconds == pytest.approx(best.settings.seconds, rel=1e-9)
    assert again.tokens_per_second == pytest.approx(best.tokens_per_second, rel=1e-9)
    assert 1 - again.seconds / found.best[0].seconds == pytest.approx(best.gain)
    assert found.best[0].seconds > again.seconds


def test_a_search_with_them_finds_no_less(found: SearchReport) -> None:
    best = quicker(found)
    assert best is not None
    more = distsim.search("qwen3-30b-a3b", **MIXTURE, **best.settings.options)
    assert more.best[0].report.tokens_per_second >= best.tokens_per_second * (1 - 1e-6)


def test_a_layout_of_the_front_may_be_the_one() -> None:
    """Where the ranked ones are too full for graphs of a whole step, whose buffers take memory."""
    full = distsim.search("qwen3-235b-a22b", cluster="gb200-nvl72", gpus=64, seq=4096, global_batch=1024,
                          precision="mxfp8", tp=1, cp=1, ep=64, top=1)  # fmt: skip
    best = quicker(full)
    assert best is not None and best.settings.peak < full.limit
    if not best.rank:
        assert best.choice.found.name in {one.found.name for one in full.front}


def test_who_asks_for_memory_or_has_them_is_told_nothing(found: SearchReport) -> None:
    small = distsim.search("qwen3-30b-a3b", **MIXTURE, objective="memory")
    assert small.best and quicker(small) is None
    dense = distsim.search("llama-3-8b", gpu="h100-sxm", gpus=8, seq=8192, global_batch=64)
    assert quicker(dense) is None and distsim.advise(dense) == []
    assert [type(one) for one in distsim.advise(found)] == [Quicker]


def test_words_and_plain_data_agree() -> None:
    asked = [word for name, value in MIXTURE.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    told = piped("search", "qwen3-30b-a3b", *asked).stdout.split("Settings not searched: ")[1].replace("\n    ", " ")
    own = json.loads(piped("search", "qwen3-30b-a3b", *asked, "--json").stdout)["settings"]
    assert told.startswith(f"with {own['flags']} rank {own['rank']} takes ")
    against = "" if own["rank"] == 1 else " than rank 1"
    assert f"{own['gain']:.0%} less time per token{against} ({own['likely']:.0%} of measured runs" in told
    assert own["peak_memory"] < 80 * GIB
