"""`profile()`: one row for each launch, with times, operations and bytes that add up."""

from __future__ import annotations

import numpy as np
import pytest

import rawgpu
from frontend import Tensor, jit, optim
from frontend.profile import Profile, Row, active, profile
from tests.frontend.evaluator import uses_reference

pytestmark = pytest.mark.skipif(uses_reference(), reason="there are no kernels")


def test_each_launch_has_a_row() -> None:
    x = Tensor(np.ones((512, 256), np.float32)).realize()
    with profile() as p:
        (x + 1).realize()
        (x + 1).realize()
        x.sum(0).realize()
    assert len(p.rows) == 3
    add, again, total = p.rows
    assert add.name == again.name != total.name and "sum" in total.name
    assert all(r.launches == 1 and r.ns > 0 and r.device == x.device for r in p.rows)
    assert add.flops == 512 * 256 and add.bytes_moved == 2 * 512 * 256 * 4
    assert total.flops == 512 * 256 and total.bytes_moved == (512 * 256 + 256) * 4


def test_a_product_counts_two_operations_for_each_term() -> None:
    a = Tensor(np.ones((64, 48), np.float32)).realize()
    b = Tensor(np.ones((48, 80), np.float32)).realize()
    with profile() as p:
        (a @ b).realize()
    (row,) = p.rows
    assert row.flops == 2 * 64 * 48 * 80
    assert row.bytes_moved == 4 * (64 * 48 + 48 * 80 + 64 * 80)
    assert 0 < row.gflops < 20_000 and 0 < row.gbytes < 20_000


def test_replays_are_profiled_too() -> None:
    w = Tensor(np.ones(8, np.float32), requires_grad=True)
    opt = optim.SGD([w], lr=0.1)

    @jit
    def step(x: Tensor) -> None:
        opt.zero_grad()
        (w * x).sum().backward()
        opt.step()

    x = Tensor(np.ones(8, np.float32)).realize()
    step(x)
    with profile() as p:
        step(x)
        step(x)
    assert len(p.rows) > 1 and len(p.rows) % 2 == 0
    assert {r.launches for r in p.by_kernel()} >= {2}
    before = w.numpy()
    step(x)  # unprofiled again
    np.testing.assert_allclose(w.numpy(), before - 0.1, rtol=1e-6)


def test_profiles_nest_and_end_with_their_blocks() -> None:
    x = Tensor(np.ones(4, np.float32)).realize()
    with profile() as outer:
        (x * 3).realize()
        with profile() as inner:
            (x * 4).realize()
        assert len(inner.rows) == 1
    assert len(outer.rows) == 2
    (x * 5).realize()
    assert len(outer.rows) == 2
    with pytest.raises(KeyError), profile():
        raise KeyError
    assert not active


def test_rates_are_operations_and_bytes_by_nanoseconds() -> None:
    row = Row("k", "cpu:0", 1, 2_000, 8_000, 6_000)
    assert (row.gflops, row.gbytes) == (4, 3)
    assert Row("k", "cpu:0", 1, 0, 8, 8).gflops == 0


def test_the_table_joins_launches_and_puts_the_longest_first() -> None:
    p = Profile()
    p.rows = [
        Row("short", "cpu:0", 1, 1_000_000, 1_000_000, 4_000_000),
        Row("a_long_name", "cpu:0", 1, 2_000_000, 0, 2_000_000),
        Row("a_long_name", "cpu:0", 1, 1_000_000, 0, 4_000_000),
        Row("short", "amd:0", 1, 0, 0, 0),
    ]
    assert p.table() == (
        "kernel       device  launches        ms  share  GFLOP/s    GB/s\n"
        "a_long_name  cpu:0          2     3.000  75.0%      0.0     2.0\n"
        "short        cpu:0          1     1.000  25.0%      1.0     4.0\n"
        "short        amd:0          1     0.000   0.0%      0.0     0.0\n"
        "total                       4     4.000"
    )


def test_a_profile_of_nothing_is_a_table_too() -> None:
    assert Profile().table().splitlines()[-1].split() == ["total", "0", "0.000"]


def test_times_of_a_virtual_gpu_are_called_made_up() -> None:
    p = Profile()
    p.rows = [Row("k", "amd:0", 1, 5, 0, 0, virtual=True), Row("k", "cpu:0", 1, 5, 0, 0)]
    assert p.table().splitlines()[-1] == "virtual, so that times are made up: amd:0"
    p.rows = p.rows[1:]
    assert "virtual" not in p.table()


def test_an_engine_knows_whether_its_device_is_virtual() -> None:
    with rawgpu.room("gfx1100"), profile() as p:
        (Tensor([1.0], device="amd:0") + 1).realize()
    (Tensor([1.0], device="cpu:0") + 1).realize()
    assert {row.device: row.virtual for row in p.rows} == {"amd:0": True}
