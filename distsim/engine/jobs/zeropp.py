"""Parts of ZeRO++ (arXiv:2306.10209) that a job states, and the layouts that have them."""

from distsim.engine.jobs.resolve import Setup
from distsim.errors import DistsimError

ZEROPP = ("qwz", "hpz", "qgz")
_OF_NODES = {"hpz", "qgz"}
"""Parts whose groups are all ranks of a node (deepspeedai/DeepSpeed utils/groups.py, _create_zero_param_parallel_group
and _get_local_all_to_all_group): neighbouring ranks of the job are taken for copies of one model, so there is no
tensor, pipeline or expert parallelism, and nodes are whole."""


def zeropp_of(setup: Setup, text: str) -> frozenset[str]:
    """The parts that a job states in ``text``; raises DistsimError where its layout has none of them."""
    layout = setup.layout
    parts = frozenset(text.replace(",", " ").lower().split())
    if unknown := sorted(parts - set(ZEROPP)):
        raise DistsimError(f"unknown part of ZeRO++: {', '.join(unknown)}", f"parts: {', '.join(ZEROPP)}")
    if layout.zero != 3:
        raise DistsimError(f"--zeropp {text} builds on ZeRO 3, but zero is {layout.zero}", "add --zero 3")
    if layout.zero_group != layout.dp * layout.cp:
        raise DistsimError(
            f"--zeropp {text} shards over all {layout.dp * layout.cp} data parallel ranks", "leave --zero-group out"
        )
    _check_nodes(setup, parts & _OF_NODES)
    return parts


def _check_nodes(setup: Setup, parts: frozenset[str]) -> None:
    layout, domain = setup.layout, setup.cluster.domain
    if layout.tp * layout.cp * layout.dp <= domain:
        raise DistsimError(
            f"ZeRO++ saves traffic between nodes, but one domain holds all {layout.dp * layout.cp} data parallel ranks",
            f"use more than {domain} GPUs, or leave --zeropp out",
        )
    if not parts:
        return
    split = [(name, degree) for name, degree in (("tp", layout.tp), ("pp", layout.pp), ("ep", layout.ep)) if degree > 1]
    if split:
        told = " and ".join(f"{name} is {degree}" for name, degree in split)
        raise DistsimError(
            f"--zeropp {setup.job.zeropp} needs all GPUs of a node as data parallel ranks, but {told}",
            f"leave {' and '.join(f'--{name}' for name, _ in split)} out, or use --zeropp qwz alone",
        )
    if layout.gpus % domain:
        raise DistsimError(
            f"ZeRO++ needs equally many data parallel ranks on each node, but with {layout.gpus} GPUs one node has "
            f"only {layout.gpus % domain}",
            f"use whole nodes of {domain} GPUs, or --zeropp qwz alone",
        )
