"""What files of models say that may be a slip: words that nothing knows, sizes that a file leaves out."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from shell import piped

from distsim import catalog
from distsim.interop.huggingface.refused import REFUSED
from distsim.interop.models import reading_notes


def changed(folder: Path, preset: str, **fields: str) -> Path:
    """A copy of a model's preset in which these fields have other words."""
    lines = catalog.path("models", preset).read_text(encoding="utf-8").splitlines()
    for name, value in fields.items():
        lines = [f'{name} = "{value}"' if line.split("=")[0].strip() == name else line for line in lines]
    file = folder / f"my-{preset}.toml"
    file.write_text("\n".join(lines), encoding="utf-8")
    return file


@pytest.mark.parametrize(
    ("preset", "field", "word", "meant"),
    [("gpt2", "activation", "gelu_newx", "gelu_new"), ("gpt-neox-20b", "family", "gpt_neoxx", "gpt_neox"),
     ("llama-7b", "family", "Llama", "llama")],
)  # fmt: skip
def test_words_that_nothing_knows_are_told(tmp_path: Path, preset: str, field: str, word: str, meant: str) -> None:
    file = changed(tmp_path, preset, **{field: word})
    for words in (
        ("memory", "--gpus", "8", "--seq", "1024"),
        ("search", "--gpus", "8", "--seq", "1024"),
        ("show", "model"),
    ):
        done = piped(*words, str(file))
        assert done.returncode != 2, done.stderr
        assert f"{file}: {field} '{word}' is not known: " in done.stderr, done.stderr
        assert f"did you mean {meant}" in done.stderr


def test_shipped_models_have_words_that_are_known(tmp_path: Path) -> None:
    for name in catalog.names("models"):
        assert reading_notes(str(catalog.path("models", name))) == [], name


def test_a_model_found_in_a_folder_of_presets_is_told_of_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "presets" / "models"
    folder.mkdir(parents=True)
    changed(folder, "gpt2", activation="gelu_newx")
    monkeypatch.chdir(tmp_path)
    assert len(reading_notes("my-gpt2")) == 1
    assert reading_notes("gpt2") == []


def test_an_empty_name_is_refused(tmp_path: Path) -> None:
    done = piped("memory", str(changed(tmp_path, "gpt2", name="")))
    assert done.returncode == 2
    assert "name '' is empty" in done.stderr


LLAMA_3 = {"model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
           "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 128256}  # fmt: skip
MIXTRAL = {**LLAMA_3, "model_type": "mixtral", "num_local_experts": 8, "num_experts_per_tok": 2}
QWEN_3 = {**LLAMA_3, "model_type": "qwen3_moe", "num_experts": 64, "num_experts_per_tok": 4,
          "moe_intermediate_size": 768}  # fmt: skip
DBRX = {"model_type": "dbrx", "d_model": 6144, "n_heads": 48, "n_layers": 40, "vocab_size": 100352,
        "ffn_config": {"ffn_hidden_size": 10752, "moe_num_experts": 16, "moe_top_k": 4}}  # fmt: skip


def sizes_told(folder: Path, config: dict[str, object]) -> list[str]:
    file = folder / "config.json"
    file.write_text(json.dumps(config), encoding="utf-8")
    return [note.split(": ")[1].split()[0] for note in reading_notes(str(file)) if "is not stated" in note]


@pytest.mark.parametrize(
    ("config", "key"),
    [(LLAMA_3, "intermediate_size"), (MIXTRAL, "num_local_experts"), (MIXTRAL, "num_experts_per_tok"),
     (MIXTRAL, "intermediate_size"), (QWEN_3, "num_experts"), (QWEN_3, "moe_intermediate_size"),
     (LLAMA_3, "vocab_size")],
)  # fmt: skip
def test_sizes_that_a_configuration_leaves_out_are_told(tmp_path: Path, config: dict[str, object], key: str) -> None:
    assert sizes_told(tmp_path, config) == []
    assert sizes_told(tmp_path, {name: value for name, value in config.items() if name != key}) == [key]


def test_sizes_of_nested_keys_are_told(tmp_path: Path) -> None:
    assert sizes_told(tmp_path, DBRX) == []
    short = {**DBRX, "ffn_config": {"ffn_hidden_size": 10752}}
    assert sizes_told(tmp_path, short) == ["ffn_config.moe_num_experts", "ffn_config.moe_top_k"]


def test_sizes_that_no_layer_has_are_not_told(tmp_path: Path) -> None:
    """All layers of Qwen 3's mixtures have experts of a width of their own; GPT-2's MLP is four times its layers."""
    assert sizes_told(tmp_path, {key: one for key, one in QWEN_3.items() if key != "intermediate_size"}) == []
    assert (
        sizes_told(tmp_path, {"model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_head": 12, "vocab_size": 50257})
        == []
    )


def test_configurations_that_transformers_writes_leave_no_size_out(tmp_path: Path) -> None:
    rows = json.loads(gzip.decompress((Path(__file__).parent / "oracles" / "hf_configs.json.gz").read_bytes()))
    configs = {name: row["config"] for name, row in rows.items() if row["config"]["model_type"] not in REFUSED}
    assert len(configs) > 300
    for name, config in configs.items():
        assert sizes_told(tmp_path, config) == [], name
