"""Which clusters somebody rents out or sells, which of them a plan asks for, and why there may be none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from distsim import catalog
from distsim.architectures import traits_of
from distsim.engine.campaigns.prices import Quote, cluster_file, covers, price_lists, quotes, recent, terms_known
from distsim.engine.plans.offers import for_sale
from distsim.errors import DistsimError
from distsim.specs.accelerator import Accelerator
from distsim.specs.price import OWNED
from distsim.units import GIGA

if TYPE_CHECKING:
    from distsim.engine.plans.request import Request

LEAST_MEMORY = 40 * GIGA
"""Of accelerators that a plan looks at unless they are named: as the smallest GPUs in presets/runs/whole.csv have."""


def sold_whole(offered: Sequence[Quote], sizes: Sequence[int]) -> dict[str, str]:
    """Clusters that are offered for rent in whole nodes, or in parts of one that hold a job of a stated size; with
    their accelerators."""
    return {quote.cluster: quote.gpu for quote in offered if quote.cluster and _holds(quote, sizes)}


def _holds(quote: Quote, sizes: Sequence[int]) -> bool:
    spec = catalog.load("clusters", quote.cluster)
    parts = [size for size in sizes if size % quote.gpus_per_instance == 0]
    return any(covers(quote, size, spec) for size in (spec.gpus_per_node, *parts))


def asked_for(request: Request, sold: dict[str, str]) -> list[str]:
    """The sold clusters that a request asks for, or all that can train where it names none."""
    wanted = {catalog.load("gpus", name).name for name in request.gpus}
    named = set(map(cluster_file, request.clusters))
    _agree(wanted, {name: gpu_of(name) for name in request.clusters})
    chosen = [
        cluster for cluster, gpu in sold.items()
        if (not wanted or gpu in wanted) and (wanted or named or _can_train(cluster))
        and (not named or cluster_file(cluster) in named)
    ]  # fmt: skip
    if not chosen:
        raise _not_sold(request, sold, named)
    return sorted(chosen)


def chip_of(cluster: str) -> Accelerator:
    """A cluster's accelerator, whose own name may be no preset's."""
    gpu: Accelerator = catalog.load("gpus", catalog.load("clusters", cluster).gpu)
    return gpu


def gpu_of(cluster: str) -> str:
    """The own name of a cluster's accelerator, which its file may call otherwise."""
    return chip_of(cluster).name


def _not_sold(request: Request, sold: dict[str, str], named: set[str]) -> DistsimError:
    """The error for when nobody rents out or sells what is asked for, with all that would be an answer; ``named`` are
    the files of its clusters."""
    gpus = {catalog.load("gpus", name).name for name in request.gpus}
    gpus = gpus or set(map(gpu_of, request.clusters))

    def fits(quote: Quote) -> bool:
        of_cluster = not named or cluster_file(quote.cluster) in named
        return of_cluster and (not gpus or quote.gpu in gpus) and _holds(quote, ())

    whole = terms_known(lambda quote: bool(quote.cluster) and fits(quote), request.providers)
    there = (*whole, OWNED) if for_sale(request) else tuple(whole)
    rest = [term for term in there if term not in request.price_terms]
    other = [f"other terms: --price {', '.join(rest)}"] if rest else []
    rate = ["a rate of your own, e.g. --price 2.50"] if gpus else []
    asked = ", ".join([*request.gpus, *request.clusters]) or "the providers asked for"
    whose = f" from {', '.join(request.providers)}" if request.providers and (gpus or named) else ""
    return DistsimError(
        f"no {' or '.join(request.price_terms)} price is known for whole nodes of {asked}{whose}",
        *alike(request, sold),
        _part(request, gpus),
        f"with such a price: {', '.join(sorted(set(sold.values()))) or 'none'}" if not named else "",
        "; or ".join([*other, *rate, "your own prices: presets/prices/NAME.toml"]),
    )


def _part(request: Request, gpus: set[str]) -> str:
    """The cheapest rent of a part of a node of some accelerators, which nobody rents out whole."""
    lists = price_lists(request.providers)
    known = [quote for term in request.price_terms for quote in recent(quotes(lists, term))]
    found = [
        quote for quote in known if quote.gpu in gpus and quote.cluster and _holds(quote, (quote.gpus_per_instance,))
    ]
    least = min(found, key=lambda quote: quote.usd_per_gpu_hour, default=None)
    if least is None:
        return ""
    rate = f"${least.usd_per_gpu_hour:,.2f} per GPU-hour from {least.whose}"
    return f"fewer than a node are for rent: --gpus {least.gpus_per_instance}, {rate}"


def _agree(gpus: set[str], clusters: dict[str, str]) -> None:
    """Refuses accelerators (--gpu) that none of the named clusters (--cluster) has."""
    if gpus and clusters and not gpus & set(clusters.values()):
        name, gpu = next(iter(clusters.items()))
        raise DistsimError(
            f"cluster {name} has {gpu}, but --gpu says {', '.join(sorted(gpus))}",
            "keep one of them, or name a cluster with that GPU",
        )


def unmatched(request: Request) -> list[str]:
    """Notes on accelerators that none of the clusters asked for has, and on clusters with others than those asked
    for."""
    wanted = {catalog.load("gpus", name).name for name in request.gpus}
    told = []
    if request.clusters and (nowhere := sorted(wanted - set(map(gpu_of, request.clusters)))):
        told.append(f"left out: {', '.join(nowhere)}, which none of the clusters asked for has")
    if wanted and (others := [name for name in request.clusters if gpu_of(name) not in wanted]):
        told.append(f"left out: {', '.join(others)}, whose accelerators are not those asked for")
    return told


def alike(request: Request, sold: dict[str, str]) -> list[str]:
    """What of the kind of each cluster that was asked for is ``sold``."""
    return [similar(name, sold) for name in sorted(request.clusters)]


def similar(cluster: str, sold: dict[str, str]) -> str:
    """What of a cluster's kind has a price."""
    gpu = gpu_of(cluster)
    same = sorted(name for name, other in sold.items() if other == gpu)
    return f"similar to {cluster}, with prices: --gpu {gpu}, or --cluster {', '.join(same)}" if same else ""


def _can_train(cluster: str) -> bool:
    accelerator = chip_of(cluster)
    able = accelerator.peak.bf16 is not None and accelerator.memory >= LEAST_MEMORY
    return able and traits_of(accelerator).common
