"""``distsim calibrate --nccl-tests`` and ``distsim show topology --nccl-log``: files that NCCL tools write."""

from __future__ import annotations

import json as json_module
import sys
from pathlib import Path
from typing import Any

from distsim.errors import DistsimError


def calibrate_nccl_tests(
    file: str,
    gpu: str | None = None,
    gpus_per_node: int | None = None,
    internode_gbps_per_gpu: float | None = None,
    collective: str | None = None,
    ranks: int | None = None,
    output: str | None = None,
    json: bool = False,
    network: str | None = None,
    cluster: str | None = None,
) -> None:
    """Fit latency and bandwidth to the output of nccl-tests and write a network profile that jobs can use."""
    from distsim import catalog
    from distsim.engine.fitting import nccl_tests as engine
    from distsim.engine.networks.pricing import op_named
    from distsim.interop import nccl_tests
    from distsim.report import talk

    spec = catalog.load("clusters", cluster) if cluster is not None else None
    name = _tested(gpu, cluster, spec.gpu if spec is not None else None)
    found = nccl_tests.read(file, op_named(collective) if collective is not None else None, ranks)
    profile = engine.fit(found, name, gpus_per_node, internode_gbps_per_gpu, network, spec)
    for note in profile.notes:
        talk.note(note)
    if output is None:
        talk.note("nothing is kept: --output FILE writes a network profile, which jobs take as --profile FILE")
    else:
        _write(output, engine.toml(profile, f"{len(found.samples)} measurements of {Path(file).name}"))
    if json:
        print(json_module.dumps(engine.to_dict(profile), indent=1))
        return
    from distsim.report import network_profile

    sys.stdout.write(network_profile.text(profile) + "\n")
    if output is not None:
        sys.stderr.write(f"wrote {output}\n")


def _tested(gpu: str | None, cluster: str | None, its_gpu: str | None) -> str:
    """The accelerator that tests ran on, by name or as that of a cluster. Raises DistsimError for none, or both."""
    if gpu is not None and cluster is not None:
        raise DistsimError(f"--gpu {gpu} and --cluster {cluster} both name the accelerator", "keep one of them")
    name = gpu if gpu is not None else its_gpu
    if name is None:
        told = "--nccl-tests needs the accelerator that the tests ran on"
        raise DistsimError(told, "add e.g. --gpu h100-sxm or --cluster NAME")
    return name


def _write(path: str, text: str) -> None:
    from distsim.cli.whole_file import whole

    with whole(Path(path)) as scratch:
        scratch.write_text(text, encoding="utf-8")


def show_topology(nccl_log: str, json: bool = False) -> None:
    """Draw the rings and trees of an NCCL log."""
    from distsim.interop import nccl_log as reader

    topology = reader.read(nccl_log)
    if json:
        print(json_module.dumps(_to_dict(topology), indent=1))
        return
    from distsim.report import terminal
    from distsim.report import topology as report

    sys.stdout.write(report.text(topology, terminal.unicode()) + "\n")


def _to_dict(topology: Any) -> dict[str, Any]:
    return {
        "schema": "distsim.topology/1",
        "version": topology.version,
        "ranks": topology.ranks,
        "rings": {str(channel): list(ring) for channel, ring in topology.rings.items()},
        "trees": {str(channel): tree.parents for channel, tree in topology.trees.items()},
        "connections": [edge._asdict() for edge in topology.edges],
        "graphs": [graph._asdict() for graph in topology.graphs],
    }
