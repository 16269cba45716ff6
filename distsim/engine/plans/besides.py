"""What a run costs besides its machines: checkpoints and tokens in storage, a checkpoint that leaves at the end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from distsim.engine.campaigns.prices import price_lists
from distsim.engine.plans.plan import Option
from distsim.formulas import money
from distsim.specs.dates import span
from distsim.specs.model import Model
from distsim.specs.price import Price, Service
from distsim.units import DAY

USUAL_KEPT = 10
"""Checkpoints that are kept, where nobody says; an assumption of the planner."""
SMALL_VOCABULARY = 65_500
"""Tokens of smaller ones are stored in 2 bytes, of larger ones in 4 (Megatron-LM, indexed_dataset.py)."""


@dataclass(frozen=True)
class Besides:
    """Dollars on top of the rent; None where the provider's price is not known."""

    kept: int
    checkpoint_bytes: int
    token_bytes: int | None
    """None where what the model reads is no text."""
    storage: Service | None
    storage_dollars: float | None
    egress: Service | None
    egress_dollars: float | None

    def to_dict(self) -> dict[str, Any]:
        """Plain data, each price with its date and source."""
        return {
            "checkpoints_kept": self.kept, "checkpoint_bytes": self.checkpoint_bytes, "token_bytes": self.token_bytes,
            "storage_dollars": self.storage_dollars, "storage_price": _told(self.storage),
            "egress_dollars": self.egress_dollars, "egress_price": _told(self.egress),
        }  # fmt: skip


def besides(option: Option, model: Model, kept: int, lists: Sequence[str] = ()) -> Besides:
    """Storage and egress of an option, by the services that its provider's price list states; no more checkpoints are
    kept than are written."""
    kept = int(min(kept, option.candidate.goodput.checkpoints))
    own = [prices for prices in price_lists(lists) if prices.provider == option.quote.provider]
    held = round(option.candidate.checkpoint_bytes)
    text = model.patches is None and model.frames is None
    tokens = round(option.tokens * (2 if model.vocab < SMALL_VOCABULARY else 4)) if text else None
    storage, egress = (_cheapest(own, kind) for kind in ("storage", "egress"))
    return Besides(
        kept, held, tokens,
        storage, None if storage is None else float(
            money.storage_dollars(kept * held + (tokens or 0), option.days * DAY, storage.price)
        ),
        egress, None if egress is None else float(money.egress_dollars(held, egress.price)),
    )  # fmt: skip


def _cheapest(lists: Sequence[Price], kind: str) -> Service | None:
    """The newest price of a kind, the cheapest of those; in dollars."""
    found = [
        one.model_copy(update={"price": one.price * prices.usd_per_unit})
        for prices in lists for one in prices.services if one.kind == kind
    ]  # fmt: skip
    return min(found, key=lambda one: (-span(one.date)[1].toordinal(), one.price), default=None)


def _told(service: Service | None) -> dict[str, Any] | None:
    if service is None:
        return None
    return {"item": service.item, "usd_per_gb": service.price, "date": service.date, "source": service.source}
