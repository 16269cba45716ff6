"""The closed form of a named schedule with its range, for one layout or for arrays of them."""

from collections.abc import Callable
from typing import NamedTuple

from distsim.arrays import Number, kept, minimum
from distsim.formulas import bubbles


class Setting(NamedTuple):
    """What a closed form reads: counts, and seconds of a whole stage (all stages equal)."""

    stages: Number
    micro: Number
    chunks: Number = 1
    forward: Number = 1.0
    input_gradient: Number = 1.0
    weight_gradient: Number = 1.0
    hop: Number = 0.0

    @property
    def backward(self) -> Number:
        """Both gradients."""
        return self.input_gradient + self.weight_gradient


class Form(NamedTuple):
    """Makespan in seconds, and whether it is exact there (an estimate elsewhere)."""

    makespan: Callable[[Setting], Number]
    exact: Callable[[Setting], Number]


def _always(s: Setting) -> Number:
    return s.stages >= 1


def _unhopped(s: Setting) -> Number:
    return (s.stages >= 1) & (s.hop == 0)


def _in_rounds(s: Setting) -> Number:
    return (s.micro % s.stages == 0) & (s.micro >= 2 * s.stages) & (s.hop == 0)


def _dual(s: Setting) -> Number:
    return (s.micro >= 2 * s.stages) & (s.hop == 0)


def _dual_ways(s: Setting) -> Number:
    return _dual(s) & (s.stages % 2 == 0) & (s.micro % 2 == 0)


def _passes(s: Setting) -> tuple[Number, Number, Number, Number, Number]:
    return s.stages, s.micro, s.forward, s.input_gradient, s.weight_gradient


def _both(s: Setting) -> tuple[Number, ...]:
    return s.stages, s.micro, s.forward, s.backward, s.hop


def _chunked(s: Setting) -> tuple[Number, ...]:
    return s.stages, s.micro, s.chunks, s.forward, s.backward, s.hop


def _dual_pipe(makespan: Callable[..., Number]) -> Form:
    return Form(lambda s: makespan(s.stages / 2 - 1, *_passes(s)[1:]), _dual_ways)


def _dual_v(makespan: Callable[..., Number]) -> Form:
    return Form(lambda s: makespan(s.stages - 1, *_passes(s)[1:], 2), _dual)


_1F1B = Form(lambda s: bubbles.one_f_one_b_makespan(*_both(s)), _always)
_INTERLEAVED = Form(
    lambda s: bubbles.interleaved_makespan(*_chunked(s)), lambda s: bubbles.interleaved_exact(*_chunked(s))
)

Flights = tuple[tuple[Number, Number], tuple[Number, Number]]

FORMS: dict[str, Form] = {
    "naive": Form(lambda s: bubbles.naive_makespan(*_both(s)), _always),
    "gpipe": Form(lambda s: bubbles.gpipe_makespan(*_both(s)), _always),
    "1f1b": _1F1B,
    "pipedream": _1F1B,
    "pipedream-2bw": _1F1B,
    "interleaved-1f1b": _INTERLEAVED,
    "looped-bfs": Form(
        lambda s: bubbles.looped_bfs_makespan(*_chunked(s)), lambda s: bubbles.looped_bfs_exact(*_chunked(s))
    ),
    "zb-h1": Form(lambda s: bubbles.zb_h1_makespan(*_passes(s)), _unhopped),
    "zb-h2": Form(
        lambda s: bubbles.zb_h2_makespan(*_passes(s)), lambda s: bubbles.zb_h2_exact(*_passes(s)) & (s.hop == 0)
    ),
    "zb-v": Form(
        lambda s: bubbles.zb_v_makespan(*_passes(s)), lambda s: bubbles.zb_v_exact(*_passes(s)) & (s.hop == 0)
    ),
    "interleaved-zb": Form(lambda s: bubbles.zb_h1_makespan(*_passes(s), s.chunks), _in_rounds),
    "dualpipe": _dual_pipe(bubbles.dualpipe_makespan),
    "dualpipe-v": _dual_v(bubbles.dualpipe_makespan),
    "chimera": Form(
        lambda s: bubbles.chimera_makespan(s.stages, s.micro, s.forward, s.backward),
        lambda s: bubbles.chimera_exact(s.stages, s.micro, s.forward, s.backward) & (s.hop == 0),
    ),
    "hanayo": Form(
        lambda s: bubbles.hanayo_makespan(s.stages, s.micro, s.chunks, s.forward),
        lambda s: bubbles.hanayo_exact(s.stages, s.micro, s.forward, s.backward) & (s.hop == 0),
    ),
}
# Where the halves of fused pairs run one after the other.
SPLIT_FORMS: dict[str, Form] = {
    "dualpipe": _dual_pipe(bubbles.dualpipe_split_makespan),
    "dualpipe-v": _dual_v(bubbles.dualpipe_split_makespan),
}


def _one_f_one_b_peak(s: Setting, stage: Number) -> Number:
    return bubbles.one_f_one_b_peak(s.stages, s.micro, stage)


_interleaved_group = kept(bubbles.interleaved_group)
"""Each stage of a pipeline asks."""


def _interleaved_peak(s: Setting, stage: Number) -> Number:
    group = _interleaved_group(s.stages, s.micro)
    return bubbles.interleaved_peak(s.stages, s.micro, s.chunks, group, stage)


def _all_forwards_peak(s: Setting, stage: Number) -> Number:
    return bubbles.all_forwards_peak(s.stages, s.micro) + 0 * stage


def _zb_h1_flights(s: Setting, stage: Number) -> Flights:
    """With the most before their input gradient, and, of few micro-batches, with the most that wait."""
    first = bubbles.one_f_one_b_peak(s.stages, s.micro, stage), bubbles.zb_h1_waiting(s.stages, s.micro, stage)
    waiting = minimum(s.micro - 1, stage)
    return first, (bubbles.one_f_one_b_peak(s.stages, s.micro - waiting, stage), waiting)


def _zb_h2_flights(s: Setting, stage: Number) -> Flights:
    """Between the two, each micro-batch less before its input gradient is one more that waits."""
    before, waiting = bubbles.zb_h2_peak(s.stages, s.micro, stage), bubbles.zb_h2_waiting(s.stages, s.micro, stage)
    most = bubbles.zb_h2_most_waiting(s.stages, s.micro, stage)
    return (before, waiting), (before + waiting - most, most)


# Versions of its weights that a stage keeps, of schedules that update them while micro-batches are in flight.
VERSIONS: dict[str, Callable[[Setting, Number], Number]] = {
    "pipedream": lambda s, stage: bubbles.pipedream_versions(s.stages, s.micro, stage),
    "pipedream-2bw": lambda s, stage: bubbles.double_buffered_versions(s.stages, s.micro),
}
# Micro-batches before their input gradient, and those that wait for their weight gradient, when a backward begins: at
# one moment with the most of the former, at the other with the most of the latter; between them lies no higher peak.
FLIGHTS: dict[str, Callable[[Setting, Number], Flights]] = {"zb-h1": _zb_h1_flights, "zb-h2": _zb_h2_flights}
# Most whole-stage activations in flight on a stage, until the input gradient; exact for every size a schedule takes.
PEAKS: dict[str, Callable[[Setting, Number], Number]] = {
    "naive": lambda s, stage: bubbles.naive_peak(s.stages, stage),
    "gpipe": _all_forwards_peak,
    "1f1b": _one_f_one_b_peak,
    "pipedream": _one_f_one_b_peak,
    "pipedream-2bw": _one_f_one_b_peak,
    "interleaved-1f1b": _interleaved_peak,
    "looped-bfs": _all_forwards_peak,
    "zb-h1": _one_f_one_b_peak,
    "zb-h2": lambda s, stage: bubbles.zb_h2_peak(s.stages, s.micro, stage),
    "zb-v": lambda s, stage: bubbles.zb_v_peak(s.stages, s.micro, stage),
    "dualpipe": lambda s, stage: bubbles.dualpipe_peak(s.stages, stage),
    "dualpipe-v": lambda s, stage: bubbles.dualpipe_v_peak(s.stages, stage),
}
