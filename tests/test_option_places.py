"""Options that are not typed: errors name the file or variable, and values have the kinds that options have."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from shell import Done, piped

from distsim import catalog
from distsim.cli.app import run

COMMANDS = {
    "memory": ("memory", "llama-7b"),
    "search": ("search", "llama-7b", "--gpus", "8"),
    "plan": ("plan", "llama-7b", "--tokens", "1B"),
    "pipeline": ("pipeline", "--stages", "4", "--micro", "8", "--model", "llama-7b"),
}


def told(folder: Path, text: str, *words: str, file: str = "distsim.toml", **environment: str) -> Done:
    """A command in a folder with that file, and with no user's own defaults."""
    (folder / file).write_text(text, encoding="utf-8")
    return piped(*words, folder=folder, XDG_CONFIG_HOME=str(folder / "none"), **environment)


@pytest.mark.parametrize("command", COMMANDS)
def test_an_unknown_name_tells_its_file(tmp_path: Path, command: str) -> None:
    done = told(tmp_path, 'gpu = "nope"', *COMMANDS[command])
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: distsim.toml: unknown gpu 'nope'\n"), done.stderr


def test_an_unknown_name_tells_its_job_file_or_variable(tmp_path: Path) -> None:
    done = told(tmp_path, 'gpu = "nope"', "memory", "llama-7b", "--job", "j.toml", file="j.toml")
    assert done.stderr.startswith("error: j.toml: unknown gpu 'nope'\n")
    done = told(tmp_path, "", "step", "llama-7b", DISTSIM_PRECISION="fp9")
    assert done.stderr.startswith("error: DISTSIM_PRECISION: unknown precision 'fp9'\n")
    done = told(tmp_path, "", "step", "llama-7b", DISTSIM_TP="0")
    assert done.stderr.startswith("error: DISTSIM_TP: tp 0 is too small\n")


def test_a_file_is_not_blamed_for_what_is_typed(tmp_path: Path) -> None:
    done = told(
        tmp_path, 'gpu = "h100-sxm"\nzero = 1', "memory", "llama-7b", "--job", "j.toml", "--tp", "0", file="j.toml"
    )
    assert done.stderr.startswith("error: --tp 0 is too small\n")
    done = told(tmp_path, 'gpu = "nope"', "memory", "llama-7b", "--gpu", "nape")
    assert done.stderr.startswith("error: unknown gpu 'nape'\n")


def test_a_number_that_breaks_a_rule_tells_its_file(tmp_path: Path) -> None:
    done = told(tmp_path, "tp = 6", "memory", "llama-7b")
    assert done.stderr.startswith("error: tensor parallel degree 6 does not divide 32")
    assert done.stderr.endswith("\n  tp = 6 is set in distsim.toml\n")


@pytest.mark.parametrize(
    ("text", "told_as"),
    [("compile = true", "compile = true"), ("images = 1", "images = 1"), ("dora = true", "dora = true"),
     ("capacity_factor = 2.0", "capacity_factor = 2.0"), ('remat_policy = "full"', "remat_policy = 'full'"),
     ('gpu_power = "5W"', "gpu_power = '5W'")],
)  # fmt: skip
def test_a_switch_or_a_rewritten_number_tells_its_file(text: str, told_as: str, tmp_path: Path) -> None:
    """``leave --compile out`` is no help to who has not typed it."""
    done = told(tmp_path, text, "memory", "llama-7b")
    assert done.stderr.endswith(f"\n  {told_as} is set in distsim.toml\n")


@pytest.mark.parametrize(
    ("text", "hint"),
    [("tp = 2\ngpu = h100-sxm  # ours", 'a text stands in quotes: gpu = "h100-sxm"'),
     ("compile = True", "write compile = true"), ("tp = 08", ""), ('gpu = "h100', ""), ("a = 1 = 2", "")],
)  # fmt: skip
def test_a_word_without_quotes_is_told_to_have_some(text: str, hint: str, tmp_path: Path) -> None:
    done = told(tmp_path, text, "memory", "llama-7b")
    assert done.stderr.startswith("error: distsim.toml: not valid TOML: ")
    assert done.stderr.splitlines()[1:] == ([f"  {hint}"] if hint else [])


@pytest.mark.parametrize(
    ("stated", "words", "note"),
    [
        ("dp = 16\ntp = 2", ("step", "--gpus", "8"), "note: dp 16 of j.toml gives way to --gpus 8\n"),
        ("dp = 16\ntp = 2", ("step", "--gpus", "32"), ""),
        ("gpus = 16\ntp = 2", ("memory", "--dp", "4"), "note: gpus 16 of j.toml gives way to --dp 4\n"),
        (
            "dp = 2",
            ("plan", "--gpus", "8,16", "--gpu", "h100-sxm", "--tokens", "1B"),
            "note: dp 2 of j.toml gives way to --gpus 8,16\n",
        ),
    ],
)
def test_a_job_file_tells_what_gives_way(tmp_path: Path, stated: str, words: tuple[str, ...], note: str) -> None:
    command, *rest = words
    done = told(tmp_path, f"{stated}\n", command, "llama-7b", "--job", "j.toml", *rest, file="j.toml")
    assert done.returncode == 0, done.stderr
    assert note in done.stderr and ("gives way" in done.stderr) == bool(note)


def test_a_misspelled_variable_is_told(tmp_path: Path) -> None:
    done = told(tmp_path, "", "memory", "llama-7b", DISTSIM_GPUSS="4", DISTSIM_PRESETS="")
    assert done.returncode != 2
    assert done.stderr.count("note: DISTSIM_GPUSS was ignored: it is not an option; did you mean DISTSIM_GPUS") == 1
    assert "DISTSIM_PRESETS" not in done.stderr
    done = told(tmp_path, "", *COMMANDS["pipeline"], "--compare", DISTSIM_GPUSS="4")
    assert done.stderr.count("DISTSIM_GPUSS") == 1


@pytest.mark.parametrize("listed", ['["optimizer", "activations"]', '["activations", "optimizer"]'])
def test_lists_say_what_words_with_commas_say(tmp_path: Path, listed: str) -> None:
    plain = told(tmp_path, 'offload = "optimizer,activations"', "memory", "llama-7b", "--json")
    assert told(tmp_path, f"offload = {listed}", "memory", "llama-7b", "--json") == plain
    assert '"offload": "optimizer,activations"' in plain.stdout
    adapters = told(tmp_path, 'lora_rank = 8\nlora_targets = ["v", "q"]', "memory", "llama-7b", "--json")
    assert '"lora_targets": "q,v"' in adapters.stdout


def test_what_a_file_offloads_together_a_search_does_too(tmp_path: Path) -> None:
    done = told(tmp_path, 'offload = ["optimizer", "activations"]', "search", "llama-7b", "--gpus", "8", "--json")
    layouts = json.loads(done.stdout)["layouts"]
    assert {one["layout"]["offload"] for one in layouts} == {"optimizer,activations"}


@pytest.mark.parametrize(
    ("line", "problem", "hint"),
    [
        ('gpus = "8"', "gpus '8' is not a whole number", "write it without quotes: 8"),
        ('zero = "3"', "zero '3' is not one of the choices", "did you mean 3? choices: 0, 1, 2, 3"),
        ('expert_imbalance = "1.5"', "expert_imbalance '1.5' is not a number", "write it without quotes: 1.5"),
        ('mtp = "two"', "mtp 'two' is not a whole number", ""),
        ("gpus = [8]", "gpus [8] is not a whole number", ""),
        ("offload = [1]", "offload [1] is not a string", ""),
        ("recompute = true", "recompute takes a value, not true", "did you mean full? choices: none, selective, full"),
        ("cp_mode = false", "cp_mode takes a value, not false", "choices: ring, all_to_all, all_gather"),
        ("offload = true", "offload takes a value, not true", "choices: none, optimizer, parameters, activations"),
        ("tp = true", "tp takes a value, not true", "write e.g. tp = 2"),
        ("gpu_power = true", "gpu_power takes a value, not true", "write e.g. gpu_power = 500"),
    ],
)
def test_values_of_another_kind(tmp_path: Path, line: str, problem: str, hint: str) -> None:
    done = told(tmp_path, line, "memory", "llama-7b")
    assert done.returncode == 2
    assert done.stderr == f"error: distsim.toml: {problem}\n" + f"  {hint}\n" * bool(hint)


def test_a_number_in_quotes_is_refused_in_a_model_of_either_format(tmp_path: Path) -> None:
    text = catalog.path("models", "llama-7b").read_text(encoding="utf-8")
    done = told(tmp_path, text.replace("hidden = 4096", 'hidden = "4096"'), "memory", "./my.toml", file="my.toml")
    assert done.stderr.startswith("error: my.toml: hidden '4096' is not a whole number\n")
    done = told(
        tmp_path, '{"model_type": "llama", "hidden_size": "4096"}', "memory", "./config.json", file="config.json"
    )
    assert "hidden_size is '4096'; expected a whole number" in done.stderr


def test_files_from_windows_are_read(tmp_path: Path) -> None:
    """Editors there start UTF-8 with a byte order mark, and end lines with a carriage return."""
    mark = "\ufeff"
    preset = catalog.path("gpus", "h100-sxm").read_text(encoding="utf-8").replace('name = "h100-sxm"', 'name = "mine"')
    gpus = tmp_path / "presets" / "gpus"
    gpus.mkdir(parents=True)
    (gpus / "mine.toml").write_text(mark + preset, encoding="utf-8", newline="\r\n")
    (tmp_path / "model.toml").write_text(
        mark + catalog.path("models", "llama-7b").read_text(encoding="utf-8"), encoding="utf-8", newline="\r\n"
    )
    (tmp_path / "j.toml").write_text(mark + 'gpu = "mine"\nzero = 3\n', encoding="utf-8", newline="\r\n")
    done = told(tmp_path, mark + "gpus = 16\r\n", "memory", "model.toml", "--job", "j.toml")
    assert (done.returncode, done.stderr) == (0, "")
    assert "on 16 x mine; dp 16, ZeRO 3;" in done.stdout


def test_paths_in_a_job_file_start_at_its_folder(tmp_path: Path) -> None:
    """They started at the working directory, as those of clusters and price lists never did."""
    jobs, here = tmp_path / "jobs", tmp_path / "here"
    jobs.mkdir()
    here.mkdir()
    model = catalog.path("models", "gpt2").read_text(encoding="utf-8")
    cluster = catalog.path("clusters", "dgx-h100").read_text(encoding="utf-8")
    (jobs / "mine.toml").write_text(model, encoding="utf-8")
    (jobs / "machines.toml").write_text(cluster, encoding="utf-8")
    (here / "mine.toml").write_text(cluster, encoding="utf-8")  # not this one
    words = ("memory", "--job", str(jobs / "job.toml"), "--gpus", "8", "--json")
    told(jobs, 'model = "./mine.toml"\ncluster = "machines.toml"\n', "--version", file="job.toml")
    done = piped(*words, folder=here)
    assert done.returncode == 0, done.stderr
    job = json.loads(done.stdout)["job"]
    assert (job["gpu"], job["stated"]["model"]) == ("h100-sxm", str(jobs / "mine.toml"))


def test_paths_in_a_job_file_fall_back_to_the_working_directory(tmp_path: Path) -> None:
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / "job.toml").write_text('model = "mine.toml"\nprofile = "./none.toml"\n', encoding="utf-8")
    (tmp_path / "mine.toml").write_text(catalog.path("models", "gpt2").read_text(encoding="utf-8"), encoding="utf-8")
    done = piped("memory", "--job", "jobs/job.toml", folder=tmp_path)
    assert done.returncode == 2
    first, looked, *_ = done.stderr.splitlines()
    assert first == "error: jobs/job.toml: no file 'jobs/none.toml'"
    assert looked == f"  looked in that file's folder and in {tmp_path}"
    (tmp_path / "jobs" / "job.toml").write_text('model = "mine.toml"\n', encoding="utf-8")
    done = piped("memory", "--job", "jobs/job.toml", folder=tmp_path)
    assert done.returncode == 0 and done.stdout.startswith("gpt2 on 8 x"), done.stderr


@pytest.mark.parametrize("command", ["memory", "comm", "step", "search"])
def test_a_profile_that_is_none_is_an_error_in_each_command(
    tmp_path: Path, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Memory took any word: profiles affect traffic."""
    words = [command, "llama-7b", "--gpus", "8", "--profile"]
    assert run([*words, "nothere.toml"]) == 2
    assert "no file 'nothere.toml'" in capsys.readouterr().err
    file = tmp_path / "model.toml"
    file.write_text(catalog.path("models", "gpt2").read_text(encoding="utf-8"), encoding="utf-8")
    assert run([*words, str(file)]) == 2
    assert "no [factor] for any link" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("kind", "words", "problem"),
    [
        ("models", ["memory", "llama-7b", "--cluster"], "is a model, not a cluster: it has family, layers"),
        ("clusters", ["memory", "llama-7b", "--gpu"], "is a cluster, not a gpu: it has provider, gpu"),
        ("gpus", ["memory"], "is a gpu, not a model: it has vendor, architecture"),
        ("clusters", ["memory", "llama-7b", "--optimizer"], "is a cluster, not an optimizer: it has provider"),
    ],
)
def test_a_preset_of_another_kind_is_told_in_two_lines(
    tmp_path: Path, kind: str, words: list[str], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each of its fields was unknown, with the list of all that are known."""
    name = {"models": "llama-7b", "clusters": "dgx-h100", "gpus": "h100-sxm"}[kind]
    file = tmp_path / "other.toml"
    file.write_text(catalog.path(kind, name).read_text(encoding="utf-8"), encoding="utf-8")
    assert run([*words, str(file)]) == 2
    first, *rest = capsys.readouterr().err.splitlines()
    assert first.startswith(f"error: {file}: {problem}") and len(rest) == 1


def test_many_unknown_fields_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "mine.toml"
    slips = "".join(f"qq{number} = 1\n" for number in range(20))
    file.write_text(slips + catalog.path("clusters", "dgx-h100").read_text(encoding="utf-8"), encoding="utf-8")
    assert run(["memory", "llama-7b", "--cluster", str(file)]) == 2
    told = capsys.readouterr().err
    assert told.count("also: unknown field") == 6 and told.count("fields: ") == 1
    assert told.endswith("  also: 13 more unknown fields\n")
