"""Command lines that do not parse, told as every other mistake is: what is wrong, then what would be right."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from importlib import import_module
from itertools import pairwise, takewhile
from typing import Any

from distsim.errors import DistsimError
from distsim.other_choices import choice_meant
from distsim.other_names import here, meant

KINDS = {"valid integer": "a whole number", "valid number": "a number"}
"""What the parser says a text should be, in plain words."""
SHAPE = ("layers", "hidden", "heads", "kv_heads", "head_dim", "ffn", "vocab", "experts", "per_token", "gated", "norm",
         "activation", "tied_embeddings")  # fmt: skip
"""What other tools take as options and a model states."""
OF_MODELS = "a model's shape comes from its preset, TOML or config.json: distsim show models"
ZERO_STAGES = ("0", "1", "2", "3")
OPEN = ("auto", "max", "best", "optimal")
"""What somebody writes who leaves a number to the program."""
SEVERAL = re.compile(r"\d+(,\d+)+|\d+(\.\.|-)\d+")
"""Several numbers, or a range of them."""
SEVERAL_WORDS = " arguments."
"""How the parser ends when an option lacks some of its words."""
SURPLUS = "Got unexpected extra argument"
LIMITS = (("should be greater than or equal to ", "too small", "least"),
          ("should be less than or equal to ", "too large", "most"))  # fmt: skip
"""How the parser says that a number is out of range, what is wrong then, and where the bound lies."""


def as_error(wrong: Any, command: str, arguments: Sequence[str]) -> DistsimError:
    """The mistake behind an exception of the parser."""
    parser_says = str(wrong.format_message())
    hint = f"distsim {command} --help lists the options"
    if hasattr(wrong, "possibilities"):
        return _unknown(wrong, command, arguments, hint)
    if parser_says.startswith(SURPLUS):
        surplus = parser_says.partition(" (")[2].removesuffix(".").removesuffix(")")
        return DistsimError(f"unexpected argument {surplus}", _valueless(surplus, wrong, arguments), hint)
    kind = next((words for text, words in KINDS.items() if text in parser_says), None)
    flag = parser_says.partition("'")[2].partition("'")[0]
    given = _value_of(flag, arguments)
    for limit, wrong, right in LIMITS:
        if (bound := parser_says.partition(limit)[2].rstrip(".")) and given is not None:
            return DistsimError(f"{flag} {given} is {wrong}", f"it must be at {right} {bound}", hint)
    if parser_says.endswith(SEVERAL_WORDS):
        return _apart(parser_says, flag, given or "", hint)
    if kind is None or given is None:
        return DistsimError(parser_says.rstrip("."), hint)
    example = _written_out(given) if kind == KINDS["valid integer"] else ""
    if SEVERAL.fullmatch(given) and _searched(flag):
        several = f"for several: distsim search {_as_search(command, arguments, flag, given)}"
        example = f"{example}; {several}" if example else several
    elif SEVERAL.fullmatch(given):
        example = example or "it takes one number"
    if given.lower() in OPEN and _searched(flag):
        example = f"leave it out for the default; distsim search finds the best {flag}"
    if flag == "--zero":
        example = choice_meant(given, ZERO_STAGES) or example
    return DistsimError(f"{flag} {given!r} is not {kind}", example, hint)


def lacks_values(arguments: Sequence[str]) -> bool:
    """Whether some option may have no value of its own: what ``refuse_valueless`` is worth calling for."""
    return any(
        not word or word.endswith("=") or (word.startswith("--") and before.startswith("--"))
        for before, word in pairwise(("", *arguments, "--"))
    )


def refuse_valueless(flags: Collection[str], others: Collection[str], arguments: Sequence[str]) -> None:
    """Raise for one of the ``flags`` whose value is no text at all, as that of a shell's unset variable (a path would
    be the folder), is one of ``others``, all flags there are, or is missing at the end."""
    for before, word in pairwise(("", *takewhile(lambda one: one != "--", arguments), "--")):
        flag = word.removesuffix("=") or before
        if flag in flags and word in ("", f"{flag}="):
            raise DistsimError(f"{flag} is empty", "give a value, or leave it out")
        if before in flags and (word == "--" or word.partition("=")[0] in others):
            what = "nothing follows it" if word == "--" else f"{word.partition('=')[0]} follows it"
            raise DistsimError(f"{before} has no value: {what}", "give a value, or leave it out")


def _apart(parser_says: str, flag: str, given: str, hint: str) -> DistsimError:
    """That an option takes several words, with those that one was made of."""
    count = parser_says.removesuffix(SEVERAL_WORDS).rpartition(" ")[2]
    example = f"write {flag} {given.replace('=', ' ', 1)}" if "=" in given else ""
    return DistsimError(f"{flag} takes {count} words, with a blank between", example, hint)


def _as_search(command: str, arguments: Sequence[str], flag: str, given: str) -> str:
    """The command line as a search's, with a list or range where one number stood; without what only ``command`` has
    options for."""
    from distsim.cli.narrow import flags_of

    taken = flags_of(import_module("distsim.cli.search").search)
    words: list[str] = []
    dropped = False
    for word in arguments:
        name = word.partition("=")[0]
        if name.startswith("--"):
            dropped = name not in taken
        if not dropped:
            words.append(word)
    several = given.replace("-", "..")
    return " ".join({given: several, f"{flag}={given}": f"{flag}={several}"}.get(word, word) for word in words)


def _searched(flag: str) -> bool:
    """Whether a search tries values of an option."""
    from distsim.engine.layouts.searchable import BOUNDED

    return flag.strip("-").replace("-", "_") in BOUNDED


def _unknown(wrong: Any, command: str, arguments: Sequence[str], hint: str) -> DistsimError:
    """All options that are not there, each with what it may have been meant to be."""
    flags = [flag for one in wrong.ctx.command.params for flag in (*one.opts, *one.secondary_opts)]
    words = [word.partition("=")[0] for word in takewhile(lambda word: word != "--", arguments)]
    others = (word for word in words if word.startswith("--") and word not in (*flags, "--help"))
    short = wrong.option_name  # -g of -gpus
    long = next((word for word in words if len(short) == 2 and word.startswith(short) and f"-{word}" in flags), "")
    if long:
        return DistsimError(f"unknown option {long}", f"write -{long}", hint)
    names = list(dict.fromkeys((wrong.option_name, *others)))
    told = {name: _instead(name, flags, command) or _elsewhere(name, command) for name in names}
    if len(names) == 1:
        return DistsimError(f"unknown option {names[0]}", told[names[0]], hint)
    return DistsimError(
        f"unknown options {', '.join(names)}", *(f"{name}: {words}" for name, words in told.items() if words), hint
    )


def _instead(name: str, flags: Sequence[str], command: str) -> str:
    """A hint at the option that somebody may have meant who typed one that does not exist."""
    known = [flag.strip("-").replace("-", "_") for flag in flags if flag.startswith("--")]
    if name == "--model" or (here(name, ("model",)) and "model" not in known):
        return f"the model is a plain argument: distsim {command} llama-7b"
    if here(name, SHAPE) and not here(name, known):
        return OF_MODELS
    return meant(name, known, option=True)


def _elsewhere(name: str, command: str) -> str:
    """Which other commands take the option."""
    from distsim.cli.app import available
    from distsim.cli.narrow import flags_of

    others = (other for other in available() if other != command)
    takers = [one for one in others if name in flags_of(getattr(import_module(f"distsim.cli.{one}"), one))]
    return f"an option of distsim {' and '.join(filter(None, (', '.join(takers[:-1]), takers[-1])))}" if takers else ""


def _valueless(surplus: str, wrong: Any, arguments: Sequence[str]) -> str:
    """The switch that a word follows as if it were its value."""
    switches = {flag: one for one in wrong.ctx.command.params if getattr(one, "is_flag", False) for flag in one.opts}
    for word, following in pairwise(arguments):
        if following == surplus and word in switches:
            return f"a switch takes no value: {' or '.join((word, *switches[word].secondary_opts))}"
    return ""


def _value_of(flag: str, arguments: Sequence[str]) -> str | None:
    for word, following in zip(arguments, [*arguments[1:], ""], strict=True):
        if word == flag:
            return following
        if word.startswith(f"{flag}="):
            return word.partition("=")[2]
    return None


def _written_out(given: str) -> str:
    """A number as options take it, of one written 8k, 1e6 or 4,096; nothing where that is not plain."""
    from distsim.units import KIB, MIB, parse

    try:
        value = parse(given, "tokens")
    except DistsimError:
        return ""
    if value != int(value) or not 0 < value < 1e15:
        return ""
    binary = {"k": KIB, "m": MIB}.get(given[-1:].lower())
    other = f" or {round(value / (1e3 if binary == KIB else 1e6) * binary)}" if binary else ""
    return f"write {int(value)}{other}"
