"""A note on a framework under whose name nothing was fitted."""

from __future__ import annotations

from distsim import catalog
from distsim.engine.calibrated import FITTED, calibrated
from distsim.engine.corrections.known_runs import has_own
from distsim.engine.jobs.kin import kin_of
from distsim.engine.jobs.resolve import Setup


def unfitted(setup: Setup) -> list[str]:
    """A note on a framework of the user's own under whose name nothing was fitted: what it is timed like."""
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
