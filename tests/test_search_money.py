"""What the accelerators of a search cost: whose price, for how many, and what is said about it."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest

from distsim import catalog
from distsim.engine.layouts.bounds import Bounds
from distsim.engine.layouts.money import Wish, rents, wish_for
from distsim.engine.layouts.variants import base_setup
from distsim.engine.plans.pace import campaign_pace
from distsim.engine.plans.prices import Quote, best, price_lists, quotes, recent
from distsim.engine.search import Request, search
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
    assert "nobody's on-demand price for nodes of dgx-h100" in other.note


def test_a_rate_of_ones_own_needs_no_list() -> None:
    base = base_setup(Job(model="gpt2", gpu="titan-rtx"), 1)
    (rent,) = rents(wish_for("$0.75", ()), base, (6,)).values()
    assert rent.usd_per_hour == pytest.approx(4.5) and rent.quote is None and not rent.note
    assert rent.usd_per_million_tokens(1e6) == pytest.approx(4.5 / 3600)
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
