"""What torch's FSDP costs the host for each unit that it wraps, in microseconds of CPU time.

``python benchmarks/fsdp_units.py`` needs torch (2.13 gave the figures of presets/frameworks/fsdp.toml) and no GPU:
tensors are tiny and the process group is a fake one, so that what remains is Python, the dispatcher and autograd. A
chain of linear layers runs forward and backward, plain and with each layer a unit; the least of many runs counts. A
frozen unit is one that no gradient is reduced of; adapters' matrices train.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy, fully_shard
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch_host import least_seconds

RANKS, TOKENS, HIDDEN, LAYERS, CALLS, WARM = 8, 4, 64, 40, 40, 8
MICRO = 1e6


def chain(trains: bool) -> nn.Sequential:
    """Linear layers one after another."""
    found = nn.Sequential(*(nn.Linear(HIDDEN, HIDDEN, bias=False) for _ in range(LAYERS)))
    return found.requires_grad_(trains)


def sharded(trains: bool, strategy: ShardingStrategy) -> nn.Module:
    """Each layer a unit of FullyShardedDataParallel (FSDP1)."""

    def wrap(module: nn.Module) -> nn.Module:
        return FullyShardedDataParallel(
            module, sharding_strategy=strategy, use_orig_params=True, device_id=torch.device("cpu")
        )

    return wrap(nn.Sequential(*(wrap(layer) for layer in chain(trains))))


def sharded_again(trains: bool) -> nn.Module:
    """Each layer a unit of fully_shard (FSDP2)."""
    mesh, whole = init_device_mesh("cpu", (RANKS,)), chain(trains)
    for layer in whole:
        fully_shard(layer, mesh=mesh)
    fully_shard(whole, mesh=mesh)
    return whole


def given() -> torch.Tensor:
    """An input whose gradient is asked for."""
    return torch.randn(TOKENS, HIDDEN, requires_grad=True)


def main() -> None:
    """Print a line per kind of unit: what one costs beyond the plain layer."""
    torch.set_num_threads(1)
    distributed.init_process_group("fake", rank=0, world_size=RANKS, store=FakeStore())
    for trains in (True, False):
        plain = least_seconds(chain(trains), given, CALLS, WARM)
        print(f"{'plain linear layer':26s} {plain[0] / LAYERS * MICRO:5.0f} us, {plain[1] / LAYERS * MICRO:5.0f} us")
        kinds: dict[str, Callable[[bool], nn.Module]] = {
            "FSDP1 FULL_SHARD": lambda trains: sharded(trains, ShardingStrategy.FULL_SHARD),
            "FSDP1 SHARD_GRAD_OP": lambda trains: sharded(trains, ShardingStrategy.SHARD_GRAD_OP),
            "FSDP1 NO_SHARD": lambda trains: sharded(trains, ShardingStrategy.NO_SHARD),
            "FSDP2": sharded_again,
        }
        for name, make in kinds.items():
            found = least_seconds(make(trains), given, CALLS, WARM)
            more = [(one - other) / LAYERS * MICRO for one, other in zip(found, plain, strict=True)]
            state = "trained" if trains else "frozen"
            print(f"{name:20s} {state:8s} {more[0]:5.0f} us more forward, {more[1]:5.0f} us backward")
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
