"""Functions of networks against torch's: losses, activations, attention, resizing; and refusals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from frontend import Tensor
from frontend.nn import functional as F
from rawgpu.errors import DTypeError, OperationError, RawGpuError, ShapeError
from tests.frontend.nn.against_torch import close, compare_function, draw, torch

TF = torch.nn.functional
REDUCTIONS = ["mean", "sum", "none"]

LABELS = np.array([1, 0, -100, 2])
SIGNS = np.array([1, -1, 1, -1])
SHARES = np.random.default_rng(3).random((4, 3)).astype(np.float32)
ZERO_ONE = np.array([[0, 1, 0], [1, 1, 0], [0.5, 0, 1], [1, 0, 0]], np.float32)
WEIGHTS = np.array([0.5, 2.0, 1.0], np.float32)


def losses(lib: Any, t: Callable[[Any], Any]) -> dict[str, tuple[Callable[..., Any], list[Any]]]:
    """Each loss as a function of float inputs; `lib` is ours or torch's, `t` makes its tensors."""
    x, y, three = draw(1, 4, 3), draw(2, 4, 3), draw(4, 4, 3)
    bce, logits = lib.binary_cross_entropy, lib.binary_cross_entropy_with_logits
    return {
        "mse": (lib.mse_loss, [x, y]),
        "l1": (lib.l1_loss, [x, y]),
        "smooth_l1": (lambda a, b, **r: lib.smooth_l1_loss(a, b, beta=0.7, **r), [x, y]),
        "huber": (lambda a, b, **r: lib.huber_loss(a, b, delta=0.7, **r), [x, y]),
        "nll": (lambda a, **r: lib.nll_loss(a, t(LABELS), **r), [x]),
        "nll weighted": (lambda a, **r: lib.nll_loss(a, t(LABELS), t(WEIGHTS), **r), [x]),
        "nll of images": (
            lambda a, **r: lib.nll_loss(a, t(np.array([[1, 0], [2, 2]])), t(WEIGHTS), **r),
            [draw(5, 2, 3, 2)],
        ),
        "cross_entropy": (lambda a, **r: lib.cross_entropy(a, t(LABELS), **r), [x]),
        "cross_entropy smoothed": (
            lambda a, **r: lib.cross_entropy(a, t(LABELS), label_smoothing=0.1, **r),
            [x],
        ),
        "cross_entropy weighted": (
            lambda a, **r: lib.cross_entropy(a, t(LABELS), t(WEIGHTS), **r),
            [x],
        ),
        "bce": (lambda a, **r: bce(a, t(ZERO_ONE), **r), [SHARES]),
        "bce weighted": (lambda a, **r: bce(a, t(ZERO_ONE), t(WEIGHTS), **r), [SHARES]),
        "bce with logits": (lambda a, **r: logits(a, t(ZERO_ONE), **r), [x * 30]),
        "bce with logits weighted": (
            lambda a, **r: logits(a, t(ZERO_ONE), pos_weight=t(WEIGHTS), **r),
            [x],
        ),
        "kl": (lambda a, **r: lib.kl_div(a, t(ZERO_ONE), **r), [x]),
        "kl of logs": (lambda a, b, **r: lib.kl_div(a, b, log_target=True, **r), [x, y]),
        "cosine": (
            lambda a, b, **r: lib.cosine_embedding_loss(a, b, t(SIGNS), margin=0.1, **r),
            [x, y],
        ),
        "hinge": (
            lambda a, **r: lib.hinge_embedding_loss(a, t(np.sign(y).astype(np.int64)), **r),
            [x],
        ),
        "ranking": (
            lambda a, b, **r: lib.margin_ranking_loss(a, b, t(SIGNS), margin=0.2, **r),
            [x[:, 0].copy(), y[:, 0].copy()],
        ),
        "soft margin": (lambda a, **r: lib.soft_margin_loss(a, t(np.sign(y)), **r), [x]),
        "triplet": (lib.triplet_margin_loss, [x, y, three]),
        "poisson": (lambda a, **r: lib.poisson_nll_loss(a, t(SHARES), **r), [x]),
        "gaussian": (
            lambda a, v, **r: lib.gaussian_nll_loss(a, t(y), v, **r),
            [x, SHARES + 0.1],
        ),
    }


OURS, THEIRS = losses(F, Tensor), losses(TF, torch.from_numpy)


@pytest.mark.parametrize("name", OURS)
def test_a_loss_does_what_torchs_does(name: str) -> None:
    (ours, inputs), (theirs, _) = OURS[name], THEIRS[name]
    # torch's kl_div warns that its "mean" is none
    for reduction in ["batchmean", *REDUCTIONS[1:]] if name.startswith("kl") else REDUCTIONS:
        compare_function(
            lambda *a, r=reduction: ours(*a, reduction=r),
            lambda *a, r=reduction: theirs(*a, reduction=r),
            inputs,
        )


def test_a_sure_mistake_costs_a_finite_sum_and_has_a_finite_gradient() -> None:
    x = Tensor([0.0, 1.0, 0.5], requires_grad=True)
    loss = F.binary_cross_entropy(x, Tensor([1.0, 0.0, 1.0]), reduction="none")
    loss.sum().backward()
    assert x.grad is not None
    close(loss, np.array([100.0, 100.0, np.log(2.0)], np.float32), "loss")
    assert np.isfinite(x.grad.numpy()).all()


def test_logits_of_any_size_give_finite_losses() -> None:
    x = np.array([-1e30, -100.0, 0.0, 100.0, 1e30], np.float32)
    for target in (0.0, 1.0):
        want = TF.binary_cross_entropy_with_logits(
            torch.from_numpy(x), torch.full((5,), target), reduction="none"
        )
        full = Tensor([target] * 5)
        got = F.binary_cross_entropy_with_logits(Tensor(x), full, reduction="none")
        np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-5, atol=1e-40)


def test_probabilities_are_targets_too() -> None:
    compare_function(
        lambda x: F.cross_entropy(x, Tensor(ZERO_ONE), label_smoothing=0.2),
        lambda x: TF.cross_entropy(x, torch.from_numpy(ZERO_ONE), label_smoothing=0.2),
        [draw(1, 4, 3)],
    )


# -- layers

FUNCTIONS: dict[str, tuple[Callable[..., Any], Callable[..., Any], list[Any]]] = {
    "normalize": (F.normalize, TF.normalize, [draw(1, 3, 4)]),
    "cosine_similarity": (
        F.cosine_similarity,
        TF.cosine_similarity,
        [draw(1, 3, 4), draw(2, 3, 4)],
    ),
    "softmin": (lambda x: F.softmin(x, 0), lambda x: TF.softmin(x, 0), [draw(1, 3, 4)]),
    "threshold": (
        lambda x: F.threshold(x, 0.1, 2.0),
        lambda x: TF.threshold(x, 0.1, 2.0),
        [draw(1, 3, 4)],
    ),
    "pad": (
        lambda x: F.pad(x, (1, 2, 0, 1), value=3.0),
        lambda x: TF.pad(x, (1, 2, 0, 1), value=3.0),
        [draw(1, 3, 4)],
    ),
    "linear up": (
        lambda x: F.interpolate(x, scale_factor=1.7, mode="linear"),
        lambda x: TF.interpolate(x, scale_factor=1.7, mode="linear"),
        [draw(1, 1, 2, 5)],
    ),
    "bilinear, corners aligned": (
        lambda x: F.interpolate(x, (5, 3), mode="bilinear", align_corners=True),
        lambda x: TF.interpolate(x, (5, 3), mode="bilinear", align_corners=True),
        [draw(1, 1, 2, 3, 4)],
    ),
    "nearest down": (
        lambda x: F.interpolate(x, 3),
        lambda x: TF.interpolate(x, 3),
        [draw(1, 1, 2, 7)],
    ),
    "adaptive max": (
        lambda x: F.adaptive_max_pool(x, 3),
        lambda x: TF.adaptive_max_pool1d(x, 3),
        [draw(1, 2, 2, 7)],
    ),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_does_what_torchs_does(name: str) -> None:
    compare_function(*FUNCTIONS[name])


# -- attention

sdpa, torch_sdpa = F.scaled_dot_product_attention, TF.scaled_dot_product_attention
SEEN = np.array([[True, False, True, True], [False, True, True, False], [True, True, True, True]])

SDPA: dict[str, dict[str, Any]] = {
    "plain": {},
    "causal": {"is_causal": True},
    "bool mask": {"attn_mask": SEEN},
    "float mask": {"attn_mask": draw(9, 2, 1, 3, 4)},
    "scaled": {"scale": 0.3},
}


@pytest.mark.parametrize("name", SDPA)
def test_attention_does_what_torchs_does(name: str) -> None:
    options = SDPA[name]
    mine = {k: Tensor(v) if isinstance(v, np.ndarray) else v for k, v in options.items()}
    other = {k: torch.tensor(v) if isinstance(v, np.ndarray) else v for k, v in options.items()}
    inputs = [draw(1, 2, 2, 3, 4), draw(2, 2, 2, 4, 4), draw(3, 2, 2, 4, 5)]
    compare_function(lambda *a: sdpa(*a, **mine), lambda *a: torch_sdpa(*a, **other), inputs)


def test_groups_of_queries_share_a_head_of_keys() -> None:
    inputs = [draw(1, 1, 4, 3, 4), draw(2, 1, 2, 3, 4), draw(3, 1, 2, 3, 4)]
    compare_function(
        lambda *a: sdpa(*a, enable_gqa=True), lambda *a: torch_sdpa(*a, enable_gqa=True), inputs
    )


def test_a_query_that_sees_nothing_gives_zeros_and_no_nan() -> None:
    seen = SEEN.copy()
    seen[1] = False
    q, k, v = (Tensor(draw(i, 3 + (i > 0), 4), requires_grad=True) for i in range(3))
    out = sdpa(q, k, v, Tensor(seen))
    out.sum().backward()
    assert q.grad is not None and k.grad is not None
    out.realize(q.grad, k.grad)
    assert out.numpy()[1].tolist() == [0.0] * 4
    assert np.isfinite(out.numpy()).all()
    assert np.isfinite(q.grad.numpy()).all()
    assert np.isfinite(k.grad.numpy()).all()


def test_large_scores_do_not_overflow() -> None:
    q = draw(1, 3, 4) * 1e4
    close(sdpa(Tensor(q), Tensor(q), Tensor(q)), torch_sdpa(*[torch.from_numpy(q)] * 3), "out")


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_statistics_of_narrow_floats_are_wide(dtype: str) -> None:
    """The squares of these do not fit float16."""
    x = Tensor(draw(1, 4, 6) * 3e3).astype(dtype)
    got = F.layer_norm(x, 6)
    assert got.dtype.name == dtype
    want = TF.layer_norm(torch.tensor(x.numpy()), (6,))
    np.testing.assert_allclose(got.numpy(), want.numpy(), atol=2e-2)


# -- refusals

X = Tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])

REFUSED: list[tuple[str, Callable[[], object], type[RawGpuError], str]] = [
    ("mse", lambda: F.mse_loss(X, X[0]), ShapeError, "(2, 3)"),
    ("reduction", lambda: F.l1_loss(X, X, "average"), OperationError, "average"),
    ("labels", lambda: F.nll_loss(X, Tensor([1, 2, 3])), ShapeError, "(3,)"),
    ("float labels", lambda: F.nll_loss(X, Tensor([1.0, 2.0])), DTypeError, "float32"),
    ("linear", lambda: F.linear(X, Tensor.ones(4, 2)), ShapeError, "(4, 2)"),
    ("bias", lambda: F.linear(X, Tensor.ones(4, 3), Tensor.ones(3)), ShapeError, "(3,)"),
    ("embedding", lambda: F.embedding(X, X), DTypeError, "float32"),
    ("glu", lambda: F.glu(X), ShapeError, "halves"),
    ("groups", lambda: F.group_norm(X, 2), ShapeError, "2 groups"),
    ("norm", lambda: F.layer_norm(X, 2), ShapeError, "(2,)"),
    ("whole numbers", lambda: F.layer_norm(Tensor([[1, 2]]), 2), DTypeError, "int64"),
    ("dropout", lambda: F.dropout(X, 1.5), OperationError, "1.5"),
    ("width", lambda: sdpa(X, Tensor.ones(2, 4), X), ShapeError, "(2, 4)"),
    ("mask", lambda: sdpa(X, X, X, Tensor.ones(3, 3)), ShapeError, "mask"),
    ("two masks", lambda: sdpa(X, X, X, Tensor.ones(2, 2), is_causal=True), OperationError, "mask"),
    ("mode", lambda: F.interpolate(X, 3, mode="cubic"), OperationError, "cubic"),
    ("rank", lambda: F.interpolate(X, 3), ShapeError, "(2, 3)"),
    ("pairs", lambda: F.pad(X, (1, 2, 3)), ShapeError, "pairs"),
]


@pytest.mark.parametrize(
    ("call", "error", "says"), [r[1:] for r in REFUSED], ids=[r[0] for r in REFUSED]
)
def test_what_cannot_be_is_refused_at_the_call(
    call: Callable[[], object], error: type[RawGpuError], says: str
) -> None:
    with pytest.raises(error) as caught:
        call()
    assert says in str(caught.value)
