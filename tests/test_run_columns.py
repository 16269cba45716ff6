"""Tables of runs under other tools' headings: which column they mean, in which unit, and which mean too much."""

from pathlib import Path

import pytest

from distsim.engine.validate import validate_file
from distsim.interop.runs import COLUMNS, odd_cells, read_runs
from distsim.interop.runs.columns import OTHER_NAMES, UNIT_TELLS, column_of, meant
from distsim.interop.runs.peaks import measured_peak_bytes
from distsim.units import MIB

OWN = ("model,seq_len,gpu,n_gpus,tp,micro_batch,global_batch,precision,framework,step_time_s,mfu_pct,"
       "mem_peak_gb_per_gpu,mem_kind")  # fmt: skip
OWN_ROW = "llama-3-8b,8192,h100-sxm,8,2,1,128,bf16,megatron-core,13.9,41,61.2 gib,reserved"
THEIRS = ("Model Name,Sequence Length,GPU type,# GPUs,tensor_model_parallel_size,MBS,Global Batch Size,dtype,Framework,"
          "elapsed time per iteration (ms),MFU,Max memory reserved (GiB)")  # fmt: skip
THEIR_ROW = "llama-3-8b,8192,h100-sxm,8,2,1,128,bf16,megatron-core,13900.0,0.41,61.2"


def _written(folder: Path, name: str, *lines: str) -> Path:
    path = folder / name
    path.write_text("\n".join(lines) + "\n")
    return path


def test_every_name_means_a_column_that_there_is() -> None:
    assert set(OTHER_NAMES.values()) <= set(COLUMNS)
    assert not set(OTHER_NAMES) & set(COLUMNS)
    assert {column_of(name).name for name in OTHER_NAMES if name not in UNIT_TELLS} == set(OTHER_NAMES.values())


@pytest.mark.parametrize(
    ("heading", "column", "unit"),
    [("tokens/sec/GPU", "tokens_per_s_per_gpu", ""), ("tokens_per_second_per_gpu", "tokens_per_s_per_gpu", ""),
     ("tok/s/gpu", "tokens_per_s_per_gpu", ""), ("train_samples_per_second", "samples_per_s", ""),
     ("ms/step", "step_time_s", "ms"), ("step_ms", "step_time_s", "ms"), ("sec/iter", "step_time_s", ""),
     ("Iteration Time (s)", "step_time_s", ""), ("TFLOP/s/GPU", "tflops_per_gpu_reported", ""),
     ("throughput per GPU (TFLOP/s/GPU)", "tflops_per_gpu_reported", ""),
     ("peak_mem_mib", "mem_peak_gb_per_gpu", "mib"), ("peak GiB", "mem_peak_gb_per_gpu", "gib"),
     ("reserved (GB)", "mem_peak_gb_per_gpu", "gb"),
     ("per_device_train_batch_size", "micro_batch", ""), ("num_query_groups", "kv_heads", "")],
)  # fmt: skip
def test_headings_of_tools_and_logs(heading: str, column: str, unit: str) -> None:
    assert column_of(heading) == (column, unit)


@pytest.mark.parametrize(
    "heading", ["batch_size", "tokens/s", "memory (GB)", "throughput", "step", "tp (ms)", "peak", "it/s"]
)
def test_headings_that_may_mean_several_things_mean_nothing(heading: str) -> None:
    assert column_of(heading) is None


@pytest.mark.parametrize(
    ("heading", "words"),
    [("GPU memory (GB)", "mem_peak_gb_per_gpu"), ("vram_gb", "mem_peak_gb_per_gpu"), ("time_s", "step_time_s"),
     ("it/s", "seconds of one step"), ("loss", "")],
)  # fmt: skip
def test_headings_of_figures_that_are_not_read_are_told(heading: str, words: str) -> None:
    assert words in meant(heading) if words else not meant(heading)


def test_a_table_under_other_headings_is_the_same_table(tmp_path: Path) -> None:
    own = read_runs(_written(tmp_path, "own.csv", OWN, OWN_ROW))[0]
    theirs = read_runs(_written(tmp_path, "a.csv", THEIRS, THEIR_ROW))[0]
    assert {name: theirs.text(name) for name in own.cells} == {
        **own.cells, "step_time_s": "13900.0 ms", "mfu_pct": "41.0", "mem_kind": "reserved"
    }  # fmt: skip
    replays = [validate_file(tmp_path / name).replays[0] for name in ("own.csv", "a.csv")]
    assert replays[0].predicted_seconds == replays[1].predicted_seconds
    assert "column '#_gpus' is read as n_gpus" in odd_cells([theirs])


def test_the_columns_own_name_comes_first(tmp_path: Path) -> None:
    run = read_runs(_written(tmp_path, "a.csv", OWN + ",num_gpus", OWN_ROW + ",64"))[0]
    assert run.count("n_gpus") == 8
    assert not run.headings


@pytest.mark.parametrize("marked", ["~{}", "≈ {}", "{}±12", "{} ± 12", "{} +/- 12", "{} (mean)", "~{} (of 5)"])
def test_a_number_with_a_remark_keeps_the_unit_of_its_heading(marked: str, tmp_path: Path) -> None:
    for time, share, peak in (("13900", "0.41", "62669"), ("13,900", "0.41", "62,669")):
        cells = ",".join(f'"{marked.format(one)}"' for one in (time, share, peak))
        path = _written(tmp_path, "a.csv", THEIRS.replace("GiB", "MiB"), THEIR_ROW.rsplit(",", 3)[0] + f",{cells}")
        run = read_runs(path)[0]
        assert (run.number("step_time_s"), run.number("mfu_pct")) == (13.9, 41.0)
        assert measured_peak_bytes(run) == 62669 * MIB


@pytest.mark.parametrize(
    ("time", "seconds", "peak", "mib"),
    [("13.9 s", 13.9, "61.2 GiB", 61.2 * 1024), ("1:10", 70, "62669 MiB (reserved)", 62669),
     ("13900 ± 40 ms", 13.9, "max 62669", 62669), ("14k", 14, "62669 / GPU", 62669)],
)  # fmt: skip
def test_a_cell_with_a_unit_of_its_own_keeps_that(
    time: str, seconds: float, peak: str, mib: float, tmp_path: Path
) -> None:
    path = _written(tmp_path, "a.csv", THEIRS.replace("GiB", "MiB"), THEIR_ROW.rsplit(",", 3)[0] + f",{time},,{peak}")
    run = read_runs(path)[0]
    assert run.number("step_time_s") == pytest.approx(seconds)
    assert measured_peak_bytes(run) == pytest.approx(mib * MIB)
