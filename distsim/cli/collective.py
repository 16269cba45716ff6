"""``distsim comm --collective``: prices one collective over sizes, as nccl-tests measures it."""

from __future__ import annotations

import sys
from typing import Any

from distsim.errors import DistsimError
from distsim.preset_kinds import DEFAULT_GPU
from distsim.specs.flags import words

_SMALLEST = 8  # bytes, where nccl-tests sweeps usually begin


def price_collective(
    op: str,
    size: str | None = None,
    sweep_from: str | None = None,
    json: bool = False,
    explain: bool = False,
    *,
    gpu: str | None = None,
    gpus: int | None = None,
    cluster: str | None = None,
    **links: Any,
) -> None:
    """Print time, algorithm and bus bandwidth for sizes up to ``size`` (1 GiB), doubling from ``sweep_from``, or where
    the largest one's come from; ``links`` are further options of ``collective``."""
    from distsim.engine.collective import Collective, collective, group_on
    from distsim.report import talk
    from distsim.units import GIB, parse

    last = _whole(parse(size, "B", "--bytes")) if size is not None else GIB
    first = _whole(parse(sweep_from, "B", "--from")) if sweep_from is not None else min(last, _SMALLEST)
    where, count = _place(cluster, gpu, gpus, links.get("gpus_per_node"))
    found: list[Collective] = [collective(op, bytes=one, gpus=count, **where, **links) for one in sizes(first, last)]
    group = group_on(gpus=count, **where, **links)
    notes = _notes(op, group, count, where, links)
    for note in notes:
        talk.note(note)
    if json:
        _print_json(found, notes, group if explain else None)
        return
    from distsim.report import collective as report
    from distsim.report import terminal

    if found[-1].wire_bytes_per_rank == 0:
        raise DistsimError(f"{found[-1].op} on one GPU exchanges nothing", "use --gpus 2 or more")
    place = cluster or str(where["gpu"])
    if explain:
        _print_explained(found[-1], group, report.heading(found, place))
        return
    sys.stdout.write(report.text(found, place, terminal.unicode(), terminal.width()) + "\n")


def _notes(op: str, group: Any, count: int, where: dict[str, Any], links: dict[str, Any]) -> list[str]:
    """What is said of chip, links and profile, and of options that have no effect."""
    from distsim import catalog
    from distsim.engine.exchanges.profile_use import unused_by_group
    from distsim.engine.networks.pricing import op_named
    from distsim.engine.networks.unknown import unknown_architecture, unknown_links

    unused = unused_by_group(links.get("profile"), op_named(op), group)
    chip = catalog.load("gpus", where["gpu"] if "gpu" in where else where["cluster"].gpu)
    of_links = unknown_links(chip, where.get("cluster"), count)
    supposed = _supposed(links, **where) if group.nodes > 1 else ""
    idle = _idle(links) if group.nodes == 1 else ()
    return [note for note in (unknown_architecture(chip), *of_links, supposed, unused, *idle) if note]


def _idle(links: dict[str, Any]) -> list[str]:
    """Notes on what is stated of a network that a group inside one domain does not use."""
    stated = ((name, links.get(name)) for name in ("network", "internode_gbps_per_gpu"))
    return [
        f"{' '.join(words(name, value))} has no effect: all GPUs share one domain of fast links"
        for name, value in stated if value is not None
    ]  # fmt: skip


def _supposed(links: dict[str, Any], gpu: str = "", cluster: Any = None) -> str:
    from distsim.engine.networks.supposed import supposed_kind

    if cluster is not None:
        return ""
    return supposed_kind(gpu, links.get("gpus_per_node"), links.get("internode_gbps_per_gpu"), links.get("network"))


def _whole(size: float) -> int:
    from distsim.engine.collective import LARGEST

    if not 1 <= size <= LARGEST:
        raise DistsimError(
            f"{size:,.6g} bytes is not a valid collective size",
            f"give 1 byte to {LARGEST:,} bytes (1 PiB), such as 1GB",
        )
    return round(size)


def sizes(first: int, last: int) -> list[int]:
    """Sizes that double up to ``last``, which is always among them."""
    if first > last:
        raise DistsimError(f"the first size, {first:,} bytes, is above the last, {last:,}", "swap them")
    found = [first]
    while found[-1] * 2 < last:
        found.append(found[-1] * 2)
    return found if found[-1] == last else [*found, last]


def _place(
    cluster: str | None, gpu: str | None, gpus: int | None, gpus_per_node: int | None
) -> tuple[dict[str, Any], int]:
    """Cluster or GPU as ``collective`` wants them, and how many ranks: one node where the user states neither."""
    from distsim import catalog

    if cluster is not None:
        spec = catalog.load("clusters", cluster)
        if gpu is not None:
            raise DistsimError(f"--gpu {gpu} and --cluster {cluster} both name the accelerator", "keep one of them")
        return {"cluster": spec}, gpus or (spec.nodes or 1) * spec.gpus_per_node
    name = DEFAULT_GPU if gpu is None else gpu
    if gpus is None:
        gpus = gpus_per_node or catalog.usual_cluster(name).gpus_per_node
    return {"gpu": name}, gpus


def _print_explained(one: Any, group: Any, heading: str) -> None:
    from distsim.report.collective_explain import lines
    from distsim.report.explain import wrapped
    from distsim.report.style import style

    term = style()
    for line in lines(one, group, term.bold(heading)):
        for part in wrapped(term.plain(line)):
            sys.stdout.write(part + "\n")


def _print_json(found: list[Any], notes: list[str], explained: Any) -> None:
    """``explained``: the group whose largest size has figures."""
    import json

    answer = {"schema": "distsim.collective/1", "sizes": [one.to_dict() for one in found], "notes": notes}
    if explained is not None:
        from distsim.report.collective_explain import as_data

        answer["figures"] = as_data(found[-1], explained)
    print(json.dumps(answer, indent=1))
