"""What notes tell of the images of a run: how many a sequence has, of what size, and what of the vision part trains."""

from __future__ import annotations

import math
import re
from typing import Any

from distsim.interop.runs.hits import hit
from distsim.interop.runs.table import MissingCell, Run
from distsim.interop.runs.training import kind_of
from distsim.specs.model import Model
from distsim.specs.tower import Tower
from distsim.specs.vision import ALONE

PROJECTOR = "projector"
"""How ``finetune_kind`` says that nothing else trains."""

_COUNT = re.compile(
    r"(?<![\w.])(\d+(?:\.\d+)?|one|two|three|four|an?)\s+(?:[\w-]+\s+){0,2}?(?:images?|pictures?|tiles?)\b"
    r"(?:\s+of\s+[\dx×* ]+(?:pixels|px)?)?[ ,]+(?:per|each|in (?:each|a|one)|an?)\s+(?:\w+[ -])?"
    r"(?:sample|sequence|row|conversation|pack|example)",
    re.IGNORECASE,
)
_WORDS = {"a": 1.0, "an": 1.0, "one": 1.0, "two": 2.0, "three": 3.0, "four": 4.0}
_SIZE = re.compile(r"(?<![\d.])(\d{2,4})\s*[x×*]\s*(\d{2,4})(?![\d.])")
_TOKENS = re.compile(
    r"(?<![\d.,])(\d{2,5})\s+(?:image|vision|visual)[ -]tokens?\b(?!\s+(?:in all|in total|altogether))", re.IGNORECASE
)
_PART = r"(?:vision|visual|image)[ -](?:tower|encoder|model|part|backbone)s?|\bvi[ts]\b"
_NEAR = r"(?:(?!\bnot\b|\bnor\b)[^.;,]){0,30}"
"""A few words of one clause that deny nothing."""
_FROZEN = re.compile(
    rf"(?:{_PART}){_NEAR}\bfrozen|(?<!not )\bfrozen{_NEAR}(?:{_PART})|(?:freeze|fix)[_-]vi(?:t|sion\w*)\W*(?:true|on)",
    re.IGNORECASE,
)
_PROJECTOR = re.compile(r"(?:projector|merger|aligner|connector)[^.;,]{0,20}\btrain", re.IGNORECASE)
_ALONE = re.compile(
    r"\bonly (?:the )?(?:[\w-]+ )?(?:projector|merger|aligner|connector)s?\b[^.;,]{0,12}\btrain"
    r"|\bproject(?:or|ion)[ -](?:only|alone)\b|\b(?:llm|language model|decoder)(?: is)? frozen", re.IGNORECASE,
)  # fmt: skip
_TRAINED = re.compile(rf"(?:{_PART}){_NEAR}\btrain(?:s|ed|able)", re.IGNORECASE)


def image_options(run: Run, model: Model, adapters: bool) -> dict[str, Any]:
    """The options of images that notes tell; none for a model without a vision tower, or where no number is told."""
    notes, tower, kind = run.text("notes") or "", model.tower, kind_of(run)
    found = hit(_COUNT, notes)
    if kind == PROJECTOR and (tower is None or found is None):
        lacking = "the model has no vision tower that is described" if tower is None else "notes tell no images"
        raise MissingCell(f"finetune_kind {kind!r}: {lacking}")
    if tower is None or found is None:
        return {}
    word = found[1].lower()
    options: dict[str, Any] = {"images": _WORDS.get(word) or float(word)}
    if not options["images"]:
        return {}
    if size := _size_of(notes, tower):
        options["image_size"] = size
    if not adapters and (kind == PROJECTOR or _ALONE.search(notes)):
        options["vision"] = ALONE
    elif _FROZEN.search(notes):
        options["vision"] = "projector" if _PROJECTOR.search(notes) and not adapters else "frozen"
    elif _TRAINED.search(notes):
        options["vision"] = "trained"
    return options


def _size_of(notes: str, tower: Tower) -> str:
    """Pixels as notes tell them, or as many as the tokens of an image stand for; nothing where all are of one size."""
    if tower.fixed:
        return ""
    if found := _SIZE.search(notes):
        return f"{found[1]}x{found[2]}"
    if found := _TOKENS.search(notes):
        return str(round(math.sqrt(int(found[1]))) * tower.side)
    return ""
