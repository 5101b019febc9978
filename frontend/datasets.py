"""The data that comes with the package: what the demo and the examples learn from.

`data/README.md` names the source and the licence.
"""

from __future__ import annotations

from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rawgpu.errors import BadFile

DIGITS = 1797


def digits() -> tuple[NDArray[Any], NDArray[Any]]:
    """The UCI optical digits: images, uint8 (1797, 8, 8) of 0 to 16, and labels, uint8 (1797,)."""
    source = files("frontend") / "data" / "digits.npz"
    with source.open("rb") as stream, np.load(stream, allow_pickle=False) as archive:
        images, labels = archive["images"], archive["labels"]
    if images.shape != (DIGITS, 8, 8) or labels.shape != (DIGITS,):
        raise BadFile(
            f"digits.npz holds {images.shape} images and {labels.shape} labels",
            hint="install the package again",
        )
    return images, labels
