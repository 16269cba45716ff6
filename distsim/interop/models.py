"""A model by whatever name a user has for it: a preset, a TOML file, a Hugging Face config.json or its folder."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from distsim.errors import DistsimError, did_you_mean
from distsim.interop.hub_cache import cached, newest
from distsim.plain_files import begins_object
from distsim.specs.model import Model

if TYPE_CHECKING:
    from distsim.interop.huggingface.reader import Reading

QUANTIZED = "quantization_config"
"""Key of how a checkpoint's weights are stored, not of how it trains."""
IN_FOLDERS = ("config.json", "params.json")
"""Names of a configuration in a model's folder: Hugging Face's, Meta's own."""


def read_model(name: str) -> Model:
    """The model that ``name`` stands for."""
    text = str(name)
    if not text.strip():
        raise DistsimError("no model named", "list them with: distsim show models")
    try:
        from distsim import catalog

        found: Model = catalog.once(("read model", text), lambda: _read(text))
        return found
    except DistsimError:
        if os.path.isfile(text):
            from distsim.interop.other_files import refuse_other
            from distsim.interop.other_jobs import network_in

            if (network := network_in(Path(text))) is not None:
                return network.model

            refuse_other(Path(text))
        raise
    except (OSError, ValueError) as error:  # a text that the file system does not even take as a name
        shown = text if len(text) <= 40 else text[:40] + "…"
        raise DistsimError(f"{shown!r} is neither a preset nor a path: {error.args[-1]}") from None


def known_model(name: str) -> Model | None:
    """The model that ``name`` stands for; None, and no search for what it might mean, where it is nobody's name."""
    from distsim import catalog

    if config_file(name):
        return read_model(name)
    preset = preset_of(name)
    return read_model(name) if catalog.knows("models", preset) else _with_class(preset)


def reading_notes(name: str) -> list[str]:
    """What to say of how a configuration was read: other networks in it, each key that was not used and could change
    memory or time, and each size that it leaves out, though files on the Hub state it."""
    from distsim import catalog

    return list(catalog.once(("reading notes", str(name)), lambda: _reading_notes(str(name))))


def _reading_notes(name: str) -> list[str]:
    file = config_file(name)
    if file is None:
        return _preset_notes(name) or _sizes_notes(name)
    from distsim.interop.huggingface import read_config_file
    from distsim.interop.huggingface.aliases import NAMES
    from distsim.interop.huggingface.families import LIKE

    known = [key for keys in NAMES.values() for key in keys]
    reading = read_config_file(file)
    lacking = [f"{file}: {key} is missing: using {value:,}, the default of {reading.model.family}"
               for key, value in _assumed_sizes(reading)]  # fmt: skip
    beside = ", ".join(reading.beside)
    output = reading.other_output
    counted = [f"{file}: {output} has no output layer over the vocabulary; one is counted anyway"] if output else []
    left_out = [f"{file}: only the text decoder is read, without {beside}"] if beside else []
    weights = [key for key in reading.unused if key.startswith(f"{QUANTIZED}.")]
    narrow = [f"{file}: {QUANTIZED} was ignored: weights follow --precision or --quantize"] if weights else []
    meant = {key: _said_by(key, file, reading) if key in known else did_you_mean(key, known, LIKE)
             for key in reading.unused}  # fmt: skip
    spare = [f"{file}: key {key!r} was ignored; {meant[key]}".removesuffix("; ")
             for key in reading.unused if key not in weights]  # fmt: skip
    derived = [f"{file}: {words}" for words in reading.derived]
    return [
        *counted,
        *left_out,
        *derived,
        *lacking,
        *(f"{file}: {words}" for words in _odd(reading.model)),
        *narrow,
        *spare,
    ]


def _sizes_notes(name: str) -> list[str]:
    """Notes on a model whose sizes a file of Megatron or NeMo states."""
    if not os.path.isfile(name):
        return []
    from distsim.interop.other_jobs import network_notes

    return [*network_notes(Path(name))]


def _said_by(key: str, file: Path, reading: Reading) -> str:
    """The key that was read instead of another that means the same; empty where there is none."""
    from distsim.interop.huggingface.aliases import NAMES
    from distsim.interop.json_file import read_json

    stated = read_json(file)
    others = [one for keys in NAMES.values() if key in keys for one in keys
              if one in stated and one not in reading.unused]  # fmt: skip
    return f"{others[0]}, which means the same, is {stated[others[0]]!r}" if others else ""


def _assumed_sizes(reading: Reading) -> Iterator[tuple[str, int]]:
    """Sizes of the model that its file leaves out, with the family's defaults. Not those of CLIP's two towers: nested
    configurations are saved without what equals a default."""
    from distsim.interop.huggingface.aliases import NAMES

    model = reading.model
    heads, ffn = ["heads"] * (model.attention_layers > 0), ["ffn"] * _has_ffn(model)
    experts = ["experts", "experts_per_token", "expert_ffn"] if model.experts else []
    fields = ["hidden", "layers", *heads, "vocab", *ffn, *experts]
    keys = [key for field in fields for key in (*reading.family.names.get(field, ()), *NAMES[field])]
    for key in dict.fromkeys(keys):
        if isinstance(value := reading.assumed.get(key), int) and not key.startswith("vision_config."):
            yield key, value


def _has_ffn(model: Model) -> bool:
    """Whether any MLP is as wide as ``ffn``: none is where all layers have experts of a width of their own."""
    if model.pattern:
        return "-" in model.pattern
    if model.experts is None or model.experts.beside_dense or model.experts.dense_layers:
        return True
    return model.experts.ffn == model.ffn


def _preset_notes(name: str) -> list[str]:
    """Notes on a preset: what its name says and does not count, networks that it leaves out; on one that is not
    shipped, the family and activation that nothing knows."""
    from distsim import catalog
    from distsim.interop.model_names import names_format

    preset = preset_of(name)
    if not catalog.knows("models", preset):
        return []
    model, called = read_model(name), hub_name(name) or name
    stored = preset != called and names_format(called)
    notes = [f"{called} is read as {model.name}: weights follow --precision or --quantize"] if stored else []
    if model.beside:
        notes.append(f"{model.name}: only the text decoder is counted, without {', '.join(model.beside)}")
    if catalog.origin("models", preset) == "shipped":
        return notes
    odd = (*_unknown_family(model), *_unknown_activation(model))
    return [*notes, *(f"{catalog.path('models', preset)}: {words}" for words in odd)]


def _unknown_family(model: Model) -> Iterator[str]:
    from distsim.interop.huggingface.families import LIKE, UNREAD, supported

    known = (*supported(), *UNREAD)
    if model.family not in known:
        meant = did_you_mean(model.family, known, LIKE)
        told = f"family {model.family!r} is unknown: family-specific behaviour of software is not counted"
        yield f"{told}; {meant}".removesuffix("; ")


def _unknown_activation(model: Model) -> Iterator[str]:
    from distsim.interop.huggingface.aliases import ACTIVATIONS

    if model.activation not in ACTIVATIONS:
        meant = did_you_mean(model.activation, ACTIVATIONS)
        yield f"activation {model.activation!r} is unknown: assumed to be one kernel; {meant}".removesuffix("; ")


def _odd(model: Model) -> Iterator[str]:
    """What a configuration states that may be a slip of the keys."""
    yield from _unknown_activation(model)
    plain = model.heads > 0 and model.latent_attention is None
    if plain and model.hidden % model.heads and model.head_dim == model.hidden // model.heads:
        yield f"{model.heads} heads do not divide hidden size {model.hidden}: using heads of {model.head_dim}"


def _read(name: str) -> Model:
    if file := config_file(name):
        from distsim.interop.huggingface import read_config_file

        return read_config_file(file).model
    from distsim import catalog

    refuse_bare_folder(name)
    preset, hub = preset_of(name), hub_name(name)
    if hub and not catalog.knows("models", preset) and catalog.knows("models", dashed := name.replace("/", "-")):
        preset = dashed  # ViT-L/16
    if not catalog.knows("models", preset) and (model := _with_class(preset)):
        return model
    found = catalog.load("models", preset)
    assert isinstance(found, Model)
    return found


def refuse_bare_folder(name: str) -> None:
    """An error for a folder without a configuration, unless a preset is called so."""
    from distsim import catalog

    if Path(name).is_dir() and not catalog.knows("models", name):
        raise _without_configuration(Path(name))


def _without_configuration(folder: Path) -> DistsimError:
    """What is wrong with a folder that is named as a model; raises what an adapter's says."""
    if (adapter := folder / "adapter_config.json").is_file():
        from distsim.interop.other_files import refuse_other

        refuse_other(adapter)
    return DistsimError("the folder holds no config.json", where=str(folder))


def _with_class(name: str) -> Model | None:
    """An encoder's preset with the output of a class that follows its name (bert-base-BertForMaskedLM); None where
    ``name`` is no such thing."""
    from distsim import catalog

    words = re.split(r"[-_\s]+", name.strip().lower())
    if len(words) < 2 or not words[-1].endswith(("model", "lm", "pretraining", "classification", "answering")):
        return None
    from distsim.interop.huggingface.encoders import task_named, with_task

    for cut in range(len(words) - 1, 0, -1):
        base = "-".join(words[:cut])
        if catalog.knows("models", base):
            model = catalog.load("models", base)
            assert isinstance(model, Model)
            task = task_named("".join(words[cut:]), model.family)
            return with_task(model, task, name) if task else None
    return None


def hub_name(name: str) -> str | None:
    """The model's part of an ``organisation/model`` name of the Hugging Face Hub; None where it is a path."""
    match = re.fullmatch(r"[A-Za-z0-9][\w.-]*/([A-Za-z0-9][\w.-]*)", name)
    if match is None or name.lower().endswith(".toml") or Path(name).exists() or Path(name).parent.is_dir():
        return None
    return match[1]


def preset_of(name: str) -> str:
    """The preset that a name means. A variant has its base's shape, so its ends may go where only the base is one."""
    from distsim import catalog
    from distsim.interop.model_names import shorter_names

    called = hub_name(name) or name
    return next((one for one in shorter_names(called) if catalog.knows("models", one)), called)


def config_file(name: str) -> Path | None:
    """The config.json meant by a path to it or to its folder, or by a model's name in the Hub's local cache.

    None where ``name`` is something else.
    """
    looks_like_json = name.lower().endswith(".json")
    looks_like_path = looks_like_json or os.sep in name or "/" in name or name.endswith(".toml") or name in (".", "..")
    if not looks_like_path:
        return _beside_presets(name)
    if hub_name(name) and (found := cached(name)):
        return found
    path = Path(name).expanduser()
    if path.is_dir():
        if found := next((path / one for one in IN_FOLDERS if (path / one).is_file()), None) or newest(path):
            return found
        raise _without_configuration(path)
    if looks_like_json and not path.exists():
        raise DistsimError(f"no file {name!r}", "give a Hugging Face config.json or its folder")
    return path if looks_like_json or begins_object(path) else None


def _beside_presets(folder: str) -> Path | None:
    """The config.json in a folder that is named without a slash, or a file of that name with one's text; a preset of
    that name goes first."""
    from distsim import catalog

    file = next((one for name in IN_FOLDERS if (one := Path(folder) / name).is_file()), None) or newest(Path(folder))
    file = Path(folder) if file is None and begins_object(Path(folder)) else file
    return file if file and not catalog.knows("models", folder) else None
