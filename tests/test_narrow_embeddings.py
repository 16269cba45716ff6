"""Embeddings in 16 bits under autocast, and value embeddings: nanochat's network (benchmarks/compiled_layers.py)."""

from __future__ import annotations

from typing import Any

import pytest

import distsim
from distsim import catalog
from distsim.engine.jobs.flops import active_parameters
from distsim.engine.jobs.resolve import Setup, resolve
from distsim.engine.jobs.stages import build_stages
from distsim.engine.runs.setup import setup_of
from distsim.interop.runs import Run
from distsim.interop.runs.models import model_of
from distsim.interop.runs.peak_notes import returns_loss_alone
from distsim.layers.ledger import distinct_saved
from distsim.specs.job import Job
from distsim.specs.model import Model

WIDTH, LAYERS, WORDS, SEQ, BATCH = 512, 3, 8192, 1024, 8
SMALL = {"name": "small", "layers": LAYERS, "hidden": WIDTH, "heads": 8, "kv_heads": 8, "head_dim": 64, "ffn": 2048,
         "vocab": WORDS, "context": SEQ}  # fmt: skip


def _model(**fields: Any) -> Model:
    return Model.read({**dict(catalog.load("models", "nanochat-d20")), **SMALL, **fields})


def _setup(model: Model, precision: str = "amp-bf16", **options: Any) -> Setup:
    job = {"gpu": "h100-sxm", "gpus": 1, "framework": "torch-compile", "seq": SEQ, "micro_batch": BATCH, **options}
    return resolve(Job(model=model, precision=precision, attention="flash", **job))


@pytest.mark.parametrize(
    ("narrow", "every", "kept"), [(False, 0, 40.203), (True, 0, 36.203), (True, 1, 38.234)], ids=str
)
def test_a_compiled_layer_keeps_what_torch_does(narrow: bool, every: int, kept: float) -> None:
    """Recorded with torch 2.13: bytes for each token and channel, without cast weights and the copy of attention's
    output that a CPU makes."""
    setup = _setup(_model(narrow_embeddings=narrow, value_embedding_every=every))
    (layer, _), *_others = build_stages(setup)[0].layers
    found = sum(distinct_saved(layer.operations).values()) / (SEQ * BATCH * WIDTH)
    assert found == pytest.approx(kept, abs=2e-3)


def test_without_autocast_nothing_changes() -> None:
    for precision in ("pure-bf16", "fp32"):
        wide, narrow = (distsim.memory(_setup(_model(narrow_embeddings=one), precision).job).peak for one in (0, 1))
        assert wide == narrow


def test_states_of_embeddings_are_as_narrow() -> None:
    """Weight 2 bytes for 4, gradient 2 for 4, both moments 2 for 4 each (the table is no matrix, which Muon would
    take)."""
    wide, narrow = (
        distsim.memory(Job(model=_model(narrow_embeddings=one), gpu="h100-sxm", gpus=1, framework="torch-compile",
                           precision="amp-bf16", optimizer="muon", micro_batch=1)).stages[0].categories
        for one in (False, True)
    )  # fmt: skip
    table = WORDS * WIDTH
    for kind, bytes_each in (("parameters", 2), ("optimizer", 4)):
        assert wide[kind] - narrow[kind] == bytes_each * table


def test_tables_stand_in_every_second_layer_back_from_the_last() -> None:
    model = _model(value_embedding_every=2)
    assert [model.has_value_embedding(layer) for layer in range(LAYERS)] == [True, False, True]
    plain = _model()
    assert distsim.load_model(model).parameters - distsim.load_model(plain).parameters == 2 * WORDS * WIDTH
    assert active_parameters(_setup(model)) == active_parameters(_setup(plain))  # looked up, not multiplied


@pytest.mark.parametrize(("name", "printed"), [("nanochat-d12", 286_261_730), ("nanochat-d24", 1_384_122_122)])
def test_presets_have_the_parameters_that_reports_print(name: str, printed: int) -> None:
    """But for the gates of value embeddings and other scalars."""
    assert 0 <= printed - distsim.load_model(name).parameters <= 2000


def test_tensor_parallel_ranks_share_a_table_by_heads() -> None:
    model = _model(value_embedding_every=1)
    whole, half = (
        sum(p.elements * times for p, times in build_stages(_setup(model, gpus=tp, tp=tp))[0].parameters
            if p.name == "attention.value_table")
        for tp in (1, 2)
    )  # fmt: skip
    assert whole == 2 * half == LAYERS * WORDS * WIDTH


def test_other_stacks_have_no_value_embeddings() -> None:
    latent = dict(catalog.load("models", "deepseek-v2-lite"))
    with pytest.raises(distsim.DistsimError, match="value_embedding_every needs one stack of plain attention"):
        Model.read({**latent, "value_embedding_every": 2})


ROW = {"id": "r", "source": "somebody/else report.md", "year": "2026-03", "model": "mine", "family": "gpt",
       "layers": "12", "hidden": "768", "heads": "6", "ffn_hidden": "3072", "gated_mlp": "0", "vocab": "32768",
       "tied_embeddings": "0", "seq_len": "2048", "gpu": "h100-sxm", "n_gpus": "8", "dp": "8", "micro_batch": "32",
       "global_batch": "256", "precision": "amp-bf16", "compile": "1", "framework": "torch-compile",
       "step_time_s": "1"}  # fmt: skip


def test_notes_tell_of_nanochats_network() -> None:
    """286,261,730 parameters, as reports print them, whose norms have no weights."""
    words = "ReLU^2, RoPE, RMSNorm and QK norm, value embeddings on alternating layers"
    own = Run({**ROW, "notes": f"a fork of nanochat; {words}"}, 2)
    model = model_of(own)
    assert model.narrow_embeddings and model.value_embedding_every == 2 and returns_loss_alone(own)
    assert distsim.load_model(model).parameters == pytest.approx(286_261_730, rel=5e-4)
    other = model_of(Run({**ROW, "notes": words}, 2))
    assert not other.narrow_embeddings and not other.value_embedding_every


def test_a_loss_that_gives_no_logits_is_asked_whether_the_run_fits() -> None:
    """The rates of 8 H100 with 32 sequences of nanochat's 561M: 73.7 GiB (mileswangs/mychat), and nothing computed
    again, which whole logits had made seem needed."""
    row = {**ROW, "model": "nanochat-d20", **dict.fromkeys(("family", "layers", "hidden", "heads", "ffn_hidden"), ""),
           "vocab": "", "optimizer": "muon"}  # fmt: skip
    assert setup_of(Run(row, 2)).recompute == "none"
