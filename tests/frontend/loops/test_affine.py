"""Comparisons of positions are index arithmetic only where numbers cannot wrap round."""

from __future__ import annotations

import numpy as np
import pytest

from frontend import Tensor


@pytest.mark.parametrize("dtype", ["uint8", "uint32", "uint64", "int8", "int32", "int64"])
def test_differences_of_positions_compare_as_their_type_does(dtype: str) -> None:
    rows, columns = np.arange(40, dtype=dtype)[:, None], np.arange(40, dtype=dtype)
    i, j = Tensor.arange(40, dtype=dtype).reshape(40, 1), Tensor.arange(40, dtype=dtype)
    three = np.array(3, dtype)
    np.testing.assert_array_equal(((i - j) < Tensor(three)).numpy(), (rows - columns) < three)
    np.testing.assert_array_equal((i - j <= j).numpy(), rows - columns <= columns)
