"""How much a job offloads, and what it may not: to no place, what is not sharded, and where chip and host have one
memory."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from distsim.errors import DistsimError
from distsim.specs.accelerator import Accelerator
from distsim.specs.flags import flag
from distsim.specs.layout import SHARDS_ALL
from distsim.units import FP32_BYTES

if TYPE_CHECKING:
    from distsim.engine.jobs.resolve import Setup
    from distsim.specs.framework import Framework
    from distsim.specs.precision import Precision


def in_fp32(framework: Framework, offload: Collection[str]) -> bool:
    """Whether an optimizer that leaves the GPU has all in fp32."""
    return "optimizer" in offload and framework.traffic.host_fp32


def on_host(
    framework: Framework, precision: Precision, offload: Collection[str], named: bool
) -> tuple[Framework, Precision]:
    """The profile and the recipe as they are with an optimizer in host memory. Where nobody ``named`` the software,
    states and what is sent stay the recipe's, as ZeRO-Offload has them (arXiv:2101.06840)."""
    if not in_fp32(framework, offload):
        return framework, precision
    if not named:
        traffic = framework.traffic.model_copy(update={"host_fp32": False})
        return framework.model_copy(update={"traffic": traffic}), precision
    wide = {"master_bytes": FP32_BYTES, "state_bytes": FP32_BYTES}
    return framework, precision if precision.parameter_bytes >= FP32_BYTES else precision.model_copy(update=wide)


def offload_told(setup: Setup) -> dict[str, Any]:
    """What leaves the GPU, where it goes and how much of it, as the JSON has it."""
    told: dict[str, Any] = {"offload": ",".join(setup.offload) or "none"}
    if setup.offload:
        told["offload_to"] = "nvme" if setup.drives else "cpu"
    if setup.job.offload_fraction is not None:
        told["offload_fraction"] = setup.job.offload_fraction
    return told


def refuse_offload(filled: Mapping[str, Any], framework: Framework) -> None:
    """Raise options of offloading that lack another one, or what the framework does."""
    if filled["offload_to"] and filled["offload"] == "none":
        raise DistsimError(
            f"--offload-to {filled['offload_to']} has no effect without --offload", "add --offload optimizer"
        )
    if (part := filled["offload_fraction"]) is not None:
        if "optimizer" not in filled["offload"]:
            problem = f"--offload-fraction {part:g} has no effect without --offload optimizer"
            raise DistsimError(problem, "add --offload optimizer")
        splits = framework.supports.offload_fraction
        if filled["framework"] and splits == "no":
            problem = f"{framework.name}: no option is known that splits its optimizer between GPU and host"
            raise DistsimError(problem, "leave --offload-fraction out, or use --framework megatron-core or deepspeed")
        if splits == "sub-groups" and filled["zero"] != SHARDS_ALL:
            problem = f"{framework.name} splits its optimizer only under ZeRO 3, but --zero is {filled['zero']}"
            raise DistsimError(problem, "add --zero 3, or leave --offload-fraction out")
        if filled["offload_to"] == "nvme":
            raise DistsimError("--offload-fraction holds for host memory, not for drives", "leave --offload-to out")
    if "parameters" in filled["offload"] and filled["zero"] != 3:
        raise DistsimError(
            f"--offload parameters needs sharded parameters, but --zero is {filled['zero']}", "add --zero 3"
        )


def kept_where_it_is(filled: dict[str, Any], origins: dict[str, str], chip: Accelerator) -> None:
    """Raise where somebody offloads on a chip that has one memory with its host: what leaves it takes as much of it
    again, and so does what passes it on the way to drives. What software offloads of itself stays."""
    if chip.host is None or chip.host.kind != "shared" or filled["offload"] == "none":
        return
    for option in ("offload", "remat_policy"):  # no software that has policies offloads without one
        if origins.get(option) == "you":
            raise DistsimError(
                f"{chip.name} and its host have one memory: {flag(option)} {filled[option]} frees none of it",
                f"leave {flag(option)} out",
            )
    filled["offload"], origins["offload"] = "none", "default"
