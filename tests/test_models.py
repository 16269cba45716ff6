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


# Totals that their makers publish, for models whose modules were not counted here.
PUBLISHED = {
    "dbrx": 131_596_523_520,
    "falcon-40b": 41_303_293_952,
    "falcon-rw-1b": 1_311_625_216,
    "chatglm-6b": 6_173_286_400,
    "deepseek-moe-16b": 16_375_728_128,
}
# Billions, as papers and model cards round them; of decoders of networks that see or hear, less what their towers have.
ROUNDED = {
    "megatron-22b": 22.1, "gpt3-175b": 174.6, "mt-nlg-530b": 529.6, "megatron-1t": 1008.0,
    "megatron-1.7b": 1.7, "megatron-3.6b": 3.6, "megatron-7.5b": 7.5, "megatron-18.4b": 18.4,
    "megatron-39.1b": 39.1, "megatron-76.1b": 76.1, "megatron-145.6b": 145.6, "megatron-310.1b": 310.1,
    "vit-giant-patch14-224": 1.01, "clip-vit-g-14-laion2b": 1.367,
    "megatron-8.3b": 8.3, "gpt3-13b": 12.9, "turing-nlg-17b": 17.2, "bloom-176b": 176.2,
    "nemotron4-15b": 15.6, "nemotron4-340b": 341.0, "grok-1": 315.7, "llama-4-scout": 107.8,
    "llama-4-maverick": 400.7, "glm-4.5-air": 106.9, "kimi-k2": 1026.0, "moonlight-16b-a3b": 15.96,
    "ernie-4.5-21b-a3b": 21.8, "apertus-8b": 8.05, "apertus-70b": 70.6, "seed-oss-36b": 36.2, "afm-4.5b": 4.6,
    "nanotron-1b": 1.342, "nanotron-3b": 3.573, "nanotron-8b": 8.858, "nanotron-80b": 79.99,
    "mpt-125m": 0.125,
    "codeqwen1.5-7b": 7.25, "qwen2.5-math-1.5b": 1.544, "qwen2.5-math-7b": 7.616, "qwen2.5-math-72b": 72.71,
    "qwen2.5-7b-instruct-1m": 7.616, "qwen2.5-14b-instruct-1m": 14.77, "deepseek-r1-distill-qwen-1.5b": 1.777,
    "qwen2-vl-2b": 1.5437, "qwen2-vl-7b": 7.6156, "qwen2-vl-72b": 72.7062, "qwen2.5-vl-3b": 3.0859,
    "qwen2.5-vl-7b": 7.6156, "qwen2.5-vl-32b": 32.7639, "qwen2.5-vl-72b": 72.7062, "qwen3-vl-2b": 1.7206,
    "qwen3-vl-4b": 4.0225, "qwen3-vl-8b": 8.1907, "qwen3-vl-32b": 32.7621, "qwen3-vl-30b-a3b": 30.5321,
    "qwen3-vl-235b-a22b": 235.0936, "qwen3-coder-30b-a3b": 30.53, "qwen3-coder-480b-a35b": 480.15,
    "qwen3-omni-30b-a3b": 30.53, "qwen2-audio-7b": 7.755, "qwen2.5-omni-7b": 7.616, "glm-4-9b-0414": 9.4,
    "glm-4-32b-0414": 32.57, "glm-4.5v": 106.85, "glm-4.1v-9b": 9.4, "glm-4.6v-flash": 9.4, "glm-4.6v": 106.85,
    "internlm-20b": 20.09, "internlm2-1.8b": 1.889, "internlm3-8b": 8.804, "xverse-7b": 7.3, "xverse-13b": 13.71,
    "xverse-65b": 66.4, "ziya-llama-13b": 13.09, "ziya2-13b": 13.09, "skywork-13b": 13.85, "orion-14b": 14.5,
    "aquila-7b": 7.3, "aquila2-7b": 7.3, "aquila2-34b": 33.7, "seed-coder-8b": 8.25, "yi-coder-1.5b": 1.476,
    "yi-coder-9b": 8.83, "deepseek-coder-1.3b": 1.3465, "deepseek-prover-v2-7b": 6.91, "deepseek-vl2-tiny": 2.94,
    "deepseek-vl2-small": 15.7, "deepseek-vl2": 27.05, "minimax-m2": 228.7, "hunyuan-0.5b": 0.539,
    "hunyuan-1.8b": 1.79, "hunyuan-4b": 4.22, "hunyuan-7b": 7.5, "hunyuan-a13b": 80.4, "ling-lite": 16.8,
    "ling-lite-1.5": 16.8, "ling-mini-2.0": 16.26, "ling-flash-2.0": 102.9, "ling-1t": 1000, "ernie-4.5-0.3b": 0.361,
    "dots.llm1": 142.8, "step-3.5-flash": 196.8, "minicpm-1b": 1.361, "minicpm4-0.5b": 0.434, "minicpm4-8b": 8.19,
    "mimo-vl-7b": 7.63, "qwen3.5-0.8b": 0.752, "qwen3.5-2b": 1.88, "qwen3.5-4b": 4.21, "qwen3.5-27b": 26.9,
    "qwen3.5-397b-a17b": 396.35, "qwen3-embedding-0.6b": 0.5958, "qwen3-embedding-4b": 4.0218,
    "qwen3-embedding-8b": 7.5673, "e5-mistral-7b-instruct": 7.1107, "internvl3-1b": 0.63, "internvl3-2b": 1.777,
    "internvl3-8b": 7.608, "internvl3-14b": 14.769, "internvl3-38b": 32.77, "internvl3-78b": 72.69,
    "internvl2.5-4b": 3.393, "internvl2.5-2b": 1.889, "internvl2.5-8b": 7.737, "internvl2.5-26b": 19.854,
    "minicpm-v-2.6": 7.613, "minicpm-v-4.5": 8.189, "kimi-k2-thinking": 1026.0, "kimi-k2.5": 1026.0,
    "kimi-vl-a3b": 15.96, "qwen3-4b-2507": 4.022, "qwen3-30b-a3b-2507": 30.53, "qwen3-235b-a22b-2507": 235.09,
    "deepseek-r1-0528-qwen3-8b": 8.19, "bert-base-chinese": 0.103, "chinese-roberta-wwm-ext-large": 0.326,
    "bge-small-en-v1.5": 0.03336, "bge-base-en-v1.5": 0.10948, "bge-large-en-v1.5": 0.33514,
    "bge-small-zh-v1.5": 0.02395, "bge-base-zh-v1.5": 0.10227, "bge-large-zh-v1.5": 0.32552,
    "all-minilm-l6-v2": 0.02271, "multilingual-e5-small": 0.11765, "multilingual-e5-base": 0.27804,
    "multilingual-e5-large": 0.55989, "bge-m3": 0.56775, "openbuddy-mistral-7b": 7.28, "openbuddy-llama2-70b": 69.07,
    "minimax-vl-01": 456.0,
}  # fmt: skip


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_total(name):
    assert load_model(name).parameters == PUBLISHED[name]


@pytest.mark.parametrize("name", ROUNDED)
def test_rounded_total(name):
    last_digit = 0.05 if ROUNDED[name] > 1 else 0.001
    assert load_model(name).parameters / 1e9 == pytest.approx(ROUNDED[name], rel=0.003, abs=last_digit)


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
    assert len(claimed) > 300


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
    text = (PRESETS / "gpt2.toml").read_text().replace("layers =", 'without = ["vision tower"]\nlayers =', 1)
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
