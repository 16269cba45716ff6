"""``distsim comm`` at the terminal: tables, JSON, explanations, refusals."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

import distsim
from distsim.cli.app import run
from distsim.formula import REGISTRY

pytestmark = pytest.mark.usefixtures("plain_terminal")


def answer(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> str:
    assert run(["comm", *words]) == code
    out, err = capsys.readouterr()
    assert "Traceback" not in err
    return err if code == 2 else out


def test_tables_show_collectives_links_hierarchy_and_zero(capsys: pytest.CaptureFixture[str]) -> None:
    text = answer(capsys, "llama-7b", "--gpus", "16", "--tp", "2", "--zero", "1")
    for heading in ("purpose", "algorithm", "utilisation", "Hierarchy", "ZeRO  gathered"):
        assert heading in text
    paper = re.findall(r"(\d\.\dx) +\d\.\d\dx", text)
    assert paper == ["1.0x", "1.0x", "1.0x", "1.5x"]
    assert "\x1b" not in text


def test_weights_gathered_beside_adapters_are_thousands_of_times_their_gradients(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It told 12169.20x."""
    words = ["llama-3.1-8b", "--gpus", "2", "--seq", "2048", "--framework", "huggingface", "--lora-rank", "16"]
    assert run(["comm", *words]) == 0
    assert re.search(r"\n3  .* \d{1,2},\d{3}x ", capsys.readouterr().out)


def test_a_slow_link_is_shared_by_the_ranks_of_a_replica(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--gpus", "64", "--zero", "1", "--zero-group", "8", "--sync", "local-sgd", "--sync-gbps", "10")
    assert re.search(r"slow link .* 156 MB/s +100%", answer(capsys, "llama-7b", "--gpu", "h100-sxm", *words))


def test_narrow_terminals_lose_columns_not_numbers(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    wide = answer(capsys, "llama-7b", "--gpus", "16", "--zero", "3")
    monkeypatch.setenv("COLUMNS", "70")
    narrow = answer(capsys, "llama-7b", "--gpus", "16", "--zero", "3")
    for text in (wide, narrow):
        assert re.search(r"parameters +all_gather .*12\.1 GB", text)
    table = narrow.split("optimizer step:")[1].split("Links")[0]
    assert max(map(len, table.splitlines())) <= 70


def test_json_is_the_contract(capsys: pytest.CaptureFixture[str]) -> None:
    data = json.loads(answer(capsys, "llama-7b", "--gpus", "8", "--zero", "2", "--json"))
    assert data["schema"] == "distsim.comm/1"
    assert data["job"]["zero"] == 2 and data["job"]["no_sync"] is False
    assert {row["op"] for row in data["collectives"]} >= {"reduce_scatter", "all_gather"}
    assert data["wire_bytes_per_rank"] == pytest.approx(
        sum(r["wire_bytes_per_rank"] for r in data["collectives"]), abs=9
    )


def test_explain_fills_in_the_formulas(capsys: pytest.CaptureFixture[str]) -> None:
    text = answer(capsys, "llama-7b", "--gpus", "8", "--framework", "torchtitan", "--zero", "3", "--explain")
    assert "all_gather_wire_bytes = (ranks - 1) / ranks * size_bytes" in text
    assert "(8 - 1) / 8 * 404,766,720" in text
    assert "source: Thakur" in text
    data = json.loads(answer(capsys, "llama-7b", "--gpus", "8", "--json", "--explain"))
    assert data["figures"][0]["unit"] == "B"


def test_one_gpu_exchanges_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert "Nothing crosses a link" in answer(capsys, "gpt2", "--gpus", "1")
    assert json.loads(answer(capsys, "gpt2", "--gpus", "1", "--json"))["collectives"] == []


def test_single_collective(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--collective", "all_reduce", "--bytes", "1GB", "--cluster", "dgx-h100", "--gpus", "16")
    assert "busbw" in answer(capsys, *words)
    data = json.loads(answer(capsys, *words, "--from", "1GB", "--json"))
    assert [one["bytes"] for one in data["sizes"]] == [10**9]


def test_a_network_that_is_taken_for_another_kind_is_told_where_it_is_used(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--collective", "all_gather", "--bytes", "1MB", "--gpu", "h100-sxm", "--internode-gbps-per-gpu")
    for gpus, gbps, count in (("64", "200", 1), ("64", "400", 0), ("8", "200", 0)):
        notes = json.loads(answer(capsys, *words, gbps, "--gpus", gpus, "--json"))["notes"]
        assert len([note for note in notes if "assumed to be tcpxo" in note]) == count


def test_a_single_collective_runs_where_options_that_stay_say(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("--collective", "all_reduce", "--bytes", "1MB")
    (tmp_path / "distsim.toml").write_text('gpu = "h100-sxm"\ngpus = 16\n', encoding="utf-8")
    assert "on 16 GPUs in 2 domains of h100-sxm" in answer(capsys, *words)
    assert "on 16 GPUs in 2 domains of b200" in answer(capsys, *words, "--gpu", "b200")
    assert "on 32 GPUs in 4 domains of dgx-a100" in answer(capsys, *words, "--cluster", "dgx-a100-80gb", "--gpus", "32")
    (tmp_path / "distsim.toml").unlink()
    monkeypatch.setenv("DISTSIM_GPU", "h100-sxm")
    assert "on 8 GPUs in 1 domain of h100-sxm" in answer(capsys, *words)
    assert "a single collective has none" in answer(capsys, *words, "--show-config", code=2)


def test_an_option_in_two_spellings_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "distsim.toml").write_text("micro_batch = 2\nmicro-batch = 4\n", encoding="utf-8")
    assert "micro_batch is set twice, also as micro-batch" in answer(capsys, "llama-7b", code=2)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ((), "no model named"),
        (("llama-7b", "--bytes", "1GB"), "only valid with --collective"),
        (("--collective", "all_reduce", "--tp", "4"), "takes no --tp"),
        (("--collective", "all_reduce", "--no-sequence-parallel"), "takes no --no-sequence-parallel"),
        (("--collective", "all_reduce", "--sync-every-micro-batch"), "takes no --sync-every-micro-batch"),
        (("llama-7b", "--collective", "all_reduce"), "takes no"),
        (("--collective", "everything"), "unknown collective"),
        (("llama-7b", "--gpus", "8", "--cp-mode", "ring"), "no effect with cp 1"),
        (("llama-7b", "--gpus", "8", "--tp-mode", "4d"), "--tp-mode"),
        (("llama-7b", "--gpus", "8", "--expert-imbalance", "0.5"), "--expert-imbalance"),
        (("llama-7b", "--gpus", "8", "--sync", "local-sgd", "--sync-gbps", "-1"), "--sync-gbps"),
    ],
)
def test_refusals(capsys: pytest.CaptureFixture[str], words: tuple[str, ...], told: str) -> None:
    assert told in answer(capsys, *words, code=2)


def test_memory_takes_the_options_and_says_what_they_leave(capsys: pytest.CaptureFixture[str]) -> None:
    plain, stated = ["memory", "llama-7b", "--gpus", "16", "--zero", "3", "--json"], ["--zeropp", "qwz"]
    assert run(plain) in (0, 1)
    before = json.loads(capsys.readouterr().out)
    assert run([*plain, *stated]) in (0, 1)
    out, err = capsys.readouterr()
    after = json.loads(out)
    assert before["stages"] == after["stages"]
    assert "--zeropp affects traffic, not memory" in err


PIPELINED = ("llama-3-70b", "--gpu", "h100-sxm", "--gpus", "64", "--tp", "8", "--pp", "4", "--global-batch", "64",
             "--recompute", "full", "--zero", "1")  # fmt: skip


@pytest.mark.parametrize("width", [80, 100, 140])
def test_rows_can_be_told_apart_at_any_width(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    text = answer(capsys, *PIPELINED)
    assert max(map(len, text.splitlines())) <= width
    rows = text.split("optimizer step:")[1].split("total")[0].strip().splitlines()[1:]
    words = [tuple(word for word in row.split() if not re.match(r"[\d.,]+$", word)) for row in rows]
    if width == 80:  # no size per call: what tells rows apart is purpose, op, group and phase
        assert len(set(words)) == len(rows)
        assert any("recompute" in row for row in rows)


def test_rows_add_up_to_the_same_total_however_many_columns(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    totals = set()
    for width in (60, 80, 200):
        monkeypatch.setenv("COLUMNS", str(width))
        totals.add(re.search(r"total +(\S+ TB)", answer(capsys, *PIPELINED)).group(1))  # type: ignore[union-attr]
    assert len(totals) == 1


def test_zero_stages_that_the_framework_lacks_are_not_priced(capsys: pytest.CaptureFixture[str]) -> None:
    text = answer(capsys, *PIPELINED, "--framework", "megatron-core")
    assert len(re.findall(r"^[23] .*not valid", text, re.MULTILINE)) == 2
    assert "ZeRO 3: megatron-core does not run ZeRO 3 with 4 pipeline stages" in text
    assert "not valid" not in answer(capsys, *PIPELINED)  # nobody named a framework


def test_no_link_is_busier_than_its_rate(capsys: pytest.CaptureFixture[str]) -> None:
    text = answer(capsys, "bert-large", "--gpu", "v100-sxm2-32gb", "--gpus", "8", "--precision", "fp16")
    assert "150 GB/s" in text  # what the preset states, not what a library counts on
    assert all(int(share) <= 100 for share in re.findall(r"(\d+)%", text))


def test_one_gpu_is_told_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    text = answer(capsys, "gpt2", "--gpus", "1")
    assert "Nothing crosses a link" in text
    assert "Hierarchy" not in text and "\n\n\n" not in text


def test_hpz_keeps_a_copy_of_the_parameters_inside_the_node() -> None:
    job = {"model": "gpt3-20b", "gpus": 32, "zero": 3, "framework": "deepspeed"}
    plain, copied = (distsim.memory(**job, **more).stages[0].categories["buffers"] for more in ({}, {"zeropp": "hpz"}))
    assert copied - plain == pytest.approx(distsim.load_model("gpt3-20b").parameters * 2 / 8, rel=0.01)


@pytest.mark.parametrize(
    "words", [("--cp-mode", "ring"), ("--zeropp", "qwz", "--zero", "2"), ("--compress", "1bit", "--zero", "1")]
)
def test_memory_refuses_what_comm_refuses(capsys: pytest.CaptureFixture[str], words: tuple[str, ...]) -> None:
    told = answer(capsys, "llama-7b", "--gpus", "16", *words, code=2)
    assert run(["memory", "llama-7b", "--gpus", "16", *words]) == 2
    assert capsys.readouterr().err == told


@pytest.mark.parametrize("width", [80, 140])
def test_the_plot_of_a_collective_fits(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    text = answer(capsys, "--collective", "all_reduce", "--gpus", "16")
    assert max(map(len, text.split("Simple")[-1].splitlines())) <= width


def test_collectives_that_make_no_sense(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    words = ("--collective", "all_reduce", "--gpus")
    assert "on one GPU exchanges nothing" in answer(capsys, *words, "1", code=2)
    told = answer(capsys, *words, "16", "--internode-gbps-per-gpu", "nan", code=2)
    assert "nan Gb/s is not a valid network rate" in told
    (tmp_path / "mine.toml").write_text("", encoding="utf-8")
    assert "no [factor] for any link" in answer(capsys, "gpt2", "--profile", "mine.toml", code=2)


def test_explanations_name_their_job_and_count_like_the_table(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    words = ("llama-3.1-405b", "--gpus", "2048", "--tp", "8", "--pp", "16", "--seq", "8192", "--global-batch", "256")
    text = answer(capsys, *words, "--explain")
    assert text.startswith("llama-3.1-405b on 2,048 x")
    assert "Figures of one rank of stage" in text
    assert "GiB" not in text  # decimal units, as in the table
    assert re.search(r"stage_layers +7,8\*14,7 +framework megatron-core's placement", text)
    assert max(map(len, text.splitlines())) <= 80


@pytest.mark.parametrize(("framework", "told"), [("fsdp", "once, by layer"), ("deepspeed", "after the step")])
def test_zero_2_says_when_parameters_are_gathered(
    capsys: pytest.CaptureFixture[str], framework: str, told: str
) -> None:
    """FSDP that does not reshard gathers them in the forward pass, as the rows above the table have it."""
    told_of = answer(capsys, "llama-7b", "--gpus", "8", "--zero", "2", "--framework", framework)
    row = next(line for line in told_of.splitlines() if line.startswith("2 *"))
    assert told in row
    assert ("forward" in told_of) == (framework == "fsdp")


def test_a_switch_without_effect_is_named_as_it_was_typed(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["comm", "llama-7b", "--gpus", "8", "--global-batch", "8"]
    assert run([*words, "--sync-every-micro-batch", "--no-loss-parallel"]) == 0
    told = capsys.readouterr().err
    assert "--sync-every-micro-batch has no effect with one micro-batch per step" in told
    assert "--no-loss-parallel has no effect with tp 1" in told


def test_replicas_have_a_link_of_their_own(capsys: pytest.CaptureFixture[str]) -> None:
    """What replicas average over a slow link crosses neither the nodes' network nor its rate."""
    text = answer(capsys, "llama-3-8b", "--gpus", "16", "--sync", "local-sgd", "--sync-every", "100",
                  "--sync-gbps", "1")  # fmt: skip
    assert "2 domains of 8 GPUs, ib-hdr, 25 GB/s per GPU: 0 B\n" in text
    assert "\n16 replicas, slow link, 125 MB/s per GPU: 301 MB" in text


@pytest.mark.parametrize(
    ("options", "told"),
    [(("--gpus", "12"), "2 domains of up to 8 GPUs,"), (("--gpus", "16"), "2 domains of 8 GPUs,"),
     (("--gpus", "256", "--gpu", "gb200"), "4 domains of up to 72 GPUs,"),
     (("--gpus", "12"), "─ up to 8 GPUs in a domain,")],
)  # fmt: skip
def test_domains_that_a_job_does_not_fill(
    capsys: pytest.CaptureFixture[str], options: tuple[str, ...], told: str
) -> None:
    assert told in answer(capsys, "llama-3-8b", *options)


def test_rows_of_rare_exchanges_are_means_of_a_step() -> None:
    report = distsim.comm("llama-3-8b", gpus=16, sync="local-sgd", sync_every=100, sync_gbps=1)
    (row,) = [one.to_dict() for one in report.collectives if one.every_steps > 1]
    assert (row["calls"], row["every_steps"]) == (1, 100)
    sent = row["wire_bytes_per_rank"] * row["every_steps"]
    assert sent == pytest.approx(2 * 15 / 16 * row["calls"] * row["bytes_per_call"])
    assert row["seconds"] * row["every_steps"] == pytest.approx(sent / 125e6)


def test_a_network_that_one_domain_does_not_use_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--collective", "all_reduce", "--bytes", "1MB", "--gpu", "h100-sxm", "--json")
    network = ("--network", "ib-hdr", "--internode-gbps-per-gpu", "100")
    notes = {gpus: json.loads(answer(capsys, *words, *network, "--gpus", gpus))["notes"] for gpus in ("8", "16")}
    told = "has no effect: all GPUs share one domain of fast links"
    assert notes["8"] == [f"--network ib-hdr {told}", f"--internode-gbps-per-gpu 100 {told}"]
    assert not any(told in note for note in notes["16"])


@pytest.mark.parametrize(("mode", "more"), [("ring", False), ("all_to_all", False), ("all_gather", True)])
def test_memory_says_which_context_mode_it_depends_on(
    capsys: pytest.CaptureFixture[str], mode: str, more: bool
) -> None:
    job = ["memory", "llama-2-7b", "--gpu", "h100", "--gpus", "8", "--cp", "8", "--zero", "1", "--seq", "131072",
           "--recompute", "full", "--json"]  # fmt: skip
    peaks = []
    for words in ([], ["--cp-mode", mode]):
        assert run([*job, *words]) == 0
        out, err = capsys.readouterr()
        peaks.append(json.loads(out)["peak"])
    assert (peaks[1] > peaks[0]) is more and "not memory" not in err
    assert ("ring and all_to_all take the same memory; all_gather also holds" in err) is not more


@pytest.mark.parametrize("words", [("llama-7b",), ("--collective", "all_reduce")])
def test_a_profile_that_does_not_exist(capsys: pytest.CaptureFixture[str], words: tuple[str, ...]) -> None:
    told = answer(capsys, *words, "--gpus", "8", "--profile", "nothere.toml", code=2)
    assert "no file 'nothere.toml'" in told and "distsim calibrate --nccl-tests" in told
    assert "show links" not in told


EXPLAINED = [
    ("llama-7b", "--gpus", "16", "--tp", "2", "--zero", "1"),
    ("llama-7b", "--gpus", "16", "--zero", "3", "--framework", "torchtitan", "--clip"),
    ("llama-7b", "--gpus", "16", "--zero", "3", "--framework", "deepspeed", "--zeropp", "qwz,hpz,qgz"),
    ("mixtral-8x7b", "--gpu", "h100-sxm", "--gpus", "32", "--ep", "8", "--tp", "2", "--pp", "2", "--cp", "2"),
    ("llama-7b", "--gpu", "tpu-v5p", "--gpus", "16", "--zero", "3"),
    ("llama-7b", "--gpus", "16", "--zero", "2", "--offload", "optimizer", "--framework", "deepspeed"),
    ("gpt2", "--gpus", "16", "--sync", "parameter-server", "--servers", "2", "--framework", "torch-ddp"),
    ("gpt2", "--gpus", "16", "--sync", "local-sgd", "--sync-every", "100", "--sync-gbps", "1"),
    ("deepseek-v3", "--gpu", "h200-sxm", "--gpus", "512", "--pp", "8", "--ep", "32", "--zero", "1"),
]


@pytest.mark.parametrize("words", EXPLAINED, ids=lambda words: " ".join(words[:7]))
def test_each_figure_has_its_formula(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    """Bytes per call said "s b h", and times nothing."""
    data = json.loads(answer(capsys, *words, "--json", "--explain"))
    told = {figure["label"]: figure for figure in data["figures"]}
    for figure in data["figures"]:
        assert figure["expression"] and figure["source"], figure
        value = REGISTRY[figure["formula"]].function(**figure["arguments"])
        assert value == pytest.approx(figure["value"], rel=1e-9)
    for row in data["collectives"]:
        label = f"{row['purpose']}, {row['op']} in {row['phase']}"
        assert {f"{label}: bytes per call", f"{label}: time of one call", f"{label}: time"} <= set(told)


def test_bytes_and_times_are_told_with_their_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    text = answer(capsys, "llama-7b", "--gpus", "16", "--tp", "2", "--explain")
    assert "token_bytes = tokens * numbers_per_token * bytes_each\n                = 2,048 * 4,096 * 2" in text
    assert "call_seconds = latency * latency_factor + size_bytes / bandwidth" in text
    assert ": time of one call: 67.4 us\n" in text


def test_what_is_exposed_is_a_rough_figure_that_names_step(capsys: pytest.CaptureFixture[str]) -> None:
    """Compute is slower than the peak rate, which hides more, and its order hides less: no bound in either way."""
    text = " ".join(answer(capsys, "llama-7b", "--gpus", "16", "--zero", "3").split())
    assert "exposed: a rough figure" in text and "distsim step has the time" in text
    jobs: list[dict[str, Any]] = [{"gpus": 16, "zero": 3, "seq": 512, "gpu": "h100-pcie"},
                                  {"gpus": 16, "zero": 3, "seq": 4096, "gpu": "h100-sxm"}]  # fmt: skip
    ratios = []
    for job in jobs:
        rough = distsim.comm("llama-7b", **job).to_dict()["exposed_seconds"]
        ratios.append(distsim.step("llama-7b", **job).breakdown["data_parallel"] / rough if rough else 9)
    assert ratios[0] < 1 < ratios[1]


@pytest.mark.parametrize("width", [60, 80])
def test_levels_with_bridges_go_on_below_inside_the_tree(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    wide = answer(capsys, "llama-7b", "--gpu", "h200-nvl", "--gpus", "128")
    monkeypatch.setenv("COLUMNS", str(width))
    told = answer(capsys, "llama-7b", "--gpu", "h200-nvl", "--gpus", "128")
    tree, whole = (text.partition("each level in a step:\n")[2].partition("\n\n")[0] for text in (told, wide))
    assert max(map(len, tree.splitlines())) <= width < max(map(len, whole.splitlines()))
    assert re.search(r"\n[│|] {4}.*inside\n", tree), "the level goes on beside the branch that comes after it"
    glyphs = "│├└─+|-` "
    assert [word for word in re.split(f"[{re.escape(glyphs)}\n]+", tree) if word] == [
        word for word in re.split(f"[{re.escape(glyphs)}\n]+", whole) if word
    ]
