"""Every figure with its formula, its numbers filled in, and its source: what ``--explain`` prints."""

from __future__ import annotations

import ast
import contextlib
import inspect
import textwrap
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from distsim import arrays
from distsim.engine.figures import Figure
from distsim.engine.footprint.activation_figures import activation_figures
from distsim.engine.footprint.in_flight_bytes import weighed
from distsim.engine.jobs.resolve import Setup
from distsim.engine.jobs.stages import build_stages, stage_at
from distsim.engine.memory import MemoryReport, StageMemory
from distsim.formula import REGISTRY
from distsim.layers.ledger import Block, distinct_saved, dropped_by
from distsim.layers.recompute import named_saved, op_level_saved
from distsim.layers.stacked import stacked_saved
from distsim.layers.weight_passes import later_rows
from distsim.report import terminal
from distsim.report.style import Style, columns
from distsim.units import decimal_bytes, duration, gib


def steps_of(name: str) -> list[tuple[str, ast.expr]]:
    """(what is computed, expression) of each assignment of a registered formula, and of what it returns last."""
    source = textwrap.dedent(inspect.getsource(REGISTRY[name].function))
    body = ast.parse(source).body[0]
    assert isinstance(body, ast.FunctionDef)
    steps: list[tuple[str, ast.expr]] = []
    for statement in body.body:
        if isinstance(statement, ast.Assign):
            steps.append((ast.unparse(statement.targets[0]), _Signs().visit(statement.value)))
        elif isinstance(statement, ast.Return) and statement.value is not None:
            steps.append((name, _Signs().visit(statement.value)))
    return steps


SIGNS: dict[str, ast.operator] = {"plus": ast.Add(), "product": ast.Mult()}
"""Helpers that are sums and products (distsim/arrays.py)."""


class _Signs(ast.NodeTransformer):
    def visit_Call(self, node: ast.Call) -> ast.AST:
        """Sums and products with their signs, however they are computed."""
        self.generic_visit(node)
        sign = SIGNS.get(node.func.id) if isinstance(node.func, ast.Name) else None
        return ast.BinOp(node.args[0], sign, node.args[1]) if sign is not None else node


DIGITS = 4
"""Of a number that is not whole."""
DIGITS_OF_BYTES = 12
"""The same of factors of bytes, which are told to the byte: with fewer digits their product would be another."""


MILLION = 1e6
"""From here on a part of one says nothing."""
COUNTED = ("FLOP", "FLOP/s")
"""Units that are told as ``57.9 GFLOP``."""


def amount(value: Any, digits: int = DIGITS) -> str:
    """A number as it stands in a filled-in formula: whole ones with commas, others with so many digits."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return str(value)
    if float(value).is_integer():
        return f"{int(value):,}"
    if abs(value) >= 1000 and digits == DIGITS:
        return f"{value:,.{0 if abs(value) >= MILLION else 3}f}"
    return f"{value:,.{digits}g}"


class _Filled(ast.NodeTransformer):
    def __init__(self, values: Mapping[str, Any], digits: int, known: Mapping[str, Any]) -> None:
        self.values, self.digits, self.known = values, digits, known

    def visit_Name(self, node: ast.Name) -> ast.Name:
        value = self.values.get(node.id, self.known.get(node.id))
        numeric = node.id in self.values or (isinstance(value, (int, float)) and not isinstance(value, bool))
        return ast.Name(amount(value, self.digits)) if numeric else node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """Another formula, or a helper, is its number; what has a name in mathematics stays."""
        if isinstance(node.func, ast.Name) and node.func.id in self.known and not hasattr(arrays, node.func.id):
            return ast.Name(amount(_value(node, self.known, self.values), self.digits))
        node.args = [self.visit(one) for one in node.args]
        node.keywords = [self.visit(one) for one in node.keywords]
        return node


def _value(expression: ast.expr, known: Mapping[str, Any], values: Mapping[str, Any]) -> Any:
    """What a part of a registered formula comes to."""
    code = compile(ast.Expression(ast.parse(ast.unparse(expression), mode="eval").body), "<formula>", "eval")
    return eval(code, dict(known), dict(values))


def filled(
    expression: ast.expr, values: Mapping[str, Any], digits: int = DIGITS, known: Mapping[str, Any] | None = None
) -> str:
    """The expression with its names replaced by numbers: arguments, and constants and helpers ``known`` to it."""
    copy = ast.parse(ast.unparse(expression), mode="eval").body
    return ast.unparse(_Filled(values, digits, known or {}).visit(copy))


def figure_lines(figure: Figure, size: Callable[[float], str] = gib) -> list[str]:
    """One figure: its value, bytes in the words of ``size``, and how it came about."""
    plain = amount(figure.value) + ("" if figure.unit == "1" else f" {figure.unit}")
    words: dict[str, Callable[[float], str]] = {
        "B": size,
        "s": duration,
        **dict.fromkeys(COUNTED, partial(decimal_bytes, suffix=figure.unit)),
    }
    value = words[figure.unit](figure.value) if figure.unit in words else plain
    made = [f"{figure.label}: {value}"]
    if figure.formula:
        steps, digits = steps_of(figure.formula), DIGITS_OF_BYTES if figure.unit == "B" else DIGITS
        function = inspect.unwrap(REGISTRY[figure.formula].function)
        known, taken = function.__globals__, inspect.signature(function).parameters.values()
        values = {one.name: one.default for one in taken if one.default is not one.empty} | figure.arguments
        for name, expression in steps:
            made.append(f"    {name} = {ast.unparse(expression)}")
            made.append(f"    {' ' * len(name)} = {filled(expression, values, digits, known)}")
            with contextlib.suppress(NameError):  # of names that a branch gives
                values[name] = _value(expression, known, values)
        made.append(f"    {' ' * len(steps[-1][0])} = {plain}")
    return [*made, f"    source: {figure.source}"]


def memory_lines(report: MemoryReport, stage: StageMemory, term: Style) -> list[str]:
    """All behind one stage's answer: figures, moments, and the ledger's rows."""
    from distsim.report.moments import moment_lines  # with all that advice needs

    made = [term.bold(f"Stage {stage.stage}: figures")]
    for figure in _all_figures(report, stage):
        made += figure_lines(figure)
    made += ["", *moment_lines(stage, term), "", *_kept(stage, term), "", *_ledger(report.setup, stage.stage, term), ""]
    if stage.waiting.flight.waiting:
        made += [*_later(report.setup, stage.stage, term), ""]
    return [part for line in made for part in wrapped(term.plain(line))]


def _all_figures(report: MemoryReport, stage: StageMemory) -> list[Figure]:
    """What was noted as bytes were counted, and what its activations are made of."""
    peak = next(moment for moment in stage.moments if moment.name == stage.peak_moment)
    built = weighed(report.setup, stage_at(report.setup, stage.stage))
    return [*stage.figures, *activation_figures(report.setup, built, stage.states, stage.saved, peak)]


def _kept(stage: StageMemory, term: Style) -> list[str]:
    """How what forward keeps adds up."""
    saved = stage.saved
    parts = {"layers": saved.layers, "embedding": saved.embedding, "head and loss": saved.head_and_loss}
    rows = [[name, gib(size)] for name, size in parts.items()]
    flight, each = stage.waiting
    rows += [["one micro-batch", gib(saved.total)], [f"times {amount(flight.before)} in flight", ""]]
    if flight.waiting:
        rows += [
            ["read by weight gradients of one", gib(each)],
            [f"times {amount(flight.waiting)} waiting for them", ""],
        ]
    return [term.bold("Kept for backward at the end of a forward pass"), *columns(["", "size"], rows)]


def wrapped(line: str) -> list[str]:
    """A line of words as lines that the terminal can hold; further ones are indented more."""
    width = terminal.width()
    if width is None or len(line) <= width:
        return [line]
    indent = " " * (len(line) - len(line.lstrip()) + 4)
    return textwrap.wrap(line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def _ledger(setup: Setup, stage: int, term: Style) -> Iterator[str]:
    """The rows of a usual layer: what each operation keeps for backward, and the parameters it owns."""
    built = build_stages(setup)[stage]
    if not built.layers:
        yield f"Stage {stage} holds no layer."
        return
    block, count = built.usual_layer
    yield term.bold(f"Kept for backward by a {block.name} layer ({count} on this stage), one micro-batch on one rank")
    again = setup.layout.recompute_layers
    if again:
        each = setup.layout.recompute_group
        which = "each layer" if again < 0 else f"each of the first {again} layers"
        which = f"the first of each {each} layers" if each > 1 else which
        kept = f"only its input, {gib(block.boundary.size_bytes)}," if block.boundary is not None else "nothing"
        yield f"Recomputed: {which} of the stage keeps {kept} and holds what follows only during its own backward."
    rows = list(_saved_rows(block, setup))
    total = sum(size for *_, size in rows)
    cells = [[*words, "recomputed" if size == 0 else amount(size), gib(size) if size else "-"] for *words, size in rows]
    made = [*cells, ["total", "", "", amount(total), gib(total)]]
    yield from columns(["operation", "tensor", "shape", "bytes", "size"], made, (0, 1, 2))
    yield ""
    yield term.bold("Parameters of that layer on one rank")
    owned = [
        [operation.name, parameter.name, parameter.kind, amount(parameter.elements)]
        for operation in block.operations
        for parameter in operation.parameters
    ]
    yield from columns(["operation", "parameter", "kind", "elements"], owned, (0, 1, 2))


def _later(setup: Setup, stage: int, term: Style) -> Iterator[str]:
    """What of a usual layer waits for weight gradients: inputs of products and gradients of their outputs, and with
    autograd's graph all else."""
    built = build_stages(setup)[stage]
    if not built.layers:
        return
    block, _ = built.usual_layer
    rows = later_rows(block.operations, keeps_graph=setup.framework.buffers.weight_passes_keep_graph)
    sizes = distinct_saved(rows)
    owners = {tensor.name: (row.name, tensor.shape) for row in reversed(rows) for tensor in row.saved}
    cells = [[owners[name][0], name, owners[name][1], amount(one), gib(one)] for name, one in sizes.items() if one]
    total = sum(sizes.values())
    yield term.bold(f"Waits for weight gradients of a {block.name} layer, one micro-batch on one rank")
    table = [*cells, ["total", "", "", amount(total), gib(total)]]
    yield from columns(["operation", "tensor", "shape", "bytes", "size"], table, (0, 1, 2))


def _saved_rows(block: Block, setup: Setup) -> Iterator[tuple[str, str, str, Any]]:
    """(operation, tensor, shape, bytes), each storage once, under the operation that keeps it first; nothing of what
    selective recompute drops."""
    kernels = setup.kernels
    if setup.layout.selective and kernels.kept is not None:
        yield from (("policy", name, "", size) for name, size in named_saved(block, kernels.kept).items())
        return
    if setup.layout.selective and "op" in kernels.selective:
        found = op_level_saved(block, kernels, setup.precision.math, setup.framework.traffic.recompute_keeps)
        yield from (("every second product", name, "", size) for name, size in found.items())
        return
    if kernels.residuals == "stacked" and not setup.layout.selective and not setup.layout.recompute_layers:
        found = stacked_saved(block, setup.model, setup.precision)
        yield from (("stacked by a scan", name, "", size) for name, size in found.items() if size)
        return
    dropping = kernels.selective if setup.layout.selective else ()
    kept = {tensor.name for one in block.operations if not dropped_by(one, dropping) for tensor in one.saved}
    sizes = distinct_saved(block.operations, 1, kernels) if dropping else {}
    seen: set[str] = set()
    for operation in block.operations:
        dropped = dropped_by(operation, dropping)
        for tensor in operation.saved:
            if not tensor.elements or tensor.name in seen or (dropped and tensor.name in kept):
                continue
            seen.add(tensor.name)
            yield operation.name, tensor.name, tensor.shape, sizes.get(tensor.name, tensor.size_bytes)


def as_data(report: MemoryReport, stage: StageMemory) -> list[dict[str, Any]]:
    """The figures of a stage as plain data, for JSON."""
    return [figure_data(figure) for figure in _all_figures(report, stage)]


def figure_data(figure: Figure) -> dict[str, Any]:
    """One figure as plain data: what its formula gives, so that a mean over ranks may be of half bytes."""
    told = {"label": figure.label, "value": _whole(figure.value), "unit": figure.unit, "source": figure.source}
    if not figure.formula:
        return told
    steps = "; ".join(f"{name} = {ast.unparse(step)}" for name, step in steps_of(figure.formula))
    arguments = {name: _whole(one) for name, one in figure.arguments.items()}
    return {**told, "formula": figure.formula, "expression": steps, "arguments": arguments}


def _whole(value: Any) -> Any:
    """A number without a fraction as a whole one."""
    return int(value) if isinstance(value, float) and value.is_integer() else value
