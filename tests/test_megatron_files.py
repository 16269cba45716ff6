"""Files of Megatron and NeMo that state a network by its sizes are read, as a model and as a job."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from distsim import Job, load_model, memory
from distsim.cli.app import run

GPT3 = """GPUS_PER_NODE=8
ARGS=( --nproc_per_node $GPUS_PER_NODE --nnodes 16 )
pretrain_gpt.py ${ARGS[@]} --num-layers 96 --hidden-size 12288 --num-attention-heads 96 --seq-length 2048 \\
  --max-position-embeddings 2048 # --swiglu
  --micro-batch-size 1 --global-batch-size 1536 --bf16 --tensor-model-parallel-size 8 \\
  --pipeline-model-parallel-size 16 --sequence-parallel --use-distributed-optimizer --overlap-grad-reduce \\
  --grad-reduce-in-bf16 --lr 6.0e-5
"""
LLAMA = """--num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32 --group-query-attention
--num-query-groups 8 --max-position-embeddings 8192 --position-embedding-type rope --swiglu --normalization RMSNorm
--untie-embeddings-and-output-weights --disable-bias-linear --vocab-size 128256 --micro-batch-size 1 --bf16
--seq-length 8192 --attention-dropout 0.0 --hidden-dropout 0.0
"""
MIXTRAL = LLAMA.replace("128256", "32000") + "--num-experts 8 --moe-router-topk 2\n"
DEEPSEEK = """--num-layers 61 --hidden-size 7168 --ffn-hidden-size 18432 --num-attention-heads 128 --kv-channels 128
--multi-latent-attention --q-lora-rank 1536 --kv-lora-rank 512 --qk-head-dim 128 --qk-pos-emb-head-dim 64
--v-head-dim 128 --qk-layernorm --position-embedding-type rope --swiglu --normalization RMSNorm --disable-bias-linear
--untie-embeddings-and-output-weights --vocab-size 129280 --num-experts 256 --moe-router-topk 8
--moe-ffn-hidden-size 2048 --moe-shared-expert-intermediate-size 2048 --moe-layer-freq "([0]*3+[1]*58)"
--seq-length 4096 --max-position-embeddings 163840 --bf16 --tensor-model-parallel-size 1
--pipeline-model-parallel-size 16 --recompute-granularity selective --recompute-modules mla_up_proj mlp
--mtp-num-layers 1 --micro-batch-size 1
"""
NEMO = """trainer:
  devices: 8
  num_nodes: 16
model:
  micro_batch_size: 1
  global_batch_size: 2048
  tensor_model_parallel_size: 4
  pipeline_model_parallel_size: 4
  encoder_seq_length: 4096
  max_position_embeddings: ${.encoder_seq_length}
  num_layers: 32
  hidden_size: 6144
  ffn_hidden_size: ${multiply:4, ${.hidden_size}}
  num_attention_heads: 48
  num_query_groups: 8
  kv_channels: null
  hidden_dropout: 0.0
  attention_dropout: 0.0
  position_embedding_type: rope
  bias: false
  activation: squared-relu
  share_embeddings_and_output_weights: false
  override_vocab_size: 256000
  activations_checkpoint_granularity: full
  activations_checkpoint_method: block
  activations_checkpoint_num_layers: 2
  optim:
    name: distributed_fused_adam
"""


NANOTRON = """model:
  model_config:
    hidden_act: silu
    hidden_size: 2048
    intermediate_size: 8192
    is_llama_config: true
    max_position_embeddings: 4096
    num_attention_heads: 32
    num_hidden_layers: 24
    num_key_value_heads: 32
    pad_token_id: null
    rms_norm_eps: 1.0e-05
    tie_word_embeddings: true
    vocab_size: 49152
optimizer:
  accumulate_grad_in_fp32: false
  zero_stage: 1
parallelism:
  dp: 16
  pp: 2
  pp_engine: afab
  recompute_layer: true
  tp: 4
  tp_mode: ALL_REDUCE
tokens:
  batch_accumulation_per_replica: 2
  micro_batch_size: 4
  sequence_length: 4096
"""


def _parameters(text: str, tmp_path: Path, name: str = "run.sh") -> int:
    file = tmp_path / name
    file.write_text(text, encoding="utf-8")
    return load_model(str(file)).parameters


@pytest.mark.parametrize(("text", "preset"), [(LLAMA, "llama-3-8b"), (MIXTRAL, "mixtral-8x7b"),
                                              (DEEPSEEK, "deepseek-v3")])  # fmt: skip
@pytest.mark.parametrize("escaped", [False, True])
def test_arguments_of_a_published_network_have_its_parameters(
    text: str, preset: str, escaped: bool, tmp_path: Path
) -> None:
    """A list of layers is quoted, or has a backslash before each bracket."""
    if escaped:
        text = text.replace('"([0]*3+[1]*58)"', r"\(\[0\]\*3+\[1\]\*58\)")
    assert _parameters(text, tmp_path) == load_model(preset).parameters


def test_what_arguments_leave_out_is_megatrons_default(tmp_path: Path) -> None:
    """An MLP of 4 x hidden with biases, learned positions, a tied output, GPT-2's words; a gate in a comment counts
    for nothing."""
    hidden, layers, rows, words = 12288, 96, 2048, 50257
    layer = 12 * hidden**2 + 13 * hidden  # Narayanan et al. 2021, arXiv:2104.04473, equation 2
    assert _parameters(GPT3, tmp_path) == layers * layer + (words + rows) * hidden + 2 * hidden


def test_a_gate_has_two_thirds_of_the_width(tmp_path: Path) -> None:
    text = LLAMA.replace("--ffn-hidden-size 14336 ", "")
    file = tmp_path / "run.sh"
    file.write_text(text)
    assert load_model(str(file)).spec.ffn == int(4 * 4096 * 2 / 3) // 64 * 64 == 10880


def test_groups_need_the_switch_that_asks_for_them(tmp_path: Path) -> None:
    file = tmp_path / "run.sh"
    file.write_text(LLAMA.replace("--group-query-attention\n", ""))
    assert load_model(str(file)).spec.kv_heads == 32


def test_a_yaml_of_nemo_is_read_with_its_references(tmp_path: Path) -> None:
    h, kv, ffn = 6144, 8 * 128, 4 * 6144
    layer = 2 * h * h + 2 * h * kv + 2 * h * ffn + 4 * h
    assert _parameters(NEMO, tmp_path, "nemo.yaml") == 32 * layer + 2 * 256000 * h + 2 * h


@pytest.mark.parametrize(
    ("name", "text"),
    [("nemo.yaml", NEMO.replace("  override_vocab_size: 256000\n", "  tokenizer:\n    library: huggingface\n"
                                "    type: meta-llama/Meta-Llama-3-8B\n")),
     ("run.sh", LLAMA.replace("--vocab-size 128256", "--tokenizer-type HuggingFaceTokenizer "
                              "--tokenizer-model meta-llama/Meta-Llama-3-8B"))],
)  # fmt: skip
def test_a_tokenizer_that_is_named_after_a_model_has_its_words(
    name: str, text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It had GPT-2's 50,257."""
    (tmp_path / name).write_text(text)
    assert load_model(str(tmp_path / name)).spec.vocab == 128256
    _, told = _read(text, name, tmp_path, capsys)
    assert "128,256, as llama-3-8b has" in told and "not read" not in told


def _read(text: str, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[dict, str]:
    file = tmp_path / name
    file.write_text(text, encoding="utf-8")
    assert run(["memory", "--job", str(file), *words, "--json"]) in (0, 1)
    out, err = capsys.readouterr()
    return json.loads(out), err


def test_a_script_is_a_job(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found, told = _read(GPT3, "run.sh", tmp_path, capsys)
    job = found["job"]
    want = {"tp": 8, "pp": 16, "gpus": 128, "zero": 1, "seq": 2048, "global_batch": 1536, "precision": "bf16"}
    assert {name: job[name] for name in want} == want
    assert job["framework"] == "megatron-core" and job["vocab_padded"] == 51200
    assert "read as arguments of Megatron: --framework megatron-core" in told
    assert "--vocab-size 50,257, as GPT-2 has" in told and "4 x hidden" in told and "not read" not in told


def test_a_script_has_the_answer_of_the_same_job_by_hand(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found, _ = _read(LLAMA, "run.sh", tmp_path, capsys, "--gpus", "8", "--gpu", "h100-sxm")
    job = Job(model="llama-3-8b", gpu="h100-sxm", gpus=8, precision="bf16-fp32-grads", framework="megatron-core")
    by_hand = memory(job)
    assert found["peak"] == by_hand.peak


def test_a_yaml_of_nemo_is_a_job(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found, told = _read(NEMO, "nemo.yaml", tmp_path, capsys)
    want = {"tp": 4, "pp": 4, "gpus": 128, "zero": 1, "seq": 4096, "recompute": "full", "recompute_layers": 2}
    assert {name: found["job"][name] for name in want} == want
    assert found["job"]["framework"] == "nemo" and "not read" not in told


def test_a_log_with_all_arguments_is_a_job(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Megatron prints all of them, defaults too, which say nothing where what they belong to is off."""
    said = {"num_layers": 32, "hidden_size": 4096, "ffn_hidden_size": 14336, "num_attention_heads": 32, "bf16": True,
            "group_query_attention": True, "num_query_groups": 8, "max_position_embeddings": 8192, "swiglu": True,
            "position_embedding_type": "rope", "normalization": "RMSNorm", "vocab_size": None, "add_bias_linear": False,
            "untie_embeddings_and_output_weights": True, "padded_vocab_size": 128256, "seq_length": 8192,
            "attention_dropout": 0.0, "hidden_dropout": 0.0, "micro_batch_size": 1, "global_batch_size": 64,
            "tensor_model_parallel_size": 2, "world_size": 16, "use_distributed_optimizer": True, "num_experts": None,
            "sequence_parallel": True, "expert_tensor_parallel_size": 2, "data_parallel_sharding_strategy": "no_shard",
            "use_megatron_fsdp": False, "encoder_num_layers": 32, "bert_binary_head": True, "fp8_recipe": "delayed",
            "is_hybrid_model": False, "hybrid_attention_ratio": 0.0, "overlap_grad_reduce": True,
            "grad_reduce_in_bf16": False, "use_checkpoint_args": False, "moe_layer_freq": 1}  # fmt: skip
    lines = [f"[default0]:  {name} {'.' * (48 - len(name))} {value}" for name, value in said.items()]
    text = "\n".join(["---- arguments ----", *lines, "---- end of arguments ----", "building GPT model ..."])
    assert _parameters(text, tmp_path, "train.log") == load_model("llama-3-8b").parameters
    found, told = _read(text, "train.log", tmp_path, capsys)
    want = {"tp": 2, "gpus": 16, "zero": 1, "global_batch": 64, "sequence_parallel": True,
            "precision": "bf16-fp32-grads", "dp_comm_overlap": True}  # fmt: skip
    assert {name: found["job"][name] for name in want} == want
    assert "not read" not in told and "assumed" not in told


def test_scripts_that_train_no_decoder_are_not_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "run.sh"
    file.write_text(f"pretrain_bert.py {GPT3}")
    assert run(["memory", str(file)]) == 2
    assert "which are not read" in capsys.readouterr().err


def test_a_yaml_of_nanotron_is_a_job(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    h = 2048
    layers = 24 * (4 * h * h + 3 * h * 8192 + 2 * h)
    assert _parameters(NANOTRON, tmp_path, "tiny.yaml") == layers + h + 49152 * h
    found, told = _read(NANOTRON, "tiny.yaml", tmp_path, capsys)
    want = {"tp": 4, "pp": 2, "gpus": 128, "zero": 1, "schedule": "gpipe", "recompute": "full", "precision": "bf16",
            "sequence_parallel": False, "micro_batch": 4, "global_batch": 128, "framework": "nanotron"}  # fmt: skip
    assert {name: found["job"][name] for name in want} == want
    assert "not read" not in told


def test_modules_that_recompute_and_predictions_are_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = DEEPSEEK.replace("--micro-batch-size 1", "--micro-batch-size 1 --moe-enable-something --nnodes 32 "
                            "--nproc_per_node 8 --expert-model-parallel-size 16 "
                            "--moe-token-dispatcher-type allgather")  # fmt: skip
    found, told = _read(text, "run.sh", tmp_path, capsys, "--gpu", "h100-sxm")
    want = {"mtp": 1, "recompute_modules": "mla_up_proj,mlp", "gpus": 256, "ep": 16, "expert_dispatcher": "allgather"}
    assert {name: found["job"][name] for name in want} == want
    assert "not read: --moe-enable-something" in told


def test_a_part_of_the_optimizer_leaves_only_with_its_switch(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = MIXTRAL + "--use-distributed-optimizer --nproc_per_node 8 --optimizer-offload-fraction 0.4\n"
    for more, offload, part in (("--optimizer-cpu-offload", "optimizer", 0.4), ("", "none", None)):
        job = _read(text.replace("0.4", f"0.4 {more}"), "run.sh", tmp_path, capsys, "--gpu", "h100-sxm")[0]["job"]
        assert (job["offload"], job.get("offload_fraction")) == (offload, part)


def test_experts_are_cut_as_layers_are_unless_told_otherwise(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = MIXTRAL + "--tensor-model-parallel-size 2 --sequence-parallel --nproc_per_node 8\n"
    assert _read(text, "run.sh", tmp_path, capsys)[0]["job"]["etp"] == 2
    apart = text + "--expert-tensor-parallel-size 1 --expert-model-parallel-size 4\n"
    assert _read(apart, "run.sh", tmp_path, capsys)[0]["job"]["etp"] == 1


def test_without_a_precision_megatron_computes_in_fp32(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found, _ = _read(LLAMA.replace("--bf16", ""), "run.sh", tmp_path, capsys, "--gpus", "8")
    assert found["job"]["precision"] == "fp32"


@pytest.mark.parametrize(
    ("first", "last", "stages"), [("7", "9", [7, 8, 8, 9]), ("8", "", [8] * 4), ("5", "", [5, 9, 9, 9])]
)  # fmt: skip
def test_ends_of_a_pipeline_have_their_own_layers(
    first: str,
    last: str,
    stages: list[int],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    ends = f"--decoder-first-pipeline-num-layers {first} " + (f"--decoder-last-pipeline-num-layers {last}" * bool(last))
    text = LLAMA + f"--pipeline-model-parallel-size 4 --nproc_per_node 8 {ends}\n"
    assert _read(text, "run.sh", tmp_path, capsys)[0]["job"]["stage_layers"] == stages


REFUSED = [
    (LLAMA.replace("--hidden-size 4096", "--hidden-size $((64*WIDTH))"), "--hidden-size is '$((64*WIDTH'", "write the"),
    (LLAMA + "--hybrid-override-pattern M-M*\n", "--hybrid-override-pattern makes a network", "name the model"),
    (MIXTRAL + "--moe-layer-freq ([0]*3+[1]*58)\n", "names 61 layers of 32", ""),
    (MIXTRAL + "--moe-layer-freq __import__('os')\n", "is no list of layers", "([0]*3+[1]*58)"),
    (MIXTRAL + "--moe-layer-freq [1]*999999999999\n", "is no list of layers", ""),
    (LLAMA.replace("--hidden-size 4096", "--hidden-size 0"), "hidden", ""),
    (LLAMA.replace("--num-attention-heads 32", ""), "which are not read", "--num-attention-heads is missing"),
]


@pytest.mark.parametrize(("text", "problem", "hint"), REFUSED)
@pytest.mark.parametrize("words", [["memory"], ["memory", "--job"], ["show", "models"]])
def test_what_is_no_network_is_one_error(
    text: str, problem: str, hint: str, words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "run.sh"
    file.write_text(text)
    assert run([*words, str(file)]) == 2
    told = capsys.readouterr().err
    assert problem in told and hint in told and "Traceback" not in told


@pytest.mark.parametrize(
    ("nodes", "tp", "gpus", "said"),
    [("NNODES=${SLURM_NNODES:-\"4\"}", "TP=${TP_SIZE:-2}", 32, {"tp": 2, "zero": 1}),
     ("export NNODES='2'", "TP=4", 16, {"tp": 4}), ("NNODES=${NNODES-3}", "TP=1", 24, {"tp": 1})],
)  # fmt: skip
def test_variables_have_their_usual_values(
    nodes: str, tp: str, gpus: int, said: dict[str, int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = f"{nodes}\n{tp}\n{LLAMA} --nproc_per_node 8 --nnodes $NNODES --tensor-model-parallel-size ${{TP}} "
    found, told = _read(text + "--use-distributed-optimizer\n", "run.sh", tmp_path, capsys, "--gpu", "h200-sxm")
    assert {name: found["job"][name] for name in said} == said and found["job"]["gpus"] == gpus
    assert "to be stated" not in told


def test_variables_that_nothing_sets_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An unknown number of nodes was one node, and a degree was left out without a word."""
    text = f"TP=$1\n{LLAMA} --nproc_per_node 8 --nnodes $SLURM_NNODES --tensor-model-parallel-size $TP\n"
    _, told = _read(text, "run.sh", tmp_path, capsys, "--gpus", "16", "--gpu", "h200-sxm")
    assert "--nnodes is $SLURM_NNODES, which the file does not set" in told and "--gpus 8" not in told
    assert "--tensor-model-parallel-size is $TP, which the file does not set" in told
    assert "how many accelerators there are is not stated there" in told


def test_a_file_that_is_taken_as_a_model_alone_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "run.sh"
    file.write_text(LLAMA)
    assert run(["memory", str(file), "--gpu", "h200-sxm", "--seq", "2048"]) in (0, 1)
    assert f"--job {file} also takes its degrees" in capsys.readouterr().err
    assert run(["memory", "--job", str(file), "--gpus", "8"]) in (0, 1)
    assert "also takes its degrees" not in capsys.readouterr().err


def test_arguments_that_are_stated_twice_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "run.sh"
    file.write_text(LLAMA + "--num-layers 16\n")
    assert run(["show", "models", str(file)]) == 0
    assert "--num-layers stated more than once: the last value is taken" in capsys.readouterr().err
