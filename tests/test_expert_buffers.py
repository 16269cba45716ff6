"""What DeepEP and HybridEP hold on each rank, beside torch's allocator, and the tokens that HybridEP cannot send."""

import numpy
import pytest

import distsim
from distsim import catalog
from distsim.engine.footprint.expert_buffers import pieces
from distsim.engine.jobs.resolve import Setup, resolve
from distsim.engine.memory import MemoryReport, StageMemory, memory_of
from distsim.errors import DistsimError
from distsim.formulas.expert_buffers import deepep_buffer_bytes, hybridep_buffer_bytes, hybridep_tokens
from distsim.specs.job import Job

V3 = {"model": "deepseek-v3", "gpu": "h100-sxm", "framework": "megatron-core", "gpus": 128, "pp": 2, "ep": 64,
      "etp": 1, "zero": 1, "seq": 4096, "global_batch": 128}  # fmt: skip
"""7,168 wide, 256 experts, four on each of 64 ranks."""
RACK = {**V3, "gpu": "gb200", "framework": "megatron-bridge"}


def setup(**more: object) -> Setup:
    return resolve(Job(**{**V3, **more}))


def report(**more: object) -> MemoryReport:
    return memory_of(setup(**more))


def buffers(stage: StageMemory) -> float:
    """What a stage's figures tell of them; there is at most one such figure."""
    found = [one.value for one in stage.figures if one.label.startswith("buffers of ")]
    assert len(found) <= 1
    return float(sum(found))


def test_hybridep_in_one_rack_has_room_for_all_tokens_of_all_ranks() -> None:
    """64 ranks of 4,096 tokens: each 14,336 bytes, an fp32 weight for each of 256 experts, 56 scales, and a byte for
    each expert: 3.76 + 0.27 + 0.06 + 0.07 GB."""
    expected = 64 * 4096 * (7168 * 2 + 256 * 4 + 56 * 4 + 256)
    assert expected == 4_152_360_960
    assert [buffers(stage) for stage in report(**RACK).stages] == [expected, expected]


def test_hybridep_on_nodes_of_eight_also_holds_what_crosses_between_them() -> None:
    """Eight nodes with 32 experts each: the rank's own 4,096 tokens, those of seven nodes, and twice as many to return,
    without scales."""
    near = 64 * 4096 * (7168 * 2 + 32 * 4 + 56 * 4 + 256)
    own = 4096 * (7168 * 2 + 256 * 4 + 56 * 4)
    others = 7 * 4096 * (3 * (7168 * 2 + 32 * 4) + 56 * 4)
    assert buffers(report(expert_dispatcher="hybridep").stages[0]) == near + own + others
    assert near + own + others == pytest.approx(5.23e9, rel=1e-3)


@pytest.mark.parametrize(
    ("ep", "expected"),
    [
        (8, 10 * 8 * (5 * 4 + 256 * (14336 + 2056)) + 2**25),
        (64, 10 * 8 * (19 * 4 + 288 * (14336 + 2056)) + 2**25 + 2**29),
        # two nodes: 103 MB sent and received, in one piece of the heap
        (16, 10 * 8 * (7 * 4 + 288 * (14336 + 2056)) + 2**25 + 2**29),
    ],
)
def test_deepep_holds_pieces_of_the_tokens_of_each_rank(ep: int, expected: float) -> None:
    """Ten channels of 256 or 288 tokens, with room for 128 experts, weights and scales; 32 MiB; 512 MiB of NVSHMEM's
    heap between nodes, which holds 336 MB for 64 ranks. The length of a sequence changes nothing."""
    found = [buffers(report(ep=ep, seq=seq, expert_dispatcher="deepep").stages[0]) for seq in (4096, 8192)]
    assert found == [expected, expected]


def test_nvshmems_heap_grows_by_pieces() -> None:
    """160 ranks: 20 nodes of 132 tokens each way are 866 MB, two pieces of 512 MiB."""
    far = 10 * 20 * 2 * (18 * 4 + 132 * (14336 + 2072)) + 2**20
    assert 2**29 < far < 2**30
    near = 10 * 8 * (43 * 4 + 720 * (14336 + 2056)) + 2**25
    assert deepep_buffer_bytes(token_bytes=14336, ranks=160, near_tokens=720, far_tokens=132) == near + 2**30


@pytest.mark.parametrize("kind", ["deepep", "hybridep"])
def test_they_are_on_the_gpu_but_not_in_torchs_counters(kind: str) -> None:
    """An all-to-all keeps masks and weights of all experts instead, until backward."""
    plain, asked = report(expert_dispatcher="alltoall"), report(expert_dispatcher=kind)
    for one, other in zip(plain.stages, asked.stages, strict=True):
        held, masks = buffers(other), one.categories["activations"] - other.categories["activations"]
        assert buffers(one) == 0 < held and masks > 0
        lost = masks * catalog.load("frameworks", "megatron-core").overhead.fragmentation_fraction
        assert other.peak - one.peak == pytest.approx(held - masks - lost)
        assert other.categories["framework"] - one.categories["framework"] == pytest.approx(held - lost)
        assert other.counted("device") - one.counted("device") == pytest.approx(held - masks - lost)
        assert other.counted("allocated") == pytest.approx(one.counted("allocated") - masks)
        assert other.counted("reserved") <= one.counted("reserved")


def test_stages_without_experts_have_none_and_others_one_set_for_all_layers() -> None:
    """DeepSeek-V3's first three layers are dense."""
    first, second = report(expert_dispatcher="deepep", stage_layers=(3, 58)).stages
    assert buffers(first) == 0 < buffers(second)
    both = report(expert_dispatcher="deepep", stage_layers=(30, 31)).stages
    assert {buffers(stage) for stage in both} == {buffers(second)}


def test_who_sends_tokens_otherwise_or_not_at_all_has_none() -> None:
    assert buffers(report().stages[0]) == 0  # Megatron core's default
    assert buffers(report(**{**RACK, "expert_dispatcher": "alltoall"}).stages[0]) == 0
    alone = report(ep=1, expert_dispatcher="deepep")
    assert buffers(alone.stages[0]) == 0
    assert "--expert-dispatcher deepep has no effect with ep 1" in alone.notes
    asked = report(expert_dispatcher="deepep")
    assert not any("--expert-dispatcher" in note for note in asked.notes)


@pytest.mark.parametrize("more", [{"tp": 2, "sequence_parallel": True}, {"cp": 2}])
def test_a_rank_dispatches_its_part_of_the_sequence(more: dict[str, object]) -> None:
    halved, whole = report(**{**RACK, "gpus": 256, **more}), report(**{**RACK, "gpus": 256})
    assert 2 * buffers(halved.stages[0]) == buffers(whole.stages[0])


def test_few_tokens_have_room_for_512_and_others_for_a_multiple_of_16() -> None:
    assert [hybridep_tokens(tokens) for tokens in (1, 512, 513, 4096)] == [512, 512, 528, 4096]


def test_experts_that_are_narrower_than_the_model_get_narrower_tokens() -> None:
    """Nemotron 3 Super projects tokens to 1,024 before they are sent."""
    job = Job(model="nemotron-3-super-120b-a12b", gpu="h100-sxm", framework="megatron-core", gpus=8, ep=8,
              expert_dispatcher="deepep", seq=4096)  # fmt: skip
    expected = 10 * 8 * (5 * 4 + 256 * (1024 * 2 + 2056)) + 2**25
    assert buffers(memory_of(resolve(job)).stages[0]) == expected


def test_arrays_of_layouts_have_what_each_has() -> None:
    ranks = numpy.array([2, 8, 16, 64, 72, 128, 160, 256])
    near, far = pieces(ranks)
    assert [tuple(map(int, one)) for one in zip(near, far, strict=True)] == [pieces(int(one)) for one in ranks]
    nodes = numpy.array([1, 1, 2, 8, 9, 16, 20, 32])
    held = hybridep_buffer_bytes(tokens=4096, hidden=7168, ranks=ranks, nodes=nodes, experts=256)
    one_by_one = [hybridep_buffer_bytes(tokens=4096, hidden=7168, ranks=int(r), nodes=int(n), experts=256)
                  for r, n in zip(ranks, nodes, strict=True)]  # fmt: skip
    assert held == pytest.approx(one_by_one)


def test_hybridep_sends_21_840_tokens_of_a_rank_to_other_domains_and_no_more() -> None:
    """Three entries for each of so many tokens, a multiple of 16, and one more are at most 65,535."""
    asked = {"expert_dispatcher": "hybridep", "gpus": 128}
    assert setup(**asked, seq=21840).layout.tokens == 21840
    with pytest.raises(DistsimError, match="at most 21,840 tokens of a rank to other NVLink domains") as told:
        setup(**asked, seq=21841)
    assert "a micro-batch has 21,841" in told.value.problem and "8 domains of 8 GPUs" in told.value.problem
    assert all(word in told.value.hints[0] for word in ("--micro-batch", "--cp", "--tp", "alltoall or deepep"))
    with pytest.raises(DistsimError, match="at most 21,840"):
        setup(**asked, seq=4096, micro_batch=8, global_batch=512)
    for more in ({"ep": 8}, {"expert_dispatcher": "deepep"}, {"cp": 2, "gpus": 256}):
        setup(**{**asked, "seq": 32768, **more})


def test_a_recipes_own_hybridep_is_refused_alike() -> None:
    """128 ranks are more than the 72 of a rack; 64 share one."""
    with pytest.raises(DistsimError, match="2 domains of 72 GPUs"):
        setup(**{**RACK, "gpus": 256, "ep": 128, "seq": 32768})
    setup(**{**RACK, "gpus": 256, "ep": 64, "seq": 32768})


@pytest.mark.parametrize("kind", ["deepep", "hybridep"])
def test_searches_and_steps_count_them_and_leave_out_what_is_refused(kind: str) -> None:
    """Qwen3's 128 experts on 16 GPUs, of which a micro-batch of 4 x 8,192 tokens is too much between two nodes."""
    own = {"model": "qwen3-30b-a3b", "gpu": "b300-sxm", "framework": "megatron-core", "gpus": 16, "seq": 8192,
           "expert_dispatcher": kind}  # fmt: skip
    bounds = {"tp": 1, "cp": 1, "pp": 1, "ep": 16, "etp": 1, "micro_batch": [1, 2, 4], "recompute": ["full"],
              "global_batch": 64, "top": 20}  # fmt: skip
    found = distsim.search(**own, **bounds).best
    sizes = {one.report.setup.layout.micro_batch for one in found}
    assert sizes == ({1, 2} if kind == "hybridep" else {1, 2, 4})
    for one in found:
        again = memory_of(one.report.setup)
        assert one.report.peak_memory == again.peak and buffers(again.stages[0]) > 0
        assert one.found.peak == pytest.approx(again.peak, rel=1e-9)
