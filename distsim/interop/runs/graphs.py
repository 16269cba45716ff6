"""What the notes of a measured run say that its CUDA graphs hold."""

from __future__ import annotations

import re

from distsim.interop.runs.denials import BEFORE, UNTOLD
from distsim.interop.runs.hits import hit
from distsim.interop.runs.table import Run

_WHOLE = r"(?:full|whole|entire)[- _](?:iteration|step|program)"
_SWITCH = r"(?:enable|external|mcore|layer)_cuda_graphs?"
"""Settings of Megatron core and of MLPerf's configurations of it."""
_SCOPE, _OPENED = r"cuda[-_]graph[-_]", r"[(\[]?"
_GRAPHS = (
    ("none", rf"(?:\b(?:no|without|neither|not using) (?:{_WHOLE} )?CUDA[- ]graphs?\b|"
             r"\bCUDA[- ]graphs?(?: did not take effect|(?:(?: is| are| was| were)? |[=:] ?)(?:none|false|never|"
             r"(?:turned |switched )?off|disabled|not (?:used|enabled|supported|available|possible|captured))\b))"
             r"(?! (?:for|in|during) (?:the )?(?:eval|validation|test|inference))|cuda[-_]graph[-_]impl[ =:]+none|"
             rf"\b{_SWITCH}[ =:]+(?:0|false|off)\b"),
    ("iteration", rf"\b(?={_WHOLE} CUDA){BEFORE}{_WHOLE} CUDA[- ]graphs?\b|"
                  r"cuda[-_]graph[-_](?:impl|scope)[= ]full_iteration|"
                  rf"\bCUDA[- ]graphs? (?:of|for) (?:the |a )?{_WHOLE.replace('[- _]', ' ')}"),
    ("routers", rf"\bCUDA[- ]graphs?(?: of| for|:)? ?{_OPENED}(?:the )?(?:moe_)?routers?\b|"
                rf"(?:{_SCOPE}impl[= ]\w+,? (?:--)?)?{_SCOPE}(?:scope|modules)[=: ]+{_OPENED}[\"']?moe_router\b"),
    ("modules", rf"\bCUDA[- ]graphs?\b(?!{UNTOLD})|\b(?={_SWITCH}){BEFORE}{_SWITCH}\b(?![ =:]+(?:0|false|off)\b)|"
                r"cuda[-_]graph[-_]impl[= ](?:transformer_engine|local)"),
)  # fmt: skip
"""What graphs hold, by the words for it; those for all of a step, for routers alone and for nothing say more than the
bare name, which is that of modules' graphs: MLPerf's, Megatron core's ``local`` and Transformer Engine's."""
_PATTERNS = tuple((kind, re.compile(words, re.IGNORECASE)) for kind, words in _GRAPHS)


def graphs_of(run: Run) -> str | None:
    """Which parts of a step the notes say that CUDA graphs hold; where they speak of another run too, the first."""
    notes = run.notes
    found = [(one.start(), place, kind) for place, (kind, words) in enumerate(_PATTERNS) if (one := hit(words, notes))]
    return min(found)[2] if found else None
