"""How a framework runs low-rank adapters beside frozen weights."""

from typing import Literal

from pydantic import Field

from distsim.specs.base import Spec


class Adapters(Spec):
    """How a framework runs LoRA adapters."""

    fp32: bool = False
    """Adapters and their states are fp32 whatever the frozen weights are (peft); else as all that trains. Without a
    mixed precision recipe their products then run in fp32 too."""
    as_inputs: bool = False
    """Their matrices are cast to the format of what they read, not that to theirs (Unsloth's matmul_lora)."""
    own_inputs: bool = False
    """Each adapted product casts its input for its adapter, and keeps the copy (peft)."""
    summed: Literal["apart", "product"] = "apart"
    """An adapter's result is scaled and added by passes of their own, or by its second product as that writes
    (torch's addmm_)."""
    mlp: Literal["modules", "function", "adding function"] = "modules"
    """Adapters on all products of a gated MLP are modules of their own, or one function runs the MLP with them: it
    makes what the last product reads again in backward, over the gradient of it, and sums the gradients of its input
    as products write (Unsloth) or by an addition, beside a second one (axolotl)."""
    units: bool = False
    """FSDP wraps each of their matrices as a unit of its own (peft's fsdp_auto_wrap_policy)."""
    in_flat_units: bool = False
    """They share flat units with what is frozen, whose gradients are then made and reduced whole (FSDP1 with
    use_orig_params; torch distributed/fsdp/_flat_param.py: a flat parameter trains where any of its parts does)."""
    splits_fused: bool = False
    """A fused projection of queries, keys and values can have adapters for some of them (litgpt)."""
    keeps_originals: bool = False
    """Parts that train whole are copies; the frozen originals stay (peft's ``modules_to_save``)."""
    parallel_linear: bool = False
    """An adapter's matrices are Megatron's own parallel linear layers among plain operations of torch, not modules of
    Transformer Engine as the adapted product is (NeMo, Megatron-Bridge)."""
    gathers_outputs: bool = False
    """Behind products whose input is shared out over tensor parallel ranks, an adapter's output is gathered whole and
    cut again into shards of the sequence, instead of exchanged part by part."""
    quantises_on_gpu: bool = False
    """Weights come onto the GPU whole and are quantised there, which may be the peak (litgpt)."""
    quantises_head: bool = False
    """The output layer is quantised with the layers' products."""
    quantises_experts: tuple[str, ...] = ()
    """Model families whose routed experts it quantises with the linear layers, though they are tensors of one module
    (Unsloth's GPT-OSS)."""
    refuses_mixer_output: tuple[str, ...] = ()
    """Model families on whose mixers' output projection it puts no adapter (peft, whose list this is)."""
    targets: dict[str, str] = Field(default_factory=dict)
    """What has an adapter where nobody names products, by model family; for others the framework has no default."""
    targets_of: str = ""
    """The framework whose ``targets`` hold here too: peft's, where users put it around the model."""
    experts: Literal["each", "shared", "tensors"] = "each"
    """Adapters of routed experts: one for each expert's matrix; one for all experts of a rank together
    (Megatron-Bridge's ``share_expert_adapters``); or folded into the tensors that hold all experts of a layer (peft on
    transformers 5)."""
    dora: Literal["", "own", "shared"] = ""
    """How weight-decomposed adapters (DoRA) run: under dropout with a base product of their own (peft), or with the
    module's (torchtune); empty where the framework has none."""
    others_fp32: bool = False
    """Embedding, norms and output layer beside quantised weights become fp32 (prepare_model_for_kbit_training)."""
