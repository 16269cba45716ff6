"""Stages, chunks and schedule of a pipeline, from what another tool's configuration states. Keys as in the tools'
sources and documentation (recalled)."""

from __future__ import annotations

from distsim.interop.other_stated import Stated

_ENDS = ("embedding", "loss")
_NEITHER = [False, False]


def chunks(told: dict[str, str], stated: Stated) -> None:
    """Chunks of a stage, where the layers of each are stated."""
    layers = stated.number("num_layers", "num_hidden_layers")
    each = stated.number("num_layers_per_virtual_pipeline_stage")
    ranks = int(told.get("pp", 1))
    if "vpp" not in told and each and layers % (ranks * each) == 0 and layers > ranks * each:
        told["vpp"] = f"{layers // (ranks * each)}"


def stages(told: dict[str, str], stated: Stated) -> None:
    """Layers of each stage, where the first or the last one has its own number or Megatron's layout is given."""
    layout = stated.of("pipeline_model_parallel_layout")
    if isinstance(layout, str) and "|" in layout:
        told["stage_layers"] = layout
        return
    first, last = (stated.number(f"decoder_{end}_pipeline_num_layers", f"num_layers_in_{end}_pipeline_stage")
                   for end in ("first", "last"))  # fmt: skip
    ranks, layers = int(told.get("pp", 1)), stated.number("num_layers", "num_hidden_layers")
    if ranks > 1 and (ends := [stated.of(f"account_for_{end}_in_pipeline_split") is True for end in _ENDS]) != _NEITHER:
        _with_ends(told, layers, ranks * int(told.get("vpp", 1)), ends)
    between, rest = ranks - (first > 0) - (last > 0), layers - first - last
    if (first or last) and "vpp" not in told and between > 0 and rest > 0 and rest % between == 0:
        each = [*[first] * (first > 0), *[rest // between] * between, *[last] * (last > 0)]
        told["stage_layers"] = ",".join(f"{one}" for one in each)


def _with_ends(told: dict[str, str], layers: int, chunks: int, ends: list[bool]) -> None:
    """Layers of each chunk where the embedding, the loss or both count as a layer of the first and of the last."""
    if (layers + sum(ends)) % chunks == 0:
        each = [(layers + sum(ends)) // chunks] * chunks
        each[0] -= ends[0]
        each[-1] -= ends[1]
        told["stage_layers"] = ",".join(f"{one}" for one in each)


def schedule(told: dict[str, str]) -> None:
    """Leave out a schedule where there is no pipeline, and the usual one."""
    if told.get("schedule") == "1f1b" or int(told.get("pp", 1)) == 1:
        told.pop("schedule", None)
