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


# Totals that their makers publish, for models whose modules were not counted here; the second part is of checkpoints'
# safetensors, without what is not the model (masks, other modalities' networks; each preset's source says so).
PUBLISHED = {
    "dbrx": 131_596_523_520,
    "falcon-40b": 41_303_293_952,
    "falcon-rw-1b": 1_311_625_216,
    "chatglm-6b": 6_173_286_400,
    "deepseek-moe-16b": 16_375_728_128,
    "alia-40b": 40_433_885_184, "allam-7b": 7_000_559_616, "apertus-v1.1-0.5b": 438_349_352,
    "apertus-v1.1-4b": 3_825_361_968, "aya-23-35b": 34_980_831_232, "aya-23-8b": 8_028_033_024,
    "bielik-11b-v2": 11_168_796_672, "bilingual-gpt-neox-4b": 3_796_120_064, "byt5-base": 581_653_248,
    "byt5-small": 299_637_760, "calm2-7b": 7_008_948_224, "camembert-base": 110_655_493, "codegen-6b": 7_064_213_504,
    "codestral-22b": 22_247_282_688, "codet5-base": 222_882_048, "command-a-111b": 111_057_580_032,
    "command-r-08-2024-32b": 32_296_476_672, "command-r7b": 8_028_033_024, "croissantllm-1.3b": 1_345_431_552,
    "eurollm-1.7b": 1_656_850_432, "eurollm-22b": 22_637_328_384, "eurollm-9b": 9_152_319_488,
    "eurollm-9b-2512": 9_152_319_488, "euromoe-2.6b-a0.6b": 2_611_528_704, "exaone-3.5-2.4b": 2_405_327_360,
    "exaone-3.5-32b": 32_003_200_000, "exaone-3.5-7.8b": 7_818_448_896, "exaone-4.0-1.2b": 1_279_391_488,
    "exaone-4.0-32b": 32_003_216_384, "falcon-h1-1.5b": 1_554_859_392, "falcon-h1-1.5b-deep": 1_554_872_208,
    "falcon-h1-34b": 33_642_516_224, "falcon-h1-3b": 3_149_387_264, "falcon-h1-7b": 7_585_648_736,
    "falcon-rw-7b": 7_782_359_040, "falcon3-10b": 10_305_653_760, "falcon3-1b": 1_669_408_768,
    "falcon3-3b": 3_227_655_168, "falcon3-7b": 7_455_550_464, "flexolmo-7x7b": 33_270_665_216,
    "galactica-125m": 125_030_400, "gemma-3-12b": 11_766_034_176, "gemma-3-270m": 268_098_176,
    "gpt-sw3-1.3b": 1_343_868_928, "gpt-sw3-126m": 135_780_864, "gpt-sw3-20b": 20_340_658_176,
    "gpt-sw3-356m": 369_944_576, "gpt-sw3-40b": 39_200_899_072, "gpt-sw3-6.7b": 6_714_695_680,
    "granite-20b-code": 20_066_993_152, "granite-3.0-1b-a400m": 1_334_628_352, "granite-3.0-2b": 2_533_531_648,
    "granite-3.0-3b-a800m": 3_298_793_472, "granite-3.1-1b-a400m": 1_334_628_352, "granite-3.1-2b": 2_533_531_648,
    "granite-3.1-3b-a800m": 3_298_793_472, "granite-3.1-8b": 8_170_848_256, "granite-3.3-2b": 2_533_539_840,
    "granite-3.3-8b": 8_170_864_640, "granite-34b-code": 33_715_603_456, "granite-3b-code": 3_482_503_680,
    "granite-4.0-1b": 1_631_750_144, "granite-4.0-350m": 352_379_904, "granite-4.0-h-1b": 1_461_538_368,
    "granite-4.0-h-350m": 340_332_224, "granite-4.0-h-micro": 3_191_396_096, "granite-4.0-h-tiny": 6_939_037_248,
    "granite-4.0-micro": 3_402_836_480, "granite-4.0-tiny-preview": 6_671_539_776, "granite-4.1-30b": 28_865_728_512,
    "granite-4.1-3b": 3_402_836_480, "granite-4.1-8b": 8_380_551_168, "granite-8b-code": 8_054_910_976,
    "h2o-danube3-4b": 3_961_839_360, "h2o-danube3-500m": 513_590_784, "helium-1-2b": 2_023_868_416,
    "helium-1-preview-2b": 2_172_643_840, "hyperclovax-seed-0.5b": 566_281_216,
    "hyperclovax-seed-1.5b": 1_585_547_264, "hyperclovax-seed-think-14b": 14_748_112_896,
    "intellect-2": 32_763_876_352, "jais-2-8b": 8_090_401_280, "jamba-1.5-large": 398_555_145_696,
    "jamba-reasoning-3b": 3_029_337_472, "japanese-gpt-1b": 1_302_712_320, "japanese-gpt-neox-3.6b": 3_607_245_312,
    "k-exaone-236b-a23b": 236_571_150_336, "kanana-1.5-15.7b-a3b": 15_696_267_264, "kanana-1.5-2.1b": 2_316_824_832,
    "kanana-1.5-8b": 8_030_285_824, "kanana-2-3b": 3_180_636_672, "kanana-nano-2.1b": 2_086_979_328,
    "lfm2-2.6b": 2_569_272_320, "lfm2-350m": 354_483_968, "lfm2-700m": 742_489_344, "lfm2.5-2.6b": 2_697_198_592,
    "llama-3.1-minitron-4b-depth": 4_540_469_248, "llama-3.1-minitron-4b-width": 4_512_746_496,
    "llava-1.5-13b": 13_016_519_680, "llava-1.5-7b": 6_738_939_904, "llava-v1.6-34b": 34_389_834_752,
    "llava-v1.6-mistral-7b": 7_242_256_384, "llm-jp-3-1.8b": 1_867_614_208, "llm-jp-3-13b": 13_707_924_480,
    "llm-jp-3-150m": 152_318_464, "llm-jp-3-172b": 172_394_557_440, "llm-jp-3-3.7b": 3_782_913_024,
    "llm-jp-4-32b-a3b": 32_139_028_992, "llm-jp-4-33b": 33_219_548_160, "llm-jp-4-8b": 8_590_200_832,
    "mamba2-8b": 8_236_999_680, "mellum-4b": 4_019_248_128, "mellum2-12b-a2.5b": 12_149_923_072,
    "midm-2.0-base": 11_545_677_824, "midm-2.0-mini": 2_305_517_312, "ministral-3-14b": 13_506_073_600,
    "mistral-nemo-minitron-8b": 8_414_105_600, "mistral-small-3.1-24b": 23_572_403_200, "nanochat-d32": 1_879_048_192,
    "nanochat-d34": 2_217_082_880, "nemotron-3-nano-4b": 3_973_556_832, "nemotron-h-47b": 46_791_554_816,
    "nemotron-h-4b": 4_489_223_040, "nemotron-h-8b": 8_100_852_736, "nemotron-nano-12b-v2": 12_310_001_152,
    "nemotron-nano-9b-v2": 8_888_227_328, "olmo-1b-0724": 1_279_787_008, "olmo-2-1b": 1_484_916_736,
    "olmo-2-32b": 32_234_279_936, "olmo-3-32b": 32_233_522_176, "olmo-3-7b": 7_298_011_136,
    "olmo-7b-0424": 6_888_095_744, "openai-gpt": 116_534_784, "paligemma-3b": 2_508_662_784,
    "paligemma2-3b": 2_617_143_552, "persimmon-8b": 9_397_175_296, "phi-3-medium-128k": 13_960_238_080,
    "phi-3-mini-128k": 3_821_079_552, "phi-4-mini": 3_836_021_760, "phi-mini-moe": 7_647_632_704,
    "phi-tiny-moe": 3_755_220_288, "polyglot-ko-1.3b": 1_331_810_304, "polyglot-ko-12.8b": 12_893_603_840,
    "polyglot-ko-3.8b": 3_809_974_272, "polyglot-ko-5.8b": 5_885_059_072, "pythia-14m": 14_067_712,
    "pythia-31m": 30_494_720, "redpajama-incite-3b": 2_775_864_320, "salamandra-2b": 2_253_490_176,
    "salamandra-7b": 7_768_117_248, "santacoder-1.1b": 1_124_886_528, "smollm2-135m": 134_515_008,
    "smollm2-360m": 361_821_120, "smolvlm-256m": 162_974_016, "smolvlm-500m": 409_252_800,
    "smolvlm2-2.2b": 1_812_563_968, "solar-10.7b": 10_731_524_096, "solar-open-100b": 102_651_793_408,
    "stable-code-3b": 2_795_443_200, "stablecode-3b-4k": 2_769_310_720, "starcoderbase-1b": 1_137_207_296,
    "stockmark-13b": 13_200_184_320, "stockmark-2-100b": 95_996_630_016, "teuken-7b": 7_452_725_248,
    "tiny-aya-3b": 3_349_227_520, "tiny-starcoder": 164_144_128, "tri-7b": 7_526_944_768,
    "trinity-large": 398_635_286_016, "trinity-mini": 26_123_974_400, "tulu-3-70b": 70_553_837_568,
    "tulu-3-8b": 8_030_326_784, "vaultgemma-1b": 1_038_741_120, "xgen-7b-8k": 6_895_702_016,
}  # fmt: skip
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
    "bert-base-multilingual-cased": 0.1785, "bert-medium": 0.0417, "bert-mini": 0.0113, "bert-small": 0.0291,
    "bert-tiny": 0.0044, "biogpt": 0.347, "byt5-large": 1.23, "byt5-xl": 3.74, "byt5-xxl": 12.9, "cwm-32b": 32.6,
    "devstral-2-123b": 125.0, "distil-whisper-large-v2": 0.756, "distil-whisper-medium.en": 0.394,
    "distil-whisper-small.en": 0.166, "distilbart-cnn-12-6": 0.3055, "distilbart-cnn-6-6": 0.23,
    "distilbart-xsum-12-3": 0.255, "distilgpt2": 0.082, "distilroberta-base": 0.082, "dolly-v2-12b": 11.8,
    "dolly-v2-3b": 2.8, "dolly-v2-7b": 6.9, "esm1b-650m": 0.6524, "galactica-1.3b": 1.315, "galactica-120b": 121.3,
    "galactica-30b": 29.97, "galactica-6.7b": 6.66, "h2o-danube-1.8b": 1.831, "h2o-danube2-1.8b": 1.831,
    "intellect-1": 10.2, "llama-2-7b-32k": 6.74, "llemma-7b": 6.74, "m2m100-1.2b": 1.24, "mbart-large-cc25": 0.611,
    "minitron-4b": 4.19, "mistral-large-3-675b": 673.0, "mistral-small-4-119b": 119.0, "nanochat-d20": 0.561,
    "nllb-200-1.3b": 1.37, "open-llama-3b": 3.43, "paligemma2-10b": 9.25, "paligemma2-28b": 27.23,
    "redpajama-incite-7b": 6.86, "scibert": 0.1105, "starcoderbase-3b": 3.0, "swallow-13b": 13.13,
    "swallow-70b": 69.16, "swallow-7b": 6.83, "vicuna-13b-16k": 13.02, "vicuna-7b-16k": 6.74, "wizardlm-70b": 68.98,
    "xglm-1.7b": 1.73, "xglm-2.9b": 2.94, "xglm-4.5b": 4.55, "xglm-564m": 0.564, "xglm-7.5b": 7.49,
    "xlm-roberta-xl": 3.5, "xlm-roberta-xxl": 10.7, "yarn-llama-2-13b-128k": 13.02, "yarn-llama-2-13b-64k": 13.02,
    "yarn-llama-2-7b-128k": 6.74, "yarn-llama-2-7b-64k": 6.74,
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
