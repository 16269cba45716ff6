"""Communication buffers and gathered copies, held in addition to the model states."""

from __future__ import annotations

from distsim.arrays import Number, maximum, minimum, where
from distsim.formula import formula


@formula(unit="B", source="Zhao et al. 2023, PyTorch FSDP (arXiv:2304.11277), sections 3.2 and 3.3: gathered units")
def gathered_unit_bytes(
    unit_parameters: Number, bytes_per_parameter: Number, units_alive: Number, root_parameters: Number
) -> Number:
    """Unsharded parameters alive at once: the unit in use, prefetched ones, and the root unit if it stays gathered."""
    return (unit_parameters * units_alive + root_parameters) * bytes_per_parameter


@formula(
    unit="B", source="deepspeedai/DeepSpeed 0.19.8 runtime/zero/partitioned_param_coordinator.py: what is fetched ahead"
)
def live_parameter_bytes(parameters: Number, live: Number, largest: Number, bytes_per_parameter: Number) -> Number:
    """Unsharded parameters alive at once where fetching ahead goes on until ``live`` elements are there: all of a small
    model's, and never less than the largest tensor."""
    return minimum(parameters, maximum(live, largest)) * bytes_per_parameter


@formula(unit="B", source="torch fully_shard: reshard_after_forward, set_requires_gradient_sync; pipelining's stage.py")
def whole_copies_bytes(parameters: Number, gathered_bytes: Number, trained: Number, gradient_bytes: Number) -> Number:
    """Unsharded parameters, and gradients where these accumulate unsharded over micro-batches before the reduction."""
    return parameters * gathered_bytes + trained * gradient_bytes


@formula(unit="B", source="torch 2.13 torch/distributed/pipelining/stage.py: a buffer for each micro-batch and way")
def receive_buffer_bytes(message_bytes: Number, micro_batches: Number, ways: Number, kept_inputs: Number) -> Number:
    """Tensors for what a rank's model chunks receive of all micro-batches, activations and gradients one way each; less
    those that are layers' inputs kept for backward, which count there."""
    return message_bytes * maximum(micro_batches * ways - kept_inputs, 0)


@formula(
    unit="B", source="DeepSpeed docs, zero_optimization: reduce_bucket_size and allgather_bucket_size count elements"
)
def bucket_bytes(bucket_elements: Number, buckets: Number, bytes_per_element: Number) -> Number:
    """Gradient buckets alive at once."""
    return bucket_elements * buckets * bytes_per_element


@formula(
    unit="B", source="microsoft/DeepSpeed runtime/zero/stage_1_and_2.py: flattened and fp32 gradients of the own shard"
)
def step_copy_bytes_per_rank(shard_elements: Number, bytes_per_parameter: Number) -> Number:
    """Copies of gradients that the optimizer's step makes for the rank's own shard."""
    return shard_elements * bytes_per_parameter


@formula(
    unit="B",
    source="NVIDIA/TransformerEngine pytorch/module/base.py, initialize_ub; NVIDIA/Megatron-LM training/initialize.py",
)
def tile_buffer_bytes(
    tokens: Number, hidden: Number, gathers: Number, gathered_bytes: Number, scatters: Number, scattered_bytes: Number
) -> Number:
    """Userbuffers of a process: each is as large as the hidden state of a micro-batch's whole sequences."""
    return tokens * hidden * (gathers * gathered_bytes + scatters * scattered_bytes)


@formula(
    unit="B",
    source="nvidia-smi during one GPT-2 124M job on 20 cards, 48 to 188 multiprocessors (docs/findings/memory.md)",
)
def context_bytes(code_bytes: Number, units: Number, unit_bytes: Number, architecture_bytes: Number) -> Number:
    """GPU memory that the driver holds for one process: stacks and queues per multiprocessor, and library code."""
    return code_bytes + units * unit_bytes + architecture_bytes


@formula(unit="B", source="deepspeedai/DeepSpeed runtime/zero/stage_1_and_2.py: temp_grad_buffer_for_gpu_offload")
def host_buffer_bytes(largest_elements: Number, bytes_each: Number) -> Number:
    """A buffer for the largest tensor's gradient, where sums in host memory are made on the GPU."""
    return largest_elements * bytes_each


@formula(unit="B", source="transformers' nn.Buffer: what a model's own code keeps for all positions")
def table_bytes(elements: Number, bytes_each: Number) -> Number:
    """Tables and masks of modules."""
    return elements * bytes_each


@formula(unit="B", source="one communicator per process group with other ranks, whose buffers NCCL holds for good")
def communicator_bytes(bytes_per_group: Number, groups: Number) -> Number:
    """GPU memory of the communicators of one rank."""
    return bytes_per_group * groups


@formula(unit="B", source="vllm-project/vllm issue 9699: NVLS comm nHeads 8 nvlsPerRankSize 301989888 of NCCL's log")
def multicast_bytes(rank_bytes: Number, ranks: Number) -> Number:
    """Buffers of NVLink SHARP, on each GPU a piece for every rank of a communicator's domain."""
    return rank_bytes * ranks


@formula(unit="B", source="libraries keep workspaces per handle and stream, and more for grouped products of experts")
def workspace_bytes(own_bytes: Number, expert_bytes: Number, has_experts: Number) -> Number:
    """What libraries keep for their kernels."""
    return own_bytes + expert_bytes * has_experts


@formula(
    unit="B",
    source="torch CUDACachingAllocator.cpp: blocks are split and kept, a share of what comes and goes; a pool for each "
    "stream",
)
def fragmented_bytes(
    share: Number, churning_bytes: Number, idle_bytes: Number, buffer_bytes: Number, apart_bytes: Number
) -> Number:
    """What the caching allocator holds beyond what is allocated: a share of all activations and transients at the peak,
    but not less than blocks known to lie idle, the same share of buffers, and blocks of another stream whose tensors
    are not made yet."""
    return share * buffer_bytes + maximum(share * churning_bytes, idle_bytes) + apart_bytes


@formula(
    unit="B",
    source="136 recorded steps in the rules of torch's CUDACachingAllocator.cpp, 69 of them fitted to: 3.6% off in the "
    "mean of what they reserve (docs/findings/memory-of-drivers.md)",
)
def broken_bytes(
    block_share: Number, state_bytes: Number, block_bytes: Number, gradient_share: Number, gradient_bytes: Number
) -> Number:
    """What lies idle since the first step makes its states between activations and gradients: they break up the largest
    block that activations will want again, and gradients' blocks are not activations'."""
    return block_share * minimum(state_bytes, block_bytes) + gradient_share * gradient_bytes


@formula(unit="B", source="torch CUDACachingAllocator.cpp: a free block serves any request no larger than itself")
def unserved_bytes(size_bytes: Number, largest_block_bytes: Number) -> Number:
    """A new block where no free one is large enough."""
    return where(largest_block_bytes >= size_bytes, 0, size_bytes)


@formula(unit="B", source="torch CUDACachingAllocator.cpp: a free block serves any request no larger than itself")
def reused_bytes(left_bytes: Number, asked_bytes: Number) -> Number:
    """What of blocks that are left later requests take."""
    return minimum(left_bytes, asked_bytes)


@formula(
    unit="B",
    source="torch.cuda.graph: a graph's tensors are in its own memory pool; NVIDIA/Megatron-LM core/full_cuda_graph.py",
)
def beside_pool_bytes(in_passes_bytes: Number, in_step_bytes: Number) -> Number:
    """What the optimizer's step takes beside a graph's pool: of both the smaller comes on top of the larger."""
    return minimum(in_passes_bytes, in_step_bytes)


@formula(
    unit="B", source="torch nn/parallel/distributed.py and reducer.cpp: buckets of all gradients, kept permanently"
)
def replica_bucket_bytes(parameters: Number, bytes_per_gradient: Number) -> Number:
    """DDP's flat buckets, in addition to gradients that accumulate elsewhere."""
    return parameters * bytes_per_gradient


@formula(
    unit="B",
    source="torch ddp_comm_hooks/powerSGD_hook.py, error_dict: one tensor per bucket; deepspeedai/DeepSpeed "
    "runtime/fp16/onebit/adam.py and lamb.py: worker_error and server_error",
)
def unsent_bytes(parameters: Number, bytes_per_gradient: Number, reducers: Number) -> Number:
    """Error feedback of compressed gradients: their own size, plus that size over ``reducers`` (0: not added)."""
    return parameters * bytes_per_gradient * (1 + where(reducers > 0, 1 / maximum(reducers, 1), 0))


@formula(
    unit="B",
    source="huggingface/nanotron distributed.py, all_gather_coalesced, whose list of outputs torch's "
    "ProcessGroupNCCL flattens; torch CUDACachingAllocator.cpp: a free block serves any request no larger than itself",
)
def list_gather_bytes(
    gathered_bytes: Number, ranks: Number, layer_block_bytes: Number, loss_block_bytes: Number,
    loss_blocks_bytes: Number, table_bytes: Number,
) -> Number:  # fmt: skip
    """New allocator blocks for the rank's own part, for every rank's part, and for all of them in one tensor, where no
    free block is large enough: layers leave many blocks, the loss a few, the embedding's gradient one."""
    part = gathered_bytes / ranks
    found = where(part > loss_block_bytes, 0, loss_blocks_bytes) + table_bytes // maximum(part, 1) * part
    parts = where(part > layer_block_bytes, maximum(gathered_bytes + part - found, 0), 0)
    whole = where(gathered_bytes > maximum(layer_block_bytes, loss_block_bytes, table_bytes), gathered_bytes, 0)
    return parts + whole


EXCHANGES_PER_LAYER = 4
"""Two gathered inputs, and two products before their reduce-scatter."""


@formula(
    unit="B",
    source="torch Tensor.record_stream: memory used on another stream is free once the GPU is past that use",
)
def held_exchange_bytes(
    tokens: Number, hidden: Number, element_bytes: Number, held: Number, per_layer: Number, layers: Number,
    buffers: Number,
) -> Number:  # fmt: skip
    """Full-size tensors of tensor parallel exchanges, held in addition to the activations."""
    return tokens * hidden * element_bytes * (minimum(held, per_layer * layers) + buffers)
