"""Our own generator's kernels on the wave engine: the CPU device's results."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from frontend import Tensor
from rawgpu.amd.virtual import wave
from rawgpu.amd.virtual.dispatch import Dispatch
from tests.amd.virtual.wave_graph import run_on
from tests.amd.virtual.wave_rig import Arena, finish, services

GRAPHS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "exp": lambda x, y: x.exp(),
    "softmax": lambda x, y: x.softmax(axis=1),
    "matmul": lambda x, y: x @ y,
    "sum": lambda x, y: x.sum(axis=0),
    "cumsum": lambda x, y: x.cumsum(axis=1),
    "argmax": lambda x, y: x.argmax(axis=1),
    "half": lambda x, y: (x.astype("float16") + 1).astype("float32"),
}


def _run(dispatch: Dispatch, arena: Arena) -> None:
    finish(wave.run_dispatch(dispatch, arena, services()))


@pytest.mark.parametrize("generation", ["gfx1100", "gfx942"])
@pytest.mark.parametrize("name", list(GRAPHS))
def test_generated_kernels_give_what_the_processor_gives(name: str, generation: str) -> None:
    rng = np.random.default_rng(5)
    x = Tensor(rng.standard_normal((32, 40)).astype(np.float32))
    y = Tensor(rng.standard_normal((40, 24)).astype(np.float32))
    got = run_on(GRAPHS[name](x, y), generation, _run, Arena(16 << 20))
    want = GRAPHS[name](x, y).numpy()
    np.testing.assert_allclose(got, want, rtol=2e-6, atol=2e-6)
