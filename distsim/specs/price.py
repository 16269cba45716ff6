"""What one provider asks for accelerators: rents per GPU-hour and list prices, each with date, currency and source."""

import datetime
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from distsim.specs.base import Sourced, Spec
from distsim.specs.dates import StatedDate, age, span
from distsim.specs.quantity import Count, Dollars, MaybeCount, Ratio

USD = "USD"
Term = Literal["on-demand", "spot", "reserved-1y", "reserved-3y", "reserved", "owned"]
TERMS: tuple[Term, ...] = ("on-demand", "spot", "reserved-1y", "reserved-3y", "reserved")
"""Of rents; ``reserved`` is a reservation whose length the source does not state."""
OWNED: Term = "owned"
"""Of machines that are bought: what an hour of their use comes to."""
ALL_TERMS = (*TERMS, OWNED)
MOST_PER_GPU_HOUR = 1000
"""Dollars; a higher rent is a slip: a node's, a month's, or another currency's."""
Rate = Annotated[Dollars, Field(gt=0, le=MOST_PER_GPU_HOUR)]


class Offer(Spec):
    """A rent: each rate is for one accelerator and one hour, in the currency of its file."""

    instance: str
    gpu: str
    gpus: Count
    """Accelerators of one instance; 1 where the source quotes single accelerators."""
    cluster: str | None = None
    """The cluster preset that describes the instance and its network; else the accelerator's usual one is taken."""
    region: str = ""
    network: str = ""
    on_demand: Rate | None = None
    spot: Rate | None = None
    reserved_1y: Rate | None = None
    reserved_3y: Rate | None = None
    reserved: Rate | None = None
    date: StatedDate
    source: str = Field(min_length=3)
    doubt: str = ""
    """Why nobody should rely on this row alone; such a row is chosen only when it is asked for."""
    notes: str = ""

    @model_validator(mode="after")
    def _has_a_rate(self) -> Self:
        if all(self.rate(term) is None for term in TERMS):
            raise ValueError("no rate is stated; write e.g. on_demand = 2.95 (per GPU and hour)")
        return self

    def rate(self, term: Term) -> float | None:
        """Asked for one accelerator and one hour, in the file's currency; None when this term is not offered."""
        value: float | None = getattr(self, term.replace("-", "_"))
        return value


class Purchase(Spec):
    """A price to buy something once; a source that gives a range has ``low`` and ``high``."""

    item: str
    kind: Literal["card", "system", "network", "storage", "component"]
    low: Annotated[Dollars, Field(gt=0)]
    high: Annotated[Dollars, Field(gt=0)]
    gpu: str | None = None
    gpus: MaybeCount = None
    """Accelerators in a system."""
    with_network: bool = False
    """Whether the price holds the switches and cables of a whole cluster too."""
    per: str = "piece"
    date: StatedDate
    source: str = Field(min_length=3)
    notes: str = ""

    @model_validator(mode="before")
    @classmethod
    def _one_price(cls, data: Any) -> Any:
        """``price`` stands for a range of one figure."""
        if isinstance(data, dict) and "price" in data:
            data = dict(data)
            price = data.pop("price")
            if "low" in data or "high" in data:
                raise ValueError("price and low or high are both stated; keep one of them")
            return {**data, "low": price, "high": price}
        return data

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.low > self.high:
            raise ValueError(f"low {self.low:g} is more than high {self.high:g}")
        return self

    @property
    def middle(self) -> float:
        """The middle of the range."""
        return (self.low + self.high) / 2


class Service(Spec):
    """What a provider asks beside its machines: for a GB kept for a month, or for a GB that leaves."""

    kind: Literal["storage", "egress"]
    item: str
    price: Annotated[Dollars, Field(ge=0, le=100)]
    """Of 1e9 bytes, in the currency of the file; 0 where it is free."""
    date: StatedDate
    source: str = Field(min_length=3)
    notes: str = ""


class Exchange(Spec):
    """What one unit of a foreign currency is worth, on a day."""

    usd: Annotated[Ratio, Field(gt=0)]
    date: StatedDate
    source: str = Field(min_length=3)


class Price(Sourced):
    """The price list of one provider. A currency other than USD needs an ``[exchange]`` rate with date and source."""

    name: str
    aliases: tuple[str, ...] = ()
    provider: str = Field(min_length=1)
    notes: str = ""
    currency: str = Field(pattern="^[A-Z]{3}$")
    exchange: Exchange | None = None
    offers: tuple[Offer, ...] = ()
    purchases: tuple[Purchase, ...] = ()
    services: tuple[Service, ...] = ()

    @model_validator(mode="after")
    def _dollars(self) -> Self:
        if self.currency != USD and self.exchange is None:
            raise ValueError(
                f"currency {self.currency} cannot be compared with USD; add [exchange] with usd (what one "
                f"{self.currency} is worth), date and source"
            )
        if self.currency == USD and self.exchange is not None:
            raise ValueError("an exchange rate has no effect on prices in USD; leave [exchange] out")
        if not self.offers and not self.purchases:
            raise ValueError("no price is stated; add [[offers]] or [[purchases]]")
        return self

    @property
    def usd_per_unit(self) -> float:
        """Dollars for one unit of the file's currency."""
        return 1.0 if self.exchange is None else self.exchange.usd

    def usd_per_gpu_hour(self, offer: Offer, term: Term) -> float | None:
        """The rate of an offer in dollars; None when it has no such term."""
        rate = offer.rate(term)
        return None if rate is None else rate * self.usd_per_unit

    def newest(self) -> str:
        """The latest date among the rows, as stated."""
        return max([*(one.date for one in self.offers), *(one.date for one in self.purchases)], key=span)

    def age(self, today: datetime.date) -> str:
        """How old the newest row is."""
        return age(self.newest(), today)
