"""What the accelerators of a search cost: whose price, for how many, and what is said about it."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from shell import piped

from distsim import catalog
from distsim.engine.campaigns.pace import campaign_pace
from distsim.engine.campaigns.prices import Quote, best, price_lists, quotes, recent
from distsim.engine.layouts.bounds import Bounds
from distsim.engine.layouts.money import Wish, rents, wish_for
from distsim.engine.layouts.report import Request
from distsim.engine.layouts.search import search
from distsim.engine.layouts.variants import base_setup
from distsim.errors import DistsimError
from distsim.specs.job import Job

KNOWN = recent(quotes(price_lists(), "on-demand"))
SIZES = (1, 4, 8, 24)


def known_gpus() -> list[str]:
    with_cluster = {one.gpu for one in KNOWN if catalog.load("gpus", one.gpu).default_cluster}
    return sorted(with_cluster)


@pytest.mark.parametrize("gpu", known_gpus())
def test_a_price_is_the_cheapest_of_whole_instances(gpu: str) -> None:
    base = base_setup(Job(model="gpt2", gpu=gpu), 1)
    mine = [one for one in KNOWN if one.gpu == base.accelerator.name]
    for gpus, rent in rents(Wish(), base, SIZES).items():
        quote = rent.quote
        assert quote is not None and rent.usd_per_gpu_hour == quote.usd_per_gpu_hour
        assert gpus <= rent.billed_gpus < gpus + quote.gpus_per_instance
        assert rent.billed_gpus % quote.gpus_per_instance == 0
        assert rent.usd_per_hour == pytest.approx(rent.billed_gpus * quote.usd_per_gpu_hour)
        assert rent.usd_per_hour >= gpus * min(one.usd_per_gpu_hour for one in mine) * (1 - 1e-12)
        nodes = [
            one for one in mine
            if gpu.startswith("tpu")  # slices of a pod
            or one.gpus_per_instance >= min(gpus, catalog.load("clusters", one.cluster).gpus_per_node)
        ]  # fmt: skip
        sure = bool(nodes) and quote.cluster == base.cluster.name
        assert sure == (not rent.note)  # another cluster's price, or a smaller instance's, is said to be one
        assert rent.usd_per_hour <= min(map(partial(paid, gpus), nodes), default=rent.usd_per_hour) * (1 + 1e-12)


def paid(gpus: int, quote: Quote) -> float:
    return -(-gpus // quote.gpus_per_instance) * quote.gpus_per_instance * quote.usd_per_gpu_hour


@pytest.mark.parametrize("gpu", ["h100-sxm", "h200-sxm", "b200-sxm"])
def test_a_search_pays_what_a_plan_pays(gpu: str) -> None:
    base = base_setup(Job(model="gpt2", gpu=gpu), 64)
    clusters = {one.cluster for one in KNOWN if one.gpu == gpu}
    planned = min(one.usd_per_gpu_hour for name in clusters for one in best(KNOWN, name, 64))
    (rent,) = rents(Wish(), base, (64,)).values()
    assert rent.usd_per_gpu_hour == planned


def test_a_stated_cluster_has_its_own_price() -> None:
    """DGX B200 has dearer offers of its own than the cheapest B200: they are taken where the cluster is stated."""
    usual, stated = Job(model="gpt2", gpu="b200-sxm"), Job(model="gpt2", cluster="dgx-b200")
    ((any_of_them,), (own,)) = (rents(Wish(), base_setup(job, 64), (64,)).values() for job in (usual, stated))
    assert own.quote is not None and own.quote.cluster == "dgx-b200" and not own.note
    assert any_of_them.usd_per_hour < own.usd_per_hour and "--cluster" in any_of_them.note
    (other,) = rents(Wish(), base_setup(Job(model="gpt2", cluster="dgx-h100"), 64), (64,)).values()
    assert "no on-demand price is known for nodes of dgx-h100" in other.note


def test_a_rate_of_ones_own_needs_no_list() -> None:
    base = base_setup(Job(model="gpt2", gpu="titan-rtx"), 1)
    (rent,) = rents(wish_for("$0.75", ()), base, (6,)).values()
    assert rent.usd_per_hour == pytest.approx(4.5) and rent.quote is None and not rent.note
    assert rent.usd_per_million_tokens(1e6) == pytest.approx(4.5 / 3600 * campaign_pace())
    with pytest.raises(DistsimError, match="no on-demand price of titan-rtx is known"):
        rents(Wish(), base, (6,))


def test_terms_and_providers_are_kept_to() -> None:
    base = base_setup(Job(model="gpt2", cluster="p5.48xlarge"), 1)
    (spot,) = rents(wish_for("spot", ["aws"]), base, (8,)).values()
    (usual,) = rents(wish_for(None, ["aws"]), base, (8,)).values()
    assert spot.quote is not None and usual.quote is not None
    assert (spot.quote.term, usual.quote.term) == ("spot", "on-demand")
    assert {spot.quote.provider, usual.quote.provider} == {"AWS"} and spot.usd_per_hour < usual.usd_per_hour
    for wrong in ("soon", "-1", "0", "2000", "nan"):
        with pytest.raises(DistsimError):
            wish_for(wrong, ())


def test_deadlines_are_at_the_pace_of_campaigns() -> None:
    """As in a plan: what a search calls quick enough is not too late there."""
    job = Job(model="llama-2-7b", gpu="h100-sxm", global_batch=1024, seq=4096, tp=1, pp=1)
    request = Request(job, (32,), Bounds(), tokens=300e9, top=1)
    free = search(request)
    seconds = free.training_seconds(free.best[0])
    assert seconds == pytest.approx(300e9 / free.best[0].report.tokens_per_second * campaign_pace())
    assert search(replace(request, deadline=seconds * 1.01)).best
    assert not search(replace(request, deadline=seconds * 0.99)).best


CLUSTER = """
name = "ours"
gpu = "h100-sxm"
gpus_per_node = 8
domain = 8
[fabric]
kind = "nvswitch"
rate = "450 GB/s"
[network]
kind = "ib"
nics = 8
nic_rate = "400 Gb/s"
[source]
other = "x"
checked = 2026-11-22
"""
OFFERS = """
provider = "Ours"
currency = "USD"
[[offers]]
instance = "8x"
gpu = "h100-sxm"
gpus = 8
cluster = "ours.toml"
on_demand = 2.5
reserved_1y = 1.5
date = "2026-11-01"
source = "offer"
"""
ASKED = ("llama-2-7b", "--tp", "1", "--pp", "1", "--recompute", "none", "--zero", "1", "--top", "1", "--json")


@pytest.fixture
def own(tmp_path: Path) -> tuple[str, ...]:
    """Options of a search and of a plan on a cluster and with prices of one's own."""
    for name, text in (("ours", CLUSTER), ("offers", OFFERS)):
        (tmp_path / f"{name}.toml").write_text(text, encoding="utf-8")
    return ("--cluster", str(tmp_path / "ours.toml"), "--provider", str(tmp_path / "offers.toml"))


def test_tokens_per_dollar_are_those_of_a_plan(own: tuple[str, ...]) -> None:
    """A plan counts failures on top."""
    asked = (*ASKED[:-3], *own, "--gpus", "64", "--tokens", "1T", "--global-batch", "1024", "--json")
    best = json.loads(piped("search", *asked, "--top", "1").stdout)["layouts"][0]
    assert best["usd"] == pytest.approx(best["usd_per_million_tokens"] * 1e6)
    planned = json.loads(piped("plan", *asked).stdout)["options"][0]
    assert planned["step_seconds"] == pytest.approx(best["seconds"])
    per_dollar = 1e6 / best["usd_per_million_tokens"]
    assert per_dollar * planned["goodput"] == pytest.approx(planned["tokens_per_dollar"])


def test_a_search_says_what_a_reservation_owes(own: tuple[str, ...]) -> None:
    """64 at $1.50 for a year are $840,960; a run of two years owes two of them."""
    asked = (*ASKED, *own, "--gpus", "64", "--price", "reserved-1y")
    short, long = (json.loads(piped("search", *asked, "--tokens", tokens).stdout) for tokens in ("1T", "40T"))
    assert 365 < long["layouts"][0]["training_days"] < 730
    assert [one["layouts"][0]["committed_usd"] for one in (short, long)] == pytest.approx([840_960, 2 * 840_960])
    assert short["layouts"][0]["usd"] < 0.1 * 840_960
    assert short["prices"][0]["committed_usd"] == pytest.approx(840_960)
    text = piped("search", *asked[: len(ASKED) - 1], *asked[len(ASKED) :], "--tokens", "1T").stdout
    assert "owed for each full term: $841k for 64 GPUs" in " ".join(text.split())
    assert any(line.split()[:1] == ["#"] and "owed" in line.split() for line in text.splitlines())
    hourly = json.loads(piped("search", *ASKED, *own, "--gpus", "64", "--tokens", "1T").stdout)
    assert (hourly["layouts"][0]["committed_usd"], hourly["prices"][0]["committed_usd"]) == (None, None)


def test_offers_on_a_cluster_of_ones_own_are_its_price(own: tuple[str, ...]) -> None:
    """The offer names the file of the cluster, the cluster has a name in it."""
    done = piped("search", *ASKED, *own, "--gpus", "64", "--price", "on-demand")
    assert "price is known" not in done.stderr and "may differ" not in done.stderr
    assert json.loads(done.stdout)["prices"][0]["usd_per_gpu_hour"] == 2.5


def test_what_groups_of_ranks_leave_idle_of_racks_is_told(tmp_path: Path) -> None:
    """256 GPUs of groups of 64 fill four racks of 72, and 288 of them five; a search counts the GPUs alone."""
    mine = tmp_path / "mine.toml"
    mine.write_text(
        'provider = "racks"\ncurrency = "USD"\n[[offers]]\ninstance = "one rack"\ngpu = "gb200"\ngpus = 72\n'
        'cluster = "gb200-nvl72"\non_demand = 3.0\ndate = "2026-11"\nsource = "their quote"\n'
    )
    fixed = ("--tp", "8", "--ep", "8", "--etp", "8", "--pp", "1", "--cp", "1", "--zero", "1", "--micro-batch", "1",
             "--recompute", "none", "--seq", "4096", "--objective", "cost-per-token", "--json")  # fmt: skip
    words = ("mixtral-8x7b", "--cluster", "gb200-nvl72", "--provider", str(mine), *fixed)
    for gpus, billed, paid in (("256", 288, ""), ("576", 576, "that is 648, of which dollars count 576")):
        found = json.loads(piped("search", *words, "--gpus", gpus, "--global-batch", gpus).stdout)
        assert [one["billed_gpus"] for one in found["prices"]] == [billed]
        told = [note for note in found["notes"] if note.startswith("groups of ranks")]
        assert [paid in note for note in told] == ([True] if paid else [])
