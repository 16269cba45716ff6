"""Whether a network profile says anything of what is exchanged: one that does not would change nothing, unsaid."""

from __future__ import annotations

from distsim.engine.jobs.resolve import Setup
from distsim.engine.jobs.stages import build_stages
from distsim.engine.networks.link_factors import FAMILIES, factors
from distsim.engine.networks.network import Group
from distsim.engine.networks.pricing import factor_keys


def unused_by_group(profile: str | None, op: str, group: Group) -> str:
    """A note where a profile has no factor that one collective on a group takes, or nothing."""
    return "" if profile is None else _note(profile, factor_keys(FAMILIES[op], group))


def unused_by_job(setup: Setup) -> tuple[str, ...]:
    """A note where a job's profile has no factor that any of its exchanges takes."""
    from distsim.engine.exchanges.all_flows import network_of, stage_flows
    from distsim.engine.jobs.exchange import exchange_of

    profile = setup.job.profile
    if profile is None:
        return ()
    network, exchange = network_of(setup), exchange_of(setup)
    taken = {
        key
        for stage in build_stages(setup)
        for flow in stage_flows(setup, exchange, network, stage)
        if flow.fixed is None
        for key in factor_keys(FAMILIES[flow.pattern], flow.span.placed(network))
    }
    return tuple(filter(None, [_note(profile, taken)]))


def _note(profile: str, taken: set[str]) -> str:
    stated = factors(profile).keys()
    if stated & taken:
        return ""
    words = f"this traffic uses those of {', '.join(sorted(taken))}" if taken else "nothing here uses factors"
    return f"--profile {profile} has no effect: it has factors of {', '.join(sorted(stated))}, and {words}"
