"""What texts of other tools state, as keys with their sections and values: JSON, TOML, plain lines of YAML, the
arguments of a command line in a shell script, and the assignments of a recipe in Python. Nothing is run."""

from __future__ import annotations

import ast
import json
import operator
import re
import tomllib
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

_YAML = re.compile(r"^( *)([A-Za-z_][\w.-]*):(?:\s+(.*?))?\s*(?:#.*)?$")
_ITEM = re.compile(r"^ *- +([\w.-]+)\s*(?:#.*)?$")
_WORDS = re.compile(r"\[\s*(?:(['\"]?)[A-Za-z_][\w.-]*\1\s*(?:,\s*|(?=\])))+\]")
"""A list of YAML on one line: ``[q_proj, 'v_proj']``."""
_ARGUMENT = re.compile(
    r"""(?<![\w-])(--[A-Za-z][\w.-]*)(?:(?:[ \t]+|=)(?!--)("[^"\n]*"|'[^'\n]*'|(?:\\?[(\[\])*+])+[^\s]*|[^\s\\)]+))?"""
)
"""``--name value`` and ``--name=value``; a value may be quoted, or a list of layers with or without backslashes."""
_LISTED = re.compile(r"--(?:(?:recompute|offload)-modules|(?:lora_)?target_modules)[ \t]+((?:[a-z_][\w-]*[ \t]*)+)")
"""Arguments of several words."""
_PRINTED = re.compile(r"^(?:\S+:)?[ \t]*([a-z]\w*) \.{2,} (\S.*?)\s*$", re.MULTILINE)
"""``hidden_size ..... 4096``, as Megatron prints all its arguments at the start of a log, also behind a rank's mark."""
_COMMENT = re.compile(r"(?:^|(?<=\s))#.*$", re.MULTILINE)
_OVERRIDE = re.compile(r"(?<=\s)([a-z]\w*(?:\.\w+)*)=([\w./-]+)(?=\s|$)")
"""``trainer.devices=8`` behind a command, as Hydra, NeMo and MaxText have it; a line of its own is a variable."""
_LAUNCHED = re.compile(r"(?<!\S)(NPROC_PER_NODE|GPUS_PER_NODE|NNODES|NUM_NODES)=(\d+)(?!\S)")
"""Variables that launchers read."""
_VARIABLE = re.compile(
    r"""^\s*(?:export\s+|local\s+)?([A-Za-z_]\w*)=["']?(?:\$\{(\w+):?[-=])?["']?([\w./-]+)["']?\}?["']?\s*$""",
    re.MULTILINE,
)
"""``TP=2``, and ``TP=${TP_SIZE:-2}``, which is 2 unless the script or what it asks of Slurm says otherwise."""
_NAMED = re.compile(r"\$\{?([A-Za-z_]\w*)(?::[-=]([\w./-]+))?\}?")
"""A variable of a shell, with what it is where it is not set."""
_BATCH = re.compile(r"^#SBATCH[ \t]+(.*)$", re.MULTILINE)
_BATCH_NODES = re.compile(r"(?<!\S)(?:-N *|--nodes[ =])(\d+)(?!\S)")
_BATCH_GPUS = re.compile(r"(?<!\S)--(?:gpus-per-node|gres)[ =](?:gpu:)?(?:[A-Za-z]\w*:)?(\d+)(?!\S)")
"""What a script asks of Slurm: nodes, and accelerators of each."""
_AIM = re.compile(r"\btrl (sft|dpo|kto|orpo|cpo|grpo|rloo|reward)\b")
_CALLED = re.compile(r"(DPO|KTO|ORPO|CPO|GRPO|RLOO|PPO)(?:Config|Trainer)")
"""What TRL trains for, by its command and by its classes: a key ``rl``."""
_ARITHMETIC = re.compile(r"\$\(\(([^()\n]+)\)\)")
"""``$((TP * PP))``, without brackets of its own."""
_OPERATIONS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.floordiv,
}  # fmt: skip
MOST_ROUNDS = 4
"""So often variables that others follow from are filled in."""
LEAST_ARGUMENTS = 3
"""Arguments that make a text a command line."""
LEAST_PRINTED = 20
"""Arguments with dots behind them that make a text a log."""
PRETRAINED = "from_pretrained"
"""Method of transformers and others, whose first argument is a model's name."""


def stated_in(text: str, suffix: str = "") -> Iterator[tuple[str, Any]]:
    """Keys and values of a text; arguments keep their two hyphens."""
    for read in (json.loads, tomllib.loads):
        try:
            data = read(text)
        except (ValueError, RecursionError):
            continue
        yield from _flat(data) if isinstance(data, dict) else ()
        return
    if suffix == ".py":
        yield from _python(text)
    else:
        printed = [*_printed(text)]
        found = printed if len(printed) >= LEAST_PRINTED else [*arguments(text)]
        typed = len(found) >= LEAST_ARGUMENTS and suffix not in (".yaml", ".yml")
        yield from found if typed else _yaml(text)


def _flat(table: dict[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        yield f"{before}{key}", None if isinstance(value, dict) else _joined(value)
        if isinstance(value, dict):
            yield from _flat(value, f"{before}{key}.")


def _joined(value: Any) -> Any:
    """A list of words as one, with commas; nothing of other lists."""
    if not isinstance(value, list):
        return value
    return ",".join(value) if value and all(isinstance(one, str) for one in value) else None


def _yaml(text: str) -> Iterator[tuple[str, Any]]:
    """The plain lines of a YAML file, ``key: value`` with its sections by indentation and lists of words; enough to
    know it by."""
    sections: list[tuple[int, str]] = []
    listed: list[str] = []
    for line in text.splitlines():
        if (item := _ITEM.match(line)) is not None and sections:
            listed.append(item[1])
            yield ".".join(name for _, name in sections), ",".join(listed)
            continue
        match, listed = _YAML.match(line), []
        if match is None:
            continue
        indent, key, value = len(match[1]), match[2], (match[3] or "").strip("'\"")
        while sections and sections[-1][0] >= indent:
            sections.pop()
        yield ".".join([*(name for _, name in sections), key]), _scalar(value)
        if not value:
            sections.append((indent, key))


def arguments(text: str) -> Iterator[tuple[str, Any]]:
    """``--name value`` and ``--name`` of a script, its own plain variables filled in; comments left out."""
    lines, asked = _COMMENT.sub("", text), " ".join(_BATCH.findall(text))
    nodes, each = _BATCH_NODES.search(asked), _BATCH_GPUS.search(asked)
    variables = dict.fromkeys(("SLURM_NNODES", "SLURM_JOB_NUM_NODES"), nodes[1]) if nodes else {}
    lines, variables = _computed(lines, variables)
    for match in _ARGUMENT.finditer(lines):
        value = _NAMED.sub(lambda one: variables.get(one[1], one[2] or one[0]), match[2] or "").strip("'\"")
        listed = _LISTED.match(lines, match.start())
        yield match[1], ",".join(listed[1].split()) if listed else _scalar(value) if value else True
    yield from (("rl", aim) for aim in _AIM.findall(lines))
    if nodes and each:
        yield from (("nnodes", int(nodes[1])), ("gpus_per_node", int(each[1])))
    yield from ((name, _scalar(value)) for name, value in _OVERRIDE.findall(lines) if name not in variables)
    yield from ((name.lower(), _scalar(value)) for name, value in _LAUNCHED.findall(lines))


def _computed(lines: str, known: dict[str, str]) -> tuple[str, dict[str, str]]:
    """A script with its arithmetic done, and its plain variables beside those that are known."""
    variables = dict(known)
    for _ in range(MOST_ROUNDS):
        for name, instead_of, value in _VARIABLE.findall(lines):
            variables[name] = variables.get(instead_of, value)
        lines, before = _ARITHMETIC.sub(partial(_sum, variables), lines), lines
        if lines == before:
            break
    return lines, variables


def _sum(variables: dict[str, str], found: re.Match[str]) -> str:
    """What arithmetic of a shell comes to; itself where it is more than whole numbers and their four operations."""
    filled = re.sub(r"\$?\{?([A-Za-z_]\w*)\}?", lambda one: variables.get(one[1], one[1]), found[1])
    try:
        return f"{_value(ast.parse(filled.strip(), mode='eval').body)}"
    except (SyntaxError, ValueError, ZeroDivisionError, RecursionError, MemoryError):
        return found[0]


def _value(node: ast.expr) -> int:
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATIONS:
        return _OPERATIONS[type(node.op)](_value(node.left), _value(node.right))
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    raise ValueError("no sum of whole numbers")


def _printed(text: str) -> Iterator[tuple[str, Any]]:
    """Arguments as a log of Megatron prints them, spelt as on its command line; those that are None left out."""
    for name, value in _PRINTED.findall(text):
        if value != "None":
            yield f"--{name.replace('_', '-')}", _scalar(value)


def _python(text: str) -> Iterator[tuple[str, Any]]:
    """Constants that a recipe assigns, passes by name or has in a dictionary, in the order of its lines."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    found: list[tuple[int, str, ast.expr]] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and (called := _CALLED.fullmatch(ast.unparse(node.func).rpartition(".")[2])):
            found.append((node.lineno, "rl", ast.Constant(called[1].lower())))
        if isinstance(node, ast.Call) and node.args and ast.unparse(node.func).endswith(PRETRAINED):
            found.append((node.lineno, "model_name_or_path", node.args[0]))
        elif isinstance(node, ast.keyword) and node.arg:
            found.append((node.value.lineno, node.arg, node.value))
        elif isinstance(node, ast.Assign):
            names = (ast.unparse(one) for one in node.targets if isinstance(one, ast.Name | ast.Attribute))
            found += ((node.lineno, name, node.value) for name in names)
        elif isinstance(node, ast.Dict):
            keys = ((key.value, value) for key, value in zip(node.keys, node.values, strict=True)
                    if isinstance(key, ast.Constant))  # fmt: skip
            found += ((value.lineno, key, value) for key, value in keys if isinstance(key, str))
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
            found.append((node.lineno, node.target.id, node.value))
    for _, name, value in sorted(found, key=lambda one: one[0]):
        if isinstance(value, ast.Constant) and isinstance(value.value, bool | int | str):
            yield name, value.value
        elif isinstance(value, ast.List | ast.Tuple) and value.elts:
            words = [one.value for one in value.elts if isinstance(one, ast.Constant) and isinstance(one.value, str)]
            yield name, ",".join(words) if len(words) == len(value.elts) else None


def _scalar(text: str) -> Any:
    """A value of YAML as one of JSON, where it is a whole number or a switch; a list of words as one."""
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    if _WORDS.fullmatch(text):
        return ",".join(re.findall(r"[\w.-]+", text))
    return int(text) if text.isascii() and text.isdigit() else text
