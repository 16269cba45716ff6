"""Which pipeline stages hold how many layers, as people write it: counts, the outer stages, or Megatron's layout."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import groupby

REST = -1
"""Stands for the stages between those that are named, which share the rest of the layers equally."""
BALANCED = (-2,)
"""Stands for the split that makes the slowest stage as fast as possible."""
PREDICTS = -3
"""Less n: a chunk of n layers that also has all of multi-token prediction, apart from the loss."""
MOST = 100_000
"""Chunks or layers, beyond any model: a typing slip."""
# Patterns as text: re compiles and keeps them where a job has such an option, not at each start.
_COUNT = r"(\d{1,6})(?:\*(\d{1,6})|(m))?"
_LETTER = r"([EtmL|])\*(\d{1,6})"
_GROUP = r"\(([EtmL|]*)\)(?:\*(\d{1,6}))?"
_CHUNK = r"E?t*m*L?"
EXAMPLES = "7,8,8,9 or 4*15,1 or 3,...,2 or balanced or Et*3|(tt|)*29m|L"


def parse(text: str) -> tuple[int, ...]:
    """``7,8,8,9``, ``4*15,1`` (15 fours), ``3,...,2`` (what is left is shared equally), ``5,5,2m,0`` (multi-token
    prediction behind the third's layers, apart from the loss), or a layout string as Megatron-core's
    ``--pipeline-model-parallel-layout`` takes it, or ``balanced``. Raises ValueError."""
    if text.strip().lower() == "balanced":
        return BALANCED
    found = _layout(text) if re.search("[EtL|]", text) else _counts(text)
    if len(found) > MOST or sum(counted(found)) > MOST:
        raise ValueError(f"{text!r} names more than {MOST} stages or layers")
    return found


def written(layers: Sequence[int]) -> str:
    """``7,8*14,7``: counts as ``parse`` takes them, alike neighbours together."""
    told = [f"{PREDICTS - count}m" if count <= PREDICTS else str(count) for count in layers]
    runs = [(count, len(list(alike))) for count, alike in groupby(told)]
    return ",".join(count if times == 1 else f"{count}*{times}" for count, times in runs)


def counted(layers: Sequence[int]) -> tuple[int, ...]:
    """Layers alone, whether or not multi-token prediction is behind them."""
    return tuple(PREDICTS - count if count <= PREDICTS else count for count in layers)


def predicting(layers: Sequence[int]) -> int | None:
    """Which of them has multi-token prediction, counted from the end as -1; None where it is beside the loss."""
    return next((place - len(layers) for place, count in enumerate(layers) if count <= PREDICTS), None)


def predictions(text: str) -> int:
    """Layers of multi-token prediction that a layout string names; 0 for other notations."""
    return _expanded(text).count("m") if "E" in text else 0


def _counts(text: str) -> tuple[int, ...]:
    counts: list[int] = []
    words = text.replace(",", " ").split()
    for word in words:
        match = re.fullmatch(_COUNT, word)
        if word == "..." and REST not in counts:
            counts.append(REST)
        elif match is None or len(counts) > MOST:
            words = []
            break
        else:
            count = PREDICTS - int(match[1]) if match[3] else int(match[1])
            counts += [count] * min(int(match[2] or 1), MOST)
    if not words or not counts:
        raise ValueError(f"{text!r} is not a list of layer counts; write e.g. {EXAMPLES}")
    if sum(count <= PREDICTS for count in counts) > 1:
        raise ValueError(f"{text!r}: multi-token prediction m is in more than one part")
    return tuple(counts)


def _layout(text: str) -> tuple[int, ...]:
    """Layers in each chunk of a layout string; what it says of embedding and loss has to be where they are."""
    chunks = _expanded(text).split("|")
    for index, chunk in enumerate(chunks):
        if re.fullmatch(_CHUNK, chunk) is None:
            raise ValueError(f"{text!r}: part {index} is {chunk!r}, not embedding E, layers t, MTP m, loss L")
    whole = "".join(chunks)
    ends = chunks[0].startswith("E") and chunks[-1].endswith("L")
    if not ends or whole.count("E") != 1 or whole.count("L") != 1:
        raise ValueError(f"{text!r}: exactly one E must begin the first part, and one L end the last")
    if "m" in whole[: whole.rfind("t")]:
        raise ValueError(f"{text!r}: an MTP layer m comes before the last layer t")
    if sum("m" in chunk for chunk in chunks) > 1:
        raise ValueError(f"{text!r}: all MTP layers m have to be in one part, as Megatron-core has them")
    apart = [chunk.count("m") > 0 and "L" not in chunk for chunk in chunks]
    counts = [chunk.count("t") for chunk in chunks]
    return tuple(PREDICTS - count if one else count for count, one in zip(counts, apart, strict=True))


def _expanded(text: str) -> str:
    """The layout without repetitions: letters first, then groups from the inside."""

    def repeat(match: re.Match[str]) -> str:
        times = int(match[2] or 1)
        if times * len(match[1]) > MOST:
            raise ValueError(f"{text!r} names more than {MOST} stages or layers")
        return match[1] * times

    short = re.sub(r"[\s,]", "", text)
    for pattern in (_LETTER, _GROUP):
        while (longer := re.sub(pattern, repeat, short)) != short:
            if len(longer) > MOST:
                raise ValueError(f"{text!r} names more than {MOST} stages or layers")
            short = longer
    return short
