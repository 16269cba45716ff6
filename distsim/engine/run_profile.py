"""What a measured run ran on: the profile of its software and its year, its recipe of precision, its cluster."""

from __future__ import annotations

from distsim import catalog
from distsim.engine.lacking import COMPILED_ONLY
from distsim.engine.run_software import chip_of, told_software
from distsim.errors import DistsimError
from distsim.interop.run_release import release_year
from distsim.interop.runs import MissingCell, Run
from distsim.specs.cluster import Cluster
from distsim.specs.framework import Framework
from distsim.specs.timing import family_of
from distsim.units import parse

PRECISIONS = {
    "bf16": "bf16", "fp16": "fp16", "fp32": "fp32", "fp8": "fp8", "fp8-mx": "mxfp8", "mxfp8": "mxfp8", "nvfp4": "nvfp4",
    "int8": "fp8",
}  # fmt: skip
"""Precision cells as recipes; a framework's ``usual.<recipe>`` says what it really does under that name."""
EFA, EFA_NODES = "/node, EFA", {"h100-sxm": "p5.48xlarge"}
"""What notes say of AWS's network, and the node that has it."""
USUAL_YEAR = 2024.0
UNKNOWN_SPLIT, UNKNOWN_TUNING, UNKNOWN = "megatron-lm", "huggingface", "fsdp"
"""Whose profile stands for unknown software that splits models, that fine-tunes adapters, and for any other."""


def run_year(run: Run) -> float:
    """The year of a run's software, to the month where a release is named; of the middle of all where nobody says."""
    return release_year(run) or run.number("year") or USUAL_YEAR


def framework_of(run: Run) -> Framework:
    """The software profile of a row."""
    framework: Framework = catalog.load("frameworks", _profile_of(run)[0])
    older = framework.usual.get("older")
    if older and run_year(run) <= framework.usual["older_until"]:
        return catalog.load("frameworks", older)  # type: ignore[no-any-return]
    return framework


def _profile_of(run: Run) -> tuple[str, str]:
    """The name of a row's profile, and what was assumed where its cell names none."""
    name = run.text("framework")
    if name is None:
        raise MissingCell("framework is blank")
    if told := told_software(run):
        return told, ""
    only = COMPILED_ONLY.get(chip_of(run))
    if catalog.knows("frameworks", name):
        if only is None or family_of(catalog.load("frameworks", name).name) == family_of(only):
            return name, ""
        return only, f"framework {name!r} does not run on {run.text('gpu')}: timed like {only}"
    split = max(run.count("tp") or 1, run.count("pp") or 1) > 1
    other = UNKNOWN_SPLIT if split else UNKNOWN_TUNING if run.text("lora_rank") else UNKNOWN
    taken = only or other
    return taken, f"framework {name!r} has no profile: timed like {taken}"


def assumed_profile(run: Run) -> str:
    """Whose profile a replay takes where the cell names none that there is; nothing where it does."""
    return _profile_of(run)[1]


def precision_of(run: Run, framework: Framework, default: str = "bf16") -> str:
    """The recipe of a row: what its framework really does under the name in the cell."""
    cell = run.text("precision") or ""
    recipe = cell if f"precision_{cell}" in framework.usual else PRECISIONS.get(cell, default)
    return str(framework.usual.get(f"precision_{recipe.replace('-', '_')}", recipe))


def cluster_of(run: Run) -> Cluster | None:
    """The GPU's usual node, or that of a cloud whose network the notes name, with the row's own count of GPUs and
    network rate where it gives them."""
    name = run.text("gpu")
    assert name is not None
    try:
        on_efa = EFA in (run.text("notes") or "") and name in EFA_NODES
        usual: Cluster = catalog.load("clusters", EFA_NODES[name]) if on_efa else catalog.usual_cluster(name)
    except DistsimError:
        return None
    per_node = run.count("gpus_per_node")
    rate = run.number("internode_gbps_per_gpu")
    if per_node is None and rate is None:
        return usual
    return usual.adapted(per_node, parse(f"{rate} Gb/s", "B/s") if rate else None)
