"""A job as the user states it: the options of the command line with underscores, open ones left as None."""

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_origin

from pydantic import Field, ValidationError, ValidationInfo, field_validator, model_validator

from distsim.errors import DistsimError
from distsim.keywords import is_switch, with_first
from distsim.specs import stage_layers
from distsim.specs.base import Spec
from distsim.specs.layout import OFFLOADS
from distsim.specs.limits import LARGEST_BATCH, LARGEST_DEGREE, LARGEST_SIZE
from distsim.specs.model import Model
from distsim.specs.modules import CHOICES, implied, modules_named
from distsim.specs.offloads import offload_named
from distsim.specs.quantity import MaybeFraction, MaybeTiles, Once, Watts
from distsim.specs.tuning import targets_named, whole_named
from distsim.specs.written import CHECKSUM, STATED, checksum

SWITCHES = ("sequence_parallel", "compile", "expert_overlap", "tp_comm_overlap", "dp_comm_overlap", "dropout",
            "loss_parallel", "no_sync", "clip", "dora")  # fmt: skip
EXAMPLES = {"gpu_power": "500", "stage_layers": '"7,8,8,9"'}
"""Examples for fields whose types do not show what a value looks like."""
Degree = Annotated[int | None, Once(Field(ge=1, le=LARGEST_DEGREE))]
Size = Annotated[int | None, Once(Field(ge=1, le=LARGEST_SIZE))]
Batch = Annotated[int | None, Once(Field(ge=1, le=LARGEST_BATCH))]
ANOTHER = "make another with: "
"""How a hint begins where somebody changes a job."""


class Job(Spec):
    """What to run, on what, laid out how. Every open (None) field is filled by the framework's or distsim's default."""

    if not TYPE_CHECKING:  # type checkers see the fields

        def __init__(self, /, *model: Any, **options: Any) -> None:
            """From the model and keywords, as a program states them; errors read as on the command line."""
            try:
                super().__init__(**(with_first("Job", "model", model, options) if model else options))
            except ValidationError as error:
                from distsim.specs.mistakes import explain

                raise explain(error, type(self)) from None

        def __setattr__(self, name: str, value: Any) -> None:
            raise DistsimError(f"a job does not change, so {name} cannot be set", f"{ANOTHER}job.changed({name}=…)")

        def __delattr__(self, name: str) -> None:
            raise DistsimError(f"a job does not change, so {name} stays", f"{ANOTHER}job.changed({name}=None)")

    model: str | Model
    gpu: str | None = None
    gpus: Degree = None
    cluster: str | None = None
    gpu_power: Watts | None = None
    """Power limit of every accelerator; by default the cluster's, or none."""
    profile: str | None = None
    """Network factors of your own machine: a TOML written by ``distsim calibrate --nccl-tests``, or a links preset."""
    framework: str = "megatron-core"
    """By default accelerators with their own compiler have their own framework (engine/jobs/software.py)."""

    tp: Degree = None
    pp: Degree = None
    cp: Degree = None
    ep: Degree = None
    etp: Degree = None
    dp: Degree = None
    vpp: Degree = None
    schedule: str | None = None
    stage_layers: tuple[int, ...] | None = None
    """Layers per pipeline stage or model chunk; by default as the framework places them."""
    vocab_parallel: Literal["vocab-1", "vocab-2", "interlaced"] | None = None
    """Pipeline stages share embedding and output layer by rows of the vocabulary, with one or two barriers or none."""
    zero: Literal[0, 1, 2, 3] | None = None
    zero_group: Degree = None
    sequence_parallel: bool | None = None

    seq: Size = None
    decoder_seq: Size = None
    """Decoder tokens per sequence in an encoder-decoder, whose encoder reads ``seq``."""
    sample_tokens: Size = None
    """Mean length of the samples packed into a sequence, which do not attend to each other."""
    images: Annotated[float | None, Once(Field(gt=0, le=1e6))] = None
    """Images of a sequence in the mean, which a vision tower reads before the decoder; by default it is not counted."""
    image_size: str | None = None
    """Pixels of an image, height by width (``448x672``, ``448``); by default the tower's own."""
    vision: Literal["trained", "projector", "frozen", "projector-alone", "adapters"] | None = None
    """What of the vision part trains; by default all, beside adapters nothing; with ``projector-alone`` the decoder
    is frozen, too; ``adapters`` are on the tower's layers as on the decoder's."""
    micro_batch: Degree = None
    global_batch: Batch = None
    recompute: Literal["none", "selective", "full"] | None = None
    recompute_layers: Annotated[int | None, Once(Field(ge=1, le=1_000_000))] = None
    recompute_group: Degree = None
    """Layers that one checkpoint covers under full recomputation."""
    recompute_modules: str | None = None
    """Modules of a layer that selective recomputation computes again, by Megatron's names."""
    remat_policy: str | None = None
    """What selective recomputation keeps, by the name of a policy of the framework (JAX)."""
    mlp_tiles: MaybeTiles = None
    """Dense MLPs run on so many tiles of a rank's tokens one after another, and again in backward (ALST)."""
    attention: Literal["flash", "eager"] | None = None
    compile: bool | None = None
    """torch.compile fuses operations that the framework's plain code runs one by one."""
    cuda_graphs: Literal["none", "routers", "modules", "iteration"] | None = None
    """CUDA graphs that the host launches instead of single kernels (specs/framework.py)."""
    expert_overlap: bool | None = None
    """Expert all-to-all overlaps with another micro-batch's computation."""
    expert_dispatcher: Literal["alltoall", "allgather", "deepep", "hybridep"] | None = None
    """What sends tokens to the ranks of their experts."""
    tp_comm_overlap: bool | None = None
    """Tensor parallel communication overlaps with matrix products, in tiles or pieces."""
    dp_comm_overlap: bool | None = None
    """Gradients are reduced, and parameters gathered, beside computation."""
    dropout: bool | None = None
    """False turns the model's dropout off (its masks take memory); by default the model's own rates hold."""
    precision: str | None = None
    optimizer: str | None = None
    optimizer_rank: Degree = None
    """Rank of an optimizer's projected gradients (GaLore, APOLLO)."""
    offload: str | None = None
    offload_to: Literal["cpu", "nvme"] | None = None
    offload_fraction: Annotated[float | None, Once(Field(gt=0, le=1))] = None
    """How much of the optimizer ``offload`` moves; the rest stays on the GPU, which updates it beside the host."""
    offload_modules: str | None = None
    """Modules whose saved tensors are all that is offloaded of activations."""
    mtp: Annotated[int | None, Once(Field(ge=0, le=64))] = None
    """Multi-token prediction layers that train with the model."""
    lora_rank: Degree = None
    """Adapters of this rank train; all other weights are frozen."""
    lora_targets: str | None = None
    lora_dropout: MaybeFraction = None
    lora_whole: str | None = None
    """Modules trained in full besides the adapters."""
    dora: bool | None = None
    """Adapters are weight-decomposed: a learned magnitude for each output."""
    quantize: str | None = None
    reference: Literal["none", "copy", "base"] | None = None
    """A frozen model that sees each micro-batch too: another copy of the weights, or these without adapters."""

    loss: str | None = None
    """Loss that replaces the framework's (presets/losses)."""
    loss_parallel: bool | None = None
    tp_mode: Literal["1d", "2d", "2.5d", "3d"] | None = None
    tp_depth: Degree = None
    """Stacked squares in the 2.5D grid of tensor parallel ranks."""
    cp_mode: Literal["ring", "all_to_all", "all_gather"] | None = None
    expert_imbalance: Annotated[float | None, Once(Field(ge=1, le=1e6))] = None
    """Tokens on the busiest expert rank relative to the mean."""
    capacity_factor: Annotated[float | None, Once(Field(gt=0, le=1e4))] = None
    """Slots per expert relative to its mean tokens: excess tokens are dropped, empty slots computed."""
    no_sync: bool | None = None
    """False reduces gradients after every micro-batch."""
    clip: bool | None = None
    compress: str | None = None
    zeropp: str | None = None
    sync: Literal["allreduce", "parameter-server", "local-sgd"] | None = None
    sync_every: Degree = None
    """Optimizer steps between two synchronisations of replicas (local SGD, DiLoCo)."""
    sync_gbps: Annotated[float | None, Once(Field(gt=0, le=1e6))] = None
    """Rate of the slow link of each replica, in Gb/s."""
    servers: Degree = None

    @field_validator("offload", "lora_targets", "lora_whole", "zeropp", *CHOICES, mode="before")
    @classmethod
    def _joined(cls, value: Any) -> Any:
        """A list of words is equivalent to words joined by commas."""
        listed = isinstance(value, (list, tuple)) and all(isinstance(one, str) for one in value)
        return ",".join(value) if listed else value

    @field_validator("offload")
    @classmethod
    def _offloaded(cls, value: str | None) -> str | None:
        """``optimizer,parameters`` in the canonical order; ``none`` stands alone."""
        return None if value is None else offload_named(value)

    @field_validator(*CHOICES)
    @classmethod
    def _modules(cls, value: str | None, info: ValidationInfo) -> str | None:
        """``moe_act,core_attn`` in the canonical order."""
        return None if value is None else modules_named(str(info.field_name), value)

    @field_validator("lora_targets")
    @classmethod
    def _targets(cls, value: str | None) -> str | None:
        """``q,v`` in the canonical order."""
        return None if value is None else targets_named(value)

    @field_validator("lora_whole")
    @classmethod
    def _whole(cls, value: str | None) -> str | None:
        """``embedding,head`` in the canonical order."""
        return None if value is None else whole_named(value)

    @model_validator(mode="before")
    @classmethod
    def _as_texts(cls, options: Any) -> Any:
        """Paths become strings, a loaded model its spec; an empty string is an error."""
        if not isinstance(options, dict):
            return options
        plain = {name: os.fspath(value) if isinstance(value, os.PathLike) else value for name, value in options.items()}
        for name, value in plain.items():
            if isinstance(value, bytes):
                raise ValueError(f"{name} {value!r} is neither text nor a number")
            if isinstance(value, str) and not value.strip() and name in cls.model_fields:
                raise ValueError(f"{name} is empty; name one, or leave it out")
        model = plain.pop("model", None)
        if model is None:
            return plain  # which is told to lack it
        model = getattr(model, "spec", model)  # of a model as load_model has it
        if not isinstance(model, (str, dict, Model)):
            raise ValueError(f"model {model!r} is neither a name nor a path nor a model")
        return {**plain, "model": model}

    @model_validator(mode="before")
    @classmethod
    def _numbers_are_no_switches(cls, options: Any) -> Any:
        """``tp = true`` in a file is a slip, not one rank."""
        for name, value in options.items() if isinstance(options, dict) else ():
            if is_switch(value) and name in cls.model_fields and name not in SWITCHES:
                raise ValueError(f"{name} takes a value, not {str(value).lower()}; {cls._instead(name, value)}")
        return options

    @classmethod
    def _instead(cls, name: str, switch: bool) -> str:
        """What to write for true or false in a field that is no switch."""
        from distsim.other_choices import choice_meant

        kinds = get_args(cls.model_fields[name].annotation)
        choices = [str(one) for kind in kinds if get_origin(kind) is Literal for one in get_args(kind)]
        choices = ["none", *OFFLOADS] if name == "offload" else choices
        if choices:
            near = choice_meant(str(switch).lower(), choices)
            return f"{near} choices: {', '.join(choices)}".lstrip()
        number = "2" if int in kinds or float in kinds else '"…"'
        return f"write e.g. {name} = {EXAMPLES.get(name, number)}"

    @model_validator(mode="before")
    @classmethod
    def _implies(cls, options: Any) -> Any:
        """Modules say that something is computed again, or offloaded."""
        return implied(options) if isinstance(options, dict) else options

    @model_validator(mode="before")
    @classmethod
    def _predicts(cls, options: Any) -> Any:
        """A layout string also says how many layers of multi-token prediction train."""
        text = options.get("stage_layers") if isinstance(options, dict) else None
        named = stage_layers.predictions(text) if isinstance(text, str) else 0
        if named and options.get("mtp") not in (None, named):
            raise ValueError(f"stage_layers {text!r} has {named} MTP layers m, but mtp is {options['mtp']}")
        return {**options, "mtp": named} if named else options

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        """What it states, as somebody would type it: sixty options that are None tell nothing."""
        stated = self.model_fields_set
        yield from ((name, value) for name, value in super().__repr_args__() if name in stated and value is not None)

    def changed(self, **options: Any) -> "Job":
        """Another job that states these options instead of its own; None leaves one to its default."""
        stated = {name: getattr(self, name) for name in self.model_fields_set}
        return type(self)(**{name: value for name, value in {**stated, **options}.items() if value is not None})

    @property
    def names_framework(self) -> bool:
        """Whether the job names its framework; what that one cannot run is then refused, otherwise noted."""
        return "framework" in self.model_fields_set

    @field_validator("stage_layers", mode="before")
    @classmethod
    def _split(cls, value: Any) -> Any:
        """As a person writes it on the command line."""
        return stage_layers.parse(value) if isinstance(value, str) else value

    @model_validator(mode="before")
    @classmethod
    def _as_stated(cls, options: Any) -> Any:
        """The ``job`` of an answer (``as_written``) stands for the options it states, which determine the rest."""
        if not isinstance(options, dict) or STATED not in options:
            return options
        followed = {name: value for name, value in options.items() if name not in (STATED, CHECKSUM)}
        if options.get(CHECKSUM) != checksum(followed):
            raise ValueError(
                f"this job was changed after it was resolved; change its {STATED!r} options and give those"
            )
        return options[STATED]
