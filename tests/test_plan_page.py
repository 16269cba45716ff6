"""The plan as a page: whole in itself, and shown by a real browser."""

from __future__ import annotations

import datetime
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import pytest

from distsim import catalog
from distsim.engine.candidates import Terms
from distsim.engine.goodput import Policy
from distsim.engine.plan import Wish
from distsim.engine.planner import Plan, Request, make_plan
from distsim.report.plan_html import page
from distsim.specs.job import Job

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
TODAY = datetime.date(2026, 11, 21)


@pytest.fixture(scope="module")
def made() -> Plan:
    terms = Terms(
        Job(model="llama-2-7b"), 1024, catalog.load("failures", "default"), catalog.load("storage", "default"), Policy()
    )
    house = catalog.load("facilities", "default")
    return make_plan(Request(terms, 300e9, Wish(days=14), house, gpus=("h100-sxm",), sizes=(64, 128)))


class Whole(HTMLParser):
    """Counts rows and dots, and refuses what would have to be fetched or is left open."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: dict[str, int] = {}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag not in ("script", "link", "img", "iframe")
        assert not any(name in ("src", "href") for name, _ in attrs)
        self.seen[tag] = self.seen.get(tag, 0) + 1
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen[tag] = self.seen.get(tag, 0) + 1

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_is_whole(made: Plan) -> None:
    text = page(made, 0, TODAY)
    reader = Whole()
    reader.feed(text)
    assert reader.open == []
    assert reader.seen["circle"] == len(made.options) + len(made.pareto)
    assert reader.seen["svg"] == 2
    assert "http" not in text
    for words in ("Where the money goes", "Rent or buy", "Terms and their sources", "distsim 0.", "2026-11-21"):
        assert words in text


def test_a_browser_shows_it(made: Plan, tmp_path: Path) -> None:
    browser = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    if browser is None:
        pytest.skip(f"no browser: none of {', '.join(BROWSERS)} is installed")
    file = tmp_path / "plan.html"
    file.write_text(page(made, 0, TODAY), encoding="utf-8")
    done = subprocess.run(
        [browser, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}",
         "--virtual-time-budget=2000", "--dump-dom", file.as_uri()],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-500:]
    assert "<h1>Training llama-2-7b on 300B tokens</h1>" in done.stdout
    assert done.stdout.count("<circle") == len(made.options) + len(made.pareto)
