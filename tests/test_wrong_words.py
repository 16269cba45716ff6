"""What a user is told whose words cannot be what was meant: degrees, choices, configurations, machines apart."""

from __future__ import annotations

import json
import os
import re
import time
from pathlib import Path

import pytest

import distsim
from distsim import catalog
from distsim.cli.app import run

ERRORS = [
    # degrees that do not divide the GPUs: others that the model can be cut into, or as many GPUs
    ("memory llama-7b --gpus 8 --tp 5", "valid --tp: 1, 2, 4, 8\n", "nearby"),
    ("memory llama-7b --gpus 8 --tp 3 --pp 2", "valid --tp: 1, 2, 4\n", "nearby"),
    ("memory llama-7b --gpus 8 --cp 3", "valid --cp: 1, 2, 4, 8\n", "nearby"),
    ("memory llama-7b --gpus 8 --pp 3", "valid --gpus nearby: 6, 9", "chunk"),
    ("step llama-7b --pp 64 --gpus 64", "64 pipeline stages need more than the 32 layers", "chunk"),
    ("step llama-7b --stage-layers 3,4", "counts needed: 1, in model order", "numbers"),
    # words that are nearly one of the choices
    ("memory llama-7b --precision int8", "unknown precision 'int8'\n  did you mean jax-int8?", "the nearest is int8"),
    ("memory llama-7b -gpus 8", "unknown option -gpus\n  write --gpus\n", "-g\n"),
    ("--json memory llama-7b", "a command comes first: distsim memory llama-7b --json", "did you mean"),
    ("memory llama-7b --recompute ful", "did you mean full? choices: none, selective, full", ""),
    ("memory llama-7b --attention flsh", "did you mean flash?", ""),
    ("memory --model llama-7b", "the model is a plain argument: distsim memory llama-7b", "--tp-mode"),
    ("comm --bytes 1GB --gpus 16", "--bytes: only valid with --collective", "no model"),
    ("comm llama-7b --collective all_reduce", "takes no MODEL", "--model"),
    ("step llama-7b --framework deepspeed-zero-3", "did you mean --framework deepspeed --zero 3?", "nearest"),
    (
        "step llama-7b --framework PyTorch",
        "torch trains by --framework torch-ddp, fsdp (with --zero 2 or 3) or",
        "plain",
    ),
    ("step llama-7b --framework pytorch-fsdp", "did you mean fsdp?", "ddp"),
    # a preset is named once, not again by its alias
    ("step llama-7b --framework intern-ev", "did you mean intern-evo, ", "internevo"),
    ("memory llama1-7", "did you mean llama1-7b, llama2-7b, ", "llama-7b"),
    ("step llama-7b --framework megatron-cor", "did you mean megatron-core", ""),
    ("step llama-7b --cluster dgx-h", "did you mean dgx-h200, dgx-h100", ""),
    ("search llama-7b --gpu h100,h200", "distsim plan compares several: --gpu h100,h200\n", "did you mean"),
    ("step llama-7b --precision bf16,fp8", "distsim search tries several: --precision bf16,fp8\n", "the nearest is"),
    ("memory llama-7b,llama-13b", "these are several: ask for one at a time\n", "did you mean"),
    ("comm llama-7b --profile nosuch.toml", "no file 'nosuch.toml'\n  write a network profile with", "links"),
    ("comm llama-7b --profile ib-ndr", "there is no network profile 'ib-ndr'", "show links"),
    ("search llama-3-8b --gpus 8 --within 20", "--within 20 has no unit\n  write e.g. 20s or 20ms", "20d"),
    ("search llama-3-8b --gpus 8 --within soon", "is not a time\n  write a number and a unit, e.g. 30s", "quantity"),
    ("plan llama-3-8b --tokens 1T --gpus 8 --deadline 2026-13-45", "e.g. 30d, 12h, 90min", "5 us"),
    ("search llama-3-8b --gpus 8 --vary seq=1,2", "takes 2 words, with a blank between\n  write --vary seq 1,2", ""),
    ("pipeline --stages 4 --micro 8 --forward 0 --backward 0", "there is nothing to time", ""),
]


@pytest.mark.parametrize(("words", "told", "not_told"), ERRORS, ids=lambda text: text[:40])
def test_what_is_wrong_and_what_would_be_right(
    words: str, told: str, not_told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(words.split()) == 2
    out, err = capsys.readouterr()
    assert told in err and not out
    assert not not_told or not_told not in err


@pytest.mark.parametrize(
    ("words", "name", "told"),
    [
        ("memory llama-7b --gpu", "card.json", "the file 'card.json' is not read: such a preset's ends in .toml"),
        ("memory", "notes.txt", "the file 'notes.txt' is not read: such a preset's ends in .toml"),
        ("comm llama-7b --profile", "links.json", "ends in .toml\n  write a network profile with: distsim calibrate"),
        ("memory llama-7b --framework", "./ours.toml", "ours.toml: is empty; a preset needs fields"),
    ],
)
def test_a_file_that_is_there_and_is_no_preset_is_told(
    words: str,
    name: str,
    told: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It was an unknown name, or none, and an empty framework was answered."""
    monkeypatch.chdir(tmp_path)
    Path(name).write_text("")
    assert run([*words.split(), name]) == 2
    assert told in capsys.readouterr().err


@pytest.mark.parametrize("name", ["", " "])
def test_a_name_that_is_empty_is_told(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """It was a folder without a configuration."""
    assert run(["show", "models", name]) == 2
    assert "the name is empty" in capsys.readouterr().err


@pytest.mark.parametrize("words", [
    ["memory", "llama-7b", "--job", ""], ["step", "llama-7b", "--trace="], ["search", "llama-7b", "--csv", ""],
    ["pipeline", "--order", "", "--stages", "2"], ["calibrate", "--nccl-tests", ""], ["memory", "llama-7b", "--tp", ""],
])  # fmt: skip
def test_an_option_without_text_is_told(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """A shell's unset variable was taken for the folder one works in."""
    flag = next(word for word in words if word.startswith("--")).removesuffix("=")
    assert run(words) == 2
    assert capsys.readouterr().err == f"error: {flag} is empty\n  give a value, or leave it out\n"


@pytest.mark.parametrize(("words", "told"), [
    ("memory llama-7b --gpu --gpus 8", "--gpu has no value: --gpus follows it"),
    ("memory llama-7b --gpus --zero 2", "--gpus has no value: --zero follows it"),
    ("search llama-7b --csv --json", "--csv has no value: --json follows it"),
    ("step llama-7b --trace --zero=1", "--trace has no value: --zero follows it"),
    ("search llama-7b --gpus 8 --csv", "--csv has no value: nothing follows it"),
])  # fmt: skip
def test_an_option_that_lacks_its_value_is_told(words: str, told: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The next option was taken for it: a file named --json.csv, or an unexpected argument further on."""
    assert run(words.split()) == 2
    assert capsys.readouterr().err == f"error: {told}\n  give a value, or leave it out\n"


def test_switches_may_follow_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["memory", "llama-7b", "--gpus", "8", "--zero", "1", "--all-stages", "--json"]) == 0
    assert "has no value" not in capsys.readouterr().err


@pytest.mark.parametrize("words", [["memory", "--json", ""], ["step", "--explain", ""], ["search", "--json", ""]])
def test_a_model_without_text_behind_a_switch_is_told(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(words) == 2
    assert capsys.readouterr().err.startswith("error: model is empty\n")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("step --job hand.toml --trace ./hand.toml", "--trace ./hand.toml would replace the file of --job"),
        ("step hand.toml --gpus 8 --trace=hand.toml", "--trace hand.toml would replace a file that is read"),
        ("pipeline --order hand.toml --svg hand.toml", "--svg hand.toml would replace the file of --order"),
        ("search gpt2 --csv new.csv --all new.csv", "--csv new.csv would replace the file of --all"),
        ("calibrate --nccl-tests hand.toml --output link.toml", "--output link.toml would replace the file of --nccl-"),
    ],
)
def test_no_file_that_is_named_twice_is_replaced(
    words: str, told: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("hand.toml").write_text("by hand", encoding="utf-8")
    Path("link.toml").symlink_to("hand.toml")
    assert run(words.split()) == 2
    assert f"error: {told}" in capsys.readouterr().err
    assert Path("hand.toml").read_text(encoding="utf-8") == "by hand" and not Path("new.csv").exists()


def test_files_that_differ_and_what_is_no_file_are_written_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["pipeline", "--stages", "2", "--micro", "2", "--svg", "gpt2.svg", "--trace", "gpt2.json"]) == 0
    for _ in range(2):  # the second time there is a file with the model's name, which nobody reads
        assert run(["step", "gpt2", "--gpus", "1", "--trace", "gpt2"]) == 0
    assert run(["step", "--job", "gpt2", "--trace", "gpt2"]) == 2
    assert run(["step", "gpt2", "--gpus", "1", "--trace", "/dev/null"]) == 0
    assert sorted(one.name for one in tmp_path.iterdir()) == ["gpt2", "gpt2.json", "gpt2.svg"]


@pytest.mark.parametrize("words", [one[0] for one in ERRORS[:4]])
def test_degrees_that_are_offered_run(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    run(words.split())
    for name, values in re.findall(r"valid --(\w+)(?: nearby)?: ([\d, ]+)", capsys.readouterr().err):
        for value in values.split(", "):
            assert run([*words.split(), f"--{name}", value, "--json"]) in (0, 1), (name, value)


def test_odd_lines_of_a_configuration_are_told_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = {"model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 4, "num_attention_heads": 30,
              "intermediate_size": 11008, "vocab_size": 32000, "hidden_act": "sily",
              "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}}  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert run(["memory", str(tmp_path), "--gpus", "8"]) == 0
    told = capsys.readouterr().err
    assert "activation 'sily' is unknown: assumed to be one kernel; did you mean silu" in told
    assert "30 heads do not divide hidden size 4096: using heads of 136" in told
    assert told.count("quantization_config") == 1 and "quant_method" not in told


def test_machines_that_nothing_joins(capsys: pytest.CaptureFixture[str]) -> None:
    """Memory can be told of them; what is proposed to make a job fit is a job that the other commands can tell of."""
    words = "memory llama-7b --gpu rtx-3060 --gpus 512 --zero 3 --recompute full --json"
    assert run(words.split()) == 0
    assert (
        "cluster workstation-4x-rtx-3060 states none: memory can still be computed, comm and step cannot"
        in capsys.readouterr().err
    )
    assert run(["memory", "llama-2-70b", "--gpu", "rtx-3060", "--gpus", "1", "--json"]) == 1
    mends = [one["flags"].split() for one in json.loads(capsys.readouterr().out)["mends"]]
    assert mends
    for flags in mends:
        assert run(["comm", "llama-2-70b", "--gpu", "rtx-3060", "--gpus", "1", *flags, "--json"]) == 0, flags
        capsys.readouterr()


def test_tables_have_no_colour_where_none_is_wanted(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("NO_COLOR", "1")
    assert run(["show", "gpu", "h100-sxm"]) == 0
    assert "\x1b" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("plan llama-7b --tokens 1T --provider nofile.toml", ["no file 'nofile.toml'", "list them"]),
        ("memory llama7b.toml", ["no file 'llama7b.toml'", "did you mean llama-7b"]),
        ("memory /dev/null", ["'/dev/null' is a device or a pipe, not a file", "list them"]),
        ("show nothing", ["unknown kind 'nothing'", "kinds: "]),
        ("show llama-7b", ["'llama-7b' is a preset, not a kind of them", "type: distsim show models llama-7b"]),
        ("show presets/gpus/t4.toml", ["the kind of 'presets/gpus/t4.toml' is missing", "put it first"]),
        ("show adamw", ["'adamw' is a preset, not a kind of them", "type: distsim show optimizers adamw"]),
        ("show mdels", ["unknown kind 'mdels'", "did you mean models?"]),
        ("memory llama-7b --cluster dgx", ["unknown cluster 'dgx'", "did you mean dgx-"]),
    ],
)
def test_only_what_is_like_a_wrong_word_is_offered(
    words: str, told: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """A file that is not there was hot-aisle, and nothing was timing."""
    assert run(words.split()) == 2
    lines = capsys.readouterr().err.splitlines()
    assert all(line.strip().removeprefix("error: ").startswith(start) for line, start in zip(lines, told, strict=False))


def test_lines_of_a_step_fold_to_the_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    words = ("step llama-2-70b --gpu h100-sxm --gpus 64 --tp 2 --pp 8 --seq 3968 --zero 1 --zero-group 4 "
             "--micro-batch 1 --global-batch 1024 --recompute none")  # fmt: skip
    assert run(words.split()) == 0
    text = capsys.readouterr().out
    assert "barely fits\n" in text
    figures = text.split("\n\n")[1]
    assert max(map(len, figures.splitlines())) <= 80


def test_days_of_a_search_are_those_of_a_campaign(capsys: pytest.CaptureFixture[str]) -> None:
    words = "search llama-7b --gpu h100-sxm --gpus 8 --global-batch 1024 --tp 1 --pp 1 --micro-batch 4 --top 1"
    assert run([*words.split(), "--tokens", "100B", "--deadline", "900d", "--json"]) == 0
    out, err = capsys.readouterr()
    assert "the pace of published campaigns" in err
    assert any("the pace of published campaigns" in note for note in json.loads(out)["notes"])


def test_the_fewest_nodes_that_are_quick_enough(capsys: pytest.CaptureFixture[str]) -> None:
    """Eight GPUs are too few; 64 would do, and so do 48."""
    words = "search llama-3-8b --gpu h100-sxm --gpus 8 --micro-batch 1,2 --recompute none --zero 1 --top 1 --json"
    limits = ["--tokens", "1T", "--deadline", "30d"]
    assert run([*words.split(), *limits]) == 1
    fewest = json.loads(capsys.readouterr().out)["quick_enough"]["gpus"]
    assert fewest % 8 == 0 and fewest not in (16, 32, 64)
    batch = ["--global-batch", str(512)]
    assert run([*words.replace("--gpus 8", f"--gpus {fewest}").split(), *limits, *batch]) == 0
    capsys.readouterr()
    assert run([*words.replace("--gpus 8", f"--gpus {fewest - 8}").split(), *limits, *batch]) in (1, 2)


def test_runs_with_nothing_measured_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """They are predicted, which may be what is wanted, and stand in no error."""
    file = tmp_path / "mine.csv"
    row = "{},llama-2-7b,4096,1,64,bf16,a100-sxm4-80gb,8,8,1,1,fsdp,{}\n"
    head = "id,model,seq_len,micro_batch,global_batch,precision,gpu,n_gpus,dp,tp,pp,framework,step_time_s\n"
    file.write_text(head + row.format("a", 18) + row.format("b", ""))
    assert run(["validate", str(file), "--json"]) == 0
    out, err = capsys.readouterr()
    assert "1 row has neither a measured step time nor a measured peak to compare with (b)" in err
    assert json.loads(out)["summary"]["timed_rows"] == 1


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("--gpus 8,16", "for several: distsim search llama-7b --gpus 8,16"),
        ("--tp 2..4", "for several: distsim search llama-7b --tp 2..4"),
        ("--gpus 8-16", "for several: distsim search llama-7b --gpus 8..16"),
        ("--gpus 8,192", "write 8192; for several: distsim search llama-7b --gpus 8,192"),
        ("--seq 4,096", "write 4096"),
        ("--seq 1024,2048", "it takes one number"),
    ],
)
def test_several_numbers_are_not_one(given: str, told: str, capsys: pytest.CaptureFixture[str]) -> None:
    """8,16 was 816."""
    assert run(["memory", "llama-7b", *given.split()]) == 2
    assert capsys.readouterr().err.splitlines()[1] == f"  {told}"


def test_a_comma_before_a_fraction_is_none_between_thousands(capsys: pytest.CaptureFixture[str]) -> None:
    """1,5GB was 15 GB."""
    words = ["comm", "--collective", "all_reduce", "--gpus", "8", "--json", "--bytes"]
    assert run([*words, "1,5GB"]) == 2
    assert "'1,5GB' is not a quantity in B" in capsys.readouterr().err
    assert run([*words, "1,500MB"]) == 0


PIPED = [
    "memory ./PIPE.json", "comm llama-7b --job PIPE.json", "memory --job PIPE.toml", "show model ./PIPE.json",
    "validate PIPE.csv", "calibrate PIPE.csv", "calibrate --nccl-tests PIPE.txt --gpu h100-sxm",
    "show topology --nccl-log PIPE.txt", "pipeline --order PIPE.txt", "memory llama-7b --cluster ./PIPE.toml",
    "show run ./PIPE.csv", "memory ./PIPE.txt",
]  # fmt: skip


@pytest.mark.parametrize("words", PIPED)
def test_a_pipe_that_nobody_writes_to_is_not_waited_for(
    words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    pipe = words.split("PIPE")[1].split()[0]
    os.mkfifo(f"PIPE{pipe}")
    assert run(words.split()) == 2
    assert "is a device or a pipe, not a file" in capsys.readouterr().err


def test_a_pipe_that_a_shell_hands_over_is_read(capsys: pytest.CaptureFixture[str]) -> None:
    reading, writing = os.pipe()
    with open(writing, "w", encoding="utf-8") as out:
        out.write("model = 'llama-7b'\ngpus = 16\nzero = 3\n")
    assert run(["memory", "--job", f"/dev/fd/{reading}"]) == 0
    os.close(reading)
    assert "16 x a100" in capsys.readouterr().out


@pytest.mark.parametrize("typed", ["PyTorch FSDP", "torch fsdp", "FSDP (PyTorch)"])
def test_a_framework_within_a_name_is_told(typed: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["step", "llama-7b", "--framework", typed]) == 2
    assert "did you mean fsdp?" in capsys.readouterr().err


def test_a_job_without_a_model_is_no_table() -> None:
    with pytest.raises(distsim.DistsimError, match="field 'model' is missing\n  it takes a name or a file"):
        distsim.Job(gpus=8)


def test_networks_deeper_than_any_are_refused_and_deep_ones_quick(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The moments of a stage's backward pass grew with the square of its layers: 40 s of processor time for 10,000."""
    text = catalog.path("models", "llama-3-8b").read_text().replace("layers = 32", "layers = {}")
    for layers, code in ((10_000, 1), (10_001, 2)):
        file = tmp_path / f"deep-{layers}.toml"
        file.write_text(text.format(layers))
        began = time.process_time()
        assert run(["step", str(file), "--gpus", "8", "--zero", "3", "--json"]) == code
        assert time.process_time() - began < 20
    assert "layers 10,001 is too large\n  it must be at most 10,000" in capsys.readouterr().err
