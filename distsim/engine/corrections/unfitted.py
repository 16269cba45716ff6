"""Notes on what a step time was fitted to: a calibration of the user's own, or nothing under a framework's name."""

from __future__ import annotations

from distsim import catalog
from distsim.engine.calibrated import FITTED, KIND, calibrated
from distsim.engine.corrections.known_runs import has_own
from distsim.engine.jobs.kin import kin_of
from distsim.engine.jobs.resolve import Setup
from distsim.preset_folders import SHIPPED


def unfitted(setup: Setup) -> list[str]:
    """Notes on a fit that is not the shipped one, and on a framework of the user's own under whose name nothing was
    fitted: what it is timed like."""
    return [*own_fit(), *_timed_like(setup)]


def own_fit() -> list[str]:
    """A note on a calibration of the user's own, which times all software, not only what it has runs of."""
    if catalog.origin(KIND, FITTED) == SHIPPED:
        return []
    return [f"step times are by your own calibration, {catalog.path(KIND, FITTED)}, not by the shipped one"]


def _timed_like(setup: Setup) -> list[str]:
    name, kin = setup.framework.name, kin_of(setup.framework, setup.compiled)
    shipped = catalog.shipped_folder() / "frameworks" / f"{name}.toml"
    if shipped.is_file() or has_own(kin):
        return []
    words = f"nothing was fitted to runs of framework {name!r}: "
    if kin.like != name:
        changed = " and ".join(one for one, _ in kin.differs)
        return [f"{words}timed like {kin.like}, as its preset says{changed and f', with its own {changed}'}"]
    families = calibrated(FITTED, lambda table: table.startswith("family.")).get("family", {})
    mend = 'to time it like the preset it was copied from, set e.g. timed_like = "torchtitan" in its preset'
    if kin.family in families:
        return [f"{words}timed like the mean of the {kin.family} family; {mend}"]
    near = "" if kin.family == name else f" (family {kin.family!r} has no runs; known: {', '.join(sorted(families))})"
    return [f"{words}timed by what is common to all frameworks{near}; {mend}"]
