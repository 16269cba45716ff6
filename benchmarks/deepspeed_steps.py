"""What a step of DeepSpeed exchanges and holds on rank 0: one line of JSON, as tests/oracles/deepspeed.json has it.

``python benchmarks/deepspeed_steps.py model.json job.json`` needs DeepSpeed (0.19.8 gave those figures), transformers
and torch, and no GPU. ``model.json`` is a Hugging Face configuration, ``job.json`` has ``ranks``, ``micro_batches`` and
``config``, DeepSpeed's own without optimizer. A fake process group stands for any number of ranks; the third step is
noted, when ZeRO 3 knows the order of modules.
"""

from __future__ import annotations

import gc
import json
import os
import sys
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

os.environ |= {"DS_ACCELERATOR": "cpu", "DS_BUILD_OPS": "0", "LOCAL_RANK": "0", "LOCAL_SIZE": "1", "RANK": "0"}

import torch
import torch._dynamo  # before DeepSpeed replaces torch's constructors
from torch import distributed
from torch.multiprocessing.reductions import StorageWeakRef
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers import AutoConfig, AutoModelForCausalLM

TOKENS, STEPS = 8, 3
CALLS = {"c10d._allgather_base_": "all_gather", "c10d.allgather_": "all_gather", "c10d.allreduce_": "all_reduce",
         "c10d._reduce_scatter_base_": "reduce_scatter", "c10d.reduce_": "reduce", "c10d.broadcast_": "broadcast",
         "c10d.alltoall_base_": "all_to_all"}  # fmt: skip
REDUCED = ("c10d.allreduce_", "c10d.reduce_", "c10d.broadcast_")
"""Operations in place, whose second argument is their group."""


def tensors(value: Any) -> list[torch.Tensor]:
    """Those in a nested value that take memory."""
    return [one for one in tree_leaves(value) if isinstance(one, torch.Tensor) and one.device.type != "meta"]


class Watch(TorchDispatchMode):
    """Notes collectives, and the most bytes alive in each phase, storages counted once."""

    def __init__(self) -> None:
        super().__init__()
        self.phase, self.alive = "", dict[int, tuple[StorageWeakRef, int]]()
        self.calls: Counter[tuple[str, str, int, str, int]] = Counter()
        self.peaks: defaultdict[str, int] = defaultdict(int)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        name = str(func).rsplit(".", 1)[0]
        if name in CALLS:
            group = distributed.ProcessGroup.unbox(args[1 if name in REDUCED else 2])
            sides = [tensors(side) for side in args[:2]]
            size = max(sum(one.nbytes for one in side) for side in sides)
            dtype = str(sides[0][0].dtype).removeprefix("torch.")
            self.calls[CALLS[name], self.phase, group.size(), dtype, size] += 1
        for one in tensors(made):
            storage = one.untyped_storage()
            self.alive.setdefault(storage._cdata, (StorageWeakRef(storage), storage.nbytes()))
        self.peaks[self.phase] = max(self.peaks[self.phase], self.held())
        return made

    def held(self) -> int:
        """Bytes of all that is alive."""
        self.alive = {key: kept for key, kept in self.alive.items() if not kept[0].expired()}
        return sum(size for _, size in self.alive.values())


def fused(parameters: list[torch.nn.Parameter]) -> torch.optim.Optimizer:
    """A FusedAdam for DeepSpeed, whose update makes the two moments and nothing else."""
    from deepspeed.ops.adam import FusedAdam

    class Fused(FusedAdam):  # type: ignore[misc]
        def __init__(self) -> None:
            torch.optim.Optimizer.__init__(self, parameters, {"lr": 1e-3})

        def step(self, closure: Any = None, **_: Any) -> None:
            for one in (p for group in self.param_groups for p in group["params"]):
                if one.grad is not None and not self.state[one]:
                    self.state[one] = {name: torch.zeros_like(one) for name in ("exp_avg", "exp_avg_sq")}

        def zero_grad(self, set_to_none: bool = True) -> None:
            torch.optim.Optimizer.zero_grad(self)

    return Fused()


def step_of(model: dict[str, Any], job: dict[str, Any]) -> dict[str, Any]:
    """One step's calls, the bytes behind it, and the peaks of its phases."""
    ranks, micro_batches = job["ranks"], job["micro_batches"]
    os.environ |= {"WORLD_SIZE": str(ranks)}
    distributed.init_process_group("fake", rank=0, world_size=ranks, store=FakeStore())
    import deepspeed

    deepspeed.init_distributed(dist_backend="gloo", auto_mpi_discovery=False)
    deepspeed.accelerator.get_accelerator().is_fp16_supported = lambda: True
    config = {"train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": micro_batches,
              "gradient_clipping": 1.0, "zero_allow_untested_optimizer": True, **job["config"]}  # fmt: skip
    whole = config["zero_optimization"]["stage"] < 3
    watch = Watch()
    with watch:
        with deepspeed.zero.Init(config_dict_or_path=config, enabled=not whole):
            network = AutoModelForCausalLM.from_config(AutoConfig.for_model(**model))
        engine, *_ = deepspeed.initialize(model=network, optimizer=fused(list(network.parameters())), config=config)
        for _ in range(STEPS):
            watch.calls.clear()
            watch.peaks.clear()
            for _ in range(micro_batches):
                words = torch.randint(0, model["vocab_size"], (1, TOKENS))
                watch.phase = "forward"
                loss = engine(input_ids=words, labels=words, use_cache=False).loss
                watch.phase = "backward"
                engine.backward(loss)
                del loss
                watch.phase = "step"
                engine.step()
    gc.collect()
    calls = [[*key, count] for key, count in watch.calls.items()]
    return {"calls": calls, "held": watch.held(), "peaks": dict(watch.peaks)}


def main() -> None:
    """Print the step of a configuration and a job."""
    model, job = (json.loads(Path(path).read_text()) for path in sys.argv[1:3])
    print(json.dumps(step_of(model, job)))


if __name__ == "__main__":
    main()
