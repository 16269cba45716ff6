"""The kernels of a training framework: which operations are fused, and so which tensors live until backward."""

from typing import Literal

from pydantic import Field

from distsim.specs.activation_kernels import ActivationKernels
from distsim.specs.expert_kernels import ExpertKernels
from distsim.specs.loss_kernels import LossKernels
from distsim.specs.offload_kernels import OffloadKernels
from distsim.specs.quantity import Amount, KeptPart, MaybeCount, Natural, Share
from distsim.specs.recompute_kernels import RecomputeKernels
from distsim.specs.ring_kernels import RingKernels


class Kernels(ActivationKernels, ExpertKernels, LossKernels, RingKernels, RecomputeKernels, OffloadKernels):
    """Which operations are fused, that is, which tensors live until backward. Source: the framework's own code."""

    norm: Literal["fused", "eager"] = "fused"
    """``fused`` keeps the input in the activation dtype; ``eager`` composes an RMSNorm of elementary operations and
    keeps the fp32 input and the normalised product besides. Layernorms are fused either way."""
    norm_kernel: Literal["library", "torch"] = "library"
    """A fused RMSNorm is a library's (Transformer Engine, Apex, Liger), or torch's, which passes more often."""
    norm_adds: bool = False
    """One kernel drops what a branch gives, adds it to the residual stream and norms the sum in 16 bits (flash-attn's
    dropout_add_layer_norm); only its time differs."""
    norm_weight_fp32: bool = False
    """The eager RMSNorm multiplies by its weight before casting back (Gemma, OLMo 2): the kept product is fp32 too."""
    norm_weight_copy: bool = False
    """The eager RMSNorm's weight is made anew in fp32 for each call (Gemma's ``1 + weight``)."""
    norm_keeps_input: bool = False
    """The eager RMSNorm multiplies its input in the activation dtype, which it keeps beside the fp32 copy (T5)."""
    layernorm: Literal["fused", "fp32", "narrow", "eager", "written"] = "fused"
    """``fp32`` runs the fused kernel on an fp32 copy of the input (OLMo 1), ``narrow`` under autocast on a 16-bit one
    (Nemotron); ``eager`` composes the norm and keeps the centred input twice and the normalised product, all in fp32
    (Cohere); ``written`` in the format of its input, which it keeps, centred and normalised, too."""
    norm_powers: Literal["none", "unweighted", "all"] = "none"
    """Which eager RMSNorms take their root as a power, which keeps what it is taken of besides itself: those without
    weights (Muse), or all (Gemma 4)."""
    norm_statistics: bool = True
    """Mean and reciprocal deviation (fp32 per token) are counted."""
    product_bias: Literal["epilogue", "pass"] = "epilogue"
    """Products add their bias as they write, or a kernel of its own reads and writes their output once more (torch
    before cublasLt did it)."""
    product_epilogues: bool = False
    """Products (cublasLt's) add biases, apply a plain MLP's activation, take its derivative and sum the biases'
    gradients as they write; only their time differs."""
    branch_sums: Literal["together", "apart"] = "together"
    """Attention and MLP that read one residual are added before tensor parallel ranks sum them, or each is summed by
    itself (plans that name the modules of a model, one after another)."""
    softmax: Literal["fused", "eager"] = "fused"
    """Eager attention: ``fused`` keeps the probabilities once, in the activation dtype; ``eager`` also in fp32."""
    softmax_kernel: Literal["one", "compiled", "steps"] = "one"
    """One kernel with scale and mask, one for each of its reductions, as XLA makes them, or plain torch's steps: scale,
    mask, softmax, casts (engine/kernels/passes.py)."""
    softmax_written: bool = False
    """Among those steps the softmax itself is a maximum, a difference, exponentials, their sum and a quotient, as an
    author wrote it."""
    mask_chosen: bool = False
    """Steps of a softmax in which a causal mask chooses between scores and the least number, beside the mask that is
    added (GPT-2 and its like in transformers)."""
    softmax_group: Natural = 0
    """Sequences times heads of a rank that a fused softmax takes at once: where that does not divide them, it is
    composed of elementary steps in fp32; 0 means that any number goes."""
    softmax_keys: Natural = 0
    """The longest sequence that a fused softmax with groups takes."""
    softmax_registers: Natural = 0
    """Keys of a row that a fused softmax keeps in registers; the rest of longer ones spills. 0: any number."""
    scores_clamped: bool = False
    """Masked scores are taken no lower than the least number, which keeps them (torch.max in XGLM)."""
    mask_filled: bool = False
    """Steps of a softmax that write a mask into a copy of the scores (masked_fill), zeros into their gradients'."""
    half_adds: Literal["pairs", "loop"] = "pairs"
    """Torch adds to fp16 numbers by an index in pairs, for which chips have an instruction, or one by one in a loop."""
    scores_fp32: bool = False
    """Eager attention multiplies fp32 copies of queries and keys (GPT-J, GPT-Neo)."""
    composed_only: bool = False
    """No kernel attends in this family's modules: scores are in memory whatever is asked for (transformers' BLOOM and
    MPT, litgpt where scores have a soft cap)."""
    composed_default: bool = False
    """Attention is composed unless a flash kernel is asked for, which is a package of its own (transformers' Gemma 2
    and GPT-OSS, which torch's scaled_dot_product_attention does not take)."""
    sinks: Literal["shifted", "column", "scale"] = "shifted"
    """Eager attention with a learned sink: a further column of scores whose row maximum is subtracted (GPT-OSS), or
    without that (Flint), or a factor on the output (Granite with windows)."""
    sinks_after: bool = False
    """A flash kernel knows no sinks: its output is scaled by a sigmoid of its log-sum-exp less them (torchtitan)."""
    sdpa: bool = False
    """``flash`` means torch's scaled_dot_product_attention, which picks the kernel: flash for 2-byte activations, the
    memory-efficient one for fp32, masks or unlike value widths."""
    efficient_groups: bool = False
    """Its memory-efficient kernel takes grouped keys (from torch 2.14 on, on NVIDIA's chips); without a mask grouped
    keys in fp32 take plain products else."""
    flash_missing: bool = False
    """Its flash kernel is not written for the chip, so that grouped keys without a mask take plain products in 16 bits,
    too (pytorch/pytorch transformers/cuda/sdp_utils.cpp: flash from sm80 on, efficient with no grouped heads)."""
    attention_mask: Literal["none", "window", "always", "bias"] = "none"
    """A dense mask of ``s x s`` per sequence is made in each layer: for sliding windows, or always (Falcon); ``bias``
    has one per head instead (T5)."""
    scan_projects: bool = False
    """Fused kernels of Mamba's scans take in the weights of the norm and of the output projection, and compute again in
    backward what those read (transformers): adapters on them are passed by."""
    scan_chunk: MaybeCount = None
    """Tokens of a chunk of Mamba-2's scan, whatever the model says (Megatron's mixer); None: as it says."""
    linear_attention: Literal["fused", "composed"] = "fused"
    """Lightning attention is one kernel, or a loop over blocks of plain operations (transformers)."""
    qkv_matrices: int = Field(default=1, ge=1, le=3)
    """Separate modules that read the attention's input (autocast casts it for each)."""
    gate_up_fused: bool = True
    """Gate and up projections are one matrix product."""
    gate_halves: bool = False
    """An eager gated activation is plain torch on both halves of that product inside one of Megatron's modules."""
    attention_dropped: bool | Literal["in-turn"] = True
    """Dropout follows attention's output projection, too, not the MLP's alone (DistilBERT), or where the MLP comes
    after attention and not beside it, at the rate of attention's weights (Falcon)."""
    mlp_dropped: bool = True
    """Dropout follows the MLP's output projection, too, not attention's alone (ModernBERT: its MLP drops within)."""
    mlp_recast: bool = False
    """What an MLP's last product reads is cast to its weights' format first, and under autocast back (T5)."""
    value_view: bool | Literal["latent", "ungrouped", "recomputed"] = False
    """Values are a view into a larger projection's output, which they keep alive whole, where queries and keys are new
    tensors besides (rotated GPT-NeoX and Phi-3, latent attention); ``latent``: in latent attention alone;
    ``ungrouped``: where no heads share keys (Falcon); ``recomputed``: where attention is computed again (Megatron)."""
    keys_gathered: bool = False
    """Where heads of keys are fewer than tensor parallel ranks, the weights that make them are cut evenly all the same,
    and what all ranks make is gathered, of which each takes its heads (Megatron); else several ranks have the same."""
    keys_expanded: bool = False
    """Grouped keys and values are copied to all heads before the kernel that attends (litgpt, torchtune)."""
    attention_output_copy: bool = False
    """The output projection reads a contiguous copy of the flash kernel's output: rotation by slices and concatenation
    leaves queries, and with them the output, in another order (all partly rotated models, Phi-3)."""
    sparse_attention: Literal["dense", "absorbed"] = "dense"
    """Latent attention to keys that an indexer chooses: to all, the others masked, or by kernels that read no others,
    on the narrow layer itself."""
    indexer: Literal["trained", "fixed"] = "trained"
    """Indexers of sparse attention learn to agree with the attention that they choose for, or run without gradients
    (transformers)."""
    streams: Literal["composed", "fused"] = "composed"
    """Residual streams are mixed by plain torch's kernels, one after another, or by kernels that a compiler made of
    them; of software whose elementwise steps are no kernels of their own, and whole compiled models, always so."""
    delta_copies: bool = False
    """Queries and keys of the gated delta rule are copied to all heads of values before its kernels (Megatron), which
    keep the copies beside what their norm keeps."""
    delta_rule: Literal["fused", "torch"] = "fused"
    """The gated delta rule runs in kernels of flash-linear-attention, or in plain torch, chunk after chunk, as
    transformers does where that package is missing (formulas/chunk_rule.py)."""
    gated_norm_fp32: bool = False
    """The eager norm behind the gated delta rule multiplies by its weight before casting back (Lara)."""
    router_fp32: bool = False
    """The router's product is done on fp32 copies of its input and weight (DeepSeek in Hugging Face)."""
    attention_kernel: Literal["own", "sdpa", "flash-2", "flex", "triton", "flash-1", "pallas", "tokamax"] = "own"
    """Flash attention by a kernel written for the chip (cuDNN, FlashAttention-3), or by an older one on any; ``sdpa``
    took cuDNN's on Blackwell only (torch before 2.10). On TPUs ``own`` is JAX's splash attention."""
    attention_block: MaybeCount = None
    """Tokens along a block of flash attention where they are not the chip's usual ones (block sizes of Pallas)."""
    attention_products: int | None = Field(default=None, ge=5)
    """Products of that kernel's backward where they are not the chip's usual ones (fused or not, of Pallas)."""
    attention_format: Literal["wide", "fp8", "mxfp8"] = "wide"
    """Flash attention in the activations' format, or in 8 bits with a scale per tensor or per block, where the chip's
    kernels are known to gain by it; its time differs, and what all-to-alls of context parallel ranks carry."""
    rope: Literal["fused", "eager"] = "fused"
    """``eager`` rotation makes new query and key tensors, and keeps tables of cosines and sines."""
    rope_complex: bool = False
    """An eager rotation is one product of complex numbers between two casts, not products with cosines and sines."""
    rope_pairs: bool = False
    """An eager rotation turns channels with a stride of two by products with cosines and sines, an author's own."""
    casts_once: bool = False
    """Products that read one input share its cast under autocast, as a compiler makes it of one graph."""
    linears: Literal["modules", "einsum"] = "modules"
    """Products of torch's modules, or an author's ``torch.einsum``, whose weights' gradients are copied."""
    rope_scaled: Literal["fused", "composed"] = "fused"
    """Rotation that also scales: in the fused kernel, or of plain operations because that kernel cannot."""
    rope_tables: Natural = 2
    """Tables of ``s x rotated width``: cosine and sine, twice where local and global layers differ (Gemma 3)."""
    rope_tables_fp32: bool = False
    """They are in fp32 whatever the activations are in (ERNIE 4.5, Gemma 4)."""
    rope_tables_per_layer: bool = False
    """Each layer makes and keeps its own tables (GPT-J, GLM) instead of sharing those of the model."""
    module_buffers: tuple[Literal["frequencies", "tables", "mask", "masks", "ids", "scale"], ...] = ("frequencies",)
    """What modules hold beside parameters: rotary frequencies, each layer's rotary ``tables`` of all positions, a
    ``mask`` of all pairs of these or one for each layer, ``ids`` of positions or token types, an embedding's scale."""
    predicted_share: Share = 1.0
    """Share of the positions whose logits an encoder's training computes: all, or those that are masked."""
    wide_layers: Natural = 0
    """Layers at the end whose products a recipe of 8 or 4 bits leaves in 16."""
    wide_predictions: bool = False
    """Modules of multi-token prediction stay in 16 bits whatever the recipe (Megatron's keep_mtp_spec_in_bf16)."""
    narrow_head: bool = False
    """Output layers multiply in the recipe's 8 or 4 bits, from weights that stay in 16."""
    compiler: Literal["none", "inductor", "xla"] = "none"
    """Inductor makes casts and sums part of what stands beside them, XLA one kernel of neighbours."""
    modules: Literal["own", "transformer-engine"] = "own"
    """Layers are the framework's own, or Transformer Engine's, of which each operation costs the host more."""
    quantised_inputs: Literal["shared", "own", "spared"] = "shared"
    """Of a tensor that several products in 8 or 4 bits read one quantised copy is kept, or one by each module (``own``:
    Transformer Engine); ``spared``: none by those that are told to keep it in 16 bits (layers/own_inputs.py)."""
    quantised_by: tuple[Literal["norm", "activation"], ...] = ()
    """What writes in 8 or 4 bits what the product behind it reads, and the gradient that the one ahead of it reads,
    where others pass over these once more (Transformer Engine's norms, its fused operations)."""
    launches: Literal["ahead", "blocking"] = "ahead"
    """The host issues kernels ahead of the GPU, or waits for each one (CUDA_LAUNCH_BLOCKING=1)."""
    graphs: Literal["none", "routers", "modules", "iteration"] = "none"
    """CUDA graphs that the host launches in place of kernels: none; of routers alone, with the norm before them and
    shared experts; of attention and Mamba too, all but experts, whose shapes only the router knows; or of all of a
    step's forward and backward."""
    deterministic: bool = False
    """Torch's deterministic algorithms: whatever an operation allocates is filled first."""
    tp_gathers: Literal["wide", "quantised"] = "wide"
    """Tensor parallel all-gathers carry activations, or the 8 or 4 bits that products will read."""
    routing: Literal["fused", "composed"] = "fused"
    """Choosing experts takes a few kernels, or plain operations one by one."""
    router: Literal["learned", "balanced", "round-robin"] = "learned"
    """Where tokens go: to the experts that the router chooses, or to all alike, as benchmarks force it to, at random or
    in turn: each token to the next experts after the last one's, which share a rank or two."""
    expert_overlap: bool = False
    """Exchanges of experts run beside another micro-batch's computation."""
    overlap_passes: Natural = 0
    """Passes of a model chunk that are then in flight beyond those of the schedule, as its layers let go together."""
    overlap_layers: Natural = 0
    """The same in layers of a pipeline's stage, as each lets go when it has run backward."""
    residuals: Literal["fused", "stacked"] = "fused"
    """Layers that compute nothing again keep what fused kernels read, or what JAX stacks (layers/stacked.py)."""
    order: tuple[Literal["norms-after", "shared-first", "rotated-first"], ...] = ()
    """Where layers run otherwise than the ledger lists them: norms behind attention and MLP (so they do in models
    without a last norm, too), shared experts ahead of the router, rotation ahead of queries' and keys' norms."""
    moe: Literal["grouped", "eager"] = "grouped"
    """``grouped`` permutes tokens and runs grouped matrix products; ``eager`` indexes and scales in plain torch."""
    expert_modules: Literal["each", "one"] = "each"
    """Each expert's projections are linear layers of their own, or all experts are tensors of one module, which has
    hooks once and which what quantises linear layers passes by (transformers 5)."""
    selective: tuple[str, ...] = ("core_attention",)
    """Kinds of operations that ``--recompute selective`` computes again (``core_attention``, ``activation``, ``norm``)
    or ``op``: keep only the outputs of matrix products and attention (torchtitan)."""
    kept: tuple[KeptPart, ...] | None = None
    """Products whose outputs ``--recompute selective`` keeps, of a layer of which all else is computed again where
    backward needs it (XLA's policies of names); None: as ``selective`` says."""
    stays: tuple[KeptPart, ...] = ()
    """Of ``kept``, what is on the GPU where activations are offloaded (XLA's policies that place each by itself)."""
    packed: Literal["lengths", "masked"] = "lengths"
    """Attention in one kernel reads where packed samples begin and passes others by, or computes all blocks of a
    causal sequence and masks what is of another sample."""
    op_keeps_unread: bool = True
    """``op`` keeps products that no backward pass reads, too; a compiler drops them."""
    op_keeps_narrow: bool = True
    """``op`` knows products in 4 bits as products; kernels of their own escape its list."""
    hidden_copies: Natural = 0
    """Further tensors of hidden width that a layer's code keeps (contiguous copies, views made whole)."""
    exchange_buffers: Natural = 0
    """Buffers of a gathered input that tensor parallel exchanges keep for good."""
    exchanges_held: Amount = 0.0
    """Gathered tensors whose memory is not free again because the host runs ahead of the GPU (formulas/buffers.py)."""
    exchanges_held_waiting: Amount = 0.0
    """The same in a step of one micro-batch, before and after which the host waits."""
    exchanges_held_pipelined: Amount = 0.0
    """The same with pipeline stages; at most those of engine/footprint/buffers.py."""
    host_ahead: bool = True
    regather_input: bool = True
    """Under sequence parallelism a column-parallel product keeps its shard of the input and gathers it again in
    backward (Megatron), instead of keeping the gathered input (torch DTensor)."""
    gradient_places: Literal["none", "layers", "dense", "experts"] = "none"
    """Weights whose gradients products add up themselves, and for which a tensor of their shape and 16 bits is kept to
    be given to autograd: those of layers' dense linears, also the output layer's, also of grouped ones."""
    weights_built_apart: bool = False
    """Weights are built in tensors of their own and then copied to those that a distributed optimizer shares out."""
    input_copies: bool = False
    """Without it each such module reads, and keeps, a copy of its own of what its ranks share (Paddle)."""
