"""What settings that change no layout would save of a plan's option, in words."""

from __future__ import annotations

from distsim.engine.plans.plan import Option
from distsim.engine.plans.planner import Plan
from distsim.report.plan_words import days
from distsim.units import dollars


def saving_words(made: Plan, option: Option) -> str:
    """What to add to the command, and the dollars and days that it would save; nothing where nothing would."""
    found = made.saving(option)
    if found is None:
        return ""
    return (
        f"{found.flags}: {dollars(found.saved_dollars)} and {days(found.saved_days)} less in this layout "
        f"({days(found.days)}, {dollars(found.dollars)}; {found.likely:.0%} of measured runs so full would fit); added "
        "to the command, other layouts may save more"
    )


def saving_lines(made: Plan, option: Option) -> list[str]:
    """The same as a line of the answer."""
    return [f"settings    {words}"] if (words := saving_words(made, option)) else []
