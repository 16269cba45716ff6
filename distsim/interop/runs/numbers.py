"""Numbers of measured runs as people write them: marks of spreadsheets, truth in words, stages of ZeRO, suffixes."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from distsim.specs.limits import LARGEST_BATCH, LARGEST_DEGREE, LARGEST_DEPTH, LARGEST_SIZE
from distsim.units import BITS_PER_BYTE, GIGA, HOUR, KIB, MIB, MILLISECOND, MINUTE, TERA, parse

COUNTS = ("layers", "hidden", "heads", "kv_heads", "head_dim", "vocab", "n_experts", "top_k", "moe_ffn_hidden",
          "seq_len", "decoder_seq", "n_gpus", "gpus_per_node", "tp", "pp", "vpp", "cp", "ep", "etp", "dp",
          "micro_batch", "grad_accum", "global_batch", "lora_rank")  # fmt: skip
"""Columns of whole numbers from one on."""
MOST, MOST_LAYERS, MOST_SAMPLES, MOST_TOKENS = LARGEST_DEGREE, LARGEST_DEPTH, LARGEST_BATCH, LARGEST_SIZE
"""Beyond any model, machine and batch: a typing slip."""
MEASURED = ("n_params_b", "ffn_hidden", "capacity_factor",
            "internode_gbps_per_gpu", "gpu_power", "gpu_memory", "step_time_s", "tokens_per_s_per_gpu",
            "samples_per_s", "tflops_per_gpu_reported", "mfu_pct", "hfu_pct", "mem_peak_gb_per_gpu")  # fmt: skip
"""Columns of figures above zero."""
LEAST_MEASURED, MOST_MEASURED = 1e-9, 1e13
"""Beyond what any of them can be, in whatever unit somebody wrote it: seconds of a step shorter than a clock's tick,
bytes of more memory than a rack has."""
FLAGS = ("gated_mlp", "tied_embeddings", "sequence_parallel", "compile")
"""Columns of yes and no."""
FROM_ZERO = ("shared_experts", "zero_stage")
YES = ("true", "yes", "y", "on", "t", "enabled", "✓", "✔", "✅")
NO = ("false", "no", "n", "off", "f", "disabled", "none", "✗", "✘", "❌")
_MORE_NO = {"compile": ("eager", "not used"), "sequence_parallel": ("no sp", "without sp", "not used")}
_MORE_YES = {"sequence_parallel": ("sp",)}
"""Words of single columns for yes and no."""
_SHARDED = {"fsdp": 3.0, "fsdp1": 3.0, "fsdp2": 3.0, "full_shard": 3.0, "distributed optimizer": 1.0}
"""Stages of ZeRO by what shards as much."""
_STAGE = re.compile(r"(?:deepspeed[-\s]*)?(?:zero|stage|z)[-_\s]*(?:stage[-_\s]*)?([0-3])(?![\d.])", re.IGNORECASE)
_SUFFIXED = re.compile(r"(\d{1,9}(?:\.\d{1,17})?)\s*([km])", re.IGNORECASE)
_PARAMETERS = re.compile(r"(\d{1,9}(?:\.\d{1,17})?)\s*([bm])", re.IGNORECASE)
_DEVIATION = re.compile(r"\s*(?:±|\+/?-)\s*\d[\d.,]*(?=[^\d.,]|$)")
"""What a mean is followed by."""
_CLOCK = re.compile(r"(?:(?P<hours>\d{1,3}):)?(?P<minutes>\d{1,3}):(?P<seconds>[0-5]\d(?:\.\d{1,17})?)")
POWERS_OF_TWO = ("seq_len", "hidden", "moe_ffn_hidden", "ffn_hidden", "global_batch", "n_gpus")
"""Columns whose k is 1,024: lengths, widths and batches are powers of two; vocabularies and rates count thousands."""
MOST_SEQUENCES = 64 * KIB
"""Of a batch (LAMB, You et al. 2020); more, as in 4M, are tokens."""
_NUMBER = r"[~≈]?\s*(?P<head>-?\d[\d.,]*(?:e[+-]?\d{1,3})?\s?(?:[kmKM](?![a-zA-Z]))?)"
_BRACKET = r"\s*(?:[(\[](?P<bracket>[^()\[\]]*)[)\]])?"
_PER = r"\s*(?:/|per)\s*"
_CHIP = "(?:gpu|device|chip|card|accelerator)"
_EACH = rf"(?:{_PER}{_CHIP})?"
_CHIPS = "(?:gpu|chip|device|accelerator|card|npu|gcd|tpu|hpu|xpu|neuron-?core|rank)s?"
_SECOND = r"s(?:ec(?:ond)?s?)?"
_SEQUENCES = r"sequences?|seqs?|samples?|examples?|images?|imgs?"
_BYTES = r"(?:[gmt]i?b?|bytes?|b|%)"
_PEAK = re.compile(
    r"(?:(?:max(?:imum)?|peak)[\s:=]*)?[~≈]?\s*(\d{1,15}(?:\.\d{1,17})?)\s*"
    rf"{_BYTES}?(?:\s*(?:max(?:imum)?|peak|used))?(?:{_PER}(?:gpu|device|chip|card|rank))?"
    rf"(?:\s*(?:/|(?:out )?of)\s*\d{{1,15}}(?:\.\d{{1,17}})?\s*{_BYTES})?\s*(?:\([^()]*\))?"
)
"""A figure with its unit, which interop/runs/peaks.py reads, or of what there is (60 GB / 80 GB)."""
_UNITS_OF = {
    "global_batch": _SEQUENCES, "micro_batch": rf"(?:{_SEQUENCES})?(?:{_PER}(?:{_CHIP}|rank))?",
    "grad_accum": r"(?:micro-?)?(?:steps?|batche?s?)",
    "seq_len": "tokens?", "decoder_seq": "tokens?", "n_gpus": _CHIPS,
    "gpus_per_node": _CHIPS, "layers": "layers?", "pp": "(?:pipeline )?stages?",
    "cp": "ring|p2p|a2a|ulysses|all[-_ ]?gather|all[-_ ]?to[-_ ]?all",
    "internode_gbps_per_gpu": r"gb(?:it)?(?:/s|ps)", "gpu_power": "w(?:atts?)?", "n_params_b": "billions?",
    "gpu_memory": "gi?b",
    "step_time_s": rf"(?:{_SECOND}|ms|milliseconds?|min(?:ute)?s?|h(?:ours?)?)(?:{_PER}(?:it(?:er(?:ation)?)?|step))?",
    "tokens_per_s_per_gpu": rf"(?:(?:tokens?|toks?|t){_PER}{_SECOND}|tps){_EACH}|tgs|"
                            rf"(?:tokens?|toks?){_PER}{_CHIP}{_PER}{_SECOND}",
    "samples_per_s": rf"(?:{_SEQUENCES})?{_PER}{_SECOND}",
    "tflops_per_gpu_reported": rf"[gtp]f(?:lops?)?(?:{_PER}s)?{_EACH}|t",
    "mfu_pct": "(?:%|per ?cent)(?: mfu)?", "hfu_pct": "(?:%|per ?cent)(?: hfu)?",
}  # fmt: skip
"""What may stand behind a number of a column: its unit."""
_SCALES = {
    "step_time_s": (("min", MINUTE), ("m", MILLISECOND), ("h", HOUR)),
    "tflops_per_gpu_reported": (("p", TERA / GIGA), ("g", GIGA / TERA)),
}
"""How units begin that are not the column's, and what one of them is in the column's."""
_WITH_UNIT = {name: re.compile(rf"{_NUMBER}\s*(?P<unit>{unit})?{_BRACKET}", re.IGNORECASE)
              for name, unit in _UNITS_OF.items()}  # fmt: skip
_REMARKED = re.compile(_NUMBER + _BRACKET)
_DEGREES = ("tp", "pp", "vpp", "cp", "ep", "etp", "dp")
_NAMED = {
    **{name: re.compile(rf"{name}[\s=:_-]*(\d{{1,6}})|(\d{{1,6}})(?:[\s-]*way|x)", re.IGNORECASE) for name in _DEGREES},
    "micro_batch": re.compile(r"(?:mbs|bs)[\s=:]*(\d{1,6})", re.IGNORECASE),
    "grad_accum": re.compile(r"(?:gas?[\s=:]*|x)(\d{1,6})|(\d{1,6})x", re.IGNORECASE),
    "global_batch": re.compile(r"gbs[\s=:]*(\d{1,6})", re.IGNORECASE),
}
"""A number behind the short name of its own column, or as people say it aloud: TP8, tp=8, 8-way."""
_BESIDE = re.compile(r"(\d{1,6})\s*(?:\+|w/|with|and)\s*(?:sp|sequence[- ]parallel\w*)", re.IGNORECASE)
"""A tensor parallel degree, and that sequences are cut as well."""
_NODES = re.compile(rf"(\d{{1,5}})\s*(?:nodes?)?\s*[x×*]\s*(\d{{1,3}})(?:\s*{_CHIPS})?", re.IGNORECASE)
"""Accelerators of so many nodes with so many each."""
_OTHER_COUNT = re.compile(r"\b(?:total|all|sum|aggregate|global|overall|node|cluster|hosts?)\b", re.IGNORECASE)
"""Remarks by which a measured figure is not that of the column."""
_ONE = r"\b(?:per|each|a)[\s-]*(?:gpu|device|chip|card|accelerator|rank|npu|tpu|core)s?\b"
_NOT_OF = {
    "samples_per_s": re.compile(_ONE, re.IGNORECASE),
    "step_time_s": re.compile(r"\b(?:micro-?\s?batch|(?:forward|fwd|backward|bwd)(?: pass)? (?:only|alone))\b",
                              re.IGNORECASE),
}  # fmt: skip
"""The same of single columns: what one chip does of the job's samples, and parts of a step."""
_BYTES_PER_SECOND = re.compile(r"\d\s*G(?:i?B)(?:/s|ps)")
"""Of a network, whose bits are Gb or Gbit."""
_BARE = re.compile(
    r"(?P<number>(?:(?:max(?:imum)?|peak)[\s:=]*)?[~≈]?\s*-?\d[\d.,]*(?:e[+-]?\d{1,3})?(?:\s?k(?![a-z]))?)"
    rf"(?P<rest>(?:{_DEVIATION.pattern})?(?:\s*(?:max(?:imum)?|peak|used))?(?:{_PER}[a-z]+)?{_BRACKET})",
    re.IGNORECASE,
)
"""A number without a unit, and the remark behind it."""
_RANK = re.compile(r"(?:r(?:ank)?[\s=:]*)?(\d{1,5})(?:\s*/\s*\d+|[\s,;(/]*(?:lora[-_ ])?(?:a|alpha)[\s=:]*\d+\)?)?")
"""A rank of adapters with its alpha."""
_COMPILED = re.compile(r"compile|inductor|autotune|dynamo|per[- ](?:block|layer)")
_DENIED = re.compile(r"\b(?:no|not|without|off|false|never)\b")
LAYOUT = ("tp", "pp", "vpp", "cp", "ep", "etp", "dp", "zero_stage", "sequence_parallel", "micro_batch", "grad_accum",
          "global_batch", "gpus_per_node", "internode_gbps_per_gpu", "compile")  # fmt: skip
"""Columns whose blank cells take what is usual."""
BLANK = ("-", "--", "n/a", "na", "none", "null", "nan", "?")
"""Words for a blank cell."""
UNSAID = re.compile(
    r"[-–—~?]+|n\.?/?a\.?|nan|null|tbd|un(?:known|specified|stated|clear)|"
    r"not (?:said|stated|told|known|given|specified|reported)",
    re.IGNORECASE,
)
"""The same of cells of words, whole."""
_DECIMAL_COMMA = re.compile(r"-?\d+,\d+")
_THOUSANDS = re.compile(r"-?\d{1,3}(,\d{3})+(\.\d+)?")
_SPACED = re.compile(r"-?\d{1,3}(?:[ \u00a0\u202f'’]\d{3})+(?:\.\d+)?")
"""Thousands apart, as in French and Swiss tables."""
_POINTS = re.compile(r"-?\d{1,3}(\.\d{3})+(,\d+)?")
"""Thousands where commas are decimal."""
_LED = re.compile(r"([~≈]\s*)?(\d[\d.,]*\d)(\s*(?:[a-zA-Z(\[%/±]|\+/?-).*)?")
"""A number between a mark that it is rounded and its unit or remark."""
_POINT = re.compile(r"-?\d+\.(\d{1,2}|\d{4,})")
"""A decimal point that separates no thousands."""


class Marks(NamedTuple):
    """What marks in a table's numbers mean: else commas are between thousands, and points before decimals."""

    decimal_commas: bool
    thousand_points: bool


def marks_of(rows: Sequence[Mapping[str, str]], delimiter: str) -> Marks:
    """A comma stands before decimals where a number tells it, as 1,42 does, which is no thousand, or 5.762,3; and
    between semicolons, which spreadsheets write where it does, unless points do. A point stands between thousands only
    beside such commas."""
    texts = [row.get(name, "").strip() for row in rows for name in (*MEASURED, *COUNTS)]
    told = any(
        (_DECIMAL_COMMA.fullmatch(text) and not _THOUSANDS.fullmatch(text)) or (_POINTS.fullmatch(text) and "," in text)
        for text in texts
    )
    points = any(_POINT.fullmatch(text) for text in texts)
    if delimiter == ",":
        return Marks(False, False)
    return Marks(told or (delimiter == ";" and not points), told and not points)


def plain_numbers(cells: dict[str, str], marks: Marks) -> dict[str, str]:
    """Cells whose numbers are written as spreadsheets do: 1,42 or 5.762 where commas are decimal, 6,900."""
    for name in (*MEASURED, *COUNTS):
        text = cells.get(name, "").strip()
        if (led := _LED.fullmatch(text)) and led[2] != text:
            cells[name] = f"{led[1] or ''}{plain_numbers({name: led[2]}, marks)[name]}{led[3] or ''}"
        elif marks.thousand_points and _POINTS.fullmatch(text):
            cells[name] = text.replace(".", "").replace(",", ".")
        elif marks.decimal_commas and _DECIMAL_COMMA.fullmatch(text):
            cells[name] = text.replace(",", ".")
        elif _SPACED.fullmatch(text):
            cells[name] = re.sub(r"[^\d.-]", "", text)
        elif not marks.decimal_commas and _THOUSANDS.fullmatch(text):
            cells[name] = text.replace(",", "")
    return cells


def with_unit(text: str, unit: str) -> str:
    """A cell in the unit of its heading; as it is where it has its own, or holds no number."""
    try:
        return f"{float(text)!r} {unit}"
    except ValueError:
        bare = _BARE.fullmatch(text)
    return f"{bare['number']} {unit}{bare['rest']}" if bare else text


def number_in(name: str, text: str) -> float | None:
    """The number that a cell of a column holds; None where it holds none."""
    try:
        value = float(text.removesuffix("%") if name.endswith("_pct") else text)
    except ValueError:
        return _spoken(name, text)
    return value if math.isfinite(value) else None


def _spoken(name: str, text: str) -> float | None:
    """What words say: yes and no, ZeRO-3, 256k, 6.7B parameters."""
    lower = text.lower()
    if name in FLAGS:
        if name == "compile" and _COMPILED.search(lower):
            return 0.0 if _DENIED.search(lower) else 1.0
        return _yes_or_no(name, lower)
    if name == "zero_stage":
        stage = _STAGE.match(text)
        told = stage or re.fullmatch(r"([0-3])\s*[(\[][^()]*[)\]]", text)
        return float(told[1]) if told else 0.0 if lower in (*NO, "ddp") else _SHARDED.get(lower)
    if name == "n_params_b" and _PARAMETERS.fullmatch(text):
        return parse(text.upper(), "tokens") / GIGA
    if name in MEASURED and (mean := _DEVIATION.sub("", text)) != text:
        return number_in(name, mean)
    if name == "step_time_s" and (clock := _CLOCK.fullmatch(text)):
        return int(clock["hours"] or 0) * HOUR + int(clock["minutes"]) * MINUTE + float(clock["seconds"])
    if name == "mem_peak_gb_per_gpu":
        return float(size[1]) if (size := _PEAK.fullmatch(lower)) else None
    if name == "lora_rank":
        return float(rank[1]) if (rank := _RANK.fullmatch(lower)) else None
    if (count := _counted(name, text)) is not None:
        return count
    found = _SUFFIXED.fullmatch(text)
    if name not in (*COUNTS, *MEASURED):
        return None
    if found and name == "step_time_s" and found[2] in "mM":  # minutes, or thousandths?
        return None
    if found is None:
        return _with_unit(name, text)
    if name in POWERS_OF_TWO:
        count = float(found[1]) * (KIB if found[2].lower() == "k" else MIB)
        return None if name == "global_batch" and count > MOST_SEQUENCES else count
    return parse(text.upper(), "tokens")


def _yes_or_no(name: str, text: str) -> float | None:
    """A word for either, of which remarks in brackets change nothing."""
    word = re.sub(r"\s*[(\[][^()\[\]]*[)\]]$", "", text)
    if word in ("0", "1"):
        return float(word)
    if word in (*YES, *_MORE_YES.get(name, ())):
        return 1.0
    return 0.0 if word in (*NO, *_MORE_NO.get(name, ())) else None


def _counted(name: str, text: str) -> float | None:
    """A count beside the name of what it counts; None where it is told otherwise."""
    named = _NAMED[name].fullmatch(text) if name in _NAMED else None
    named = named or (_BESIDE.fullmatch(text) if name == "tp" else None)
    if named:
        return float(next(filter(None, named.groups())))
    nodes = _NODES.fullmatch(text) if name == "n_gpus" else None
    return float(int(nodes[1]) * int(nodes[2])) if nodes else None


def _with_unit(name: str, text: str) -> float | None:
    """A number before the unit of its column, a remark in brackets, or both."""
    found = _WITH_UNIT.get(name, _REMARKED).fullmatch(text)
    remark = (found["bracket"] or "") if found else ""
    if found is None or (name in MEASURED and _OTHER_COUNT.search(remark)):
        return None
    if name in _NOT_OF and _NOT_OF[name].search(remark):
        return None
    head = found["head"].strip()
    value = number_in(name, head) if head != text else None
    unit = (found.groupdict().get("unit") or "").lower()
    scale = next((size for start, size in _SCALES.get(name, ()) if unit.startswith(start)), 1.0)
    if name == "internode_gbps_per_gpu" and _BYTES_PER_SECOND.search(text):
        scale = BITS_PER_BYTE
    return None if value is None else value * scale


def dropped(cells: Mapping[str, str]) -> str:
    """Cells of a layout that hold no number, and count as blank."""
    texts = ((name, (cells.get(name) or "").strip()) for name in LAYOUT)
    odd = ((name, text) for name, text in texts if text.lower() not in ("", *BLANK) and number_in(name, text) is None)
    return "; ".join(f"{name} {text[:20]!r} is not a number: treated as blank" for name, text in odd)


def suffixes_read(cells: Mapping[str, str]) -> str:
    """What the suffixes of a row's counts were taken for, where they round (256k) or may mean either."""
    told = []
    for name in COUNTS:
        text = (cells.get(name) or "").strip()
        value = number_in(name, text) if _SUFFIXED.fullmatch(text) else None
        if value is not None:
            told.append(f"{name} {text!r} read as {value:,.0f}")
    return "; ".join(told)
