"""What a step of transformers' Trainer exchanges on rank 0: one line of JSON, as tests/oracles/trainer.json has it.

``python benchmarks/trainer_steps.py model.json job.json`` needs transformers 5.23, accelerate 1.15, torch 2.13 (and
peft, DeepSpeed where a job has them), and no GPU. ``model.json`` is a Hugging Face configuration, ``job.json`` has
``ranks``, ``micro_batches``, ``trainer`` (TrainingArguments' own) and perhaps ``lora`` (LoraConfig's). A fake process
group stands for any number of ranks; the third step is noted.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29871", "ACCELERATE_BYPASS_DEVICE_MAP": "true"}

import torch
from deepspeed_steps import STEPS, TOKENS, Watch, fused
from torch import distributed
from torch.nn.parallel import DistributedDataParallel
from torch.testing._internal.distributed.fake_pg import FakeStore

FUNCTIONAL = {"_c10d_functional.all_reduce": 2, "_c10d_functional.all_gather_into_tensor": 2,
              "_c10d_functional.reduce_scatter_tensor": 3}  # fmt: skip
"""Operations of DTensors, and the place of their group."""


class Calls(Watch):
    """Notes what DTensors exchange, too, and storages that FSDP empties and fills again."""

    def __init__(self) -> None:
        super().__init__()
        plain = torch.UntypedStorage.resize_

        def resize(storage: torch.UntypedStorage, size: int) -> Any:
            made = plain(storage, size)
            if known := self.alive.get(storage._cdata):
                self.alive[storage._cdata] = (known[0], size)
                self.peaks[self.phase] = max(self.peaks[self.phase], self.held())
            return made

        torch.UntypedStorage.resize_ = resize

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(one.__name__ == "DTensor" for one in types):
            return NotImplemented
        name = str(func).rsplit(".", 1)[0]
        if name not in FUNCTIONAL:
            return super().__torch_dispatch__(func, types, args, kwargs)
        made = func(*args, **(kwargs or {}))
        group = distributed.distributed_c10d._resolve_process_group(args[FUNCTIONAL[name]])
        op, dtype = name.split(".")[1].split("_into")[0].split("_tensor")[0], str(args[0].dtype).split(".")[1]
        self.calls[op, self.phase, group.size(), dtype, max(made.nbytes, args[0].nbytes)] += 1
        return made


def reduced_in_python(self: DistributedDataParallel, *arguments: Any, **settings: Any) -> None:
    """DDP whose reduction does not ask for what comes back, of which a fake group has nothing."""

    def reduce(_, bucket):  # type: ignore[no-untyped-def]  # DDP looks at what a hook's annotations are
        distributed.all_reduce(bucket.buffer(), async_op=True)
        done: torch.futures.Future[torch.Tensor] = torch.futures.Future()
        done.set_result(bucket.buffer())
        return done

    plain_ddp(self, *arguments, **settings)
    self.register_comm_hook(None, reduce)


plain_ddp = DistributedDataParallel.__init__
DistributedDataParallel.__init__ = reduced_in_python


def prepare(ranks: int) -> None:
    """A group of so many ranks, whose devices accelerate takes for GPUs, since it shards on no others."""
    from accelerate.state import PartialState
    from accelerate.utils import DistributedType

    os.environ |= {"WORLD_SIZE": str(ranks)}
    distributed.init_process_group("fake", rank=0, world_size=ranks, store=FakeStore())
    PartialState._prepare_backend = lambda *_: ("fake", DistributedType.MULTI_GPU)
    PartialState.set_device = lambda self: setattr(self, "device", torch.device("cpu"))


def step_of(model: dict[str, Any], job: dict[str, Any]) -> dict[str, Any]:
    """One step's calls (operation, phase, ranks, number format, bytes and number) and the peaks of its phases."""
    from transformers import AutoConfig, AutoModelForCausalLM, Trainer, TrainerCallback, TrainingArguments

    ranks, micro_batches, own = job["ranks"], job["micro_batches"], job["trainer"]
    prepare(ranks)
    if "deepspeed" in own:
        import deepspeed

        deepspeed.init_distributed(dist_backend="gloo", auto_mpi_discovery=False)
        deepspeed.accelerator.get_accelerator().is_fp16_supported = lambda: True
    watch, found = Calls(), dict[str, Any]()

    class Phases(Trainer):  # type: ignore[misc]
        """A Trainer that tells when which phase begins."""

        def create_optimizer(self, model: Any = None) -> Any:
            if "deepspeed" not in own:
                return super().create_optimizer(model)
            self.optimizer = fused([one for one in self.model.parameters() if one.requires_grad])
            return self.optimizer

        def training_step(self, *arguments: Any, **settings: Any) -> Any:
            watch.phase = "forward"
            loss = super().training_step(*arguments, **settings)
            watch.phase = "step"
            return loss

    class Noted(TrainerCallback):  # type: ignore[misc]
        """Keeps the calls of the last step."""

        def on_step_begin(self, *_: Any, **__: Any) -> None:
            watch.calls = Counter()
            watch.peaks.clear()

        def on_step_end(self, *_: Any, **__: Any) -> None:
            found["calls"] = [[*key, calls] for key, calls in watch.calls.items()]
            found["peaks"] = dict(watch.peaks)

    with watch:
        settings = TrainingArguments(
            output_dir=tempfile.mkdtemp(), per_device_train_batch_size=1, gradient_accumulation_steps=micro_batches,
            max_steps=STEPS, report_to=[], save_strategy="no", logging_strategy="no", disable_tqdm=True, use_cpu=True,
            bf16=True, dataloader_pin_memory=False, **own,
        )  # fmt: skip
        network = AutoModelForCausalLM.from_config(AutoConfig.for_model(**model, use_cache=False))
        if "lora" in job:
            import peft

            network = peft.get_peft_model(network, peft.LoraConfig(**job["lora"], task_type="CAUSAL_LM"))
            if own.get("gradient_checkpointing"):
                network.enable_input_require_grads()
        words = [torch.randint(0, model["vocab_size"], (TOKENS,)) for _ in range(STEPS * ranks * micro_batches)]
        data = [{"input_ids": one, "labels": one} for one in words]
        trainer = Phases(model=network, args=settings, train_dataset=data, callbacks=[Noted()])
        plain = trainer.accelerator.backward

        def backward(*arguments: Any, **more: Any) -> None:
            watch.phase = "backward"
            plain(*arguments, **more)

        trainer.accelerator.backward = backward
        trainer.train()
    return found


def main() -> None:
    """Print the step of a configuration and a job."""
    model, job = (json.loads(Path(path).read_text()) for path in sys.argv[1:3])
    print(json.dumps(step_of(model, job)))
    sys.stdout.flush()
    os._exit(0)  # no other rank answers when the group ends


if __name__ == "__main__":
    main()
