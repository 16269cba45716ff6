"""How a training framework exchanges gradients and parameters."""

from typing import Literal

from pydantic import Field

from distsim.specs.base import Spec
from distsim.specs.quantity import Amount, Count, Natural
from distsim.units import MIB


class Traffic(Spec):
    """How a framework exchanges gradients and parameters. Source: the framework's own code."""

    bucket_rule: Literal["even", "tensors", "parameters", "unit"] = "even"
    """``even`` cuts the gradients into alike buckets; ``tensors`` closes a bucket with the tensor that fills it, in the
    order in which gradients come (torch DDP), and so do ``parameters``, of which each model chunk has its own
    (Megatron); a ``unit`` is what is wrapped, a layer or all else (FSDP)."""
    owned_bucket_rule: Literal["even", "tensors", "parameters", "unit"] | None = None
    """The same of gradients that are reduced to their owners; None: as of others."""
    bucket_elements: Natural = 0
    """Elements of a gradient bucket under ``even`` and ``parameters``; 0 means one bucket under ``even``."""
    bucket_elements_per_rank: Natural = 0
    """A bucket has at least this many elements per data-parallel rank (Megatron)."""
    first_stage_buckets: bool = False
    """Pipeline stages behind the first have one bucket: their reductions are on nobody's critical path (Megatron)."""
    bucket_bytes: Count = 25 * MIB
    """Bytes that fill a bucket under ``tensors``."""
    first_bucket_bytes: Count = MIB
    """Bytes that fill the first one, so that reducing starts early."""
    zero1: Literal["reduce_scatter", "all_reduce"] = "reduce_scatter"
    """ZeRO 1 reduces each gradient to its owner and gathers parameters, or reduces all to all and broadcasts each
    parameter from its owner (torch ZeroRedundancyOptimizer)."""
    owners_send: Literal["tensors", "all"] = "tensors"
    """What an owner broadcasts: each of its parameters, or all of them as one flat tensor."""
    owned_op: Literal["reduce_scatter", "all_reduce"] = "reduce_scatter"
    """How buckets of gradients reach their owners under ZeRO 1 and 2: each owner's part alone, or all of a bucket on
    all ranks, who keep their parts (DeepSpeed's use_multi_rank_bucket_allreduce)."""
    owned_op_since: Amount = 0.0
    """The first release, as a year with its months as a fraction, that does so; replays of older runs reduce to owners
    alone."""
    gathers_by_optimizer: bool = False
    """Where parameters are gathered as soon as they are updated, all are gathered by each optimizer: under expert
    parallelism by that of experts and by that of all else (Megatron's ChainedOptimizer)."""
    reduces_as_weights: bool = False
    """Gradients that are added up in fp32 travel in the weights' format all the same (DeepSpeed's
    communication_data_type, unless it is stated)."""
    zero2: Literal["step", "forward"] = "step"
    """ZeRO 2 gathers updated parameters once after the step, or layer by layer in each forward (FSDP that does not
    reshard after forward)."""
    ends_apart: dict[str, Natural] = Field(default_factory=dict)
    """Model families whose recipes shard an embedding of at least so many words, and an output layer of its own, each
    by itself (torchtune's custom_sharded_layers)."""
    tail_unit: bool = False
    """The table of words is a unit by itself, which ZeRO 3 gathers for backward too, and final norm and output layer
    are one that stays gathered, which has a table that they share (accelerate's FSDP2)."""
    modules_apart: tuple[str, ...] = ()
    """Model families whose modules outside of layers are a unit each, of which forward leaves none gathered; a table of
    words that is the output layer too, it gathers twice (llm-foundry's MPT)."""
    frozen_again: bool = False
    """Backward gathers what is frozen of layers that are computed again twice, once for each of its passes, but for the
    last module, where checkpoints are not reentrant (DeepSpeed's ZeRO 3)."""
    partitioned: bool = False
    """A compiler places the exchanges (XLA): shards are cast before they travel and arrive where products read them,
    and of gradients only the rank's own part is stored wide; gradients of weights read what a layer that is computed
    again has gathered. Else whole copies are cast, and gathers copied in and out."""
    padding: Literal["none", "parameter", "unit"] = "none"
    """What is filled up to the number of shards: nothing, dimension 0 of each parameter (FSDP2), the unit (FSDP)."""
    one_unit: bool = False
    """The whole model is one unit, gathered before the first layer and kept to the end of backward, whose gradients are
    joined and reduced when all are made (FSDP1 without a policy that wraps layers; replays of measured runs only)."""
    experts_by_columns: bool = False
    """Under expert parallelism, where more ranks share stacked experts than there are of these, each expert's dimension
    1 is sharded, which FSDP2 only does evenly."""
    experts_by_columns_since: Amount = 0.0
    """The first release, as a year with its months as a fraction, that does so without expert parallelism too; replays
    of older runs do not. 0: none does."""
    experts_whole: bool = False
    """Under expert parallelism each rank keeps all states of its experts, whatever ZeRO shards of the rest: ranks that
    hold the same ones are replicas, whose gradients are summed."""
    own_experts: tuple[str, ...] = ()
    """Model families that it does so for without expert parallelism: whose layers are its own. It shards those of
    others, Hugging Face's modules, as any module. None: every family."""
    root_once: bool = False
    """What belongs to no layer, once gathered by ZeRO 3, stays so until the optimizer's step (Megatron FSDP)."""
    no_sync: Literal["never", "unsharded", "always"] = "unsharded"
    """Gradients of all but the last micro-batch stay on the rank: never, where gradients are not sharded, always."""
    no_sync_keeps_gathered: bool = False
    """While gradients stay on the rank, parameters that ZeRO 2 gathers by layers stay gathered too (FSDP1's
    SHARD_GRAD_OP), and CUDA graphs of whole steps hold them so (torchtitan)."""
    replicas_reduce_once: bool = False
    """Replicas of shards add up their gradients after the last micro-batch, shards theirs after each (MiCS)."""
    clip: bool = True
    """The gradient norm is computed over all ranks before the step."""
    clip_passes: Natural = 1
    """Passes over gradients that this takes: 1 where what updates scales them as it reads (XLA, Apex), or they are only
    scaled when the norm is too large (Megatron); 3 where all are multiplied in place in every step (torch)."""
    zeroes_gradients: bool = False
    """Gradients live in buffers that every step fills with zeros (Megatron), instead of being made anew."""
    norm_of_shards: bool = True
    """Under ZeRO ranks add up the norms of the gradients that they own; off where each takes that of all (nanotron)."""
    norm_per_parameter: bool = False
    """The norms of all parameters are reduced, not one sum (torch on DTensors)."""
    buffer_broadcast: bool = False
    """Rank 0's buffers (rotary frequencies) are sent to all in each forward whose backward reduces whole gradients
    (torch DDP)."""
    input_gradient_per_matrix: bool = False
    """Without sequence parallelism each matrix that reads one input reduces its own input gradient (torch DTensor)."""
    input_per_matrix: bool = False
    """Under sequence parallelism each matrix that reads one input gathers it, and reduces its own input gradient (plans
    of torch's ColwiseParallel with input_layouts=Shard(1) for each, instead of one PrepareModuleInput)."""
    replicated_gradient_reads: Natural = 0
    """Under sequence parallelism gradients of what ranks hold whole are partial sums. 0: all are reduced at once before
    the step (Megatron); else those of norms each by itself, once in backward under FSDP and else for each time the
    optimizer reads it (torch's AdamW on DTensors: 3)."""
    names_replicated: bool = False
    """So are, with and without sequence parallelism, gradients of all else that ranks hold whole and whose results they
    share out by heads or experts: norms within heads, products that make latents, routers. A plan of torch that leaves
    these out sums nothing."""
    recompute_stops_early: bool = False
    """The same of exchanges, as recorded: a layer's last collective is not repeated. Frameworks whose exchanges nobody
    recorded leave it off."""
    recompute_stops_until: Amount = 0.0
    """The first release, as a year with its months as a fraction, that repeats it; replays of older runs do not. 0: as
    ``recompute_stops_early`` says."""
    recompute_keeps: tuple[Literal["all_gather", "all_reduce", "all_to_all", "reduce_scatter"], ...] = ()
    """Exchanges of layers whose results recomputation by operations (``op``) keeps; it repeats the others."""
    tokens_kept_since: Amount = 0.0
    """The first release, as a year with its months as a fraction, that keeps all-to-alls so; replays of older runs
    repeat them."""
    ring_op: Literal["send_recv", "all_to_all"] = "send_recv"
    """What the steps of ring attention are issued as (torch: an all-to-all with one partner)."""
    expert_copies: Literal["each", "once"] = "each"
    """A token goes to each of its experts (all-to-all), or once to each node, and there once to each rank (DeepEP,
    HybridEP)."""
    expert_counts: bool | Literal["gathered"] = False
    """Ranks first tell each other how many tokens each expert gets, an int64 each, of their own experts (torchtitan) or
    ``gathered`` of all, by tensor parallel ranks that share experts too (Megatron)."""
    scatter_gather: bool = False
    """Without sequence parallelism tp ranks each send a part to the next stage and gather there (Megatron)."""
    overlap_gradients: bool = True
    """Gradients are reduced while backward still runs."""
    overlap_parameters: bool = True
    """Sharded parameters are gathered ahead of their use."""
    gathers_in_layer: bool = False
    """Each layer gathers and reduces its own within its turn of a scanned loop, which does not look ahead: what experts
    compute hides nothing of their weights."""
    overlap_updated: bool = False
    """Under ZeRO 1 parameters are gathered beside the next step's forward, not as soon as they are updated."""
    tp_overlap: bool = False
    """In backward, inputs are gathered beside the products of input gradients, and these are reduced beside those of
    weight gradients."""
    tp_in_pieces: bool = False
    """Tensor-parallel collectives run in pieces beside the matrix products that take or give what they carry."""
    tp_tiles: Literal["none", "fitted", "off"] = "none"
    """Products take in and send out tiles as tensor parallel ranks exchange them (Transformer Engine's userbuffers,
    --tp-comm-overlap): ``fitted`` where the framework's ``tensor_factor`` is of runs that do, ``off`` where one of them
    does not. Cards without links of their own never do."""
    gathered_in_pipeline: Literal["each", "backward", "step"] = "each"
    """With pipeline stages ZeRO by layers gathers, and every stage reduces, for each micro-batch, or once per step
    (torch); ``backward``: ZeRO 3 drops layers after forward even there, and gathers them for each backward."""
    host_gradients: Literal["step", "each", "summed"] = "step"
    """With the optimizer in host memory, gradients go there once a step; sharded ones with each micro-batch (torch's
    FSDP); or they come back each time to be summed on the GPU (DeepSpeed)."""
    host_fp32: bool = False
    """With the optimizer in host memory, all its states are in fp32 whatever the recipe has, on the GPU too what stays
    there, and so are gradients and parameters on their way."""
    host_threads: Count | None = None
    """Threads with which each of several ranks of a node updates states in host memory; None: all cores, shared.
    torchrun gives each one unless OMP_NUM_THREADS says otherwise (torch/distributed/run.py)."""
    module_hooks: Amount = 0.0
    """Host work of gathering and releasing one module's parameters under ZeRO 3, in kernels; twice that in backward."""
    expert_hooks: Amount | None = None
    """The same of a module of one expert, where experts are modules of their own; None: as of any other."""
    unit_hooks: Amount = 0.0
    """The same of a unit from ZeRO 2 on: a layer, all else together, or an adapter's matrix (FSDP)."""
