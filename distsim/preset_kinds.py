"""The kinds of presets: whose spec each is, and what people call them."""

from __future__ import annotations

from distsim.errors import DistsimError, did_you_mean

# kind -> (module, class); a kind without a class is plain data
KINDS: dict[str, tuple[str, str] | None] = {
    "models": ("distsim.specs.model", "Model"),
    "gpus": ("distsim.specs.accelerator", "Accelerator"),
    "architectures": ("distsim.specs.architecture", "Architecture"),
    "links": None,
    "clusters": ("distsim.specs.cluster", "Cluster"),
    "frameworks": ("distsim.specs.framework", "Framework"),
    "precisions": ("distsim.specs.precision", "Precision"),
    "optimizers": ("distsim.specs.optimizer", "Optimizer"),
    "quantizations": ("distsim.specs.quantization", "Quantization"),
    "losses": ("distsim.specs.loss", "Loss"),
    "prices": ("distsim.specs.price", "Price"),
    "storage": ("distsim.specs.storage", "Storage"),
    "failures": ("distsim.specs.failures", "Failures"),
    "facilities": ("distsim.specs.facility", "Facility"),
    "power": ("distsim.specs.power", "PowerDraw"),
    "timing": None,
    "runs": None,
}
BASED = frozenset({"frameworks", "gpus"})
"""Kinds of which one preset may state only what differs from another (preset_bases.py)."""
DEFAULT_GPU = "a100-sxm4-80gb"
"""The accelerator of a job, or of a collective, that names neither one nor a cluster."""
SUFFIXES = {"runs": ".csv"}
SPOKEN = {"prices": "price list", "failures": "failures preset", "facilities": "facility", "power": "power profile",
          "losses": "loss"}  # fmt: skip
"""What one preset is called where it is not the kind without its s."""
ELSEWHERE = {"schedule": "distsim pipeline --list", "schedules": "distsim pipeline --list"}
"""What is no preset, and what lists it."""


def called(word: str) -> str | None:
    """The kind that a word is the name of, singular or plural: ``gpu`` and ``gpus`` are both ``gpus``."""
    lower = word.lower()
    return next((kind for kind in KINDS if lower in (kind, kind.removesuffix("s"), SPOKEN.get(kind))), None)


def kind_of(word: str) -> str:
    """The kind a word means; raises where it means none."""
    if kind := called(word):
        return kind
    lower = word.lower()
    if lower in ELSEWHERE:
        raise DistsimError(f"there are no presets of {word}", f"list them with: {ELSEWHERE[lower]}")
    raise DistsimError(f"unknown kind {word!r}", did_you_mean(lower, KINDS), f"kinds: {', '.join(KINDS)}")
