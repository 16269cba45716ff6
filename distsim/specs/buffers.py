"""What a framework takes of a GPU's memory beside the model: buffers, workspaces, contexts."""

from typing import Literal

from distsim.specs.base import Spec
from distsim.specs.quantity import Amount, Fraction, MaybeAmount, MaybeFraction, Natural


class Buffers(Spec):
    """Communication buffers and workspaces on every GPU."""

    gradient_bucket_elements: Natural = 0
    """Elements of one gradient bucket beside the gradients themselves (0: reduced in place)."""
    gradient_buckets: Natural = 0
    """Buckets alive at once."""
    bucket_copies: bool = False
    """ZeRO-3 has one bucket for good, and joins its gradients in another as large while backward reduces them; those of
    ZeRO 1 and 2 are gone when backward has ended (DeepSpeed)."""
    gather_ahead_units: Natural = 1
    """ZeRO-3: units gathered ahead of the one in use."""
    keep_last_unit: bool = True
    """ZeRO-3: the root unit (embedding, final norm, head) stays gathered from forward to backward."""
    gathered_elements: Natural = 0
    """ZeRO-3: fetching ahead goes on until so many elements are there, and what forward leaves of them serves backward
    (DeepSpeed's stage3_max_live_parameters); 0: the units in use and ahead."""
    head_unit: bool = False
    """FSDP: the output layer is a unit of its own, whose gradient is reduced while the last layer runs backward, not a
    part of the root's, where it waits for the embedding's."""
    replica_buckets: Natural | None = None
    """ZeRO stage up to which DDP holds all gradients once more in its buckets, and copies them there and back; with
    gradients wider than weights only replicas without ZeRO are wrapped."""
    step_gathers_lists: bool = False
    """The step of ZeRO 1 gathers parameters into a list of one tensor per rank, which torch flattens into one more;
    the caching allocator keeps their blocks (engine/footprint/kept.py)."""
    gradients_grow: bool = False
    """Gradients come into being during the first backward pass and go after the step (plain torch), instead of living
    in buffers made beforehand (Megatron, DDP)."""
    steps_in_backward: bool = False
    """Each parameter is updated, and its gradient freed, as soon as backward has made it."""
    gathers_copies: bool = False
    """FSDP2: the sharded parameters stay beside what is gathered from them, which ZeRO 2 and pipeline stages keep;
    stages also keep whole gradients until their last micro-batch."""
    master_gradients: bool = False
    """Where gradients are narrower than the master copy, the step first makes wide copies of all of them."""
    shard_gradients: bool = False
    """Where gradients are narrower than the master copy, the step makes copies as wide as it of a rank's shard, while
    the narrow ones stay (Megatron)."""
    flat_gradients: bool = False
    """Under ZeRO 1 and 2 the step first joins a rank's shard of gradients in one tensor and makes that as wide as the
    master copy, beside the gradients (DeepSpeed)."""
    step_elements: Natural = 0
    """ZeRO-3: elements of a rank's shard that the step updates at a time, whose gradients it joins in one tensor and
    makes as wide as the master copy (DeepSpeed's sub_group_size); 0: the step does not."""
    joins_whole: bool = False
    """Without ZeRO the step makes all gradients as wide as the master copy, and joins these in one more tensor
    (DeepSpeed's FP16_Optimizer)."""
    weight_passes_keep_graph: bool = False
    """Where a pipeline splits backward passes, all that forward kept stays until the weight gradients are made."""
    pipeline_outputs: Literal["freed", "backward", "step"] = "freed"
    """Until when a pipeline's last stage holds the logits of a micro-batch, which its loss has read: torch's until its
    backward is over, or until the next step where the step returns them."""
    lookup_gradient_whole: bool = False
    """Tensor parallelism: backward gives each rank the gradient of all rows of an embedding that ranks share, which it
    keeps until that is reduced, or until the step where nothing reduces it (torch's DTensor)."""
    pipeline_receives: bool = False
    """Stages hold a tensor for each activation and gradient that they will receive in a step, of all micro-batches."""
    step_counter_bytes: Amount = 0.0
    """What one parameter tensor's step counter takes on the GPU, where the optimizer keeps one per tensor."""
    flat_shards: bool = False
    """ZeRO hands the optimizer shards of one dimension, in which no second moment can be factored."""
    fp32_embedding_states: tuple[str, ...] = ()
    """Libraries of optimizers, whose states of whole embeddings the trainer keeps in fp32; in flat shards they are as
    all others."""
    step_copy_bytes: Amount = 0.0
    """Bytes per parameter of the optimizer's shard for copies of gradients that the step makes and its allocator
    keeps (DeepSpeed: the shard's gradients flattened, and in fp32)."""
    workspace_bytes: Amount = 0.0
    """Library workspaces (cuBLAS and the like)."""
    older_workspace_bytes: MaybeAmount = None
    """The same before Hopper, where libraries take less."""
    expert_workspace_bytes: Amount = 0.0
    """Further workspaces where a rank's experts are multiplied on several streams."""
    older_expert_workspace_bytes: Amount = 0.0
    """The same before Hopper."""


class Overhead(Spec):
    """Bytes a GPU loses before the first tensor."""

    context_bytes: Amount = 0.0
    """Code and handles of libraries in the driver's context, beside what its chip takes (footprint/overhead.py)."""
    communicator_bytes: Amount = 0.0
    """NCCL buffers per process group of more than one rank."""
    whole_groups: bool = False
    """Beside the groups of each kind of parallelism one of all ranks exchanges, and one for the norm of gradients."""
    multicast: bool = True
    """Whether the switch between GPUs may make sums (NCCL_NVLS_ENABLE), which takes buffers."""
    fragmentation_fraction: Fraction = 0.0
    """Reserved by the caching allocator beyond what is allocated, as a share of activations and buffers."""
    compiled_fragmentation_fraction: MaybeFraction = None
    """The same of compiled jobs, their loss included."""
    broken_block_fraction: Fraction = 0.0
    """Of the largest block that activations leave, what is asked for anew since states that the first step makes stand
    in it; of no more than these (not where graphs are compiled, or states are made ahead)."""
    apart_shards: bool = False
    """FSDP makes shards of gradients on a stream of its own: activations cannot have their blocks before they are
    made, as the allocator gives no stream the blocks of another."""
    apart_gradient_fraction: Fraction = 0.0
    """Of gradients that come and go, what finds no block of activations that is large enough."""
    kept_samples: Amount = 0.0
    """Where lengths of samples vary: mean samples whose logits' blocks the allocator keeps, since longer ones do not
    fit into them; for replays of measured runs only."""
