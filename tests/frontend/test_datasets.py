"""The digits are the published ones, byte for byte."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from frontend.datasets import digits

SHA256 = "87ff0c9e40dc7e2c0e34e7257799c2e3f3aec1a016363bb11cad869ec428a826"


def test_the_digits_are_the_published_ones() -> None:
    images, labels = digits()
    assert images.dtype == np.uint8
    assert labels.dtype == np.uint8
    assert (images.min(), images.max()) == (0, 16)
    # The counts that the data set's own description gives for its test file.
    assert np.bincount(labels).tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
    assert hashlib.sha256(images.tobytes() + labels.tobytes()).hexdigest() == SHA256


@pytest.mark.filterwarnings("ignore")
def test_the_digits_are_those_that_scikit_learn_ships() -> None:
    theirs = pytest.importorskip("sklearn.datasets").load_digits()
    images, labels = digits()
    assert np.array_equal(images, theirs.images)
    assert np.array_equal(labels, theirs.target)
