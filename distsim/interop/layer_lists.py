"""Lists of layers as Megatron's arguments write them: ``([0]*3+[1]*58)``, a Python expression of lists, sums and
repetitions, of which nothing else is understood; and of a YAML's lines with commas between them."""

from __future__ import annotations

import ast

from distsim.errors import DistsimError

MOST = 10_000
"""Layers of a list that is still built."""


def layer_list(text: str, layers: int, named: str, where: str) -> list[int]:
    """One number per layer (1: it has experts). ``named`` is what the list stands for in an error."""
    try:
        found = _value(ast.parse(text.strip().replace("\\", ""), mode="eval").body)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        found = None
    if not isinstance(found, list):
        raise DistsimError(f"{named} is no list of layers", "write it as ([0]*3+[1]*58), or as one number",
                           where=where)  # fmt: skip
    if len(found) != layers:
        raise DistsimError(f"{named} names {len(found)} layers of {layers}", where=where)
    return found


def _value(node: ast.expr) -> list[int] | int:
    """What an expression comes to; ValueError for all but whole numbers, lists of them, sums and repetitions, and for
    lists of more than ``MOST`` layers."""
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    if isinstance(node, ast.List | ast.Tuple):
        found = [_value(one) for one in node.elts]
        if all(isinstance(one, int) for one in found):
            return [one for one in found if isinstance(one, int)]
    if isinstance(node, ast.BinOp):
        left, right = _value(node.left), _value(node.right)
        if isinstance(node.op, ast.Add) and isinstance(left, list) and isinstance(right, list):
            return left + right
        if isinstance(node.op, ast.Mult) and isinstance(left, list) and isinstance(right, int):
            if not 0 <= right <= MOST or len(left) * right > MOST:
                raise ValueError(f"more than {MOST} layers")
            return left * right
    raise ValueError("not a list of layers")
