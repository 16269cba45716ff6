"""Model presets and names: exact parameter counts, aliases, what a load touches."""

import csv
import doctest
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from distsim import catalog
from distsim.engine.jobs.models import load_model, reading_notes
from distsim.errors import DistsimError
from distsim.interop.huggingface.refused import REFUSED
from distsim.specs.model import Model

ROOT = Path(__file__).parent.parent
PRESETS = ROOT / "presets" / "models"
# Counted on the instantiated (meta) modules of transformers 5.23.
ROWS = list(csv.DictReader((Path(__file__).parent / "oracles" / "params.csv").open()))
_OUTSIDE = ("Bert", "Roberta", "Deberta", "T5", "Bart", "ViT", "CLIP", "Whisper", "Mamba")
SUPPORTED = [row for row in ROWS if not any(word in row["architecture"] for word in _OUTSIDE)]


def test_oracle_is_whole():
    assert (len(ROWS), len(SUPPORTED)) == (91, 72)


@pytest.mark.parametrize("row", SUPPORTED, ids=lambda row: row["model"])
def test_exact_count_by_name(row):
    model = load_model(row["model"])
    assert model.parameters == int(row["total"])
    parts = model.parts()
    assert sum(parts.values()) == model.parameters
    assert model.spec.layers == int(row["n_layers"])
    if row["routed_experts"]:
        assert model.spec.experts is not None


# Totals that makers publish, exact or in billions as papers and model cards round them, for models whose modules were
# not counted here; of decoders of networks that see or hear, less what their towers have.
PUBLISHED = list(csv.DictReader((Path(__file__).parent / "oracles" / "model_totals.csv").open()))


@pytest.mark.parametrize("row", PUBLISHED, ids=lambda row: row["model"])
def test_published_total(row):
    parameters = load_model(row["model"]).parameters
    if row["parameters"]:
        assert parameters == int(row["parameters"])
    else:
        last_digit = 10 ** -len(row["billions"].partition(".")[2])
        assert parameters / 1e9 == pytest.approx(float(row["billions"]), rel=0.003, abs=last_digit)


def test_every_preset_loads_under_its_name_with_a_source():
    claimed: dict[str, str] = {}
    for path in sorted(PRESETS.glob("*.toml")):
        model = catalog.load("models", path.stem)
        assert isinstance(model, Model) and model.name == path.stem
        assert model.source.get("other") and model.checked, path.stem
        assert load_model(model).parameters > 0
        for name in (model.name, *model.aliases):
            assert claimed.setdefault(name, model.name) == model.name, f"{name} is claimed twice"
            assert name == name.lower() and " " not in name
    assert len(claimed) > 1500


def test_megatron_models_train_with_dropout():
    for name in ("megatron-22b", "megatron-175b", "megatron-530b", "megatron-1t"):
        spec = load_model(name).spec
        assert (spec.attention_dropout, spec.hidden_dropout, spec.embedding_dropout) == (0.1, 0.1, 0.1)
        assert (spec.vocab, spec.context, spec.gated, spec.ffn) == (51200, 2048, False, 4 * spec.hidden)


@pytest.mark.parametrize(
    ("alias", "name"),
    [
        ("llama-1-7b", "llama-7b"),
        ("GPT-22B", "megatron-22b"),
        ("gpt-175b", "gpt3-175b"),
        ("gpt-530b", "mt-nlg-530b"),
        ("gpt-1t", "megatron-1t"),
        ("LLAMA3 70B", "llama-3-70b"),
        ("meta-llama/Llama-3.1-8B-Instruct", "llama-3.1-8b"),
        ("Qwen/Qwen2.5-7B", "qwen2.5-7b"),
        ("Qwen/Qwen3.6-35B-A3B", "qwen3.5-35b-a3b"),
        ("zai-org/GLM-4.6", "glm-4.7"),
        ("llama-3.1-8b-instruct", "llama-3.1-8b"),
        ("meta-llama/Llama-3.1-8B-Instruct-FP8", "llama-3.1-8b"),
        ("mistralai/Ministral-8B-Instruct-2410", "ministral-8b"),
        ("nvidia/DeepSeek-V4-Flash-NVFP4", "deepseek-v4-flash"),
        ("unsloth/Qwen3-8B-Base-unsloth-bnb-4bit", "qwen3-8b"),
    ],
)
def test_alias(alias, name):
    assert load_model(alias).name == name


def test_a_format_in_a_name_is_said_not_to_count():
    assert reading_notes("unsloth/Qwen3-8B-bnb-4bit") == [
        "Qwen3-8B-bnb-4bit is read as qwen3-8b: weights follow --precision or --quantize"
    ]
    assert reading_notes("Qwen/Qwen3-8B-Base") == [] == reading_notes("qwen3-30b-a3b-nvfp4")  # the latter an alias


def test_networks_beside_a_presets_decoder_are_told(tmp_path):
    text = (PRESETS / "gpt2.toml").read_text().replace("layers =", 'beside = ["vision tower"]\nlayers =', 1)
    (tmp_path / "seeing.toml").write_text(text)
    told = reading_notes(str(tmp_path / "seeing.toml"))
    assert told == ["gpt2: only the text decoder is counted, without vision tower"]


def test_context_is_what_the_model_was_made_for():
    contexts = {"llama-7b": 2048, "llama-2-7b": 4096, "llama-3-8b": 8192, "llama-3.1-8b": 131072, "gpt2": 1024}
    assert {name: load_model(name).spec.context for name in contexts} == contexts


def test_a_toml_file_is_a_model(tmp_path):
    data = tomllib.loads((PRESETS / "gpt2.toml").read_text())
    text = (PRESETS / "gpt2.toml").read_text().replace("layers = 12", "layers = 13", 1)
    (tmp_path / "taller.toml").write_text(text)
    taller = load_model(str(tmp_path / "taller.toml"))
    assert data["layers"] == 12 and taller.parameters - load_model("gpt2").parameters == 7087872


UNUSABLE = [
    "", "llama-7", "llama-3.1-8b-0414", "no/such.toml", "nobody/nothing", "gone.json", "\0", "a" * 5000,
    "a" * 5000 + ".json",
]  # fmt: skip


@pytest.mark.parametrize("name", [*UNUSABLE, "a" * 500 + "/b"], ids=range(10))
def test_unknown_name(name):
    with pytest.raises(DistsimError):
        load_model(name)


def test_the_hub_cache_is_read(tmp_path, monkeypatch):
    folder = tmp_path / "hub" / "models--some--Thing-1B" / "snapshots" / "abc"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text('{"model_type": "gpt2", "n_embd": 768, "n_layer": 12}')
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    monkeypatch.delenv("HF_HUB_CACHE", raising=False)
    assert load_model("some/Thing-1B").parameters == 124439808
    assert load_model(str(folder.parents[1])).parameters == 124439808  # as it lies there
    monkeypatch.chdir(folder.parents[2])
    assert load_model(folder.parents[1].name).parameters == 124439808


def test_a_configuration_in_two_bytes_a_letter_is_read(tmp_path):
    """PowerShell's > writes those; they were no text."""
    file = tmp_path / "config.json"
    file.write_text('{"model_type": "gpt2", "n_embd": 768, "n_layer": 12}', encoding="utf-16")
    assert load_model(str(file)).parameters == 124439808


def test_a_folder_of_an_adapter_names_its_model(tmp_path):
    """It was a folder without a config.json."""
    stated = {"peft_type": "LORA", "base_model_name_or_path": "meta-llama/Llama-2-7b-hf", "r": 8}
    (tmp_path / "adapter_config.json").write_text(json.dumps(stated))
    with pytest.raises(DistsimError, match="llama-2-7b --framework huggingface --lora-rank 8"):
        load_model(str(tmp_path))


@pytest.mark.parametrize(("name", "told"), [("w.safetensors", "a file of weights"), ("w.toml", "bytes, too many")])
def test_weights_are_not_read_for_a_text(name, told, tmp_path):
    """A checkpoint of many GB was read whole before it was found to be no text."""
    with (tmp_path / name).open("wb") as file:
        file.truncate(2**30)
    with pytest.raises(DistsimError, match=told):
        load_model(str(tmp_path / name))


def test_loading_one_preset_touches_nothing_else():
    """No other preset is opened; neither numpy nor the configuration reader is imported."""
    code = (
        "import sys; opened = []\n"
        "sys.addaudithook(lambda event, args: opened.append(str(args[0])) if event == 'open' else None)\n"
        "import distsim.engine.jobs.models as m; assert m.load_model('llama-7b').parameters == 6738415616\n"
        "print([one for one in opened if one.endswith('.toml')])\n"
        "print([one for one in sys.modules if one.startswith(('numpy', 'rich', 'typer')) or 'huggingface' in one])"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    files, modules = (line.strip() for line in answer.stdout.splitlines())
    assert files.count("toml") == 1 and "llama-7b.toml" in files
    assert modules == "[]"


def test_refusals_name_families_that_have_no_table():
    from distsim.interop.huggingface.families import supported

    assert not set(REFUSED) & set(supported())


@pytest.mark.parametrize(("page", "least"), [("models.md", 5), ("families.md", 3)])
def test_examples_of_the_docs(page, least):
    text = (ROOT / "docs" / page).read_text().replace("```", "")
    test = doctest.DocTestParser().get_doctest(text, {}, page, page, 0)
    runner = doctest.DocTestRunner()
    runner.run(test)
    assert len(test.examples) >= least and runner.failures == 0


def test_example_model_of_the_docs(tmp_path):
    text = re.search(r"```toml\n(.*?)```", (ROOT / "docs" / "models.md").read_text(), re.DOTALL)
    assert text is not None
    (tmp_path / "my-8b.toml").write_text(text[1])
    assert load_model(str(tmp_path / "my-8b.toml")).spec.is_moe_layer(1)


def test_a_loaded_model_is_plain_data() -> None:
    """Its dates are text as JSON has it."""
    found = json.loads(json.dumps(load_model("llama-7b").to_dict()))
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", found["spec"]["checked"])
