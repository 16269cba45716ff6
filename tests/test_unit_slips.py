"""Units that are a slip by eight or a thousand, fields without a unit, and values of another kind."""

from __future__ import annotations

import pytest

from distsim.errors import DistsimError
from distsim.specs.accelerator import Accelerator
from distsim.specs.cluster import Cluster
from distsim.specs.price import Price
from tests.examples import EXAMPLE, NODE


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"memory": "80 Gib"}, "memory '80 Gib' is 10.00 GiB (a small b is bits)\n  did you mean 80 GiB?"),
        ({"memory": "80 Gib", "usable_memory": "79 GiB"}, "did you mean 80 GiB?"),
        ({"bandwidth": "3350 Gb/s"}, "did you mean 3350 GB/s? Otherwise write 418.75 GB/s"),
        ({"power": "700 kW"}, "an accelerator draws 1 W to 50 kW: did you mean 700 W?"),
        ({"link": {"kind": "nvlink", "rate": "450 Gb/s"}}, "link: rate '450 Gb/s' is 56.25 GB/s (a small b is bits)"),
        ({"host": {"kind": "pcie", "rate": "63Gbps"}}, "did you mean 63 GBps? Otherwise write 7.875 GB/s"),
    ],
)
def test_units_of_an_eighth_or_a_thousandfold_are_told(change: dict[str, object], words: str) -> None:
    """They had passed without a word."""
    with pytest.raises(DistsimError) as raised:
        Accelerator.read({**EXAMPLE, **change})
    assert words in str(raised.value)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"nics": 8, "nic_rate": "400 GB/s"}, "a NIC has at most 1,600 Gb/s: did you mean 400 Gb/s?"),
        ({"nics": 8, "nic_rate": "100 GB/s"}, "write 100 Gb/s, or 800 Gb/s if bytes are meant"),
        ({"node_rate": "3200 GB/s"}, "3,200 Gb/s for each accelerator, which no network has\n  did you mean 3200 Gb/s"),
        ({"nics": 8, "nic_rate": "50 GB/s"}, ""), ({"node_rate": "400 GB/s"}, ""),
    ],
)  # fmt: skip
def test_networks_in_bytes_that_are_meant_in_bits_are_told(change: dict[str, object], words: str) -> None:
    stated = {**NODE, "network": {"kind": "ib", **change}}
    if not words:
        assert Cluster.read(stated).network is not None
        return
    with pytest.raises(DistsimError) as raised:
        Cluster.read(stated)
    assert words in str(raised.value)


def test_fabrics_are_in_bytes_where_their_makers_state_bytes() -> None:
    with pytest.raises(DistsimError, match="did you mean 450 GB/s"):
        Cluster.read({**NODE, "fabric": {"kind": "nvswitch", "rate": "450 Gb/s"}})
    assert Cluster.read({**NODE, "fabric": {"kind": "ethernet", "rate": "2100 Gb/s"}}).fabric.rate == 262.5e9
    assert Accelerator.read({**EXAMPLE, "link": {"kind": "ici", "rate": "4800 Gb/s"}}).link.rate == 600e9


@pytest.mark.parametrize(
    ("field", "words"),
    [("memory", 'a size with its unit, e.g. "80 GiB"'), ("bandwidth", 'a rate with its unit, e.g. "3350 GB/s"'),
     ("link.rate", 'a rate with its unit, e.g. "3350 GB/s"'), ("peak", "write a table [peak]")],
)  # fmt: skip
def test_a_missing_figure_is_told_with_its_unit(field: str, words: str) -> None:
    stated = {**EXAMPLE, "link": {"kind": "nvlink"}} if "." in field else {**EXAMPLE}
    stated.pop(field, None)
    with pytest.raises(DistsimError) as raised:
        Accelerator.read(stated)
    assert f"field {field!r} is missing" in str(raised.value) and words in str(raised.value)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"source": {"checked": "soon"}}, "checked 'soon' is not a date\n  write it as 2026-11-21, without quotes"),
        ({"checked": 3.5}, "is not a date"), ({"aliases": "x"}, "aliases 'x' is not a list"),
        ({"peak": "989 TFLOP/s"}, "peak '989 TFLOP/s' is not a table\n  write a table [peak]"),
        ({"measured": []}, "write a table [measured]"), ({"source": "me"}, "write a table [source]"),
        ({"aliases": {"a": 1}}, 'aliases is a table, not a list\n  write e.g. ["one", "two"]'),
        ({"year": {}}, "year is a table, not a whole number"), ({"vendor": {}}, "vendor is a table, not a string"),
    ],
)  # fmt: skip
def test_no_word_of_the_library_below_reaches_the_user(change: dict[str, object], words: str) -> None:
    with pytest.raises(DistsimError) as raised:
        Accelerator.read({**EXAMPLE, **change})
    assert words in str(raised.value) and "Input should" not in str(raised.value)


def test_one_table_where_there_may_be_several_is_told_how_to_write_them() -> None:
    """It was "offers: Input should be a valid tuple"."""
    with pytest.raises(DistsimError) as raised:
        Price.read({"name": "ours", "provider": "ours", "currency": "USD", "offers": {"gpu": "h100-sxm"}})
    assert raised.value.text() == "offers is a table, not a list\n  write [[offers]]"
