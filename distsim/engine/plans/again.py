"""Which options of a plan are worth a search of all layouts: those that answer it, and those nearly as good."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from distsim.engine.plans import choice
from distsim.engine.plans.candidates import Place
from distsim.engine.plans.choice import Wish
from distsim.engine.plans.plan import Option, cheapest_first
from distsim.engine.plans.rival import rival

NEARLY = 0.05
"""Share of days and dollars by which an option may be beaten and still be searched again: the best of all layouts
is up to 8% quicker than that of the usual ones, by 1.7% in the mean of 24 searches."""
LESS = "0 to 8% slower in most searches"
"""How notes say that: of 25 searches one gained more."""


def searched_again(
    found: Sequence[Option], wish: Wish, again: Callable[[Sequence[Place]], Sequence[Option]]
) -> list[Option]:
    """The options that were ``found``, with those that answer the wish, or nearly, in the best of all layouts: until
    these are what answers it. ``again`` gives the options of some places among all layouts."""
    left = list(found)
    done = {_place(one) for one in left if one.candidate.whole}
    while places := [place for place in _worth(left, wish) if place not in done]:
        fresh = again(places)
        told = {_place(one) for one in fresh}
        done |= {*places, *told}
        left = cheapest_first([*fresh, *(one for one in left if _place(one) not in told)])
    return left


def _place(one: Option) -> Place:
    return one.cluster, one.gpus


def _worth(found: Sequence[Option], wish: Wish) -> list[Place]:
    """The places of the options that answer a wish or miss it by least, and of those that no other beats by much."""
    cheapest, fastest = choice.cheapest(found, wish), choice.fastest(found, wish)
    picked = [cheapest, fastest, choice.surer(found, wish, cheapest) if cheapest else None]
    picked += [rival(found, wish, cheapest)]
    picked += [] if cheapest else choice.nearest(found, wish)
    picked += [one for one in found if not any(_beats(other, one) for other in found)]
    return list(dict.fromkeys(_place(one) for one in picked if one is not None))


def _beats(one: Option, other: Option) -> bool:
    """Whether an option is both faster and cheaper by more than searching again may change."""
    less = 1 - NEARLY
    return one.days <= other.days * less and one.payable_dollars <= other.payable_dollars * less


def usual_layouts(found: Sequence[Option]) -> list[str]:
    """A note on how many options have only the best of the usual layouts, and how to have the best of all."""
    usual = [one for one in found if not one.candidate.whole]
    if not usual:
        return []
    first = usual[0]
    return [
        f"{len(found) - len(usual)} of {len(found)} options, all that answer or nearly, have the best of all layouts; "
        f"the others have the best of the usual ones ({LESS}); e.g. --cluster {first.cluster} --gpus {first.gpus} "
        "tries all there"
    ]
