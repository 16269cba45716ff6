"""Words of other tools' files for precision, optimizer, recomputation and parallelism: understood, or told as not
read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from test_megatron_files import LLAMA, NANOTRON, NEMO

from distsim.cli.app import run

O2 = "megatron_amp_O2: true"


def _job(text: str, name: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> tuple[dict, str]:
    file = folder / name
    file.write_text(text, encoding="utf-8")
    assert run(["memory", "--job", str(file), "--gpu", "h200-sxm", *["--gpus", "8"] * (name == "run.sh"), "--json"]) < 2
    out, err = capsys.readouterr()
    return json.loads(out)["job"], err


def _nemo(trainer: str = "", model: str = "", optim: str = "") -> str:
    """The YAML with more lines in its sections."""
    text = NEMO.replace("  num_nodes: 16\n", f"  num_nodes: 16\n  {trainer}\n")
    text = text.replace("  bias: false\n", f"  bias: false\n  {model}\n")
    return f"name: megatron_gpt\n{text}    {optim}\n"


@pytest.mark.parametrize(
    ("word", "recipe"),
    [("16", "fp16"), ("16-mixed", "fp16"), ("'fp16'", "fp16"), ("32", "fp32"), ("32-true", "fp32"),
     ("bf16", "bf16-fp32-grads"), ("bf16-mixed", "bf16-fp32-grads"), ("bf16-true", "pure-bf16")],
)  # fmt: skip
def test_precisions_of_lightning_are_read(
    word: str, recipe: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job, told = _job(_nemo(f"precision: {word}", O2), "nemo.yaml", tmp_path, capsys)
    assert job["precision"] == recipe and f"--precision {recipe}" in told
    assert "--precision not given" not in told and "not read" not in told


@pytest.mark.parametrize(
    ("model", "optim", "recipe"),
    [("megatron_amp_O2: true", "", "bf16-fp32-grads"), ("megatron_amp_O2: false", "", "amp-bf16"),
     (O2, "grad_sync_dtype: bf16", "bf16"), (O2, "dtype: fp32", "bf16-fp32-grads"),
     (f"{O2}\n  grad_reduce_in_bf16: true", "", "bf16"),
     (f"{O2}\n  accumulate_allreduce_grads_in_fp32: false", "", "bf16"),
     (f"{O2}\n  precision: ${{trainer.precision}}", "", "bf16-fp32-grads"), ("fp8: true", "", "fp8")],
)  # fmt: skip
def test_what_goes_with_sixteen_bits_is_read(
    model: str, optim: str, recipe: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """NeMo's optimizer sums gradients in fp32 unless told otherwise, and without O2 weights are fp32."""
    job, told = _job(_nemo("precision: bf16", model, optim), "nemo.yaml", tmp_path, capsys)
    assert job["precision"] == recipe and job["zero"] == 1
    assert "not read" not in told and "does not set" not in told


@pytest.mark.parametrize(
    ("word", "model", "recipe"),
    [("bf16", "", "amp-bf16"), ("bf16-mixed", "", "amp-bf16"), ("16", "", "amp-fp16"), ("32", "", "fp32"),
     ("bf16", O2, "bf16-fp32-grads"), ("bf16", "megatron_amp_O2: false", "amp-bf16"),
     ("bf16", "virtual_pipeline_model_parallel_size: 2", "bf16-fp32-grads"),
     ("bf16", "num_moe_experts: 8\n  moe_router_topk: 2\n  expert_model_parallel_size: 4", "bf16-fp32-grads"),
     ("16", f"{O2}\n  fp8: true", "fp8")],
)  # fmt: skip
def test_nemo_holds_weights_in_16_bits_only_where_it_is_told_to(
    word: str, model: str, recipe: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """NVIDIA/NeMo megatron_base_model.py: params_dtype is fp32 unless cfg.get('megatron_amp_O2', False); chunks of
    stages are refused without."""
    job, told = _job(_nemo(f"precision: {word}", model), "nemo.yaml", tmp_path, capsys)
    assert job["precision"] == recipe
    assert ("megatron_amp_O2 is not stated there" in told) is (not model and recipe.startswith("amp-"))


@pytest.mark.parametrize(
    ("trainer", "model", "told_as"),
    [("precision: 64-true", "", "trainer.precision (64-true)"),
     ("", "activations_checkpoint_granularity: some", "model.activations_checkpoint_granularity (some)"),
     ("", "activations_checkpoint_method: spread", "model.activations_checkpoint_method (spread)"),
     ("", "context_parallel_size: two", "model.context_parallel_size (two)"),
     ("", "fp8: true\n  fp8_recipe: blockwise", "model.fp8_recipe (blockwise)"),
     ("precision: bf16", "grad_sync_dtype: fp12", "model.grad_sync_dtype (fp12)"),
     ("", "cross_entropy_loss_fusion: true", "model.cross_entropy_loss_fusion")],
)  # fmt: skip
def test_words_that_nobody_knows_are_told(
    trainer: str, model: str, told_as: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    key = model.partition(":")[0]
    text = _nemo(trainer, model)
    lines = [line for line in text.splitlines() if not line.strip().startswith(f"{key or '-'}:")]
    where = lines.index("  bias: false")
    _, told = _job("\n".join([*lines[: where + 1], f"  {model}", *lines[where + 1 :]]), "nemo.yaml", tmp_path, capsys)
    assert "not read: " in told and told_as in told


@pytest.mark.parametrize(
    ("name", "optimizer", "zero", "unread"),
    [("mcore_distributed_optim", "adamw", 1, False), ("fused_adam", "adamw", 0, False), ("sgd", "sgd", 0, False),
     ("shampoo", "adamw", 0, True)],
)  # fmt: skip
def test_the_optimizer_of_nemo_is_read(
    name: str, optimizer: str, zero: int, unread: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = _nemo().replace("distributed_fused_adam", name)
    job, told = _job(text, "nemo.yaml", tmp_path, capsys)
    assert (job["optimizer"], job["zero"]) == (optimizer, zero)
    assert (f"model.optim.name ({name})" in told) is unread


def test_an_overlap_that_a_yaml_turns_off_is_off(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job, told = _job(_nemo("", "", "overlap_grad_sync: false"), "nemo.yaml", tmp_path, capsys)
    assert job["dp_comm_overlap"] is False and "--no-dp-comm-overlap" in told and "not read" not in told


@pytest.mark.parametrize(
    ("words", "option", "value", "unread"),
    [("--attention-backend unfused", "attention", "eager", ""),
     ("--attention-backend AttnBackend.local", "attention", "eager", ""),
     ("--attention-backend AttnBackend.auto --cross-entropy-fusion-impl native", "attention", "flash", ""),
     ("--attention-backend fused", "attention", "flash", ""),
     ("--attention-backend odd", "attention", "flash", "--attention-backend (odd)"),
     ("--optimizer dist_odd", "optimizer", "adamw", "--optimizer (dist_odd)"),
     ("--optimizer sgd", "optimizer", "sgd", ""),
     ("--num-experts 8 --moe-router-topk 2 --moe-token-dispatcher-type alltoall_seq", "ep", 1,
      "--moe-token-dispatcher-type (alltoall_seq)"),
     ("--fp16", "precision", "fp16", ""), ("--fp8-format hybrid", "precision", "fp8", ""),
     ("--fp16 --fp8-format hybrid", "precision", "fp8-fp16-grads", ""),
     ("--fp16 --fp8-format hybrid --accumulate-allreduce-grads-in-fp32", "precision", "fp8", ""),
     ("--bf16 --fp8-format hybrid", "precision", "fp8", ""),
     ("--bf16 --fp8-format hybrid --grad-reduce-in-bf16", "precision", "fp8-bf16-grads", ""),
     ("--bf16 --fp8-format hybrid --fp8-param-gather", "precision", "fp8-parameters-fp32-grads", ""),
     ("--bf16 --fp8-format hybrid --fp8-param-gather --grad-reduce-in-bf16", "precision", "fp8-parameters", "")],
)  # fmt: skip
def test_arguments_of_megatron(
    words: str, option: str, value: object, unread: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job, told = _job(f"{LLAMA.replace('--bf16', '')} {words}\n", "run.sh", tmp_path, capsys)
    assert job[option] == value
    assert unread in told and ("not read" in told) is bool(unread)


@pytest.mark.parametrize(
    ("was", "now", "option", "value", "unread"),
    [("model:\n", "model:\n  dtype: float32\n", "precision", "fp32", ""),
     ("model:\n", "model:\n  dtype: bfloat16\n", "precision", "bf16", ""),
     ("model:\n", "model:\n  dtype: float64\n", "precision", "bf16", "model.dtype (float64)"),
     ("optimizer:\n", "optimizer:\n  optimizer_factory:\n    name: sgd\n", "optimizer", "sgd", ""),
     ("ALL_REDUCE", "SOMETHING", "tp", 4, "parallelism.tp_mode (SOMETHING)"),
     ("afab", "odd", "pp", 2, "parallelism.pp_engine (odd)")],
)  # fmt: skip
def test_words_of_nanotron(
    was: str, now: str, option: str, value: object, unread: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job, told = _job(NANOTRON.replace(was, now, 1), "tiny.yaml", tmp_path, capsys)
    assert job[option] == value and unread in told and ("not read" in told) is bool(unread)


@pytest.mark.parametrize(
    ("name", "text", "typed", "odd"),
    [("tune.toml", '[model]\nflavor = "8B"\n[training]\nlocal_batch_size = 1\nseq_len = 4096\ndtype = "float32"\n',
      "--framework torchtitan --seq 4096 --micro-batch 1", ""),
     ("max.yml", "base_config: base.yml\nper_device_batch_size: 1\nmax_target_length: 2048\ndtype: bfloat16\n"
      "weight_dtype: float32\n", "--framework maxtext --micro-batch 1 --seq 2048", ""),
     *(("bridge.yaml", f"mixed_precision: {recipe}\nmodel:\n  _target_: megatron.bridge.models.Provider\n"
        "  tensor_model_parallel_size: 2\ntrain:\n  micro_batch_size: 1\n", typed, "")
       for recipe, typed in {
           "bf16_mixed": "--framework megatron-bridge --tp 2 --micro-batch 1 --precision bf16-fp32-grads",
           "fp16-mixed": "--framework megatron-bridge --precision fp16 --tp 2 --micro-batch 1",
           "bf16_with_fp8_current_scaling_mixed":
           "--framework megatron-bridge --tp 2 --micro-batch 1 --precision fp8-parameters-fp32-grads",
       }.items()),
     ("acc.yaml", "compute_environment: LOCAL_MACHINE\ndistributed_type: MULTI_GPU\nmixed_precision: 'no'\n",
      "--framework huggingface --precision fp32", ""),
     ("ax.yml", "base_model: x/y\nsequence_len: 512\nbf16: auto\noptimizer: odd_adam\n"
      "gradient_checkpointing: unsloth\n",
      "--framework axolotl --seq 512", "optimizer (odd_adam), gradient_checkpointing (unsloth)")],
)  # fmt: skip
def test_files_that_are_only_told_in_options(
    name: str, text: str, typed: str, odd: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / name).write_text(text)
    assert run(["memory", "llama-3-8b", "--job", str(tmp_path / name)]) == 2
    told = capsys.readouterr().err
    assert f"e.g. llama-3-8b {typed}\n" in told
    assert (f"not understood: {odd}" in told) if odd else ("not understood" not in told)
