"""What of a model that sees may train, in words; by themselves: jobs without images load no tower (start-up)."""

from typing import Literal

ALONE, ADAPTERS = "projector-alone", "adapters"
Trains = Literal["trained", "projector", "frozen", "projector-alone", "adapters"]
"""What of the vision part trains: all of it, only what makes tokens of patches, or nothing; nothing but that, the
decoder being frozen too; or adapters, as on the decoder."""
