"""``distsim memory`` as a user types it: answers, exit codes, JSON, configuration, and every way to be wrong."""

from __future__ import annotations

import itertools
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import distsim
from distsim import catalog
from distsim.arrays import ceil_div, maximum, minimum, round_up, where
from distsim.cli.app import run
from distsim.formula import REGISTRY

CATEGORIES = ["parameters", "gradients", "optimizer", "activations", "buffers", "framework"]


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No configuration but the test's own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("COLUMNS", "100")
    for name in ("FORCE_COLOR", "DISTSIM_PRESETS", "DISTSIM_GPU"):
        monkeypatch.delenv(name, raising=False)


def answer(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = run(["memory", *words])
    out, err = capsys.readouterr()
    return code, out, err


def data(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    code, out, _ = answer(capsys, *words, "--json")
    told: dict[str, Any] = json.loads(out)
    assert code == (0 if told["fits"] else 1)
    return told


def test_fits_exits_0(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = answer(capsys, "llama-7b", "--zero", "2", "--gpus", "8")
    assert (code, err) == (0, "")
    assert "fits: " in out
    assert "to spare" in out


def test_does_not_fit_exits_1_and_says_what_would(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = answer(capsys, "llama-7b", "--gpus", "8", "--zero", "0")
    assert code == 1
    assert "does not fit" in out
    assert "--zero 1" in out


def test_a_job_that_measured_runs_doubt_barely_fits_and_is_told_what_leaves_room(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It "fits" in 23.27 of 23.52 GiB, where fewer than half of measured runs would, and nothing was proposed."""
    tuned = ["llama-3.1-8b", "--gpu", "rtx-4090", "--gpus", "1", "--framework", "huggingface", "--seq", "2048"]
    code, out, err = answer(capsys, *tuned, "--lora-rank", "16", "--quantize", "nf4")
    room = out.partition("\nWhat leaves 10% free, smallest change first")[2]
    capacity = catalog.load("gpus", "rtx-4090").capacity / 2**30
    rows = [line.split() for line in room.splitlines() if re.match(r" *\d+\.\d\d ", line)]
    assert code == 0 and "\nbarely fits: " in out and rows
    assert all(float(peak) <= 0.9 * float(full) and int(sure[:-1]) > 70 for peak, full, sure, *_ in rows)
    assert rows[0][1] == f"{capacity:.2f}"
    turned_on = "also turns gradient checkpointing on unless told otherwise: --recompute full"
    assert turned_on in err
    assert turned_on not in answer(capsys, *tuned, "--lora-rank", "16", "--quantize", "nf4", "--recompute", "none")[2]


def test_json_is_the_contract(capsys: pytest.CaptureFixture[str]) -> None:
    told = data(capsys, "llama-7b", "--tp", "2", "--pp", "2", "--gpus", "8", "--zero", "1")
    assert told["schema"] == "distsim.memory/1"
    assert [stage["stage"] for stage in told["stages"]] == [0, 1]
    for stage in told["stages"]:
        assert list(stage["categories"]) == CATEGORIES
        assert all(isinstance(size, int) and size >= 0 for size in stage["categories"].values())
        assert abs(sum(stage["categories"].values()) - stage["peak"]) <= len(CATEGORIES)
        assert set(stage["saved"]) >= {"per_layer", "layers", "embedding", "head_and_loss", "total"}
        assert stage["ranks"] == 4
        assert stage["peak_moment"]
    assert told["peak"] == max(stage["peak"] for stage in told["stages"])
    assert told["headroom"] == told["capacity"] - told["peak"]
    assert {"tp", "pp", "dp", "zero", "seq", "micro_batch", "global_batch", "precision"} <= set(told["job"])


def test_mends_are_true(capsys: pytest.CaptureFixture[str]) -> None:
    """What is offered, typed, gives the peak that was promised."""
    for words in (["llama-7b", "--gpus", "8"], ["llama-13b", "--gpus", "8", "--micro-batch", "8", "--zero", "1"]):
        told = data(capsys, *words)
        assert not told["fits"]
        assert told["mends"]
        for mend in told["mends"]:
            changed = mend["flags"].split()
            stated = dict(zip(words[1::2], words[2::2], strict=True))
            stated.update(zip(changed[::2], changed[1::2], strict=True))
            again = data(capsys, words[0], *(word for pair in stated.items() for word in pair))
            assert again["fits"], mend
            assert again["peak"] == mend["peak"], mend


def test_hopeless_job_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = answer(capsys, "megatron-1t", "--gpu", "t4", "--gpus", "1", "--seq", "2000000")
    assert code == 1
    assert "Nothing that was tried makes it fit" in out
    assert "Nearest" in out


def test_zero_stages_side_by_side(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = answer(capsys, "llama-7b", "--gpus", "8", "--zero", "2")
    rows = [line.split()[0] for line in out.splitlines() if line[:2] in ("0 ", "1 ", "2 ", "3 ")]
    assert rows[-4:] == ["0", "1", "2", "3"]
    _, alone, _ = answer(capsys, "llama-7b", "--gpus", "1")
    assert "each ZeRO stage" not in alone


def test_identical_stages_are_one_row(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("llama-7b", "--pp", "8", "--gpus", "8", "--schedule", "gpipe")
    _, out, _ = answer(capsys, *words)
    assert "1-6 " in out
    _, all_rows, _ = answer(capsys, *words, "--all-stages")
    assert "1-6 " not in all_rows
    assert "\nstage 5 " in all_rows


def test_explain_shows_formula_numbers_and_source(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = answer(capsys, "llama-7b", "--zero", "2", "--gpus", "8", "--explain")
    assert code == 0
    out = " ".join(out.split())
    assert "parameters * bytes_per_parameter / where(zero_stage >= 3, zero_group_size, 1)" in out
    assert "6,738,415,616 * 2 / where(2 >= 3, 8, 1)" in out
    assert "arXiv:1910.02054" in out
    assert "attention.qkv" in out
    assert "command line" in out
    told = data(capsys, "llama-7b", "--zero", "2", "--gpus", "8", "--explain")
    figure = told["stages"][0]["figures"][0]
    assert {"label", "value", "unit", "source", "formula", "expression", "arguments"} <= set(figure)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full here")
def test_full_disk_is_an_error_in_words() -> None:
    command = [sys.executable, "-m", "distsim", "memory", "llama-7b", "--zero", "2"]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode in (2, 120)
    assert done.stderr.startswith("error: ") and "Errno" not in done.stderr
    assert "Traceback" not in done.stderr


def test_reader_that_goes_away_is_no_error() -> None:
    command = f"{sys.executable} -m distsim memory llama-7b --explain | head -n 1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    assert done.stdout.startswith("Stage 0")
    assert done.stderr == ""


def test_notes_go_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = answer(capsys, "llama-7b", "--seq", "4096", "--zero", "3", "--json")
    assert code == 0
    json.loads(out)
    assert "note: 4,096 tokens" in err


WRONG = [
    (["llama-7b", "--tp", "6", "--gpus", "6"], "tensor parallel degree 6 does not divide 32 attention heads"),
    (["llama-7b", "--pp", "3", "--gpus", "3", "--framework", "megatron-2021"], "do not divide 32 layers"),
    (["llama-7b", "--pp", "4", "--vpp", "3", "--gpus", "4", "--framework", "maxtext"], "do not divide 32 layers"),
    (["llama-7b", "--pp", "64", "--gpus", "64"], "layers"),
    (["llama-7b", "--gpus", "8", "--global-batch", "12"], "global batch 12 is not a multiple"),
    (["mixtral-8x7b", "--gpus", "24", "--ep", "3"], "expert parallel degree 3 does not divide 8 experts"),
    (["llama-7b", "--ep", "2", "--gpus", "8"], "no experts"),
    (["lama-7b"], "did you mean llama-7b"),
    (["llama-7b", "--gpu", "a101"], "unknown gpu"),
    (["llama-7b", "--framework", "megatron-cor"], "did you mean megatron-core"),
    (["llama-7b", "--precision", "bf61"], "unknown precision"),
    (["llama-7b", "--optimizer", "adamwww"], "unknown optimizer"),
    (["llama-7b", "--recompute", "some"], "recompute"),
    (["llama-7b", "--schedule", "2f2b", "--pp", "2", "--gpus", "8"], "schedule"),
    (["llama-7b", "--zero", "4"], "zero"),
    (["llama-7b", "--gpus", "0"], "gpus"),
    (["llama-7b", "--micro-batch", "-1"], "--micro-batch"),
    (["llama-7b", "--seq", "99999999999999999999"], "seq"),
    (["llama-7b", "--gpus", "7", "--tp", "2"], "does not divide 7 GPUs"),
    (["llama-7b", "--gpus", "8", "--dp", "4"], "dp 4"),
    (["llama-7b", "--zero-group", "2"], "no effect"),
    (["llama-7b", "--recompute-layers", "2"], "no effect"),
    (["llama-7b", "--stage-layers", "16,15", "--pp", "2", "--gpus", "8"], "31 layers"),
    (["llama-7b", "--stage-layers", "a,b"], "--stage-layers"),
    (["llama-7b", "--stage", "0"], "no effect without --explain"),
    (["llama-7b", "--stage", "9", "--explain"], "no stage 9"),
    (["llama-7b", "--cluster", "dgx-h100", "--gpu", "a100"], "cluster dgx-h100"),
    ([], "no model named"),
    (["nowhere.toml"], "no file"),
    (["."], "config.json"),
]  # fmt: skip


@pytest.mark.parametrize(("words", "told"), WRONG, ids=[" ".join(words) or "nothing" for words, _ in WRONG])
def test_wrong_input_exits_2_with_words(words: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = answer(capsys, *words)
    assert (code, out) == (2, "")
    assert told in err
    assert "Traceback" not in err


BROKEN = {
    "not.toml": ("zero = = 2", "not valid TOML"),
    "binary.toml": (b"\xff\xfe\x00", "is not a text file; TOML is expected"),
    "unknown.toml": ("zeroo = 2", "did you mean zero"),
    "type.toml": ('micro_batch = "many"', "micro_batch"),
    "table.toml": ("[zero]\nstage = 2", "zero"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_job_files(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text, told = BROKEN[name]
    (tmp_path / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    code, out, err = answer(capsys, "llama-7b", "--job", name)
    assert (code, out) == (2, "")
    assert told in err
    assert name in err


def test_missing_job_file_and_broken_config_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert answer(capsys, "llama-7b", "--job", "gone.toml")[0] == 2
    for text in ("{", "[]", "{}", "null", '{"model_type": "llama", "hidden_size": "x"}'):
        (tmp_path / "config.json").write_text(text)
        code, _, err = answer(capsys, "config.json")
        assert code == 2, text
        assert "config.json" in err


def origin(out: str, option: str) -> tuple[str, str]:
    words = next(line for line in out.splitlines() if line.startswith(f"{option} ")).split(maxsplit=2)
    return words[1], words[2]


def test_where_options_come_from(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Command line over job file over environment over project over user over preset."""
    (tmp_path / "config" / "distsim").mkdir(parents=True)
    (tmp_path / "config" / "distsim" / "config.toml").write_text('gpu = "h200-sxm"\nseq = 512\nzero = 1\ngpus = 16')
    (tmp_path / "distsim.toml").write_text('gpu = "b200-sxm"\nzero = 2\nmicro-batch = 3')
    (tmp_path / "job.toml").write_text("micro_batch = 5")
    monkeypatch.setenv("DISTSIM_GPU", "h100-sxm")
    code, out, _ = answer(capsys, "llama-7b", "--job", "job.toml", "--zero", "3", "--show-config")
    assert code == 0
    assert origin(out, "zero") == ("3", "command line")
    assert origin(out, "micro_batch") == ("5", "job file job.toml")
    assert origin(out, "gpu") == ("h100-sxm", "environment DISTSIM_GPU")
    assert origin(out, "seq")[1].startswith("user config")
    assert origin(out, "gpus")[0] == "16"
    assert origin(out, "tp") == ("1", "default")
    monkeypatch.delenv("DISTSIM_GPU")
    assert origin(answer(capsys, "llama-7b", "--show-config")[1], "gpu") == ("b200-sxm", "project distsim.toml")


def test_a_cluster_silences_the_gpu_of_the_configuration(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "distsim.toml").write_text('gpu = "a100"')
    code, out, _ = answer(capsys, "llama-7b", "--cluster", "dgx-h100", "--zero", "1", "--show-config")
    assert code == 0
    assert origin(out, "gpu")[0] == "h100-sxm"


@pytest.mark.parametrize("command", ["memory", "comm", "step"])
def test_the_configuration_as_json(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([command, "llama-7b", "--zero", "2", "--show-config", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["schema"] == "distsim.config/1"
    assert told["origins"].keys() == told["job"].keys() - {"stated", "checksum"}
    assert (told["job"]["zero"], told["origins"]["zero"]) == (2, "command line")


def test_broken_configuration_names_its_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "distsim.toml").write_text("zer = 2")
    code, _, err = answer(capsys, "llama-7b")
    assert code == 2
    assert "distsim.toml" in err
    assert "did you mean" in err


def test_environment_must_make_sense(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISTSIM_TP", "two")
    code, _, err = answer(capsys, "llama-7b")
    assert code == 2
    assert "DISTSIM_TP" in err


def test_dropout_that_changes_nothing_is_noted(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["memory", "llama-7b", "--zero", "3", "--no-dropout"]) == 0
    assert "--no-dropout has no effect" in capsys.readouterr().err
    assert run(["memory", "gpt3-175b", "--gpus", "1024", "--tp", "8", "--pp", "8", "--zero", "1", "--no-dropout"]) in (
        0,
        1,
    )
    assert "dropout" not in capsys.readouterr().err


def test_a_framework_that_nobody_named_rules_out_no_mend(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["llama-2-70b", "--gpus", "64", "--tp", "4", "--pp", "4", "--schedule", "zb-h1", "--global-batch", "64"]
    assert run(["memory", *words]) == 1
    assert "  --zero 1\n" in capsys.readouterr().out
    assert run(["memory", *words, "--zero", "1"]) == 0


def test_experts_that_no_other_rank_holds_are_not_gathered() -> None:
    """At ZeRO 3 with ep = dp each rank has experts of its own: nothing of theirs is put together from shards."""
    job = {"model": "mixtral-8x7b", "gpu": "b200-sxm", "gpus": 8, "ep": 8}
    before, after = (distsim.memory(**job, zero=zero).stages[0].categories for zero in (2, 3))
    attention = 2 * 4096 * 4096 + 2 * 4096 * 1024 + 8 * 4096 + 2 * 4096  # with router and norms
    root = 2 * 32000 * 4096 + 4096
    assert after["buffers"] - before["buffers"] == pytest.approx((2 * attention + root) * 2, rel=0.01)
    assert sum(after.values()) < sum(before.values())


def test_a_larger_gpu_is_no_slower_and_no_worse_joined(capsys: pytest.CaptureFixture[str]) -> None:
    """Not a card that is joined in pairs for one behind a switch, nor one that computes less."""
    words = ["llama-3-70b", "--gpu", "h100-sxm", "--gpus", "32", "--tp", "8", "--pp", "4", "--seq", "65536"]
    told = data(capsys, *words)
    named = {mend["flags"].split("--gpu ")[1].split()[0] for mend in told["mends"] if "--gpu " in mend["flags"]}
    assert named and named <= {"h200-sxm", "b200-sxm", "b300-sxm", "gb200", "gb300"}


@pytest.mark.parametrize(("words", "plumbing"), [
    ("memory gpt2", "| true"), ("memory gpt2", "2>&1 | true"), ("memory gpt2", ">&-"),
    ("memory gpt2", "> /dev/null 2>&-"), ("comm llama-7b --gpus 8", "| true"), ("show gpus", ">&-"),
    ("pipeline --stages 2 --micro 4", "2>&1 | true"),
])  # fmt: skip
def test_nobody_who_reads_is_no_failure(words: str, plumbing: str) -> None:
    """A reader that left, with or without the errors, and an output that was closed from the start."""
    command = f"{sys.executable} -m distsim {words} {plumbing}; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert (done.stdout.strip(), done.stderr) == ("0", "")


def test_an_error_that_nobody_reads_is_no_crash() -> None:
    command = f"{sys.executable} -m distsim memory nope 2>&1 | true; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert done.stdout.strip() in ("0", "2") and done.stderr == ""


def test_a_switch_where_a_number_belongs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "job.toml").write_text('model = "llama-7b"\ntp = true\n', encoding="utf-8")
    code, _, err = answer(capsys, "--job", "job.toml")
    assert code == 2
    assert "job.toml: tp takes a value, not true" in err


def test_what_is_no_number_is_called_so(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = answer(capsys, "mixtral-8x7b", "--ep", "8", "--expert-imbalance", "nan")
    assert (code, "--expert-imbalance nan is not a number" in err) == (2, True)


@pytest.mark.parametrize("recompute", ["none", "selective"])
@pytest.mark.parametrize("framework", ["megatron-core", "torchtitan", "maxtext", "huggingface", "nanotron"])
@pytest.mark.parametrize("attention", ["flash", "eager"])
def test_explained_rows_add_up_to_what_a_layer_keeps(
    capsys: pytest.CaptureFixture[str], framework: str, recompute: str, attention: str
) -> None:
    words = ["llama-3-8b", "--gpus", "8", "--seq", "1024", "--framework", framework, "--recompute", recompute]
    words += ["--attention", attention]
    per_layer = data(capsys, *words)["stages"][0]["saved"]["per_layer"]
    explained = answer(capsys, *words, "--explain")[1]
    rows = explained.split("Kept for backward by a dense layer")[1].split("Parameters of that layer")[0]
    sizes = [
        int(found.replace(",", "")) for found in re.findall(r" ([\d,]+)  +[\d.]+ (?:[KMG]i)?B$", rows, re.MULTILINE)
    ]
    assert sizes[-1] == per_layer == sum(sizes[:-1])
    assert ("recomputed" in rows) <= (recompute == "selective")


def test_explained_full_recompute_says_what_is_kept_when(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["llama-3-8b", "--gpus", "8", "--seq", "1024", "--zero", "3", "--recompute", "full"]
    assert "each layer of the stage keeps only its input, 8.0 MiB, and" in answer(capsys, *words, "--explain")[1]
    assert data(capsys, *words)["stages"][0]["saved"]["per_layer"] == 8 * 2**20


def test_a_long_context_that_nobody_asked_for_is_noted(capsys: pytest.CaptureFixture[str]) -> None:
    told = "--seq not given: using 131,072 tokens, the whole context of llama-3.1-8b"
    words = ["llama-3.1-8b", "--gpus", "8", "--cp", "8", "--tp", "1"]
    assert told in answer(capsys, *words)[2]
    assert told not in answer(capsys, *words, "--seq", "131072")[2]
    assert "which distsim plan takes: --seq 8192" in answer(capsys, *words)[2]
    assert "using 32,768 tokens" in answer(capsys, "mixtral-8x7b", "--gpus", "8")[2]
    assert "--seq not given" not in answer(capsys, "llama-3-8b", "--gpus", "8")[2]


def test_a_long_context_that_nobody_asked_for_and_that_does_not_fit_is_told_at_a_usual_length(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """An 8B model on eight A100 did not fit in 691 GiB, and GPUs were proposed."""
    words = ["llama-3.1-8b", "--gpus", "8", "--zero", "3"]
    needs = data(capsys, *words, "--seq", "8192")["peak"] / 2**30
    told = (
        f"Nobody asked for the whole context of 131,072 tokens: with --seq 8192 the job needs {needs:.2f} GiB and fits."
    )
    code, out, _ = answer(capsys, *words)
    assert code == 1 and told in " ".join(out.split())
    assert "Nobody asked" not in answer(capsys, *words, "--seq", "131072")[1]
    assert run(["step", *words]) == 1 and told in " ".join(capsys.readouterr().out.split())


def test_large_jobs_fit_a_narrow_terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    words = ["llama-3.1-405b", "--gpus", "2048", "--tp", "8", "--pp", "16", "--global-batch", "256", "--zero", "1"]
    code, out, _ = answer(capsys, *words)
    assert code == 1 and "1,0" in out
    assert max(map(len, out.splitlines())) <= 80


@pytest.mark.parametrize("command", ["memory", "comm", "step"])
def test_help_tells_every_job_option_once_in_its_section(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    from distsim.cli.help_sections import OWN, SECTIONS
    from distsim.cli.job_options import JOB_OPTIONS

    assert {name for names in SECTIONS.values() for name in names} == {*JOB_OPTIONS, "job", "show_config"}
    assert run([command, "--help"]) == 0
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 80
    titles = [line.rstrip(":") for line in out.splitlines() if re.match(r"[A-Z].*:$", line)]
    assert titles == ["Arguments", *SECTIONS, OWN]
    for name in JOB_OPTIONS:
        assert len(re.findall(rf"^  --{name.replace('_', '-')} [</]", out, re.MULTILINE)) == 1, name


@pytest.mark.parametrize("command", ["search", "plan", "pipeline"])
def test_help_of_many_options_is_in_sections(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    from distsim.cli.help_sections import BY_COMMAND, OWN

    assert run([command, "--help"]) == 0
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 80
    titles = [line.rstrip(":") for line in out.splitlines() if re.match(r"[A-Z].*:$", line)]
    expected = [*BY_COMMAND[command], OWN]
    assert [title for title in titles if title != "Arguments"] == expected
    own = out.partition(f"\n{OWN}:\n")[2].splitlines()
    assert len([line for line in own if line.startswith("  --")]) <= 6  # what is new gets a section
    flags = re.findall(r"^  (--[a-z0-9-]+)", out, re.MULTILINE)
    assert len(flags) == len(set(flags))


def test_notes_and_errors_are_as_wide_as_the_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["llama-3.1-8b", "--gpus", "8"]
    whole = answer(capsys, *words)[2]
    assert max(map(len, whole.splitlines())) > 60
    monkeypatch.setenv("COLUMNS", "60")
    assert answer(capsys, *words)[2] == whole  # a pipe gets each note on one line
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    folded = answer(capsys, *words)[2]
    assert max(map(len, folded.splitlines())) <= 60
    assert folded.split() == whole.split()
    wrong = answer(capsys, *words, "--framework", "megatron-core", "--compile")[2]
    assert len(wrong.splitlines()) > 2 and max(map(len, wrong.splitlines())) <= 60


def test_keys_of_a_configuration_that_nobody_reads_are_noted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = {"model_type": "llama", "hidden_size": 2048, "num_hidden_layers": 16, "num_attention_heads": 32,
              "vocab_size": 32000, "intermediate_size": 8192, "num_key_value_head": 8, "dense_list": 4}  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    _, _, err = answer(capsys, ".", "--gpus", "1", "--seq", "1024")
    assert "key 'num_key_value_head' was ignored; did you mean num_key_value_heads" in err
    assert "key 'dense_list' was ignored\n" in err


def test_a_key_beside_another_that_means_the_same_is_told_which_is_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Who edits the number of experts under a class's own name wonders why nothing changes."""
    config = {"model_type": "qwen3_moe", "hidden_size": 512, "num_hidden_layers": 2, "num_attention_heads": 8,
              "num_key_value_heads": 8, "vocab_size": 32000, "moe_intermediate_size": 256, "num_experts_per_tok": 2,
              "num_local_experts": 8, "num_experts": 16, "max_position_embeddings": 1024}  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    err = answer(capsys, ".", "--gpus", "1")[2]
    assert "key 'num_experts' was ignored; num_local_experts, which means the same, is 8\n" in err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--seq", "8k"], "error: --seq '8k' is not a whole number\n  write 8000 or 8192\n"),
        (
            ["--zero", "auto"],
            "error: --zero 'auto' is not a whole number\n  leave it out for the",
        ),
        (["--tp", "auto"], "error: --tp 'auto' is not a whole number\n  leave it out for the default; distsim search"),
        (["--seq", "auto"], "error: --seq 'auto' is not a whole number\n  distsim memory --help lists the options\n"),
        (["--gpus=1e3"], "error: --gpus '1e3' is not a whole number\n  write 1000\n"),
        (["--tp", "x"], "error: --tp 'x' is not a whole number\n  distsim memory --help lists the options\n"),
        (["--expert-imbalance", "much"], "error: --expert-imbalance 'much' is not a number\n"),
        (["--gpuss", "8"], "error: unknown option --gpuss\n  did you mean --gpus, --gpu"),
        (["--xyzzy"], "error: unknown option --xyzzy\n  distsim memory"),
        (["llama-13b"], "error: unexpected argument llama-13b\n"),
        (["../.."], "error: unexpected argument ../..\n"),
    ],
)
def test_what_does_not_parse_is_told_like_other_mistakes(
    words: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = answer(capsys, "llama-7b", *words)
    assert code == 2 and not out
    assert err.startswith(told) and err.endswith("distsim memory --help lists the options\n")


def test_help_of_no_command_is_a_mistake(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["help", "memroy"]) == 2
    assert "did you mean memory?" in capsys.readouterr().err
    assert run(["help", "step"]) == 0


def test_sizes_that_a_configuration_leaves_out_are_noted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = {"model_type": "llama", "num_hidden_layers": 40, "num_attention_heads": 32, "vocab_size": 64000}
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    _, _, err = answer(capsys, str(tmp_path), "--gpus", "8", "--seq", "1024")
    assert "hidden_size is missing: using 4,096, the default of llama" in err
    assert "num_hidden_layers" not in err and "vocab_size" not in err


def test_mistakes_name_the_flag_that_was_typed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "error: --micro-batch 0 is too small" in answer(capsys, "gpt2", "--micro-batch", "0")[2]
    (tmp_path / "job.toml").write_text('model = "gpt2"\nmicro_batch = 0\n', encoding="utf-8")
    assert "error: job.toml: micro_batch 0 is too small" in answer(capsys, "--job", "job.toml")[2]


def test_more_layers_than_a_stage_has_are_all_of_them(capsys: pytest.CaptureFixture[str]) -> None:
    """The header says what is computed, not what was typed; a search tells no number that nobody can type."""
    assert run(["memory", "llama-7b", "--gpus", "8", "--recompute", "full", "--recompute-layers", "40"]) == 1
    told = capsys.readouterr()
    assert "--recompute-layers 40 recomputes every layer: stages have at most 32 layers" in told.err
    assert "megatron-core, full recompute\n" in told.out
    assert run(["search", "llama-7b", "--gpus", "8", "--recompute", "full", "--recompute-layers", "40"]) == 2
    assert "the other constraints would allow: 1, 2, 3" in capsys.readouterr().err
    assert run(["search", "llama-7b", "--recompute", "none", "--recompute-layers", "4"]) == 2
    told = capsys.readouterr().err  # nor what was asked for
    assert "instead of --recompute none, the other constraints would allow: full\n" in told
    assert "without --recompute-layers 4 there would be layouts" in told


def test_as_many_layers_as_a_stage_has_are_all_of_them_too() -> None:
    """Modules of multi-token prediction, and tables that all layers share, are computed again or not with all."""
    job = {"model": "deepseek-v3", "gpu": "h100-sxm", "gpus": 64, "ep": 64, "mtp": 1, "seq": 4096, "recompute": "full"}
    assert distsim.step(**job, recompute_layers=61).seconds == distsim.step(**job).seconds


ODD = [
    {"model": "nanotron-3b", "gpu": "b200-sxm", "pp": 4, "cp": 2, "gpus": 256, "global_batch": 32, "seq": 8192,
     "zero": 3, "optimizer": "adamw-8bit"},
    {"model": "bert-large", "gpu": "b200-sxm", "tp": 8, "pp": 3, "cp": 2, "gpus": 1536, "micro_batch": 4,
     "global_batch": 4096, "seq": 128, "zero": 2},
    {"model": "deepseek-v3", "gpu": "h100-sxm", "gpus": 248, "pp": 62, "seq": 4096, "global_batch": 512},
    {"model": "nanotron-80b", "gpu": "bi-v100", "tp": 16, "cp": 4, "gpus": 64, "global_batch": 8, "seq": 1024,
     "framework": "kempnerforge", "zero": 2},
]  # fmt: skip
"""States that ranks do not share evenly, a last stage without layers, copies that are gone before the step."""


@pytest.mark.parametrize("job", ODD, ids=[str(job["model"]) for job in ODD])
def test_categories_add_up_to_the_byte_and_none_is_negative(job: dict[str, Any]) -> None:
    told = distsim.memory(**job).to_dict()
    for stage in told["stages"]:
        assert sum(stage["categories"].values()) == stage["peak"]
        assert min(stage["categories"].values()) >= 0
        assert all(0 <= moment["bytes"] <= stage["peak"] for moment in stage["moments"])
        held = stage["saved"]
        assert held["layers"] + held["embedding"] + held["head_and_loss"] == held["total"]
    assert told["peak"] == max(stage["peak"] for stage in told["stages"])


def test_a_last_stage_without_layers_has_the_head_alone() -> None:
    """61 layers on 62 stages: the last keeps and computes what head and loss need, and the drawing has a row for it."""
    last = distsim.memory(**ODD[2]).to_dict()["stages"][-1]
    assert (last["layers"], last["saved"]["per_layer"], last["saved"]["layers"]) == (0, 0, 0)
    assert last["saved"]["head_and_loss"] > 0 and last["categories"]["parameters"] == 2 * 129280 * 7168 + 2 * 7168
    run_of = distsim.pipeline(stages=62, micro=64, model="deepseek-v3", gpu="h100-sxm", seq=4096)
    assert 0 < run_of.busy[61] < min(run_of.busy[3:61])


def test_all_layers_that_recompute_are_called_so(capsys: pytest.CaptureFixture[str]) -> None:
    for more, told in (["--recompute", "full"], "all"), (["--recompute", "full", "--recompute-layers", "3"], "3"):
        _, out, _ = answer(capsys, "llama-7b", *more, "--show-config")
        assert re.search(rf"^recompute_layers +{told} ", out, re.MULTILINE)


def test_a_file_that_lacks_fields_is_told_what_they_take(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('name = "mine"\ngpu = "h100-sxm"\ngpus_per_node = 8\n', encoding="utf-8")
    code, _, err = answer(capsys, "llama-7b", "--cluster", str(file))
    assert code == 2
    assert "field 'domain' is missing\n  it takes a whole number" in err
    assert "field 'fabric' is missing (write a table [fabric])" in err
    file.write_text('name = "mine"\nlayers = 3\n', encoding="utf-8")
    _, _, err = answer(capsys, str(file))
    assert "field 'norm' is missing (choices: layernorm, rmsnorm)" in err
    assert "field 'gated' is missing (it takes true or false)" in err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["search", "llama-7b", "--gpus", "8", "--top", "0"], "--top 0 is too small\n  it must be at least 1"),
        (
            ["comm", "--collective", "all_reduce", "--gpus", "3", "--bytes", "1e300"],
            "1e+300 bytes is not a valid collective size",
        ),
        (["calibrate", "--nccl-tests", "nofile", "--gpu", "h100-sxm"], "cannot read nofile: No such file or directory"),
    ],
)
def test_what_was_typed_is_what_the_error_names(
    words: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code = run(words)
    err = capsys.readouterr().err
    assert code == 2 and told in err and "Errno" not in err


def test_the_headline_tells_what_changes_the_answer(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["memory", "mixtral-8x7b", "--gpus", "16", "--tp", "2", "--ep", "4", "--seq", "4096", "--gpu", "h100-sxm"]
    told = {}
    for more in ((), ("--etp", "2"), ("--etp", "1"), ("--no-sequence-parallel",)):
        run([*words, *more])
        told[more] = capsys.readouterr().out.partition("\n\n")[0]
    assert "tp 2, ep 4, dp 8, ZeRO 0" in told[()]
    assert "tp 2, ep 4, etp 2, dp 8, ZeRO 0" in told["--etp", "2"] and "etp 1" in told["--etp", "1"]
    assert "not sequence parallel" in told["--no-sequence-parallel",]


@pytest.mark.parametrize(("options", "told"), [
    ({"model": "llama-7b", "stage_layers": "balanced"}, "--stage-layers balanced has no effect with pp 1"),
    ({"model": "mamba2-2.7b", "attention": "eager"}, "--attention eager has no effect: mamba2-2.7b has no attention"),
    ({"model": "mamba-2.8b", "recompute": "selective"},
     "--recompute selective has no effect: it computes attention again, and mamba-2.8b has none"),
])  # fmt: skip
def test_options_without_effect_are_noted(options: dict[str, Any], told: str) -> None:
    model = {"model": options["model"], "gpu": "h100-sxm"}
    for ask in (distsim.memory, distsim.step):
        plain, stated = ask(**model).to_dict(), ask(**options, gpu="h100-sxm").to_dict()
        assert told in stated["notes"] and told not in plain["notes"]
        assert all(stated[name] == plain[name] for name in ("seconds", "peak_memory", "stages") if name in plain)


def test_options_with_effect_are_not() -> None:
    for options in ({"model": "mamba-2.8b", "attention": "eager"}, {"model": "llama-7b", "attention": "eager"},
                    {"model": "llama-7b", "gpus": 8, "pp": 2, "stage_layers": "balanced"},
                    {"model": "bamba-9b", "recompute": "selective"},
                    {"model": "mamba-2.8b", "recompute": "selective", "framework": "torchtitan"}):  # fmt: skip
        assert not [note for note in distsim.memory(**options).setup.notes if "no effect" in note]


EVALUATED = {"where": where, "maximum": maximum, "minimum": minimum, "ceil_div": ceil_div, "round_up": round_up}


@pytest.mark.parametrize("words", [
    "llama-2-7b --gpus 1 --framework huggingface --lora-rank 8 --seq 2048",
    "llama-2-7b --gpus 8 --zero 1 --framework megatron-core --precision fp8 --gpu h100-sxm",
    "llama-3-8b --gpus 8 --zero 3 --framework torchtitan --seq 2048 --optimizer adafactor",
    "mixtral-8x7b --gpus 16 --tp 2 --ep 4 --zero 2 --framework deepspeed --optimizer adamw-8bit",
])  # fmt: skip
def test_explained_products_come_to_what_stands_below(
    words: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    run(["memory", *words.split(), "--explain"])
    rows = [line.strip() for line in capsys.readouterr().out.splitlines()]
    checked = 0
    for filled, value in itertools.pairwise(rows):
        told = re.fullmatch(r"= ([\d,.]+) B", value)
        if told is None or not filled.startswith("= "):
            continue
        found = eval(re.sub(r"(?<=\d),(?=\d{3})", "", filled[2:]), {}, EVALUATED)
        assert found == pytest.approx(float(told[1].replace(",", "")), abs=1), filled
        checked += 1
    assert checked >= 4


def test_help_tells_no_default_that_a_framework_overrides() -> None:
    from distsim.cli.job_options import JOB_OPTIONS
    from distsim.cli.plan_request import JOB

    theirs = {name for one in catalog.names("frameworks") for name in catalog.load("frameworks", one).defaults}
    assert {"precision", "zero", "compile", "recompute", "attention"} <= theirs
    for told in (JOB_OPTIONS, JOB):
        for name in theirs & told.keys():
            assert "framework's" in told[name][1] or "[default" not in told[name][1], name


def test_a_reader_that_leaves_does_not_turn_no_into_yes() -> None:
    command = f"{sys.executable} -m distsim memory llama-70b --gpus 8 --explain | true; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert (done.stdout.strip(), done.stderr) == ("1", "")


def test_stages_that_are_explained(capsys: pytest.CaptureFixture[str]) -> None:
    """--all-stages changed nothing beside --explain, nor --stage beside --json."""
    words = ("llama-7b", "--pp", "2", "--gpus", "8", "--explain")
    _, one, _ = answer(capsys, *words)
    _, every, _ = answer(capsys, *words, "--all-stages")
    assert [one.count(f"Stage {stage}: figures") for stage in (0, 1)] == [0, 1]
    assert [every.count(f"Stage {stage}: figures") for stage in (0, 1)] == [1, 1]
    assert every.count("Options and where they come from") == 1
    assert ["figures" in stage for stage in data(capsys, *words)["stages"]] == [True, True]
    assert ["figures" in stage for stage in data(capsys, *words, "--stage", "1")["stages"]] == [False, True]
    assert answer(capsys, *words, "--all-stages", "--stage", "1")[0] == 2


@pytest.mark.parametrize(
    "words",
    [
        ("jamba-v0.1", "--gpus", "16", "--zero", "3", "--gpu", "h100", "--lora-rank", "16"),
        ("llama-7b", "--gpus", "16", "--pp", "4", "--recompute", "full", "--global-batch", "64", "--schedule", "zb-h1"),
        ("llama-7b", "--gpus", "8", "--zero", "3", "--offload", "activations", "--framework", "fsdp"),
        ("llama-7b", "--gpu", "tpu-v5p", "--gpus", "16", "--remat-policy", "minimal"),
        ("mixtral-8x7b", "--gpu", "h100-sxm", "--gpus", "32", "--ep", "8", "--recompute", "selective"),
        ("gpt2", "--gpus", "8", "--framework", "nanotron", "--zero", "1"),
        ("gpt2", "--gpus", "8", "--framework", "huggingface", "--zero", "2"),
        (
            "llama-7b",
            "--gpus",
            "8",
            "--framework",
            "deepspeed",
            "--zero",
            "3",
            "--offload",
            "optimizer,parameters",
            "--offload-to",
            "nvme",
        ),
        ("llama-7b", "--gpus", "8", "--framework", "deepspeed", "--zero", "2", "--offload", "optimizer"),
    ],
    ids=lambda words: words[0],
)
def test_each_figure_has_its_formula(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    """Activations, what the allocator loses, communicators and workspaces had none."""
    _, out, _ = answer(capsys, *words, "--json", "--explain")
    for stage in json.loads(out)["stages"]:
        told = {figure["label"].split(" at the ")[0]: figure for figure in stage["figures"]}
        assert {"communicators", "fragmentation", "kept for backward by one micro-batch", "activations"} <= set(told)
        for figure in told.values():
            assert figure["expression"] and figure["source"], figure
            value = REGISTRY[figure["formula"]].function(**figure["arguments"])
            assert value == pytest.approx(figure["value"], rel=1e-9)
        held = max(stage["categories"]["activations"], 1)
        assert told["activations"]["value"] == pytest.approx(held, rel=1e-6) or held == 1


def test_the_largest_terms_of_activations_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = answer(capsys, "llama-7b", "--gpus", "8", "--explain")
    words = " ".join(out.split())
    assert "fragmented_bytes = share * buffer_bytes + maximum(share * churning_bytes, idle_bytes)" in words
    assert "largest: mlp.preactivation of 32 dense layers" in words


def test_an_interrupt_is_told(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The library that reads the command line ended it without a word."""

    def stopped(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("distsim.cli.config.places", stopped)
    assert run(["memory", "llama-7b"]) == 130
    assert capsys.readouterr() == ("", "interrupted\n")
