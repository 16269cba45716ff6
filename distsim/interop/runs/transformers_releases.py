"""When the transformers that a run's notes name was released, which says more of its modules than the run's year."""

from __future__ import annotations

import re

from distsim.interop.runs.hits import told
from distsim.interop.runs.table import Run

TRANSFORMERS = {
    "4.0": 2020.92, "4.1": 2020.96, "4.2": 2021.04, "4.3": 2021.11, "4.4": 2021.21, "4.5": 2021.26, "4.6": 2021.36,
    "4.7": 2021.46, "4.8": 2021.48, "4.9": 2021.56, "4.10": 2021.67, "4.11": 2021.74, "4.12": 2021.83, "4.13": 2021.94,
    "4.14": 2021.96, "4.15": 2021.98, "4.16": 2022.07, "4.17": 2022.17, "4.18": 2022.27, "4.19": 2022.36,
    "4.20": 2022.46, "4.21": 2022.57, "4.22": 2022.70, "4.23": 2022.78, "4.24": 2022.84, "4.25": 2022.92,
    "4.26": 2023.07, "4.27": 2023.20, "4.28": 2023.28, "4.29": 2023.36, "4.30": 2023.44, "4.31": 2023.55,
    "4.32": 2023.64, "4.33": 2023.68, "4.34": 2023.76, "4.35": 2023.84, "4.36": 2023.95, "4.37": 2024.06,
    "4.38": 2024.14, "4.39": 2024.22, "4.40": 2024.30, "4.41": 2024.38, "4.42": 2024.49, "4.43": 2024.56,
    "4.44": 2024.60, "4.45": 2024.73, "4.46": 2024.81, "4.47": 2024.93, "4.48": 2025.03, "4.49": 2025.13,
    "4.50": 2025.22, "4.51": 2025.26, "4.52": 2025.38, "4.53": 2025.48, "4.54": 2025.57, "4.55": 2025.59,
    "4.56": 2025.66, "4.57": 2025.76, "5.0": 2026.07,
}  # fmt: skip
"""Release -> year and its part (github.com/huggingface/transformers/releases; recalled)."""
NEWEST = TRANSFORMERS["5.0"]
"""The least that releases of 5 are, which are newer than all that presets call earlier."""
_NAMED = re.compile(r"(?<![\w-])transformers(?: ?[=v:]+ ?| v?)(4\.\d+|5)(?!\d)", re.IGNORECASE)


def transformers_released(run: Run) -> float | None:
    """The year of the transformers that notes name; None where they name none, or several."""
    named = told(_NAMED, run.notes)
    if len(named) != 1:
        return None
    (release,) = named
    return NEWEST if release == "5" else TRANSFORMERS.get(release)
