"""What Megatron core itself exchanges, allocates and keeps, recorded with small models and no GPU.

Run: python benchmarks/megatron_core.py tests/oracles/megatron_core.json
(torch, megatron-core 0.16.1 and einops; tests/oracles/megatron_core.md says what stands in for what)

Megatron's own code runs on real CPU tensors as one rank of a fake process group of the stated size: model, schedule,
DistributedDataParallel, optimizer. Calls are noted at the dispatcher.
"""

from __future__ import annotations

import json
import logging
import sys
import types
import weakref
from collections import Counter
from typing import Any

import megatron_core_cases as cases
import megatron_core_stand_ins as stand_ins  # before all of Megatron
import torch
import torch.distributed as dist
from megatron.core import parallel_state
from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig, finalize_model_grads
from megatron.core.distributed.param_and_grad_buffer import _ParamAndGradBucketGroup
from megatron.core.models.gpt.gpt_layer_specs import (
    get_gpt_decoder_block_spec,
    get_gpt_layer_local_spec,
    get_gpt_mtp_block_spec,
)
from megatron.core.models.gpt.gpt_model import GPTModel
from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
from megatron.core.pipeline_parallel import get_forward_backward_func
from megatron.core.tensor_parallel import random as megatron_random
from megatron.core.transformer.module import Float16Module
from megatron.core.transformer.moe.moe_utils import get_moe_layer_wise_logging_tracker
from megatron.core.transformer.transformer_config import MLATransformerConfig, TransformerConfig
from megatron_core_calls import Calls, during
from torch.testing._internal.distributed.fake_pg import FakeStore


def distinct_bytes(tensors: list[torch.Tensor]) -> int:
    """Bytes of the storages behind tensors, each once."""
    return sum({one.untyped_storage()._cdata: one.untyped_storage().nbytes() for one in tensors}.values())


class Run:
    """One rank of one job."""

    def __init__(self, case: dict[str, Any], layers: int = 4) -> None:
        self.case, self.job = case, {"seq": cases.SEQ, "gpus": 1, "micro_batch": 1, **case["job"]}
        degrees = {name: self.job.get(name, 1) for name in ("tp", "pp", "vpp", "cp", "ep")}
        self.tp, self.pp, self.vpp, self.cp, self.ep = degrees.values()
        self.dp = self.job["gpus"] // (self.tp * self.pp * self.cp)
        self.micro = self.job.get("global_batch", self.dp) // (self.dp * self.job["micro_batch"])
        self.model = {**cases.MODELS[case["model"]], "num_hidden_layers": layers}
        self._groups()
        self.config = self._config()
        self.chunks = [self._chunk(index if self.vpp > 1 else None) for index in range(self.vpp)]

    def _groups(self) -> None:
        if parallel_state.is_initialized():
            parallel_state.destroy_model_parallel()
        if dist.is_initialized():
            dist.destroy_process_group()
        rank = self.case.get("stage", 0) * self.job["gpus"] // self.pp
        dist.init_process_group("fake", rank=rank, world_size=self.job["gpus"], store=FakeStore())
        parallel_state.initialize_model_parallel(
            self.tp, self.pp, self.vpp if self.vpp > 1 else None, context_parallel_size=self.cp,
            expert_model_parallel_size=self.ep, expert_tensor_parallel_size=self.job.get("etp", 1),
            num_distributed_optimizer_instances=self.dp // self.job.get("zero_group", self.dp),
            create_gloo_process_groups=False,
        )  # fmt: skip
        get_moe_layer_wise_logging_tracker().clear()
        megatron_random.initialize_rng_tracker(force_reset=True)
        megatron_random.model_parallel_cuda_manual_seed(1)

    def _config(self) -> TransformerConfig:
        job, fused = self.job, self.case.get("fused", True)
        options = {
            **cases.structure(self.model), **cases.recomputation(job), "tensor_model_parallel_size": self.tp,
            "pipeline_model_parallel_size": self.pp, "context_parallel_size": self.cp,
            "virtual_pipeline_model_parallel_size": self.vpp if self.vpp > 1 else None,
            "expert_model_parallel_size": self.ep, "expert_tensor_parallel_size": job.get("etp", 1),
            "sequence_parallel": job.get("sequence_parallel", False), "params_dtype": torch.bfloat16, "bf16": True,
            "pipeline_dtype": torch.bfloat16, "batch_p2p_comm": True, "use_cpu_initialization": True,
            "gradient_accumulation_fusion": False, "masked_softmax_fusion": False, "apply_rope_fusion": False,
            "bias_activation_fusion": fused, "bias_dropout_fusion": fused, "hidden_dropout": 0.0,
            "attention_dropout": 0.0, **self.case.get("megatron", {}),
        }  # fmt: skip
        if job.get("mtp"):
            options["mtp_num_layers"] = job["mtp"]
        if "expert_dispatcher" in job:
            options["moe_token_dispatcher_type"] = job["expert_dispatcher"]
        if "capacity_factor" in job:
            options |= {"moe_expert_capacity_factor": job["capacity_factor"], "moe_pad_expert_input_to_capacity": True}
        stand_ins.per_token[0] = options.get("moe_router_topk", 1)
        return (MLATransformerConfig if "kv_lora_rank" in options else TransformerConfig)(**options)

    def _chunk(self, index: int | None) -> torch.nn.Module:
        config = self.config
        if config.num_moe_experts:
            spec = get_gpt_decoder_block_spec(config, False, config.normalization, vp_stage=index)
        else:
            spec = get_gpt_layer_local_spec(normalization=config.normalization, qk_layernorm=config.qk_layernorm)
        stand_ins.as_te_has_them(spec)
        model = GPTModel(
            config, spec, self.model["vocab_size"], self.job["seq"], position_embedding_type="rope", vp_stage=index,
            pre_process=parallel_state.is_pipeline_first_stage(ignore_virtual=False, vp_stage=index),
            post_process=parallel_state.is_pipeline_last_stage(ignore_virtual=False, vp_stage=index),
            share_embeddings_and_output_weights=self.model["tie_word_embeddings"],
            mtp_block_spec=get_gpt_mtp_block_spec(config, spec, False, vp_stage=index) if self.job.get("mtp") else None,
        )  # fmt: skip
        return Float16Module(config, model)

    def train(self) -> None:
        """Wrap the chunks and build their optimizer."""
        job, overlap, owned = self.job, self.job.get("dp_comm_overlap", False), self.job.get("zero", 1) > 0
        wide = job.get("precision") == "bf16-fp32-grads"
        rules = DistributedDataParallelConfig(
            grad_reduce_in_fp32=wide, overlap_grad_reduce=overlap, overlap_param_gather=overlap and owned,
            use_distributed_optimizer=owned, bucket_size=self.case.get("bucket"),
            num_distributed_optimizer_instances=self.dp // job.get("zero_group", self.dp),
        )  # fmt: skip
        self.chunks = [
            DistributedDataParallel(self.config, rules, chunk, disable_bucketing=place > 0)
            for place, chunk in enumerate(self.chunks)
        ]
        self.config.no_sync_func = [one.no_sync for one in self.chunks] if overlap else None
        if self.vpp == 1 and overlap:
            self.config.no_sync_func = self.chunks[0].no_sync
        options = OptimizerConfig(
            optimizer="adam", lr=1e-4, bf16=True, params_dtype=torch.bfloat16, use_distributed_optimizer=owned,
            overlap_param_gather=overlap and owned,
        )  # fmt: skip
        self.optimizer = get_megatron_optimizer(options, self.chunks, use_gloo_process_groups=False)

    def forward(self, model: torch.nn.Module) -> torch.Tensor:
        """The loss of one micro-batch."""
        words = torch.randint(0, 100, (self.job["micro_batch"], self.job["seq"] // self.cp))
        places = torch.arange(words.shape[1])[None].expand(words.shape).contiguous()
        return model(words, places, None, labels=words)

    def step(self, calls: Calls) -> None:
        """One optimizer step."""
        self.config.finalize_model_grads_func = during(calls, "step", finalize_model_grads)
        for chunk in self.chunks:
            chunk.zero_grad_buffer()
        self.optimizer.zero_grad()
        several = len(self.chunks) > 1
        get_forward_backward_func()(
            forward_step_func=lambda _, model: (self.forward(model), lambda out: (out.float().mean(), {})),
            data_iterator=[iter(())] * len(self.chunks) if several else iter(()),
            model=self.chunks if several else self.chunks[0], num_microbatches=self.micro, seq_length=self.job["seq"],
            micro_batch_size=self.job["micro_batch"], forward_only=False,
        )  # fmt: skip
        during(calls, "step", self.optimizer.step)()

    def optimizers(self) -> list[Any]:
        """One, or one of experts and one of all else."""
        return getattr(self.optimizer, "chained_optimizers", [self.optimizer])


def calls_of(case: dict[str, Any]) -> list[list[Any]]:
    """The calls of the second step of a job."""
    run, calls = Run(case), Calls()
    run.train()
    group = _ParamAndGradBucketGroup
    plain = group.start_grad_sync, group.start_param_sync
    group.start_grad_sync = during(calls, "backward", plain[0])
    group.start_param_sync = during(calls, "step", plain[1])
    with calls:
        run.step(calls)
        calls.found.clear()
        run.step(calls)
    group.start_grad_sync, group.start_param_sync = plain
    return [[*key, times] for key, times in sorted(calls.found.items())]


def states_of(case: dict[str, Any]) -> dict[str, int]:
    """Bytes of parameters, gradients and optimizer after a step."""
    run, calls = Run(case), Calls()
    run.train()
    with calls:
        run.step(calls)
    buffers = [one for chunk in run.chunks for one in (*chunk.buffers, *chunk.expert_parallel_buffers)]
    states = [t for o in run.optimizers() for s in o.optimizer.state.values() for k, t in s.items() if k != "step"]
    name = "shard_fp32_from_float16_groups" if run.job.get("zero", 1) else "fp32_from_float16_groups"
    copies = [one for o in run.optimizers() for group in getattr(o, name) for one in group if one is not None]
    return {
        "parameters": distinct_bytes([one.data for chunk in run.chunks for one in chunk.parameters()]),
        "gradients": distinct_bytes([one.grad_data for one in buffers]),
        "optimizer": distinct_bytes(states + copies),
    }


def saved_by(case: dict[str, Any], layers: int) -> int:
    """Bytes that a forward pass of so many layers keeps for backward, weights not counted."""
    run, kept = Run(case, layers), list[torch.Tensor]()
    own = {one.untyped_storage()._cdata for chunk in run.chunks for one in chunk.parameters()}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.untyped_storage()._cdata not in own:
            kept.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        loss = run.forward(run.chunks[0])
    return distinct_bytes(kept) * bool(loss.numel())


class Kept:
    """A tensor that backward keeps."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor


def held_by(case: dict[str, Any]) -> int:
    """The most bytes that are kept for backward at once in a step."""
    run, calls, sizes, users = Run(case, case["layers"]), Calls(), dict[int, int](), Counter[int]()
    run.train()
    own = {one.untyped_storage()._cdata for chunk in run.chunks for one in chunk.parameters()}
    most = 0

    def keep(tensor: torch.Tensor) -> torch.Tensor | Kept:
        nonlocal most
        storage = tensor.untyped_storage()
        if storage._cdata in own:
            return tensor
        kept = Kept(tensor)
        sizes[storage._cdata] = storage.nbytes()
        users[storage._cdata] += 1
        weakref.finalize(kept, lambda which: users.subtract([which]), storage._cdata)
        most = max(most, sum(sizes[which] for which, count in users.items() if count))
        return kept

    with calls, torch.autograd.graph.saved_tensors_hooks(keep, lambda kept: getattr(kept, "tensor", kept)):
        run.step(calls)
    return most


def main() -> None:
    """Write all recordings."""
    logging.disable(logging.WARNING)
    found = types.SimpleNamespace(steps=[], states=[], saved=[], held=[], modules=[])
    for case in cases.STEPS:
        found.steps.append({**case, "calls": calls_of(case)})
    for case in cases.STATES:
        found.states.append({**case, "bytes": states_of(case)})
    for case in cases.SAVED:
        found.saved.append({**case, "layer": saved_by(case, 4) - saved_by(case, 3)})
    for case in cases.MODULES:
        trained = {**case, "job": {**case["job"], "mtp": 1}}
        found.modules.append({**trained, "module": saved_by(trained, 4) - saved_by(case, 4)})
    for case in cases.HELD:
        found.held.append({**case, "held": held_by(case)})
    parts = ["models", *vars(found)]
    lines = [
        json.dumps(cases.MODELS),
        *("[\n" + ",\n".join(map(json.dumps, part)) + "\n]" for part in vars(found).values()),
    ]
    text = ",\n".join(f'"{name}": {part}' for name, part in zip(parts, lines, strict=True))
    with open(sys.argv[1], "w") as file:
        file.write("{\n" + text + "\n}\n")


if __name__ == "__main__":
    main()
