"""What notes of measured runs say of evaluations inside the time that was measured."""

from __future__ import annotations

import re
from typing import NamedTuple

from distsim.interop.runs.hits import hit
from distsim.interop.runs.table import Run

_COUNT = r"(\d[\d,]*)"
_EVALUATED = rf"\bevaluations? of (?:about )?{_COUNT} (?:samples|sequences|examples)"
_APART = re.compile(
    r"\bevaluations? (?:(?:is|are|was|were) )?(?:logged )?(?:apart|excluded|left out|taken off|subtracted|"
    r"not (?:inside|included|counted))|\b(?:without|excluding|between) (?:the )?evaluations?\b|"
    r"\beval_stop ?(?:->|to|-) ?eval_start",
    re.IGNORECASE,
)
_SOME = re.compile(
    rf"\b{_COUNT} (?:samples|sequences|(?P<steps>steps)) in [^;]*?\bwith (?P<times>\d+|one) {_EVALUATED}", re.IGNORECASE
)
_ONE = re.compile(_EVALUATED, re.IGNORECASE)
_BLOCK = re.compile(rf"\bblocks? of (?:about )?{_COUNT}\b(?! steps)", re.IGNORECASE)
_STEPS = re.compile(r"\bblocks? of (?:about )?(\d+) steps\b", re.IGNORECASE)
_BY_BLOCKS = re.compile(r"\bblock(?:s|_start|_stop|[- ](?:times?|intervals?))\b", re.IGNORECASE)

_GPT3 = re.compile(r"\bmlcommons/training_results.*\bgpt-?3\b|\bmlperf\b.*\bgpt-?3\b", re.IGNORECASE)


class Evaluation(NamedTuple):
    """How many sequences are evaluated after how many that train."""

    sequences: int
    every: int


def evaluation_said(run: Run, batch: int) -> Evaluation | None:
    """The evaluation that notes say is inside the measured time of steps of ``batch`` sequences; None where they tell
    none, or that it is apart."""
    notes = run.notes
    if hit(_APART, notes):
        return None
    if some := hit(_SOME, notes):
        times = int(some["times"]) if some["times"].isdecimal() else 1
        return Evaluation(times * _number(some[4]), _number(some[1]) * (batch if some["steps"] else 1))
    one, block, steps = (hit(words, notes) for words in (_ONE, _BLOCK, _STEPS))
    if one is None or not (block or steps):
        return None
    return Evaluation(_number(one[1]), int(steps[1]) * batch if steps else _number(block[1]) if block else 0)


def timed_by_blocks(run: Run) -> bool:
    """Whether the measured time is that of MLPerf's blocks, and no notes say that evaluations were taken off."""
    return hit(_BY_BLOCKS, run.notes) is not None and hit(_APART, run.notes) is None


def mlperf_gpt3(run: Run) -> bool:
    """Whether source and model name MLPerf's GPT-3."""
    return _GPT3.search(f"{run.source} {run.text('model') or ''}") is not None


def _number(text: str) -> int:
    return int(text.replace(",", ""))
