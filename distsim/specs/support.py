"""What a framework can run: which degrees, schedules and ZeRO stages it has, and which of them go together."""

from typing import Literal

from distsim.specs.base import Spec
from distsim.specs.layout import OFFLOADS, ZERO_STAGES, Offload
from distsim.specs.quantity import Count, ZeroStage


class Supports(Spec):
    """Only what a framework's documentation or code rules out is stated; all else is taken to run."""

    tp: bool = True
    pp: bool = True
    cp: bool = True
    ep: bool = True
    experts_tp: bool = True
    """Models with experts run tensor parallel, too."""
    copied_kv_heads: bool | Literal["ungated"] = True
    """Tensor parallel ranks may be more than key-value heads, which are then copied; ``ungated``: unless attention's
    output has a gate."""
    tied_pipeline: bool = True
    """A word embedding that is the output layer too may be on two pipeline stages."""
    whole_sequence_experts: bool = True
    """Experts go with tensor parallelism without sequence parallelism, whose ranks all hold whole sequences."""
    lone_experts: bool = True
    """Tensor parallel ranks may hold experts whole, or in fewer parts, without expert parallelism too."""
    schedules: tuple[str, ...] | None = None
    """Pipeline schedules that it has; None where nobody looked."""
    interleaving: Literal["any", "enough", "multiples", "rounds"] = "any"
    """Micro-batches that interleaved 1F1B takes: ``enough`` is at least as many as stages (Megatron-LM, which now deals
    them in groups of a size to choose), ``multiples`` of the stages, or equal ``rounds`` (torch)."""
    zero: tuple[int, ...] = ZERO_STAGES
    pipeline_zero: ZeroStage = 3
    """The highest ZeRO stage that goes with pipeline stages."""
    no_sync_zero: ZeroStage = 3
    """The highest ZeRO stage under which the reduction of gradients can be put off to the last micro-batch."""
    zero_group: bool = True
    """Sharding groups may be smaller than the data parallel ranks."""
    cp_chunks: Count = 1
    """Context parallelism cuts the sequence into so many chunks per rank (2: causal work is balanced)."""
    windowed_ring: bool = True
    """The ring of context parallelism attends in windows, and it and gathered keys beside sinks."""
    traded_kv_heads: bool = True
    """All-to-alls of context parallel ranks copy key-value heads of which there are fewer."""
    cp_modes: tuple[Literal["ring", "all_gather", "all_to_all"], ...] = ()
    """What a switch lets context parallel ranks exchange; none where nobody looked."""
    context_zero: tuple[int, ...] = ZERO_STAGES
    """ZeRO stages with which context parallel ranks exchange keys and values; heads are traded with any."""
    offload: tuple[Offload, ...] = OFFLOADS
    offload_optimizer: Literal["alone", "with parameters"] = "alone"
    """``with parameters``: torch moves shards to host memory, and the optimizer is where its shards are; an optimizer
    that lives there alone (torchao's) is for a single GPU."""
    offload_zero: ZeroStage = 0
    """The lowest ZeRO stage from which optimizer states leave the GPU."""
    offload_fraction: Literal["no", "any", "sub-groups"] = "no"
    """What an option moves of an optimizer, the rest of which stays on the GPU: any part (Megatron), or whole
    sub-groups of ZeRO 3 (DeepSpeed)."""
    offload_layers: Literal["anywhere", "alone", "checkpoints"] = "anywhere"
    """``alone``: activations of whole layers leave it only without pipeline stages and recomputation (those of modules
    go with both); ``checkpoints``: only the inputs of layers that are computed again."""
    zeropp: bool = False
    """It has the parts of ZeRO++."""
    drives: bool = False
    """Offloaded states and parameters may go on to NVMe drives."""
    cuda_graphs: tuple[Literal["routers", "modules", "iteration"], ...] = ()
    """CUDA graphs that switches turn on."""
    expert_overlap: bool = False
    """A switch pairs the forward of one micro-batch with the backward of another, whose exchanges of experts hide."""
    dispatchers: tuple[Literal["alltoall", "allgather", "deepep", "hybridep"], ...] = ()
    """What a switch lets send tokens to experts: to each of them, or once to each node and rank that has some; none
    where nobody looked."""
    dp_overlap: bool = False
    """A switch turns off that data parallel exchanges run beside computation."""
    tp_pieces: bool = False
    """A switch makes the compiler cut tensor parallel exchanges into pieces beside products."""
    modules: bool = False  # lists of modules say what selective recomputation runs again, and which tensors leave
    losses: tuple[str, ...] = ()
    """Losses that a switch, a patch of its models or a call in its users' code puts in the place of its own."""
    patched: bool = True
    """Its models are, or may be, those of transformers, which some losses patch; off where it has its own alone."""
    calls_triton: bool = True
    """Its programs call kernels in Triton that are made for torch."""
    pure_bf16: bool = False
    """A switch, or the dtype that a model is loaded in, trains weights and states in bf16 without a master copy."""
    master_zero: ZeroStage = 0
    """The lowest ZeRO stage at which an fp32 master copy stands beside weights of 16 bits."""
    wide_sums_zero: ZeroStage = 0
    """The lowest ZeRO stage at which gradients are added up in more bytes than the weights have."""
    tiles_mlp: bool = False  # dense MLPs may run on one tile of tokens after another (ALST's TiledMLP)
    tunes: bool = False
    """It fine-tunes with adapters by a switch of its own, or through peft."""
    some_layers: bool = True
    """Some layers of a stage may be computed again while others are not; off where all follow one policy."""
    recompute_switches: tuple[Literal["operations", "layers"], ...] = ("operations", "layers")
    """Recomputation of less than all that switches turn on: of some operations of layers, or of some layers. What is
    not among them takes code of the user's own: it is computed where it is asked for, and neither tried nor proposed.
    """
    recompute_counts: Literal["stages", "chunks"] = "stages"
    """Of what its switch counts layers that are computed again: of each stage, or of each of its model chunks, all of
    which compute as many again (Megatron's block method)."""
    scaled_blocks: bool = False
    """A switch multiplies in formats with a scale for each block (MXFP8, NVFP4); off where nobody found one."""
    cuts_packed: bool = True
    """Tensor parallelism cuts frozen weights that bitsandbytes holds in few bits, too."""
    recompute_groups: bool = False
    """One checkpoint may cover several layers."""
    uneven: bool = True
    """Pipeline stages may hold unlike numbers of layers, if only where the user places them."""
    mtp_apart: bool = False
    """Layers of multi-token prediction may be on another stage than the loss."""
