"""What files of models say that may be a slip: words that nothing knows, sizes that a file leaves out."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path

import pytest
from shell import piped

from distsim import catalog
from distsim.engine.jobs.models import load_model
from distsim.errors import DistsimError
from distsim.interop.huggingface.reader import read_config
from distsim.interop.huggingface.refused import REFUSED
from distsim.interop.models import read_model, reading_notes


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
        assert f"{file}: {field} '{word}' is unknown: " in done.stderr, done.stderr
        assert f"did you mean {meant}" in done.stderr


def test_shipped_models_have_words_that_are_known() -> None:
    for name in catalog.names("models"):
        notes = reading_notes(str(catalog.path("models", name)))
        assert not [note for note in notes if "is unknown" in note], name


def test_a_model_found_in_a_folder_of_presets_is_told_of_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "presets" / "models"
    folder.mkdir(parents=True)
    changed(folder, "gpt2", activation="gelu_newx")
    monkeypatch.chdir(tmp_path)
    assert len(reading_notes("my-gpt2")) == 1
    assert reading_notes("gpt2") == []


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("deep.toml", "layers = " + "[" * 50_000, "not valid TOML: its brackets are nested too deep"),
        ("long.toml", "layers = " + "9" * 5_000, "not valid TOML: a number of more than 4,300 digits"),
        ("deep.json", "[" * 100_000, "not usable JSON: its brackets are nested too deep"),
        ("long.json", '{"hidden_size": ' + "9" * 5_000 + "}", "not usable JSON: a number of more than 4,300 digits"),
    ],
)
def test_what_python_cannot_read_is_told_in_our_words(tmp_path: Path, name: str, text: str, told: str) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8")
    places = [["--job"], []] if name.endswith("toml") else [[]]
    for place in places:
        done = piped("memory", *place, str(tmp_path / name))
        assert done.returncode == 2 and f"{name}: {told}" in done.stderr


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
    return [note.split(": ")[1].split()[0] for note in reading_notes(str(file)) if "is missing: using" in note]


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


META_8B = {"dim": 4096, "n_layers": 32, "n_heads": 32, "n_kv_heads": 8, "vocab_size": 128256, "multiple_of": 1024,
           "ffn_dim_multiplier": 1.3, "norm_eps": 1e-05, "rope_theta": 500000.0}  # fmt: skip
META = [
    # as Meta publishes them, and what models of transformers' classes count of the same shape
    ("llama-3-8b", META_8B, 8_030_261_248),
    ("llama-3-70b", META_8B | {"dim": 8192, "n_layers": 80, "n_heads": 64, "multiple_of": 4096}, 70_553_706_496),
    ("llama-2-7b", {"dim": 4096, "n_layers": 32, "n_heads": 32, "multiple_of": 256, "norm_eps": 1e-05,
                    "vocab_size": -1}, 6_738_415_616),
    ("llama-3.2-1b", META_8B | {"dim": 2048, "n_layers": 16, "multiple_of": 256, "ffn_dim_multiplier": 1.5,
                                "use_scaled_rope": True, "tie_word_embeddings": True}, 1_235_814_400),
]  # fmt: skip


@pytest.mark.parametrize(("folder", "params", "total"), META, ids=[one[0] for one in META])
def test_params_of_meta(tmp_path: Path, folder: str, params: dict[str, object], total: int) -> None:
    (tmp_path / folder).mkdir()
    (tmp_path / folder / "params.json").write_text(json.dumps(params), encoding="utf-8")
    model = load_model(str(tmp_path / folder))
    assert (model.name, model.parameters) == (folder, total)
    notes = " ".join(reading_notes(str(tmp_path / folder)))
    assert f"intermediate_size {model.spec.ffn:,} follows from dim {params['dim']:,}" in notes
    assert "not used" not in notes
    assert ("assumed untied" in notes) == ("tie_word_embeddings" not in params)
    assert ("vocab_size is missing: using 32,000" in notes) == (params["vocab_size"] == -1)


@pytest.mark.parametrize(
    ("change", "told"),
    [({"moe_args": {"num_experts": 16}}, "moe_args: experts in Meta's params.json are not supported"),
     ({"vision_num_cross_attention_layers": 8}, "layers that attend to images"),
     ({"multiple_of": "1024"}, "multiple_of is '1024'; expected a whole number"),
     ({"ffn_dim_multiplier": 0}, "ffn_dim_multiplier is 0; expected a number from")],
)  # fmt: skip
def test_params_of_meta_that_are_refused(change: dict[str, object], told: str) -> None:
    with pytest.raises(DistsimError, match=re.escape(told)):
        read_config(META_8B | change, "params.json")


SMALL = {"model_type": "llama", "hidden_size": 512, "num_hidden_layers": 4, "num_attention_heads": 8,
         "intermediate_size": 1024, "vocab_size": 32000, "max_position_embeddings": 2048}  # fmt: skip
REVISION = "0a1b2c3d" * 5


@pytest.mark.parametrize("linked", [True, False])
def test_a_model_of_the_hub_cache_has_its_repository_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, linked: bool
) -> None:
    """All were called blobs: a snapshot's files are links."""
    repository = tmp_path / "models--my-org--small-llama"
    blob, snapshot = repository / "blobs" / "5ff1", repository / "snapshots" / REVISION
    blob.parent.mkdir(parents=True)
    snapshot.mkdir(parents=True)
    blob.write_text(json.dumps(SMALL))
    if linked:
        (snapshot / "config.json").symlink_to(Path("../../blobs/5ff1"))
    else:
        (snapshot / "config.json").write_text(json.dumps(SMALL))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    for name in (str(snapshot), str(snapshot / "config.json"), str(blob), "my-org/small-llama"):
        assert read_model(name).name == "small-llama", name


def test_a_link_to_a_configuration_is_named_after_its_own_folder(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "config.json").write_text(json.dumps(SMALL))
    (tmp_path / "two").mkdir()
    (tmp_path / "two" / "config.json").symlink_to(tmp_path / "one" / "config.json")
    assert read_model(str(tmp_path / "two")).name == "two"
    copied = tmp_path / "small" / "snapshots" / REVISION
    copied.mkdir(parents=True)
    (copied / "config.json").write_text(json.dumps(SMALL))
    assert read_model(str(copied)).name == "small"


@pytest.mark.parametrize("name", ["./mine", "./mine.txt", "mine", "mine.toml", "./mine.toml"])
def test_what_begins_as_json_is_read_as_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.chdir(tmp_path)
    Path(name).write_text("\n" + json.dumps(SMALL))
    found = read_model(name)
    assert (found.name, found.hidden) == ("mine", 512)


def test_a_key_that_is_stated_twice_is_told(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    text = json.dumps(SMALL)
    file.write_text('{"hidden_size": 256, "vocab_size": 32000, ' + text[1:])
    assert read_model(str(file)).hidden == 512
    (told,) = reading_notes(str(file))
    assert told == f"{file}: key 'hidden_size' is stated 2 times: the last one (512) is used"


@pytest.mark.parametrize(("kind", "hint"), [(["opt"], '"opt"'), (5, '"llama"')])
def test_a_model_type_that_is_no_word(tmp_path: Path, kind: object, hint: str) -> None:
    """It was said to be missing."""
    with pytest.raises(DistsimError) as told:
        read_config({**SMALL, "model_type": kind})
    assert told.value.problem == f"model_type {json.dumps(kind)} is not a string"
    assert told.value.hints == (f'write "model_type": {hint}',)
