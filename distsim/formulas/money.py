"""Dollars: renting by the hour, or buying, running and writing off."""

from __future__ import annotations

from distsim.arrays import Number, ceil_div, maximum, minimum, where
from distsim.formula import formula
from distsim.units import GIGA, HOUR, MONTH, WATTS_PER_KILOWATT, YEAR, YEAR_MONTHS

YEAR_HOURS = YEAR / HOUR
MONTH_HOURS = MONTH / HOUR
MILLION = 1_000_000
"""Tokens that a price is quoted for."""


@formula(unit="GPU-h", source="definition: accelerators times hours, idle ones included")
def gpu_hours(gpus: Number, seconds: Number) -> Number:
    """Accelerator-hours of a run as they are billed."""
    return gpus * seconds / HOUR


@formula(unit="USD", source="definition: hours times rate")
def rent_dollars(billed_gpu_hours: Number, usd_per_gpu_hour: Number) -> Number:
    """Rent of a run; storage, egress and support are not included."""
    return billed_gpu_hours * usd_per_gpu_hour


@formula(unit="1", source="definition: a reservation is for whole terms, rounded up; one at least")
def reserved_terms(seconds: Number, term_years: Number) -> Number:
    """Terms of a reservation that a run takes, one after another."""
    return maximum(ceil_div(seconds, term_years * YEAR), 1)


@formula(unit="USD", source="definition: whole terms times accelerators times rate, used or not")
def reserved_dollars(gpus: Number, usd_per_gpu_hour: Number, seconds: Number, term_years: Number) -> Number:
    """What is owed for machines that are reserved for a run of ``seconds``, over its whole terms."""
    paid = reserved_terms(seconds, term_years) * term_years * YEAR
    return rent_dollars(gpu_hours(gpus, paid), usd_per_gpu_hour)


@formula(unit="USD/h", source="definition: rent of all hours over the share of them that is used")
def reserved_dollars_per_used_hour(rent_per_hour: Number, utilisation: Number) -> Number:
    """Rent per hour in use of a machine that is paid for whether used or not."""
    return rent_per_hour / utilisation


@formula(unit="USD", source="definition: GB kept times months times the price of a GB-month; 730 hours a month")
def storage_dollars(stored_bytes: Number, seconds: Number, usd_per_gb_month: Number) -> Number:
    """Price of keeping data in storage all the time."""
    return stored_bytes / GIGA * seconds / HOUR / MONTH_HOURS * usd_per_gb_month


@formula(unit="USD", source="definition: bytes that leave, as GB, times the price of a GB")
def egress_dollars(leaving_bytes: Number, usd_per_gb: Number) -> Number:
    """What a provider charges for data that leaves its network."""
    return leaving_bytes / GIGA * usd_per_gb


@formula(unit="USD", source="definition: dollars per second over tokens per second, times a million")
def million_tokens_dollars(usd_per_hour: Number, tokens_per_second: Number, pace: Number) -> Number:
    """Accelerator rent per million tokens trained, with steps that take ``pace`` times as long as those behind
    ``tokens_per_second``; failures and pauses are not included."""
    return usd_per_hour / HOUR * pace / tokens_per_second * MILLION


@formula(unit="USD/h", source="definition: watts in kW times PUE times the price of a kWh")
def power_dollars_per_hour(watts: Number, pue: Number, usd_per_kwh: Number) -> Number:
    """Electricity of machines and of their cooling, per hour of running."""
    return watts / WATTS_PER_KILOWATT * pue * usd_per_kwh


@formula(unit="USD/h", source="definition: rated kW times the rent of a kW; 730 hours a month")
def hall_dollars_per_hour(rated_watts: Number, usd_per_kw_month: Number) -> Number:
    """Rent of data-centre space with its cooling for a machine, per calendar hour; electricity is not included."""
    return rated_watts / WATTS_PER_KILOWATT * usd_per_kw_month / MONTH_HOURS


@formula(unit="USD/h", source="straight-line depreciation, 8 760 hours a year")
def depreciation_dollars_per_hour(price: Number, residual_fraction: Number, lifetime_years: Number) -> Number:
    """Value that a machine loses per hour of its life, used or not."""
    return price * (1 - residual_fraction) / (lifetime_years * YEAR_HOURS)


@formula(unit="USD", source="straight-line depreciation")
def book_value(price: Number, residual_fraction: Number, lifetime_years: Number, age_years: Number) -> Number:
    """Book value of a machine at an age; never below its residual value."""
    worn = minimum(maximum(age_years / lifetime_years, 0), 1)
    return price * (1 - (1 - residual_fraction) * worn)


@formula(
    unit="USD/h",
    source="definition: all costs of owning per calendar hour over the share of hours used, plus electricity",
)
def owned_dollars_per_used_hour(
    depreciation_per_hour: Number, standing_per_hour: Number, power_per_used_hour: Number, utilisation: Number
) -> Number:
    """Cost per hour in use of an owned machine; hours in use also pay for idle ones. ``standing_per_hour`` is
    upkeep, hall and interest."""
    return (depreciation_per_hour + standing_per_hour) / utilisation + power_per_used_hour


@formula(unit="USD/h", source="share of the price per year, as support contracts are sold (8 to 12% a year)")
def upkeep_dollars_per_hour(price: Number, upkeep_fraction_per_year: Number) -> Number:
    """Support and spare parts per calendar hour."""
    return price * upkeep_fraction_per_year / YEAR_HOURS


@formula(unit="USD/h", source="definition: yearly interest on the mean of price and residual value; 8 760 hours a year")
def interest_dollars_per_hour(price: Number, residual_fraction: Number, interest_per_year: Number) -> Number:
    """Cost of the capital that is bound in a machine, per calendar hour, on average over its life."""
    return price * (1 + residual_fraction) / 2 * interest_per_year / YEAR_HOURS


@formula(
    unit="months",
    source="definition: price over what a month of owning saves against renting, or the end of a life whose resale "
    "brings in what is still missing; 730 hours a month",
)
def break_even_months(
    price: Number, rent_per_hour: Number, power_per_used_hour: Number, standing_per_hour: Number, utilisation: Number,
    residual_fraction: Number, lifetime_years: Number,
) -> Number:  # fmt: skip
    """Months after which buying a machine has cost less than renting its used hours; infinite if it never does while
    the machine lasts."""
    saved_per_month = ((rent_per_hour - power_per_used_hour) * utilisation - standing_per_hour) * MONTH_HOURS
    life = lifetime_years * YEAR_MONTHS
    sold = where(saved_per_month * life >= price * (1 - residual_fraction), life, float("inf"))
    saves = saved_per_month * life >= price
    return where(saves, price / where(saves, saved_per_month, 1.0), sold)
