"""T5: two stacks, attention across them, biases by distance."""

import csv
from pathlib import Path
from typing import Any

import pytest
from ledgers import longer_costs_more, one_gpu, shared_and_whole
from recordings import recorded_peak

import distsim
from distsim import catalog
from distsim.cli.app import run
from distsim.engine.evidence import replay
from distsim.engine.figures import Figures
from distsim.engine.footprint.saved import saved_of
from distsim.engine.footprint.states import states
from distsim.engine.jobs.flops import active_parameters, model_flops
from distsim.engine.jobs.models import load_model
from distsim.engine.jobs.stages import build_stages
from distsim.engine.memory import memory_of
from distsim.engine.runs.setup import setup_of
from distsim.errors import DistsimError
from distsim.interop.huggingface import read_config
from distsim.interop.runs import Run
from distsim.layers.ledger import distinct_saved, flops_forward
from distsim.layers.network import layer_blocks

# One step of T5ForConditionalGeneration on torch 2.13 fake tensors, recorded as tests/test_saved_tensors.py says.
MEMORY = list(csv.DictReader((Path(__file__).parent / "oracles" / "torch_t5.csv").open()))
# Counted on the instantiated modules of transformers 5.23; those of T5 1.1 and mT5, whose output layer is their own, as
# published checkpoints have them.
PRESETS = {
    "t5-small": 60_506_624, "t5-base": 222_903_552, "t5-large": 737_668_096, "t5-3b": 2_851_598_336,
    "flan-t5-small": 76_961_152, "flan-t5-base": 247_577_856, "flan-t5-large": 783_150_080,
    "mt5-small": 300_176_768, "mt5-base": 582_401_280, "mt5-large": 1_229_581_312,
    "t5-11b": 11_307_321_344, "flan-t5-xl": 2_849_757_184, "flan-t5-xxl": 11_135_332_352, "mt5-xl": 3_742_619_648,
    "mt5-xxl": 12_921_057_280, "ul2-20b": 19_459_613_696, "flan-ul2": 19_459_613_696,
}  # fmt: skip


@pytest.mark.parametrize("name", PRESETS)
def test_counts(name: str) -> None:
    loaded = load_model(name)
    assert loaded.parameters == PRESETS[name] == sum(loaded.parts().values())
    assert set(loaded.parts()) == {"embedding", "encoder", "decoder", "head"}


@pytest.mark.parametrize("row", MEMORY, ids=lambda row: row["case"])
def test_against_torch(row: dict[str, str]) -> None:
    """Layers of both stacks to the byte where attention is composed, else within 0.1%; peaks within 2%."""
    batch, eager = int(row["micro_batch"]), row["attn_impl"] == "eager"
    spec = load_model(row["model"]).spec.model_copy(update={"decoder_context": int(row["dec_seq"])})
    setup = one_gpu(
        spec, seq=int(row["seq"]), micro_batch=batch, global_batch=batch, recompute=row["recompute"],
        attention="eager" if eager else "flash", precision=row["precision"], dropout=row["dropout"] == "1",
    )  # fmt: skip
    stage = build_stages(setup)[0]
    saved, held = saved_of(setup, stage), states(setup, stage.parameters, Figures())
    if row["recompute"] == "none":
        kept = [sum(distinct_saved(block.operations).values()) for block, _ in stage.layers]
        wanted = [int(row["saved_layer_mid"]), int(row["saved_declayer_mid"])]
        assert kept == (wanted if eager else pytest.approx(wanted, rel=1e-3))
        assert saved.total == pytest.approx(int(row["saved_total"]), rel=2e-3)
    peak = recorded_peak(setup, stage, held, saved)
    assert peak == pytest.approx(int(row["peak_total"]), rel=2e-2)


@pytest.mark.parametrize(
    ("model", "precision", "gradients"),
    [("t5-small", "fp32", (3, 2)), ("t5-small", "amp-bf16", (2, 2)), ("flan-t5-small", "fp32", (2, 3))],
)
def test_gradients_of_a_table_of_several_uses(model: str, precision: str, gradients: tuple[int, int]) -> None:
    """A word more is a row of weights, two of Adam's moments, the head's gradient, a lookup's, and their sum, where the
    head's is a view of what its product gave. The profiler of torch 2.13 on a CPU has an add there, but an add in place
    to what autocast's cast gave, and wherever the encoder's lookup is added; FLAN's head has rows of its own."""
    found: dict[str, list[float]] = {"decoder's embedding backward": [], "embedding backward": []}
    for vocab in (32_000, 64_000):
        spec = load_model("t5-small").spec.model_copy(update={"vocab": vocab, "tied_embeddings": model == "t5-small"})
        setup = one_gpu(spec, framework="huggingface", precision=precision, recompute="full")
        for one in memory_of(setup).stages[0].moments:
            if one.name in found:
                found[one.name].append(one.total)
    word = 32_000 * 512 * 4
    own = 3 if model == "t5-small" else 6
    for (low, high), count in zip(found.values(), gradients, strict=True):
        assert high - low == pytest.approx((own + count) * word)


def test_flops_follow_the_ledger() -> None:
    """Three times the products of a forward pass, but for norms and the table of biases."""
    for name in ("t5-3b", "flan-t5-xl"):
        setup = one_gpu(name, seq=512, micro_batch=2)
        stage = build_stages(setup)[0]
        assert stage.head is not None
        rows = [*stage.head.operations, *(one for block, times in stage.layers for one in block.operations * times)]
        assert model_flops(setup) * 2 * 512 == pytest.approx(3 * flops_forward(rows), rel=2e-3)


def test_decoders_do_their_work_on_fewer_tokens() -> None:
    setup = one_gpu("t5-3b", micro_batch=8)
    (encoder, _), (decoder, _) = build_stages(setup)[0].layers
    sizes = [{one.name: one.shape[0] for one in block.operations} for block in (encoder, decoder)]
    assert (sizes[0]["mlp.up"], sizes[1]["mlp.up"], sizes[1]["cross.kv"]) == (4096, 1024, 4096)
    cores = {one.name: one for one in decoder.operations if one.name.endswith(".core")}
    assert cores["attention.core"].causal and not cores["cross.core"].causal
    assert cores["cross.core"].shape[2:4] == (128, 512)
    assert not next(one for one in encoder.operations if one.name == "attention.core").causal


def test_configurations() -> None:
    stated = {"model_type": "t5", "d_model": 1024, "d_ff": 16384, "d_kv": 128, "num_layers": 24, "num_heads": 32}
    model = read_config(stated).model
    assert load_model(model).parameters == PRESETS["t5-3b"]
    assert (model.layers, model.encoder_layers, model.decoder_context) == (48, 24, 128)
    uneven = read_config({**stated, "num_decoder_layers": 12}).model
    assert (uneven.layers, uneven.encoder_layers) == (36, 24)
    gated = read_config({**stated, "feed_forward_proj": "gated-gelu"}).model
    assert gated.gated and gated.activation == "gelu_new" and not gated.tied_embeddings
    assert read_config({"model_type": "mt5", "d_model": 512, "num_layers": 8}).model.vocab == 250112


@pytest.mark.parametrize("degree", ["pp", "cp"])
def test_only_tensor_parallel_ranks_split_it(degree: str) -> None:
    with pytest.raises(DistsimError, match="is an encoder-decoder"):
        one_gpu("t5-3b", gpus=2, framework="megatron-core", **{degree: 2})
    assert one_gpu("t5-3b", gpus=2, framework="megatron-core", tp=2).layout.tp == 2


def test_what_the_decoder_reads_is_said() -> None:
    assert any("its decoder reads 128 per" in note for note in one_gpu("t5-base").notes)
    assert any("its decoder reads 2,048 per" in note for note in one_gpu("t5-base", decoder_seq=2048).notes)


def test_mistakes_in_a_model_file(tmp_path: Path) -> None:
    text = Path(catalog.path("models", "t5-small")).read_text()
    for old, new, words in (
        ("decoder_context = 128\n", "", "must be given together"),
        ("encoder_layers = 6", "encoder_layers = 12", "leave none"),
        ("gated = false", "gated = false\nwindow = 64", "plain attention"),
        ("position_rows = 32\n", "", "position_rows"),
    ):
        file = tmp_path / "mine.toml"
        file.write_text(text.replace(old, new, 1))
        with pytest.raises(DistsimError) as caught:
            load_model(str(file))
        assert words in str(caught.value)


def test_t5_composed_its_attention_until_2026() -> None:
    """A bias of distances is added to its scores, for which transformers had no kernel (modeling_t5.py)."""
    cells = {"gpu": "a100-sxm4-80gb", "n_gpus": "8", "seq_len": "512", "micro_batch": "8", "zero_stage": "3",
             "precision": "bf16", "framework": "deepspeed", "step_time_s": "1"}  # fmt: skip
    found = {
        (model, year): setup_of(Run({**cells, "model": model, "year": year}, 2)).layout.attention
        for model in ("flan-t5-base", "llama-7b") for year in ("2024", "2025-05", "2026-08")
    }  # fmt: skip
    assert [key for key, way in found.items() if way == "eager"] == [
        ("flan-t5-base", "2024"), ("flan-t5-base", "2025-05"),
    ]  # fmt: skip


T5_ROW = {"model": "t5-small", "gpu": "h100-sxm", "n_gpus": 1, "framework": "huggingface", "seq_len": 512,
          "micro_batch": 64, "grad_accum": 1, "global_batch": 64, "recompute": "none"}  # fmt: skip


def _row(**cells: Any) -> Run:
    return Run({name: str(value) for name, value in {**T5_ROW, **cells}.items()}, 2)


@pytest.mark.parametrize(
    ("cells", "tokens"),
    [
        ({"decoder_seq": 300}, 300), ({"notes": "1024 tokens in and 1024 out, autocast"}, 1024),
        ({"notes": "span corruption, 114 targets"}, 114), ({"notes": "targets 114 by the recipe"}, 114),
        ({"notes": "LoRA targets and accumulation not said"}, 128),
    ],
)  # fmt: skip
def test_what_a_decoder_reads(cells: dict[str, Any], tokens: int) -> None:
    assert catalog.load("models", "t5-small").decoder_context == 128
    assert setup_of(_row(model="t5-small", **cells)).model.decoder_context == tokens


def test_memory_of_t5_with_long_targets() -> None:
    """65.0 GiB (66,597 MiB) with 32 sequences of 1,024 tokens in and out on an H100 (mila-iqia/milabench
    config/scaling/H100.yaml, March 2025)."""
    notes = "1024 tokens in and 1024 out"
    found = replay(_row(model="t5-small", seq_len=1024, micro_batch=32, global_batch=32, precision="fp16", notes=notes,
                        year="2025-03", mem_peak_gb_per_gpu="66597 MiB", mem_kind="nvidia-smi",
                        samples_per_s=102.84))  # fmt: skip
    assert found.predicted_peak == pytest.approx(66597 * 2**20, rel=0.1)


def test_a_step_says_whose_tokens_are_counted(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of T5's encoder, beside which the decoder's are told; where nothing attends, no FLOPs of attention are."""
    monkeypatch.setenv("COLUMNS", "120")
    assert run(["step", "t5-3b", "--gpus", "8", "--seq", "512", "--decoder-seq", "114"]) == 0
    text = capsys.readouterr().out
    assert "1 x 512 tokens (decoder 114) per rank" in text and " encoder tokens/s, " in text
    run(["step", "mamba2-130m", "--gpus", "1"])
    assert "(6 N)" in capsys.readouterr().out
    assert distsim.step("mamba2-130m", gpus=1).to_dict()["flops_convention"] == "6 N (no input embedding)"


def test_experts_stand_in_either_stack() -> None:
    """A token of Switch passes as many weights as one of T5 and the routers, of the decoder's stack a quarter; the
    exchanges of each stack are of its own tokens."""
    switch, plain = one_gpu("switch-base-8", seq=512), one_gpu("t5-base", seq=512)
    routers = 6 * 768 * 8 * (1 + 128 / 512)
    assert active_parameters(switch) - active_parameters(plain) == pytest.approx(routers)
    kinds = {block.name: len(layers) for block, layers in layer_blocks(switch.context()).values()}
    assert kinds == {"encoder": 6, "encoder+moe": 6, "decoder": 6, "decoder+moe": 6}
    rows = distsim.comm(model="switch-base-128", gpu="h100-sxm", gpus=8, ep=8, seq=512).collectives
    sent = sorted(row.bytes_per_call for row in rows if row.purpose == "expert dispatch" and row.phase == "forward")
    assert sent == [128 * 768 * 2, 512 * 768 * 2]
    found = {
        tp: shared_and_whole(one_gpu("switch-base-8", gpus=2, tp=tp, framework="megatron-core", precision="bf16"))
        for tp in (1, 2)
    }
    assert found[2] == pytest.approx((found[1][0] / 2, found[1][1]), rel=2e-4)  # the vocabulary is padded for two
    longer_costs_more("switch-large-128", seq=512, gpu="h100-sxm", gpus=64, ep=32, micro_batch=32, framework="fsdp")


def test_files_of_ul2_share_one_matrix() -> None:
    """Its gated layers are no T5 1.1, whose output layer is its own."""
    config = {"model_type": "t5", "d_model": 4096, "d_kv": 256, "d_ff": 16384, "num_layers": 32, "num_heads": 16,
              "num_decoder_layers": 32, "feed_forward_proj": "gated-silu"}  # fmt: skip
    assert load_model(read_config(config).model).parameters == PRESETS["ul2-20b"]
    assert not read_config({**config, "feed_forward_proj": "gated-gelu"}).model.tied_embeddings
