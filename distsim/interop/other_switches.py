"""What configurations say of graphs, of exchanges that overlap or take another way, of expert capacity, and of states
in 16 bits. Keys and values as in NVIDIA/Megatron-LM megatron/training/arguments.py, core/transformer/
transformer_config.py (looked up 2026-12) and core/optimizer/optimizer_config.py (recalled), and in pytorch/torchtitan
config/job_config.py (looked up 2026-12)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from distsim.interop.other_stated import Stated

if TYPE_CHECKING:
    from distsim.specs.support import Supports

CONTEXT_WAYS = {"p2p": "ring", "all_gather": "all_gather", "a2a": "all_to_all"}
"""--cp-comm-type of Megatron -> the way here."""
_TORCHS_WAYS = {"alltoall": "ring", "allgather": "all_gather"}
"""How torch rotates keys and values -> the way here: ``alltoall`` passes them on, one rank's after another's."""
_ROTATES = ("context_parallel_rotate_method", "cp_comm_strategy", "parallelism_config_cp_comm_strategy")
GRAPHS = {"local": "modules", "transformer_engine": "modules", "full_iteration": "iteration"}
"""--cuda-graph-impl -> what the graphs hold here, unless the scope says otherwise."""
CUT = "CutCrossEntropyPlugin"
"""axolotl's plugin whose switch is on by default (integrations/cut_cross_entropy/args.py, recalled)."""
_POSITIVE = re.compile(r"(?=[\d.]*[1-9])\d{1,4}(?:\.\d{1,6})?")
STATES_AWARE = ("use_precision_aware_optimizer", "main_grads_dtype", "main_params_dtype", "exp_avg_dtype",
                "exp_avg_sq_dtype")  # fmt: skip
"""Keys of what Megatron's optimizer keeps, which one recipe of precision is for all together."""
_SUMS_AWARE = {"bf16": "bf16-precision-aware", "fp32": "bf16-precision-aware-fp32-grads"}


def torchs_way(told: dict[str, str], stated: Stated) -> None:
    """Put the way of context parallelism into ``told`` (option -> text) that torch's settings name."""
    way = _TORCHS_WAYS.get(f"{stated.of(*_ROTATES)}".lower())
    if way is not None and "cp" in told:
        told["cp_mode"] = way


def plugins(told: dict[str, str], stated: Stated) -> None:
    """Put the loss into ``told`` that a plugin of axolotl brings, unless it is switched off beside it."""
    if CUT in f"{stated.of('plugins')}" and stated.of("cut_cross_entropy") is not False:
        told.setdefault("loss", "cut")


def megatron_switches(told: dict[str, str], stated: Stated) -> None:
    """Put into ``told`` what Megatron's switches come to under a framework that has them."""
    supports = _supports(stated.framework)
    way = CONTEXT_WAYS.get(f"{stated.of('cp_comm_type')}".lower(), "ring")
    if "cp" in told and way != "ring":
        told["cp_mode"] = way
    if stated.of("overlap_moe_expert_parallel_comm") is True and "ep" in told and supports.expert_overlap:
        told["expert_overlap"] = ""
    factor = f"{stated.of('moe_expert_capacity_factor')}"
    if stated.of("moe_pad_expert_input_to_capacity") is True and _POSITIVE.fullmatch(factor):
        told["capacity_factor"] = factor
    modules = stated.of("offload_modules")
    if isinstance(modules, str) and "activations" in told.get("offload", ""):
        told["offload_modules"] = ",".join(re.findall(r"\w+", modules))
    if (graphs := _graphs(stated)) in supports.cuda_graphs:
        told["cuda_graphs"] = graphs


def _graphs(stated: Stated) -> str:
    """What CUDA graphs hold; empty where nothing asks for them."""
    scope = f"{stated.of('cuda_graph_scope') or ''}".lower()
    held = GRAPHS.get(f"{stated.of('cuda_graph_impl') or ''}".lower(), "")
    if not held and (stated.of("enable_cuda_graph") is True or stated.of("external_cuda_graph") is True):
        held = "modules"
    if held and "full_iteration" in scope:
        return "iteration"
    return "routers" if held == "modules" and scope.startswith("moe_router") else held


def states_aware(told: dict[str, str], stated: Stated) -> None:
    """The recipe of bf16 whose optimizer keeps moments in bf16, and of the master copy what bf16 lacks."""
    if stated.of(STATES_AWARE[0]) is not True or told.get("precision") not in ("bf16", "bf16-fp32-grads"):
        return
    grads, params, *moments = (_format(stated, name) for name in STATES_AWARE[1:])
    if params == "fp32" and moments == ["bf16", "bf16"] and grads in _SUMS_AWARE:
        told["precision"] = _SUMS_AWARE[grads]


def _format(stated: Stated, name: str) -> str:
    """A format's short name; fp32 where none is stated."""
    word = f"{stated.of(name) or 'fp32'}".lower().removeprefix("torch.")
    return {"bfloat16": "bf16", "float32": "fp32"}.get(word, word)


def _supports(framework: str) -> Supports:
    from distsim import catalog

    found: Supports = catalog.load("frameworks", framework).supports
    return found
