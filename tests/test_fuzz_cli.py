"""Whatever is typed, the command line answers with an exit code of its own and never with a traceback."""

from __future__ import annotations

import contextlib
import io
import json
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from distsim.cli.app import available, run
from distsim.cli.job_options import JOB_OPTIONS

MODELS = [
    "llama-7b",
    "olmoe-1b-7b",
    "gpt2",
    "deepseek-v2-lite",
    "gemma-2-2b",
    "opt-350m",
    "lama-7b",
    "",
    "..",
    "x.json",
]
WORDS = {
    "gpu": ["a100-sxm4-80gb", "h100-sxm", "t4", "tpu-v4", "mi300x", "gpu", ""],
    "cluster": ["dgx-h100", "dgx-a100-80gb", "cloud"],
    "framework": ["megatron-core", "deepspeed", "fsdp", "torchtune", "megatron"],
    "schedule": ["1f1b", "gpipe", "interleaved-1f1b", "zb-h1", "dualpipe", "none"],
    "recompute": ["none", "selective", "full", "half"],
    "attention": ["flash", "eager", "fast"],
    "precision": ["bf16", "fp16", "fp32", "fp8", "bf16-fp32-grads", "int3"],
    "optimizer": ["adamw", "sgd", "adafactor", "adamw-8bit", "muon", "sgdd"],
    "offload": ["none", "optimizer", "all"],
    "offload_to": ["cpu", "nvme", "tape"],
    "quantize": ["none", "int8", "nf4", "nf4+experts", "int2"],
    "cuda_graphs": ["none", "modules", "iteration", "steps"],
    "loss": ["chunked", "liger", "cut", "cutt"],
    "vocab_parallel": ["vocab-1", "vocab-2", "interlaced", "vocab-3"],
    "stage_layers": ["16,16", "1,31", "8,8,8,8", "32", "balanced", "0,32", ",", "-1,33"],
}
SMALL = st.sampled_from([0, 1, 1, 2, 2, 3, 4, 8, 16, 64])
ABSURD = st.sampled_from([-1, 10**7, 10**9, 10**18, 2**63, 10**30])
FREE = st.text(st.characters(blacklist_categories=("Cs",), blacklist_characters="\0"), max_size=12)
# Large degrees of these are honest questions that take long to answer; they are tried in moderation.
SLOW = {"pp", "vpp", "global_batch"}


def values(name: str, kind: object) -> st.SearchStrategy[list[str]]:
    """A flag and its value, mostly sensible."""
    flag = f"--{name.replace('_', '-')}"
    if kind is bool:
        return st.sampled_from([[flag], [flag.replace("--", "--no-", 1)]])
    if name in WORDS:
        words = st.one_of(st.sampled_from(WORDS[name]), FREE)
    elif kind in (int, float):
        words = st.one_of(SMALL, SMALL, SMALL if name in SLOW else ABSURD).map(str)
    else:
        words = FREE
    return words.map(lambda word: [flag, word])


OPTIONS = st.lists(st.one_of([values(name, kind) for name, (kind, _) in JOB_OPTIONS.items()]), max_size=5)
EXTRA = st.lists(
    st.sampled_from(["--json", "--explain", "--all-stages", "--show-config", "--stage=1", "--nonsense"]), max_size=2
)
FUZZ = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def answer(words: list[str]) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run(words)
    return code, out.getvalue(), err.getvalue()


@FUZZ
@given(st.sampled_from(MODELS), OPTIONS, EXTRA)
def test_memory_answers_or_says_what_is_wrong(model: str, options: list[list[str]], extra: list[str]) -> None:
    words = ["memory", model, *(word for option in options for word in option), *extra]
    code, out, err = answer(words)
    assert code in (0, 1, 2), words
    if code == 2:
        assert err.strip(), words
        assert "Traceback" not in err
    elif "--json" in extra:
        told = json.loads(out)
        assert (code == 0) == told.get("fits", "--show-config" in extra)


@settings(max_examples=60, deadline=None)
@given(st.lists(FREE, max_size=3))
def test_any_words(words: list[str]) -> None:
    if words and words[0] in available():
        return
    assert answer(words)[0] in (0, 2)


@settings(max_examples=60, deadline=None)
@given(
    st.one_of(st.binary(max_size=60), FREE.map(str.encode), st.sampled_from([b"zero = 2", b"tp = 1.5", b"model = 3"]))
)
def test_any_job_file(content: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "job.toml"
        path.write_bytes(content)
        assert answer(["memory", "gpt2", "--job", str(path)])[0] in (0, 1, 2)


@settings(max_examples=60, deadline=None)
@given(
    st.dictionaries(
        st.sampled_from(["model_type", "hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size", "x"]),
        st.one_of(
            st.none(), st.integers(-2, 10**6), st.sampled_from(["llama", "gpt2", "bert", ""]), st.lists(st.integers())
        ),
    )
)
def test_any_config_json(content: dict[str, object]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "config.json"
        path.write_text(json.dumps(content))
        assert answer(["memory", str(path)])[0] in (0, 1, 2)
