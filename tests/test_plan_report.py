"""``distsim plan --report``: one whole page that loads nothing, tells what the JSON tells, and shows in a browser."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import struct
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import typer
from shell import Done, piped

from distsim.catalog import load
from distsim.cli import plan, plan_report
from distsim.cli.job_options import JOB_OPTIONS
from distsim.engine.plans.ownership import ownership
from distsim.errors import DistsimError
from distsim.report.html_cash import cash
from distsim.report.html_scatter import Axis
from distsim.report.markup import Html, element, table
from distsim.specs.price import Purchase

ASKED = ("llama-2-70b", "--tokens", "2T", "--gpu", "h100-sxm", "--gpus", "512,1024", "--deadline", "40d")
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
BROWSER = next(filter(None, map(shutil.which, BROWSERS)), None)
NASTY = """</title><script>alert(1)</script> & "x" 'y' <b>"""
LOADING = ("src", "href", "srcset", "data", "action", "poster", "xlink:href", "background")


BOUGHT = {
    "item": "8x",
    "kind": "system",
    "price": 300_000,
    "gpu": "h100-sxm",
    "gpus": 8,
    "date": "2026",
    "source": "a page",
}


def run(*words: str, folder: Path | None = None) -> Done:
    return piped("plan", *words, folder=folder)


class Page(HTMLParser):
    """Elements that are open, what was seen, and the rows of tables."""

    VOID = ("meta", "br")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.values: set[float] = set()
        self.words = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_startendtag(tag, attrs)
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        names = [name for name, _ in attrs]
        assert len(names) == len(set(names)), f"{tag}: {names}"
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag == "data":
            self.values.add(float(dict(attrs)["value"] or "nan"))

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words += data


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """The page, and the JSON of the same call."""
    file = tmp_path_factory.mktemp("page") / "plan.html"
    done = run(*ASKED, "--json", "--report", str(file))
    assert done.returncode == 0, done.stderr
    assert f"page written to {file}" in done.stderr
    return file, json.loads(done.stdout)


@pytest.fixture(scope="module")
def page(written: tuple[Path, dict[str, Any]]) -> Page:
    return Page(written[0].read_text(encoding="utf-8"))


def whole(page: Page) -> None:
    """Well formed, alone, and nothing in it runs."""
    assert page.open == []
    assert not {"script", "link", "img", "iframe", "object", "embed", "base"} & set(page.tags)
    for tag, name, value in page.attributes:
        assert name not in LOADING or value.startswith("#"), (tag, name, value)
        assert not re.search(r"https?:|url\(|javascript:|@import", value), (tag, name, value)
        assert not name.startswith("on")
    ids = [value for _, name, value in page.attributes if name == "id"]
    assert len(ids) == len(set(ids))
    named = [word for _, name, value in page.attributes if name == "aria-labelledby" for word in value.split()]
    linked = [value[1:] for _, name, value in page.attributes if name == "href"]
    assert set(named) | set(linked) <= set(ids)


def test_the_page_is_whole_and_alone(page: Page, written: tuple[Path, dict[str, Any]]) -> None:
    whole(page)
    style = re.search(r"<style>(.*?)</style>", written[0].read_text(encoding="utf-8"), re.DOTALL)
    assert style
    assert not re.search(r"https?:|url\(|@import", style[1])
    assert "prefers-color-scheme: dark" in style[1]
    assert "@media print" in style[1]


def test_every_figure_has_words(page: Page) -> None:
    drawings = page.tags.count("svg")
    assert drawings == 5  # trade, money, cash, memory, pipeline
    assert sum(1 for tag, name, value in page.attributes if (tag, name, value) == ("svg", "role", "img")) == drawings
    assert page.tags.count("figcaption") == page.tags.count("figure") == drawings
    assert page.tags.count("caption") == page.tags.count("table") >= 8


def test_it_tells_what_the_json_tells(page: Page, written: tuple[Path, dict[str, Any]]) -> None:
    answer = written[1]
    for option in answer["options"][:12]:
        for name in ("days", "dollars", "gpu_hours", "energy_kwh"):
            assert option[name] in page.values, name
        assert option["price"]["usd_per_gpu_hour"] in page.values
        assert option["price"]["provider"] in page.words
        assert option["price"]["source"] in page.words
    chosen = answer["options"][answer["cheapest"]]
    assert (
        f"{chosen['gpus']:,} × {chosen['gpu']} ({chosen['cluster']}) from {chosen['price']['provider']}" in page.words
    )
    assert f"{chosen['days']:,.1f} days" in page.words
    assert f"{answer['campaigns']['p50_seconds'] / 86_400:,.1f} days; one run in ten finishes before" in page.words
    months = answer["buying"]["break_even_months"]
    assert f"pays off after {months:,.1f} months" in page.words
    for note in answer["notes"]:
        assert note[1:] in page.words
    for words in ("distsim 0.", "Python 3.", "distsim plan llama-2-70b --tokens 2T", "Terms of the goodput", "micro-b"):
        assert words in page.words


def given_by(words: list[str]) -> dict[str, Any]:
    """Options of a plan as its command reads them."""
    app = typer.Typer()
    app.command()(plan.plan)
    return typer.main.get_command(app).make_context("plan", words).params


@pytest.mark.parametrize("switched", [False, True])
def test_the_command_on_the_page_asks_for_the_same_again(switched: bool) -> None:
    """Every switch turned on and off, and values that a shell would take apart."""
    given = given_by(["llama-2-7b"])
    for name, value in given.items():
        if isinstance(value, bool) or (value is None and name in JOB_OPTIONS and JOB_OPTIONS[name][0] is bool):
            given[name] = switched
    given |= {"json": False, "csv": False, "sequence_parallel": "on,off", "tokens": "300B", "gpus": "64,128"}
    given |= {"lora_dropout": 0.0, "top": 7, "report": "our plan.html", "price": "all"}
    assert {"dropout", "clip", "no_sync", "loss_parallel"} < {
        name for name, value in given.items() if value is switched
    }
    distsim, command, *words = shlex.split(plan_report.asked(plan.plan, given))
    assert (distsim, command) == ("distsim", "plan")
    assert given_by(words) == given


def test_memory_of_the_page_is_that_of_distsim_memory(page: Page, written: tuple[Path, dict[str, Any]]) -> None:
    from distsim.engine.memory import memory

    chosen = written[1]["options"][written[1]["cheapest"]]
    y = chosen["layout"]
    names = ("tp", "pp", "vpp", "schedule", "zero", "zero_group", "micro_batch", "recompute", "seq")
    stated = {name: y[name] for name in names}
    batch = written[1]["global_batch"]
    report = memory(model="llama-2-70b", cluster=chosen["cluster"], gpus=chosen["gpus"], global_batch=batch, **stated)
    assert {float(stage.peak) for stage in report.stages} <= page.values


def test_the_pipeline_takes_the_colours_of_the_page(written: tuple[Path, dict[str, Any]]) -> None:
    """Ground, idle time and axis of the drawing follow light and dark; the bars keep their colours, numbers on them."""
    text = written[0].read_text(encoding="utf-8")
    drawing = text[text.index('class="wide scroll sheet"') :]
    drawing = drawing[: drawing.index("</svg>")]
    for found in re.findall(r"<(?:rect|path)[^>]*>", drawing):
        assert re.search(r'class="(paper|idle|bar|axis)"', found), found
    assert re.search(r'<text class="on-light"[^>]*>0</text>', drawing)
    for rule in (".sheet svg .paper { fill: none; }", ".sheet svg .idle { fill: var(--panel); }"):
        assert rule in text


def test_names_are_escaped(tmp_path: Path) -> None:
    own = tmp_path / "mine.toml"
    own.write_text(
        f'provider = {json.dumps(NASTY)}\ncurrency = "USD"\n[[offers]]\ninstance = "<i>n&ode</i>"\n'
        'gpu = "h100-sxm"\ngpus = 8\non_demand = 1.25\ndate = "2026-11-01"\nsource = "our <contract> & co"\n',
        encoding="utf-8",
    )
    file = tmp_path / "plan & <b>.html"
    words = ("llama-2-7b", "--tokens", "300B", "--gpu", "h100-sxm", "--gpus", "64", "--provider", str(own))
    done = run(*words, "--report", str(file))
    assert done.returncode == 0, done.stderr
    found = Page(file.read_text(encoding="utf-8"))
    whole(found)
    assert "b" not in found.tags
    assert "i" not in found.tags
    for name in (NASTY, "<i>n&ode</i>", "our <contract> & co"):
        assert name in found.words
    assert "one pipeline stage" in found.words


def test_markup_escapes_all_but_itself() -> None:
    assert element("p", "a<b", Html("<i>c</i>"), title='"&') == '<p title="&quot;&amp;">a&lt;b<i>c</i></p>'
    assert element("td", "a\x00\x1bb\udcff") == "<td>ab?</td>"
    assert element("p", "x", class_=None, aria_label="y") == '<p aria-label="y">x</p>'
    assert "&lt;u&gt;" in table("<u>", ["<u>"], [["<u>"]])
    assert "<u>" not in table("<u>", ["<u>"], [["<u>"]])


@pytest.mark.parametrize(
    ("low", "high"), [(7.0, 60.0), (1.6e6, 9e6), (2.4, 3.02), (0.9, 1.13), (1e3, 1e9), (99.0, 125.0)]
)
def test_axes_have_round_ticks_inside(low: float, high: float) -> None:
    axis = Axis(low, high, 0.0, 100.0)
    ticks = axis.ticks()
    assert 2 <= len(ticks) <= 24
    assert all(0 <= axis.at(tick) <= 100 for tick in ticks)
    assert (axis.at(low), axis.at(high)) == pytest.approx((0, 100))


def test_a_plan_that_misses_its_limits_is_a_page_too(tmp_path: Path) -> None:
    file = tmp_path / "plan.html"
    done = run("llama-2-7b", "--tokens", "2T", "--gpu", "h100-sxm", "--gpus", "64", "--deadline", "1d",
               "--report", str(file))  # fmt: skip
    assert done.returncode == 1
    found = Page(file.read_text(encoding="utf-8"))
    whole(found)
    assert "No option meets the limits." in found.words
    assert "days too late" in found.words


@pytest.mark.parametrize("place", ["none/plan.html", ".", ""])
def test_a_place_that_cannot_be_written_is_named_first(tmp_path: Path, place: str) -> None:
    done = run(*ASKED, "--report", place, folder=tmp_path)
    assert done.returncode == 2
    assert "--report" in done.stderr
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["plan.pdf", "plan", "plan.html.gz"])
def test_a_page_is_not_written_under_another_name(tmp_path: Path, name: str) -> None:
    done = run(*ASKED, "--report", name, folder=tmp_path)
    assert done.returncode == 2
    assert f"--report {name}: the name does not end in .html or .htm" in done.stderr
    assert not list(tmp_path.iterdir())


def test_nothing_half_written_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "plan.html"
    file.write_text("old", encoding="utf-8")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(DistsimError, match="No space left"):
        plan_report.replace(file, "new")
    assert file.read_text(encoding="utf-8") == "old"
    assert [one.name for one in tmp_path.iterdir()] == ["plan.html"]
    done = run("llama-3.1-405b", "--tokens", "15T", "--gpu", "h100-sxm", "--gpus", "8", "--report", str(file))
    assert done.returncode == 1
    assert file.read_text(encoding="utf-8") == "old"


def browse(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    assert BROWSER
    flags = ("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--enable-logging=stderr", "--v=0")
    return subprocess.run(
        [BROWSER, *flags, f"--user-data-dir={folder / 'profile'}", *words],
        capture_output=True, text=True, timeout=90, check=False,
    )  # fmt: skip


@pytest.mark.skipif(BROWSER is None, reason=f"no browser: none of {', '.join(BROWSERS)} is installed")
def test_a_browser_shows_it(written: tuple[Path, dict[str, Any]], page: Page, tmp_path: Path) -> None:
    file = written[0].as_uri()
    shown = browse(tmp_path, "--dump-dom", file)
    assert shown.returncode == 0, shown.stderr[-500:]
    seen = Page(shown.stdout)
    assert re.search(r"<title>Training llama-2-70b: [^<]*</title>", shown.stdout)
    for tag in ("tr", "svg", "rect", "circle", "section", "figure", "data"):
        assert seen.tags.count(tag) == page.tags.count(tag) > 0, tag  # a browser moves what is nested wrongly
    assert "CONSOLE" not in shown.stderr, shown.stderr
    picture = tmp_path / "page.png"
    shot = browse(tmp_path, f"--screenshot={picture}", "--window-size=1200,1600", file)
    assert shot.returncode == 0, shot.stderr[-500:]
    data = picture.read_bytes()
    assert struct.unpack(">II", data[16:24]) == (1200, 1600)
    assert len(data) > 40_000  # a blank page has about 9 kB


def test_cash_lines_cross_where_buying_pays_off() -> None:
    own = ownership(Purchase.model_validate(BOUGHT), 3.0, 900, load("facilities", "hyperscale"))
    drawn = cash(own)
    assert drawn is not None
    assert f"paid off after {own.break_even_months:,.1f} months" in drawn
    rent = own.years[-1].renting_so_far / len(own.years) / 12
    running = (own.years[0].buying - own.price) / 12
    months = own.break_even_months
    assert own.price + running * months == pytest.approx(rent * months)
    dear = ownership(Purchase.model_validate({**BOUGHT, "price": 9e6}), 3.0, 900, load("facilities", "hyperscale"))
    assert "paid off" not in (cash(dear) or "")
    short = load("facilities", "hyperscale").model_copy(update={"lifetime_years": 1})
    assert cash(ownership(Purchase.model_validate(BOUGHT), 3.0, 900, short)) is None
    half = ownership(Purchase.model_validate(BOUGHT), 3.0, 900, short.model_copy(update={"lifetime_years": 2.5}))
    assert "After 2.5 years buying has cost" in (cash(half) or "")
