"""The profile of the software that a measured run ran on, as it was in the year of the run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from distsim import catalog
from distsim.engine.jobs.dp_overlap import APART, GATHERS_APART
from distsim.engine.jobs.lacking import only_software, own_software
from distsim.engine.jobs.resolve import Setup
from distsim.engine.runs.adapters import held_narrow, summed_in_products
from distsim.engine.runs.hand_written import hand_written, own_network, written_usual
from distsim.engine.runs.hooks import TORCHS, adapters_wrapped, hooks_of
from distsim.engine.runs.precision import assumed_precision
from distsim.engine.runs.software import preset_of, told_software
from distsim.engine.runs.years import dated_traffic, recipe_year, run_year
from distsim.errors import DID_YOU_MEAN, slipped
from distsim.interop.meant_presets import SHORTEST_MISTYPED
from distsim.interop.runs import (
    MissingCell,
    Run,
    dropout_notes,
    expert_routing,
    overlap_notes,
    software_notes,
)
from distsim.interop.runs.recipes import of_library
from distsim.interop.runs.sharding import by_torch, reduces_in_place, wraps_nothing
from distsim.interop.runs.software_names import nearest_profile, replayed_name
from distsim.interop.runs.whose_modules import has_transformers_modules
from distsim.specs.framework import Framework
from distsim.specs.recipes import Recipe

SPLITS = "splits_models"
"""A cell that rows are given where other rows tell it of their software."""
UNKNOWN_SPLIT, TORCH_SPLIT, UNKNOWN_TUNING, UNKNOWN = "megatron-lm", "torchtitan", "huggingface", "fsdp"
"""Whose profile stands for unknown software that splits models, that fine-tunes adapters, and for any other."""


def framework_of(run: Run) -> Framework:
    """The software profile of a row: as it was in the year of the run, with the recipes of then, and with what the row
    tells of its exchanges, adapters and buffers in their place."""
    framework: Framework = catalog.load("frameworks", _profile_of(run)[0])
    while (older := _older(run, framework)) is not None:
        framework = catalog.load("frameworks", older)
    update: dict[str, Any] = {}
    if framework.recipes:
        update["recipes"] = _recipes_then(run, framework)
    if framework.library_tuning and of_library(run):
        update["usual_tuning"] = framework.library_tuning
    if traffic := _told_traffic(run, framework):
        update["traffic"] = framework.traffic.model_copy(update=traffic)
    if adapters := held_narrow(run, framework) | adapters_wrapped(run, framework) | summed_in_products(run):
        update["adapters"] = framework.adapters.model_copy(update=adapters)
    if buffers := _told_buffers(run, framework):
        update["buffers"] = framework.buffers.model_copy(update=buffers)
    return framework.model_copy(update=update) if update else framework


def _recipes_then(run: Run, framework: Framework) -> tuple[Recipe, ...]:
    """The framework's recipes that were released when the run was, a library's own only where the run took those; what
    they are until and for whom is settled by that."""
    year, library = recipe_year(run), of_library(run)
    then = (one for one in framework.recipes if one.released(year) and (library or not one.library))
    return tuple(one.model_copy(update={"until": None, "library": False}) for one in then)


def _told_buffers(run: Run, framework: Framework) -> dict[str, Any]:
    """What a row tells of buffers otherwise than the framework has them (``Framework.buffers``)."""
    told: dict[str, Any] = {}
    if framework.traffic.module_hooks and by_torch(run):
        told["gathers_copies"] = True
    if framework.buffers.replica_buckets is not None and reduces_in_place(run):
        told["replica_buckets"] = None
    return told


def _told_traffic(run: Run, framework: Framework) -> dict[str, Any]:
    """What a row and its year tell of exchanges otherwise than the framework has them (``Framework.traffic``)."""
    told: dict[str, Any] = {}
    if overlap_notes.overlaps_tensor_parallel(run):
        told["tp_in_pieces"] = True
    if framework.traffic.tp_tiles == "fitted" and _without_tiles(run, framework):
        told["tp_tiles"] = "off"
    if expert_routing.sends_once(run):
        told["expert_copies"] = "once"
    elif expert_routing.sends_each(run):
        told["expert_copies"] = "each"
    if overlap_notes.exchanges_apart(run):
        told |= APART
    elif overlap_notes.gathers_apart(run):
        told |= GATHERS_APART
    if framework.traffic.padding == "unit" and wraps_nothing(run):
        told |= {"one_unit": True, **APART}
    return told | hooks_of(run, framework) | dated_traffic(recipe_year(run), framework.traffic)


def _without_tiles(run: Run, framework: Framework) -> bool:
    """Whether tensor parallel exchanges do not run in tiles beside products: as notes say, or as they leave it out of
    what they list, of software that has it only where told."""
    asked = framework.usual.get("tiles_where_told") and overlap_notes.leaves_tensor_parallel_out(run)
    return bool(asked) or overlap_notes.tensor_parallel_apart(run)


def _older(run: Run, framework: Framework) -> str | None:
    """The profile of the framework as it was in a run's year, where it was another: of some, only what shards as much
    as ``older_zero``; up to ``older_silent_until`` only what names nothing that is newer."""
    usual, year = framework.usual, run_year(run)
    if "older" not in usual or year > usual.get("older_silent_until", usual["older_until"]):
        return None
    if year > usual["older_until"] and _names_newer(run):
        return None
    least = usual.get("older_zero", 0)
    return str(usual["older"]) if not least or (software_notes.zero_stage(run) or 0) >= least else None


def _names_newer(run: Run) -> bool:
    """Whether a row names what Megatron-LM has had since 2022: sequence parallelism, were it to say that it is off,
    selective recomputation, which came with it (arXiv:2205.05198), or a sharded optimizer."""
    selective = "selective" in (run.text("recompute") or "").lower()
    return selective or run.text("sequence_parallel") is not None or bool(software_notes.zero_stage(run))


PLAIN, WITH_TRANSFORMERS = "plain-torch", "torch-ddp"
"""The profile of networks written for plain torch, and that of the same loops around transformers' modules."""
LOOPS = (PLAIN, "composer")
"""Loops around anybody's modules; MosaicML's is mostly around its own (llm-foundry)."""


def _profile_of(run: Run) -> tuple[str, str]:
    """The name of a row's profile, and what was assumed where its cell names none."""
    name = software_notes.framework_name(run)
    if name is None:
        raise MissingCell("framework is blank")
    name = replayed_name(name)
    if told := told_software(run):
        return told, ""
    chip = preset_of(run)
    own, only = (own_software(chip), only_software(chip)) if chip else (None, None)
    if own and not only and catalog.knows("frameworks", name):
        if _family(name) == _family(own):
            return name, ""
        return own, f"{name} compiles graphs on {run.text('gpu')}: timed like {own}"
    if name in LOOPS and has_transformers_modules(run):
        return WITH_TRANSFORMERS, f"its modules are transformers': timed like {WITH_TRANSFORMERS}, which has those"
    if catalog.knows("frameworks", name):
        if only is None or _family(name) == _family(only):
            return name, ""
        return only, f"framework {name!r} does not run on {run.text('gpu')}: timed like {only}"
    return _stand_in(run, name, only)


def _stand_in(run: Run, name: str, only: str | None) -> tuple[str, str]:
    """The profile that stands for software without one, and that it does: the nearest by name that runs on the chip,
    else the ``only`` one that does, else the usual one of what splits models, tunes adapters or does neither."""
    split = _splits(run)
    near = nearest_profile(name, split=split)
    if near and only and _family(near) != _family(only):
        near = None
    apart = TORCH_SPLIT if by_torch(run) else UNKNOWN_SPLIT
    taken = near or only or (apart if split else UNKNOWN_TUNING if run.text("lora_rank") else UNKNOWN)
    known = [*catalog.names("frameworks"), *catalog.aliases("frameworks")]
    asked = "".join(
        f" ({DID_YOU_MEAN} {one}?)" for one in known if len(name) > SHORTEST_MISTYPED and slipped(name, one)
    )
    return taken, f"framework {name!r} has no profile: timed like {taken}{asked}"


def _family(name: str) -> str:
    """The family of a framework preset."""
    found: Framework = catalog.load("frameworks", name)
    return found.family


def _splits(run: Run) -> bool:
    """Whether a run's software splits models, as this or another run of it shows."""
    return max(run.count("tp") or 1, run.count("pp") or 1) > 1 or run.text(SPLITS) is not None


def as_one_software(runs: Sequence[Run]) -> list[Run]:
    """Rows of one table, with a mark where others of the same source and software split their models: whatever profile
    stands for it stands for all of them."""
    split = {(run.source, software_notes.framework_name(run)) for run in runs if _splits(run)}
    return [
        replace(run, cells={**run.cells, SPLITS: "1"})
        if (run.source, software_notes.framework_name(run)) in split
        else run
        for run in runs
    ]


def assumed_profile(run: Run) -> str:
    """Whose profile a replay takes where the cell names none that there is; nothing where it does."""
    return _profile_of(run)[1]


def usual_of(run: Run, framework: Framework, causal: bool) -> dict[str, Any]:
    """What the framework's runs usually set; of somebody's own network, whether it drops anything, whoever wraps it.
    That decoders train without dropout says nothing of the encoders of other software that its profile stands for: they
    have their own."""
    usual = dict(framework.usual)
    if hand_written(run, framework) or (framework.name == TORCHS and own_network(run)):
        usual |= {name: value for name, value in written_usual().items() if name == "dropout"}
    if (not causal and assumed_profile(run)) or dropout_notes.drops_some(run):
        usual.pop("dropout", None)
    return {**usual, "dropout": False} if dropout_notes.drops_nothing(run) else usual


def assumed_software(run: Run, setup: Setup) -> str:
    """Whose profile and which recipe stand for those that a row names; nothing where it names known ones."""
    return "; ".join(filter(None, (assumed_profile(run), assumed_precision(run, setup.framework))))
