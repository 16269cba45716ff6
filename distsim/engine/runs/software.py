"""What a measured run says of its software in words of its own: its name, what it recomputes, over how many ranks it
shards; how it attends is in attention.py."""

from __future__ import annotations

from distsim import catalog
from distsim.architectures import traits_of
from distsim.errors import DistsimError
from distsim.interop.runs import Run, recompute
from distsim.interop.runs.models import model_of
from distsim.interop.runs.recompute import WHOLE, Said, policy_in, policy_name, said_by, unknown
from distsim.interop.runs.recompute_notes import told_modules, told_together
from distsim.interop.runs.remat import CUSTOM, Custom, custom_of, names_another
from distsim.interop.runs.sharding_groups import fsdp_axis, hybrid_group, names_copies, shards_twice, stays_in_slice
from distsim.interop.runs.told_software import (
    noted_software,
    publishers_software,
    runs_mlperf_bert,
    submitted_to_mlperf,
)
from distsim.specs.accelerator import Accelerator
from distsim.specs.framework import Framework
from distsim.specs.modules import parts_of

OTHER = "other:"
SIMPLE = ("selective", "minimal")
"""Words for what software's own selective recomputation is."""
MLPERF_BERT = "mlperf-bert"
"""The profile of NVIDIA's BERT for MLPerf."""
SUBMITTED_AS = {"nemo": "nemo-mlperf", "megatron-bridge": "nemo-mlperf"}
"""Whose code NVIDIA's submissions of decoders are, and the profile of it with what they set; those on AMD's chips are
AMD's."""


def compiled_zero(run: Run, framework: Framework) -> int:
    """The least ZeRO stage at which a compiler shards what the row's program replicates."""
    return int(framework.usual.get("compiled_zero", {}).get(chip_of(run), 0))


def told_software(run: Run) -> str | None:
    """The framework that the notes or the publisher name, if they name one."""
    own = publishers_software(run)
    if own is None and runs_mlperf_bert(run):
        return MLPERF_BERT
    if own is None and submitted_to_mlperf(run) and (chip := preset_of(run)) and traits_of(chip).cuda:
        own = SUBMITTED_AS.get((run.text("framework") or "").lower())
    return own or noted_software(run)


def recomputation_of(run: Run, framework: Framework, layers: int = 1) -> Said:
    """What the cell says: one of the framework's own policies, or what it means of ``layers`` on a stage. Raises
    MissingCell where it does not say what is computed again."""
    cell = (run.text("recompute") or "").lower()
    plain = policy_in(cell.removeprefix(OTHER))
    if plain == "selective" and framework.supports.modules and (modules := told_modules(run.notes)):
        plain = modules
    if CUSTOM in framework.remat and (custom := custom_of(run)):
        return _custom(custom, f"recompute {cell!r}: " if names_another(run) else "")
    policy = framework.remat.get(policy_name(plain))
    if policy is not None:
        options = {"recompute": "selective"} | ({"offload": "activations"} if policy.offload else {})
        return Said(options, policy.kernels(run.count("seq_len") or 0))
    if plain and (said := said_by(plain, layers, run.count("vpp") or 1, parts_of(model_of(run)))):
        return _together(run, framework, said, plain in WHOLE)
    words = recompute.recompute_options(run)
    if str(words.get("recompute")) == cell and cell not in ("", "selective"):
        if not cell.startswith(OTHER):
            raise unknown(cell)
        taken = "whatever fits" if framework.usual.get("recompute_until_fits") else "blank"
        return Said({}, assumed=f"recompute {cell!r} is not a policy of {framework.name}: treated as {taken}")
    told = plain in SIMPLE or not plain
    return Said(words, assumed="" if told else f"recompute {cell!r}: read as {words['recompute']}")


def _together(run: Run, framework: Framework, said: Said, whole: bool) -> Said:
    """The same with how many layers share a checkpoint, which notes may tell where a cell says full and no more, and
    where the software has such."""
    options = {**said.options, **(told_together(run.notes) if whole else {})}
    if options.get("recompute_group", 1) == 1 or framework.supports.recompute_groups:
        return said._replace(options=options)
    size = options.pop("recompute_group")
    return Said(options, said.kernels, f"{framework.name} has one layer in each checkpoint, not {size}")


def _custom(policy: Custom, instead: str) -> Said:
    """What a policy means that places each tensor by itself; ``instead`` names a cell that says another."""
    kept = policy.device + policy.host
    options = {"recompute": "selective" if kept else "full"}
    if policy.host or policy.input_leaves:
        options["offload"] = "activations"
    kernels = {"kept": kept, "stays": policy.device, "offloads": "all" if policy.input_leaves else "products"}
    told = [f"{instead}remat_policy custom, as the notes say"] if instead else []
    if policy.partly:
        told.append(f"remat_policy custom: {', '.join(policy.partly)} kept only in part, assumed recomputed")
    return Said(options, kernels if kept else {}, "; ".join(told))


def assumed_recompute(run: Run, framework: Framework) -> str:
    """What is taken for granted of a cell that names a policy in words of its own."""
    return recomputation_of(run, framework).assumed


def chip_of(run: Run) -> str:
    """The architecture of the run's chip; nothing where it has no preset."""
    chip = preset_of(run)
    return chip.generation if chip else ""


def gpu_name(run: Run) -> str:
    """The preset that the run's chip is; nothing where it has none."""
    chip = preset_of(run)
    return chip.name if chip else ""


def preset_of(run: Run) -> Accelerator | None:
    """The preset of the run's chip, where there is one."""
    gpu = run.text("gpu")
    try:
        found: Accelerator | None = catalog.load("gpus", gpu) if gpu else None
    except DistsimError:
        found = None
    return found


def sharding_group(run: Run, dp: int, domain: int, node: int) -> int | None:
    """Ranks that share one sharded copy, where the row says that they are fewer than all; ``domain`` is how many fast
    links join, ``node`` how many a node has."""
    if stays_in_slice(run) and dp > domain and dp % domain == 0:
        return domain
    if shards_twice(run):
        return max(dp // 2, 1)
    size = fsdp_axis(run)
    if size * (run.count("ep") or 1) == dp and not names_copies(run):
        size = dp  # ranks that share an expert, as torchtitan's meshes count them beside expert parallelism
    return size if 1 < size < dp and dp % size == 0 else hybrid_group(run, dp, node)
