"""What ``distsim plan`` says to those who decide: wrong input by name, what was left out, small and large amounts."""

from __future__ import annotations

import csv
import io
import json
import re
import shlex
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from shell import Done, piped

import distsim
from distsim import catalog
from distsim.cli.app import COMMANDS
from distsim.engine.campaigns.prices import price_lists, quotes
from distsim.engine.footprint.peak_error import TIGHT, peak_error
from distsim.engine.plans.besides import besides
from distsim.engine.plans.choice import Wish
from distsim.engine.plans.plan import Option
from distsim.engine.plans.rival import rival
from distsim.errors import DistsimError
from distsim.report.plan import layout_words
from distsim.report.plan_words import clock_of
from distsim.units import dollars, duration, rounded

OPEN = ("--tokens", "300B", "--gpu", "h100-sxm", "--gpus", "64")
ASKED = ("llama-2-7b", "--tp", "1", "--pp", "1", *OPEN)
CONTRACT = """
provider = "Our contract"
currency = "USD"

[[offers]]
instance = "8x H100"
gpu = "h100-sxm"
gpus = 8
cluster = "dgx-h100"
on_demand = 2.40
reserved_1y = 1.95
date = "2026-11-01"
source = "offer 4711"
"""


def run(*words: str) -> Done:
    return piped("plan", *words)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--deadline", "30"), "--deadline 30 has no unit\n  write e.g. 30d, 30h or 30min"),
        (("--maintenance-every", "30min"), "--maintenance-every 30min: planned pauses are at least an hour apart"),
        (("--cluster", "dgx-a100-80gb"), "cluster dgx-a100-80gb has a100-sxm4-80gb, but --gpu says h100-sxm"),
        (("--deadline", "0"), "--deadline 0 has no unit\n  write e.g. 1d, 1h or 1min"),
        (("--gpus", "64..1000000000"), "--gpus 64..1000000000: 1,000,000,000 is out of range"),
        (("--maintenance-every", "7"), "--maintenance-every 7 has no unit"),
        (("--gpus", "100000000"), "valid: 1 to 10,000,000"),
        (("--facility", "nowhere"), "unknown facility 'nowhere'"),
        (("--failures", "none"), "unknown failures preset 'none'"),
        (("--provider", "coreweav"), "unknown price list 'coreweav'\n  did you mean coreweave"),
    ],
)
def test_wrong_input_is_named_and_mended(words: tuple[str, ...], told: str) -> None:
    done = run(*ASKED, *words)
    assert done.returncode == 2
    assert told in done.stderr


@pytest.mark.parametrize(
    ("lengths", "name", "told"),
    [([0.0039, 0.0077], "minutes", ["5.6", "11.1"]), ([0.22, 1.9], "hours", ["5.3", "45.6"]),
     ([0.22, 2.1], "days", ["0.22", "2.1"])],
)  # fmt: skip
def test_short_runs_are_listed_in_hours_or_minutes(lengths: list[float], name: str, told: list[str]) -> None:
    """Minutes of fine-tuning were 0.0039 days."""
    clock = clock_of([cast(Option, SimpleNamespace(days=length)) for length in lengths])
    assert (clock.name, [clock.told(length) for length in lengths]) == (name, told)


def test_buying_that_pays_off_after_a_machines_life_does_not_pay_off() -> None:
    """It paid off "after 541 months, after the end of its life", beside a spare node "if you pay for them"."""
    told = " ".join(run(*ASKED, "--price", "0.5", "--spares", "1").stdout.split())
    assert "to rent; buying does not pay off in the 5 years that a machine lasts; this run takes" in told
    assert re.search(r"1 spare node, not billed; \$[\d,]+ more if you pay for it ", told)


@pytest.mark.parametrize("price", ["spot", "on-demand", "2.2"])
def test_parts_of_nodes_are_billed_as_searches_bill_them(price: str) -> None:
    """Whole instances of price lists, whatever of them the job leaves idle; what runs at a rate of one's own."""
    asked = (
        "llama-3-8b",
        "--gpu",
        "h100-sxm",
        "--gpus",
        "4,12",
        "--price",
        price,
        "--lora-rank",
        "16",
        "--seq",
        "8192",
        "--tp",
        "1",
        "--pp",
        "1",
        "--cp",
        "1",
    )
    bought = () if price == "2.2" else ("--provider", "nebius")
    options = json.loads(run(*asked, "--tokens", "10B", *bought, "--json").stdout)["options"]
    found = json.loads(piped("search", *asked, "--global-batch", "48", "--top", "1", *bought, "--json").stdout)
    searched = {one["gpus"]: (one["billed_gpus"], one["usd_per_gpu_hour"]) for one in found["prices"]}
    least = {gpus: min((one["billed_gpus"], one["price"]["usd_per_gpu_hour"]) for one in options if one["gpus"] == gpus)
             for gpus in (4, 12)}  # fmt: skip
    assert least == searched
    if price == "spot":
        assert {gpus: billed for gpus, (billed, _) in least.items()} == {4: 8, 12: 16}
        text = run(*asked, "--tokens", "10B", *bought).stdout
        assert "rented" in text and "in whole instances of 8" in text


def test_a_margin_that_leaves_no_memory_is_told() -> None:
    done = run("llama-2-7b", *OPEN, "--margin", "98.5%", "--provider", "nebius")
    assert done.returncode == 1
    assert "every layout that was tried has --margin 98.5%: try without" in done.stderr
    assert "try more accelerators with --gpus, or accelerators with more memory" in done.stderr


def test_an_accelerator_without_a_price_is_not_silently_left_out() -> None:
    done = run("llama-2-7b", "--tokens", "300B", "--gpu", "h100-sxm,h100-pcie", "--gpus", "64")
    assert done.returncode == 0
    assert "no on-demand price is known for whole nodes of h100-pcie: left out" in done.stderr


def test_clusters_without_a_price_are_left_out_with_those_that_have_one() -> None:
    """Whoever compares racks asks for NVIDIA's own, which nobody rents out under that name."""
    words = ["plan", "llama-2-7b", "--tokens", "10B", "--gpus", "72", "--tp", "1", "--pp", "1", "--cluster"]
    done = piped(*words, "gb300-nvl72,gb200-nvl72")
    told = "whole nodes of gb300-nvl72: left out; similar to gb300-nvl72, with prices: --gpu gb300, or --cluster bm.gpu"
    assert done.returncode == 0 and told in done.stderr


def test_sizes_beyond_the_largest_are_a_note_unless_asked_for() -> None:
    words = ("llama-3.1-405b", "--tokens", "15T", "--gpu", "h100-sxm", "--provider", "nebius", "--pp", "16")
    capped = run(*words, "--deadline", "5d")
    assert capped.returncode == 1
    assert "only sizes up to 32,768 accelerators are tried" in capped.stderr
    asked = run(*words, "--gpus", "65536")
    assert asked.returncode == 0
    assert "65,536 x h100-sxm" in asked.stdout


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("dgx-h100", "dgx-a100-80gb", "the offer is for h100-sxm, but its cluster dgx-a100-80gb has a100-sxm4-80gb"),
        ('gpu = "h100-sxm"', 'gpu = "h100-smx"', "price list mine, 8x H100: unknown gpu 'h100-smx'"),
        ("dgx-h100", "dgx-h10", "price list mine, 8x H100: unknown cluster 'dgx-h10'"),
    ],
)
def test_an_offer_that_contradicts_itself_is_refused(tmp_path: Path, old: str, new: str, told: str) -> None:
    own = tmp_path / "mine.toml"
    own.write_text(CONTRACT.replace(old, new), encoding="utf-8")
    with pytest.raises(DistsimError) as refused:
        quotes(price_lists([str(own)]), "on-demand")
    assert told in refused.value.text()


def test_every_shipped_offer_is_of_what_its_cluster_has() -> None:
    assert len(quotes(price_lists(), "on-demand", doubtful=True)) > 50
    assert catalog.names("prices")


def test_a_price_dated_in_the_future_is_told_as_such(tmp_path: Path) -> None:
    own = tmp_path / "mine.toml"
    own.write_text(CONTRACT.replace("2026-11-01", "2199-11-01"), encoding="utf-8")
    told = " ".join(run(*ASKED, "--provider", str(own)).stdout.split())
    assert "price of 2199-11-01, dated in the future)" in told


def test_a_reservation_is_owed_whole(tmp_path: Path) -> None:
    own = tmp_path / "mine.toml"
    own.write_text(CONTRACT, encoding="utf-8")
    words = (*ASKED, "--provider", str(own), "--price", "reserved-1y")
    (option,) = json.loads(run(*words, "--json").stdout)["options"]
    assert option["committed_dollars"] == pytest.approx(64 * 8760 * 1.95)
    told = " ".join(run(*words).stdout.split())
    assert "reserved $1.09M is owed for the full term (reserved-1y); this run uses" in told
    hourly = json.loads(run(*ASKED, "--provider", str(own), "--json").stdout)["options"][0]
    assert hourly["committed_dollars"] is None


def test_how_many_campaigns_keep_to_the_deadline() -> None:
    words = (*ASKED, "--provider", "nebius")
    answer = json.loads(run(*words, "--json").stdout)
    days = answer["options"][0]["days"]
    assert answer["campaigns"]["within_deadline"] is None
    shares = [
        json.loads(run(*words, "--deadline", f"{days * factor}d", "--json").stdout)["campaigns"]["within_deadline"]
        for factor in (1.01, 1.5)
    ]
    assert 0.4 < shares[0] < 0.65  # the middle of a distribution whose width is that of the step time
    assert shares[0] < shares[1] < 1
    for factor in (1.2, 1.45, 1.5, 1.6):  # the line and the table had a point between them at some
        told = run(*words, "--deadline", f"{days * factor}d").stdout
        row = next(line for line in told.splitlines() if line.startswith(("●", "*")))
        share = re.findall(r"(\d+%)", row)
        assert re.findall(r"(\d+%) within", " ".join(told.split())) == share


def test_a_deadline_that_is_a_coin_flip_is_told(tmp_path: Path) -> None:
    words = (*ASKED[:-1], "64,128", "--provider", "nebius")
    slow, quick = sorted((one["days"] for one in json.loads(run(*words, "--json").stdout)["options"]), reverse=True)
    assert "on time" not in run(*words).stdout
    page = tmp_path / "plan.html"
    told = run(*words, "--deadline", f"{slow * 1.01}d", "--report", str(page)).stdout
    flat = " ".join(told.split())
    assert re.search(r"deadline the cheapest is on time in 5\d% of its runs; surer: 128 x h100-sxm from Nebius, ", flat)
    assert "on time in 9" in flat and "--confidence 80% asks for such" in flat
    html = page.read_text(encoding="utf-8")
    assert "on time</th>" in html and "Deadline: the cheapest is on time" in html
    head, *rows = told.split("Options, cheapest")[1].splitlines()[1:4]
    assert "on time" in head and all(re.search(r"\d+%", row) for row in rows)
    sure = run(*words, "--deadline", f"{slow * 1.01}d", "--confidence", "80%", "--json")
    answer = json.loads(sure.stdout)
    assert answer["options"][answer["cheapest"]]["gpus"] == 128 and answer["surer"] is None
    assert answer["limits"]["confidence"] == 0.8 < answer["options"][answer["cheapest"]]["on_time"]
    assert "days in 80% of all runs" in run(*words, "--deadline", "30d", "--confidence", "80%").stdout
    none = run(*words, "--deadline", f"{quick * 1.01}d", "--confidence", "80%")
    assert none.returncode == 1 and "too late in 80% of its runs" in none.stdout
    lone = " ".join(run(*ASKED, "--provider", "nebius", "--deadline", f"{slow * 1.01}d").stdout.split())
    assert "and no option is surer: try more accelerators, or a later deadline" in lone


def test_intervals_stand_beside_dollars_and_tokens() -> None:
    told = run(*ASKED, "--provider", "nebius").stdout
    lines = {line[:12].strip(): line[12:] for line in told.splitlines() if line[:12].strip() in ("cost", "tokens")}
    assert "90% interval $" in lines["cost"]
    assert "per dollar, 90% interval" in lines["tokens"]


def test_a_small_run_is_told_in_hours_and_kilowatt_hours(tmp_path: Path) -> None:
    page = tmp_path / "plan.html"
    words = ("gpt2", "--tokens", "10B", "--gpu", "a100-sxm4-80gb", "--gpus", "8", "--report", str(page))
    told = run(*words).stdout
    assert " h, $" in told
    assert "kWh, " in told
    assert "kgCO2e" in told
    assert "0 MWh" not in told
    assert "0.0 days" not in told
    html = page.read_text(encoding="utf-8")
    assert "kWh<" in html
    assert "0.0 days" not in html


def test_few_options_need_no_plot() -> None:
    one = run(*ASKED, "--provider", "nebius").stdout
    assert "Days against dollars" not in one
    assert "against days (across)" not in one
    more = run(*ASKED[:-1], "64,128", "--provider", "nebius,lambda").stdout
    assert "against days (across)" in more


def test_what_an_owned_hour_is_made_of() -> None:
    words = ("llama-2-7b", "--tokens", "300B", "--gpu", "h100-sxm", "--gpus", "64", "--provider", "nebius")
    hired, own = (
        json.loads(run(*words, "--facility", house, "--json").stdout)["buying"] for house in ("default", "hyperscale")
    )
    parts = hired["owned_usd_per_gpu_hour_parts"]
    assert sum(parts.values()) == pytest.approx(hired["owned_usd_per_gpu_hour"])
    assert set(parts) == {"depreciation", "upkeep", "hall", "electricity"}
    assert own["owned_usd_per_gpu_hour_parts"]["hall"] == 0
    assert own["break_even_months"] < hired["break_even_months"]
    told = " ".join(run(*words).stdout.split())
    assert "depreciation, $" in told
    assert "hall, $" in told
    terms = " ".join(run(*words, "--explain").stdout.split())
    for name in ("depreciation", "upkeep", "hall"):  # which the sentence has per hour in use
        (owned,) = re.findall(rf" {name}, per hour owned ([\d.]+) USD/h", terms)
        assert float(owned) == pytest.approx(parts[name] * 0.85, rel=1e-5)
    assert "all 64 of them cost $" in told
    assert "months old, network included" in told


def test_a_layout_that_is_nearly_full_says_so() -> None:
    words = ("llama-2-70b", "--tokens", "300B", "--gpu", "h100-sxm", "--gpus", "64", "--provider", "nebius")
    full = json.loads(run(*words, "--json").stdout)["options"][0]
    spared = json.loads(run(*words, "--margin", "15%", "--json").stdout)["options"][0]
    assert spared["memory_fraction"] <= 0.85 < full["memory_fraction"] <= 1
    assert spared["step_seconds"] >= full["step_seconds"]
    assert ("full (predicted)" in run(*words).stdout) == (peak_error(full["memory_fraction"], 1).fitting < TIGHT)
    assert "full (predicted)" not in run(*words, "--margin", "15%").stdout


def test_your_own_quote_to_buy_is_the_one_reckoned_with(tmp_path: Path) -> None:
    own = tmp_path / "mine.toml"
    own.write_text(
        CONTRACT.replace('"USD"', '"EUR"')
        + """
[[purchases]]
item = "our quote"
kind = "system"
gpu = "h100-sxm"
gpus = 8
price = 200000
with_network = true
date = "2026-10"
source = "quote 12"

[exchange]
usd = 1.10
date = "2026-11-01"
source = "central bank"
""",
        encoding="utf-8",
    )
    buying = json.loads(run(*ASKED, "--provider", str(own), "--json").stdout)["buying"]
    assert buying["item"] == "our quote"
    assert buying["usd_per_gpu"] == pytest.approx(200_000 / 8 * 1.10)
    assert buying["rent_usd_per_gpu_hour"] == pytest.approx(2.40 * 1.10)


def test_electricity_without_a_price_is_told(tmp_path: Path) -> None:
    house = tmp_path / "house.toml"
    house.write_text('name = "mine"\npue = 1.3\n', encoding="utf-8")
    told = " ".join(run(*ASKED, "--provider", "nebius", "--facility", str(house)).stdout.split())
    assert "hall already available, electricity not counted: its price is not given" in told
    assert "$0 per kWh" not in told


SERVICES = """
[[services]]
kind = "storage"
item = "our bucket"
price = 0.02
date = "2026-10"
source = "offer 4711"

[[services]]
kind = "egress"
item = "out of the door"
price = 0.05
date = "2026-10"
source = "offer 4711"
"""


def test_storage_and_egress_stand_beside_the_rent(tmp_path: Path) -> None:
    """300B tokens in 2 bytes each and 14 bytes per parameter and checkpoint, for as long as the run takes."""
    own = tmp_path / "mine.toml"
    own.write_text(CONTRACT + SERVICES, encoding="utf-8")
    words = (*ASKED, "--provider", str(own))
    answer = json.loads(run(*words, "--keep", "3", "--json").stdout)
    found, option = answer["besides"], answer["options"][0]
    checkpoint = 14 * 6738415616
    assert found["checkpoint_bytes"] == pytest.approx(checkpoint)
    assert found["token_bytes"] == 600e9
    months = option["days"] * 24 / 730
    assert found["storage_dollars"] == pytest.approx((3 * checkpoint + 600e9) / 1e9 * 0.02 * months)
    assert found["egress_dollars"] == pytest.approx(checkpoint / 1e9 * 0.05)
    assert option["dollars"] == pytest.approx(option["gpu_hours"] * 2.40)
    told = " ".join(run(*words).stdout.split())
    assert "extra storage $" in told
    assert "10 checkpoints of 94.3 GB and 600 GB of tokens at $0.02 per GB-month, price of 2026-10, " in told
    assert "extra" not in run(*ASKED, "--provider", "lambda").stdout


def test_the_newest_service_counts_in_dollars_and_tokens_by_their_vocabulary(tmp_path: Path) -> None:
    """Megatron-LM stores tokens of fewer than 65,500 words in 2 bytes, others in 4."""
    own = tmp_path / "mine.toml"
    older = SERVICES.replace("price = 0.02", "price = 0.01").replace("2026-10", "2024-10")
    euros = CONTRACT.replace('"USD"', '"EUR"') + '[exchange]\nusd = 1.25\ndate = "2026-10"\nsource = "a bank"\n'
    own.write_text(euros + SERVICES + older, encoding="utf-8")
    prices = catalog.load("prices", str(own))
    candidate = SimpleNamespace(checkpoint_bytes=4e9, goodput=SimpleNamespace(checkpoints=8))
    quote = SimpleNamespace(provider=prices.provider)
    option: Any = SimpleNamespace(candidate=candidate, quote=quote, tokens=1e9, days=365 / 12)
    text, pictures = (catalog.load("models", name) for name in ("llama-7b", "vit-huge-patch14-224"))
    for model, vocabulary, each in ((text, 65_499, 2), (text, 65_500, 4), (pictures, 0, None)):
        found = besides(option, model.model_copy(update={"vocab": vocabulary}), 10, [str(own)])
        assert found.token_bytes == (each and each * 1e9)
        assert found.storage_dollars == pytest.approx((8 * 4 + (each or 0)) * 0.02 * 1.25)
        assert found.egress_dollars == pytest.approx(4 * 0.05 * 1.25)


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ('date = "2026-10"\nsource = "offer 4711"\n\n[[services]]', 'source = "offer 4711"\n\n[[services]]', "date"),
        ("price = 0.05", "price = -0.05", "-0.05 is too small"),
        ("price = 0.02", "price = 200", "200 is too large"),
        ('kind = "egress"', 'kind = "ingress"', "ingress"),
    ],
)
def test_services_are_refused_like_other_prices(tmp_path: Path, old: str, new: str, told: str) -> None:
    own = tmp_path / "mine.toml"
    assert old in SERVICES
    own.write_text(CONTRACT + SERVICES.replace(old, new), encoding="utf-8")
    done = run(*ASKED, "--provider", str(own))
    assert done.returncode == 2
    assert told in done.stderr


def test_keeping_a_senseless_number_of_checkpoints_is_refused() -> None:
    done = run(*ASKED, "--keep", "-1")
    assert done.returncode == 2
    assert "--keep -1 is out of range" in done.stderr


def test_the_terms_of_owning_are_explained_with_their_sources() -> None:
    told = run(*ASKED, "--provider", "nebius", "--explain").stdout
    terms = told[told.index("Terms of") :]
    assert "CBRE" in terms and "hall_dollars_per_hour: " in terms
    assert "break_even_months: " in terms


@pytest.mark.parametrize("width", [80, 140])
def test_no_term_is_wider_than_the_terminal(width: int) -> None:
    told = piped("plan", *ASKED, "--provider", "nebius", "--explain", COLUMNS=str(width)).stdout
    terms = told[told.index("Terms of") :].splitlines()
    assert max(map(len, terms)) <= width


def test_the_table_for_spreadsheets_holds_what_the_json_does() -> None:
    words = ("llama-2-7b", "--tokens", "300B", "--gpu", "h100-sxm", "--gpus", "32,64", "--provider", "nebius,aws",
             "--price", "all", "--deadline", "6d")  # fmt: skip
    answer = json.loads(run(*words, "--json").stdout)
    rows = list(csv.DictReader(io.StringIO(run(*words, "--csv").stdout)))
    assert len(rows) == len(answer["options"])
    for row, option in zip(rows, answer["options"], strict=True):
        assert row["days_low"] == str(option["days_interval"]["low"])
        assert row["dollars_high"] == str(option["dollars_interval"]["high"])
        assert row["committed_dollars"] == str(option["committed_dollars"] or "")
        told = {key: str(option["layout"][key]) for key in ("schedule", "seq", "micro_batches", "tp", "micro_batch")}
        assert told.items() <= row.items()
        assert row["within_limits"] == str(int(option["days"] <= 6))
    assert {row["within_limits"] for row in rows} == {"0", "1"}


def test_options_that_stay_hold_for_plans(tmp_path: Path) -> None:
    """They had priced another job than the step command that they print."""
    (tmp_path / "distsim.toml").write_text('lora_rank = 8\nframework = "huggingface"\nprecision = "pure-bf16"')
    words = ("llama-2-7b", "--gpus", "8", "--gpu", "h100-sxm", "--tokens", "1B")
    done = piped("plan", *words, folder=tmp_path)
    stated = re.search(r"the step +distsim (.*)", done.stdout)
    assert done.returncode == 0 and stated is not None
    assert all(flag in stated[1] for flag in ("--lora-rank 8", "--framework huggingface", "--precision pure-bf16"))
    assert done.stdout == piped("plan", *words, "--lora-rank", "8", "--framework", "huggingface", "--precision",
                                "pure-bf16").stdout  # fmt: skip
    asked = ("plan", "llama-2-7b", "--gpus", "8", "--tokens", "1B", "--json")
    gpus = {one["gpu"] for one in json.loads(piped(*asked, DISTSIM_GPU="h200-sxm").stdout)["options"]}
    assert gpus == {"h200-sxm"}


def test_a_configuration_that_is_wrong_is_refused(tmp_path: Path) -> None:
    (tmp_path / "distsim.toml").write_text("zero = 9")
    done = piped("plan", *ASKED, folder=tmp_path)
    assert done.returncode == 2 and "distsim.toml: zero 9" in done.stderr and not done.stdout


def test_options_of_other_commands_are_passed_over_with_a_note(tmp_path: Path) -> None:
    """All commands read these files, and not each has every option."""
    asked = {
        "plan": ("plan", *ASKED, "--provider", "nebius"),
        "search": ("search", "llama-7b", "--gpus", "8", "--tp", "1", "--pp", "1", "--recompute", "none", "--json"),
    }
    for command, written, name in (
        ("plan", "servers = 2", "servers"),
        ("search", 'stage_layers = "16,16"', "stage_layers"),
    ):
        plain = piped(*asked[command], folder=tmp_path)
        (tmp_path / "distsim.toml").write_text(written)
        done = piped(*asked[command], folder=tmp_path)
        assert done.returncode == plain.returncode
        assert f"note: {name} (project distsim.toml) was ignored: distsim {command} has no such option" in done.stderr
        if command == "plan":
            assert done.stdout == plain.stdout
        (tmp_path / "distsim.toml").unlink()
    file = tmp_path / "job.toml"
    file.write_text('stage_layers = "16,16"')
    for command, words in asked.items():
        done = piped(*words, "--job", str(file))
        assert done.returncode == 2 and f"{file}: a {command} does not take stage_layers" in done.stderr


def test_a_plan_takes_a_job_file(tmp_path: Path) -> None:
    """As a search does: MODEL and job options with one value each, under the command line."""
    file = tmp_path / "job.toml"
    typed = ("--tp", "2", "--precision", "fp8", "--gpus", "64", "--gpu", "h100-sxm", "--global-batch", "256")
    file.write_text('model = "gpt2"\ntp = 4\nprecision = "fp8"\ngpus = 64\ngpu = "h100-sxm"\nglobal_batch = 256\n')
    rest = ("--tokens", "10B", "--provider", "nebius", "--json")
    assert piped("plan", "--job", str(file), "--tp", "2", *rest).stdout == piped("plan", "gpt2", *typed, *rest).stdout
    file.write_text('objective = "memory"\n')
    done = piped("plan", "gpt2", "--job", str(file), *rest)
    assert done.returncode == 2 and "such a file holds MODEL and job options" in done.stderr
    assert "no model named" in piped("plan", *rest).stderr


def test_switches_of_a_plan_s_csv_are_those_of_a_search(tmp_path: Path) -> None:
    csv_of = csv.DictReader(piped("plan", *ASKED, "--provider", "nebius", "--csv").stdout.splitlines())
    assert {row["sequence_parallel"] for row in csv_of} <= {"0", "1"}


def test_what_to_rent_and_train_is_told_at_any_width() -> None:
    """Two offers of one provider had the same row; recipe, optimizer and length stood nowhere."""
    words = ("llama-2-7b", "--tokens", "300B", "--gpu", "h200-sxm", "--gpus", "64", "--provider", "aws", "--price",
             "spot", "--precision", "fp8", "--optimizer", "muon")  # fmt: skip
    for columns in ("60", "80", "140"):
        text = piped("plan", *words, COLUMNS=columns).stdout
        head, table = (part.split("\n\n")[0] for part in (text, text.partition("Options, cheapest")[2]))
        assert "p5en.48xlarge" in table and "p5e.48xlarge" in table
        assert "sequences of 4,096 tokens per step, fp8, muon" in " ".join(head.split())
        assert "megatron-core, fp8, muon" in " ".join(text.partition("in detail")[2].split())
    missed = piped("plan", *words, "--deadline", "1d", COLUMNS="80").stdout.partition("misses by")[2]
    assert "p5en.48xlarge" in missed.split("\n\n")[0]


def test_gpus_of_a_plan_are_those_of_a_search() -> None:
    words = ("plan", "gpt2", "--tokens", "10B", "--gpu", "h100-sxm", "--provider", "nebius", "--json")
    assert piped(*words, "--gpus", "8..40").stdout == piped(*words, "--gpus", "8,16,32,40").stdout
    done = piped(*words, "--gpus", "8..")
    assert done.returncode == 2 and "--gpus 8.. has no end" in done.stderr


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_its_help_by_one_letter(command: str) -> None:
    assert piped(command, "-h") == piped(command, "--help")
    assert "Usage" in piped(command, "-h").stdout


def test_the_step_command_runs_where_all_layers_are_recomputed() -> None:
    told = run("llama-3-70b", "--tokens", "1T", "--gpus", "64", "--gpu", "a100-sxm4-40gb", "--recompute", "full").stdout
    stated = re.search(r"the step +distsim (.*)", told)
    assert stated is not None and "--recompute full" in stated[1]
    assert piped(*shlex.split(stated[1])).returncode == 0


def test_no_more_is_lost_than_was_trained() -> None:
    """Checkpoints further apart than the run is long: from failures a run loses at most what it has done."""
    days = []
    for every in ("10d", "100d", "1000d"):
        answer = json.loads(run(*ASKED, "--checkpoint-every", every, "--provider", "nebius", "--json").stdout)
        days.append(answer["options"][answer["cheapest"]]["days"])
    assert days[1] == pytest.approx(days[0], rel=0.05) and days[2] == days[1]


def test_missing_units_are_told() -> None:
    assert "a100-sxm4-80gb has no fp8 units" in run("llama-2-7b", "--tokens", "1B", "--gpu", "a100-sxm4-80gb", "--gpus",
                                                    "8", "--precision", "fp8").stderr  # fmt: skip
    for command in ("memory", "comm", "search"):
        done = piped(command, "llama-2-7b", "--gpu", "a100-sxm4-80gb", "--gpus", "8", "--precision", "fp8")
        assert "a100-sxm4-80gb has no fp8 units for precision fp8" in done.stderr


def test_chips_whose_units_a_named_framework_lacks_are_left_out() -> None:
    done = run("llama-2-7b", "--tokens", "1B", "--gpu", "a100-sxm4-80gb,h100-sxm", "--gpus", "8", "--framework",
               "torchtitan", "--precision", "fp8")  # fmt: skip
    assert "left out: a100-sxm4-80gb has no fp8 units for precision fp8: torchtitan refuses it" in done.stderr
    assert done.returncode == 0 and "a100" not in done.stdout


def test_no_more_checkpoints_are_kept_than_written() -> None:
    """A run of 22 minutes is saved at its end, however rarely its GPUs fail."""
    words = ("llama-3-8b", "--tokens", "100M", "--gpu", "h100-sxm", "--gpus", "8", "--provider", "nebius")
    done = json.loads(run(*words, "--json").stdout)
    assert done["besides"]["checkpoints_kept"] == 1
    told = " ".join(run(*words).stdout.split())
    assert "one checkpoint, at the end" in told and "(1 checkpoint of" in told


def test_a_fraction_of_a_cent_is_not_nothing() -> None:
    assert [dollars(one) for one in (0.0, 0.0004, 0.01, 12.5)] == ["$0.00", "under $0.01", "$0.01", "$12.50"]


def test_a_layout_that_recomputes_some_layers_says_how_many() -> None:
    layout = {"tp": 8, "pp": 16, "vpp": 8, "cp": 1, "ep": 1, "dp": 128, "zero": 1, "micro_batch": 1,
              "recompute": "full", "recompute_layers": 2}  # fmt: skip

    def words(layers: int) -> str:
        option = SimpleNamespace(candidate=SimpleNamespace(layout=layout | {"recompute_layers": layers}))
        return layout_words(cast("Any", option))

    assert words(2) == "tp 8, pp 16, vpp 8, dp 128, zero 1, micro-batch 1, recompute full, recompute-layers 2"
    assert words(-1).endswith("recompute full")


def test_amounts_and_times_have_no_more_digits_than_are_known() -> None:
    assert [dollars(one) for one in (-4506.0, -0.5, 1_496_756.0)] == ["-$4,506", "-$0.50", "$1.50M"]
    assert [rounded(one) for one in (700_068, 1_254_321, 512)] == ["700,000", "1.25M", "512"]
    assert [duration(days * 86_400) for days in (54, 99.9, 260.4)] == ["54.0 days", "99.9 days", "260 days"]
    assert (
        Wish(dollars=1e5).lacks(
            SimpleNamespace(  # type: ignore[arg-type]
                payable_dollars=1_596_756.0, terms=None, quote=SimpleNamespace(owned=False)
            )
        )
        == "$1.50M over budget"
    )


def test_a_plan_without_a_model_says_what_to_write() -> None:
    assert run("--tokens", "2T") == Done(
        2,
        "",
        "error: no model named\n  give one after the command, e.g. llama-7b\n  list them with: distsim show models\n",
    )


def test_terms_at_which_nothing_is_sold_are_told() -> None:
    asked = ("llama-2-7b", "--tokens", "100B", "--gpu", "h100-sxm", "--gpus", "64", "--provider", "nebius")
    told = " ".join(run(*asked, "--price", "on-demand,reserved-1y,owned").stderr.split())
    assert "no reserved-1y price is known for what you asked for: no option uses one" in told
    assert "no option uses one" not in run(*asked).stderr


def test_energy_that_nobody_knows_says_why() -> None:
    told = run("llama-3-8b", "--tokens", "1T", "--gpu", "tpu-v6e", "--gpus", "64", "--price", "2.7").stdout
    assert "energy      unknown: no rated power of tpu-v6e is known" in told


def test_another_accelerator_that_costs_hardly_more_is_told(tmp_path: Path) -> None:
    words = ("llama-2-7b", "--tp", "1", "--pp", "1", "--tokens", "300B", "--provider", "nebius", "--gpus", "64")
    page = tmp_path / "plan.html"
    both = run(*words, "--gpu", "h100-sxm,h200-sxm", "--report", str(page)).stdout
    answer = json.loads(run(*words, "--gpu", "h100-sxm,h200-sxm", "--json").stdout)
    first, other = (answer["options"][answer[name]] for name in ("cheapest", "rival"))
    assert first["gpu"] != other["gpu"] and first["dollars"] <= other["dollars"] <= 1.2 * first["dollars"]
    flat = " ".join(both.split())
    assert f"as cheap 64 x {other['gpu']} from Nebius: " in flat and "is off by 20% in the median" in flat
    assert f"{other['dollars'] / first['dollars'] - 1:.1%} more than the cheapest, which cannot be told" in flat
    assert "As cheap: 64 x" in page.read_text(encoding="utf-8")
    assert "as cheap" not in run(*words, "--gpu", "h100-sxm").stdout


def test_an_accelerator_that_costs_far_more_is_no_rival() -> None:
    asked = {"gpus": 64, "tp": 1, "pp": 1, "gpu": "h100-sxm,a100-sxm4-80gb"}
    plan = distsim.plan("llama-2-7b", "300B", provider="aws,nebius", **asked)
    assert plan.cheapest is not None and plan.rival is None
    dear = [one for one in plan.options if one.gpu != plan.cheapest.gpu]
    assert dear and dear[0].dollars > 1.2 * plan.cheapest.dollars
    assert rival(plan.options, plan.request.wish, None) is None
