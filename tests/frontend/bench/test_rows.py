"""The rows of the speed table are there, and random ones near them are near."""

from __future__ import annotations

import math

import numpy as np
import pytest

from frontend.bench.operations import OPERATIONS
from frontend.bench.row import Row
from frontend.bench.rows import every_row, nearby_rows


def row(name: str) -> Row:
    return next(row for row in every_row() if row.name == name)


def test_every_row_has_a_name_of_its_own() -> None:
    names = [row.name for row in every_row()]
    assert len(set(names)) == len(names) == 75
    for word in (
        "add_1x1",
        "gelu_tanh_4096",
        "layer_norm_2048x768",
        "conv_b1_depthwise_128_k3_56",
        "attention_2048_causal",
    ):
        assert word in names


def test_rows_differ_only_in_what_their_inputs_hold() -> None:
    rng = np.random.default_rng(0)
    table, index = (part.draw(rng) for part in row("gather_rows").inputs)
    assert table.dtype == np.float32
    assert index.dtype == np.int64
    assert 0 <= index.min() <= index.max() < len(table)


@pytest.mark.parametrize(
    ("name", "shapes", "flops"),
    [
        ("matmul_4x2048x2048", [(4, 2048), (2048, 2048)], 2 * 4 * 2048**2),
        ("matmul_512_at_b", [(512, 512), (512, 512)], 2 * 512**3),
        # images of 112 x 112 from 224, with a kernel of 7 and strides of 2: (224 - 7) // 2 + 1
        (
            "conv_b1_3-64_k7_stride2_224",
            [(1, 3, 224, 224), (64, 3, 7, 7)],
            2 * 64 * 109**2 * 3 * 49,
        ),
        ("conv_b1_64-64_k3_128_padded", [(1, 64, 128, 128), (64, 64, 3, 3)], 2 * 64 * 128**2 * 576),
        ("conv_b1_depthwise_128_k3_56", [(1, 128, 56, 56), (128, 1, 3, 3)], 2 * 128 * 54**2 * 9),
        ("attention_512", [(1, 8, 512, 64)] * 3, 4 * 8 * 512 * 512 * 64),
        ("attention_512_causal", [(1, 8, 512, 64)] * 3, 4 * 8 * (512 * 513 // 2) * 64),
        ("add_256", [(256, 256)] * 2, 0),
    ],
)
def test_a_row_knows_its_shapes_and_its_arithmetic(
    name: str, shapes: list[tuple[int, ...]], flops: int
) -> None:
    assert [part.shape for part in row(name).inputs] == shapes
    assert row(name).flops == flops


def test_nearby_rows_repeat_with_the_seed_and_keep_to_the_rows_asked_for() -> None:
    def shapes(seed: int) -> dict[str, object]:
        rows = nearby_rows(20, seed, lambda name: name.startswith("matmul"))
        return {row.name: [part.shape for part in row.inputs] for row in rows}

    assert len(shapes(1)) == 20
    assert shapes(1) == shapes(1) != shapes(2)
    assert all(name.startswith("matmul_") for name in shapes(1))


def test_nearby_rows_come_from_all_rows_in_turn_and_scale_each_dimension() -> None:
    rows = nearby_rows(len(every_row()), 3, lambda name: True)
    words = {op.word for op in OPERATIONS}
    assert {row.name.rpartition("_")[0] for row in rows} == words, "each is dealt before any twice"
    sizes = [size for op in OPERATIONS if op.word == "matmul" for size in op.sizes.values()]
    for near in (row for row in rows if row.name.startswith("matmul_") and row.name[7].isdigit()):
        found = tuple(map(int, near.name.removeprefix("matmul_").split("x")))
        assert near.flops == 2 * math.prod(found)
        assert any(
            all(0.6 * a - 0.5 <= b <= 1.6 * a + 0.5 for a, b in zip(size, found, strict=True))
            for size in sizes
        ), near.name
    odd = [part.shape for row in rows for part in row.inputs if any(n % 2 for n in part.shape)]
    assert len(odd) > len(rows) / 2


def test_where_there_are_too_few_neighbours_those_are_all() -> None:
    near = {row.name for row in nearby_rows(30, 0, lambda name: name == "add_1x1")}
    assert near == {"add_1x1", "add_1x2", "add_2x1", "add_2x2"}
