"""A module of ours beside torch's of the same name: the same weights in, the same values out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pytest

from frontend import Tensor, nn

torch: Any = pytest.importorskip("torch", reason="PyTorch, the oracle for networks, is absent")

Array = np.ndarray[Any, Any]


def draw(seed: int, *shape: int) -> Array:
    """Ordinary float32 numbers."""
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def compute(tensors: Iterable[Tensor]) -> list[Array]:
    """The values, computed in one go."""
    listed = list(tensors)
    listed[0].realize(*listed[1:])
    return [t.numpy() for t in listed]


def close(ours: Any, theirs: Any, what: str, tolerance: float = 2e-5) -> None:
    """Equal up to rounding: `tolerance` times the largest element counts as none."""
    expected = theirs.detach().numpy() if hasattr(theirs, "detach") else np.asarray(theirs)
    got = ours.numpy() if isinstance(ours, Tensor) else np.asarray(ours)
    assert got.shape == expected.shape, (what, got.shape, expected.shape)
    bound = tolerance * (1.0 + (float(np.max(np.abs(expected))) if expected.size else 0.0))
    np.testing.assert_allclose(got, expected, rtol=0, atol=bound, err_msg=what)


def copy_weights(ours: nn.Module, theirs: Any) -> None:
    """torch's random weights into ours, strictly: names and shapes are the same."""
    state = {name: value.numpy() for name, value in theirs.state_dict().items()}
    assert list(ours.state_dict()) == list(state)
    ours.load_state_dict(state)


def first(result: Any) -> Any:
    """The tensor that a test differentiates."""
    return result[0] if isinstance(result, tuple) else result


def flat(result: Any) -> list[Any]:
    """All tensors of a result."""
    if isinstance(result, (tuple, list)):
        return [t for part in result for t in flat(part)]
    return [] if result is None else [result]


def compare(
    ours: nn.Module,
    theirs: Any,
    inputs: Sequence[Array],
    tolerance: float = 2e-5,
    **options: Any,
) -> None:
    """Forward, gradients of parameters and of float inputs, buffers afterwards."""
    copy_weights(ours, theirs)
    mine = [Tensor(a, requires_grad=a.dtype.kind == "f") for a in inputs]
    other = [torch.tensor(a, requires_grad=a.dtype.kind == "f") for a in inputs]
    options_ours = {k: Tensor(v) if isinstance(v, np.ndarray) else v for k, v in options.items()}
    options_theirs = {
        k: torch.from_numpy(v) if isinstance(v, np.ndarray) else v for k, v in options.items()
    }
    result, expected = ours(*mine, **options_ours), theirs(*other, **options_theirs)
    seed = draw(7, *first(expected).shape)
    first(result).backward(Tensor(seed))
    first(expected).backward(torch.from_numpy(seed))
    pairs: list[tuple[str, Tensor, Any]] = [
        (f"result {i}", a, b)
        for i, (a, b) in enumerate(zip(flat(result), flat(expected), strict=True))
    ]
    for i, (a, b) in enumerate(zip(mine, other, strict=True)):
        if b.grad is not None:
            assert a.grad is not None, i
            pairs.append((f"gradient of input {i}", a.grad, b.grad))
    grads = dict(ours.named_parameters())
    for name, parameter in theirs.named_parameters():
        mine_grad = grads[name].grad
        assert mine_grad is not None, name
        pairs.append((f"gradient of {name}", mine_grad, parameter.grad))
    buffers = dict(ours.named_buffers())
    pairs += [(name, buffers[name], b) for name, b in theirs.named_buffers()]
    values = compute(a for _, a, _ in pairs)
    for value, (what, _, reference) in zip(values, pairs, strict=True):
        close(value, reference, what, tolerance)


def compare_function(
    ours: Any, theirs: Any, inputs: Sequence[Array], tolerance: float = 2e-5
) -> None:
    """Value and gradients of a function of tensors that gives one tensor."""
    mine = [Tensor(a, requires_grad=a.dtype.kind == "f") for a in inputs]
    other = [torch.tensor(a, requires_grad=a.dtype.kind == "f") for a in inputs]
    result, expected = ours(*mine), theirs(*other)
    seed = draw(7, *expected.shape)
    result.backward(Tensor(seed))
    expected.backward(torch.from_numpy(seed))
    pairs: list[tuple[str, Any, Any]] = [("value", result, expected)]
    for i, (a, b) in enumerate(zip(mine, other, strict=True)):
        if b.grad is not None:
            pairs.append((f"gradient {i}", a.grad, b.grad))
    values = compute(a for _, a, _ in pairs)
    for value, (what, _, reference) in zip(values, pairs, strict=True):
        close(value, reference, what, tolerance)
