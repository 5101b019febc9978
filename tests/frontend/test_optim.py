"""Optimisers against torch's, step by step; rates, clipping, state; one computation a step."""

from __future__ import annotations

import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from frontend import Tensor, engine, jit, nn, optim, state
from frontend.graph import node
from rawgpu.errors import OperationError, RawGpuError, ShapeError
from tests.frontend.evaluator import uses_reference

torch: Any = pytest.importorskip("torch", reason="PyTorch, the oracle for optimisers, is absent")

STEPS = 10
Array = np.ndarray[Any, Any]


def draw(seed: int, *shape: int) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


X, Y = draw(1, 6, 3), draw(2, 6, 2)


def networks() -> tuple[nn.Module, Any]:
    """The same two layers, ours and torch's."""
    torch.manual_seed(1)
    theirs = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2))
    ours = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    ours.load_state_dict({name: value.numpy() for name, value in theirs.state_dict().items()})
    return ours, theirs


def one_step(ours: nn.Module, optimizer: optim.Optimizer) -> Tensor:
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(ours(Tensor(X)), Tensor(Y))
    loss.backward()
    optimizer.step(loss)
    return loss


def their_step(theirs: Any, optimizer: Any) -> Any:
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(theirs(torch.from_numpy(X)), torch.from_numpy(Y))
    loss.backward()
    optimizer.step()
    return loss


def same_weights(ours: nn.Module, theirs: Any, step: int, tolerance: float = 2e-6) -> None:
    expected = dict(theirs.named_parameters())
    for name, parameter in ours.named_parameters():
        np.testing.assert_allclose(
            parameter.numpy(),
            expected[name].detach().numpy(),
            rtol=1e-5,
            atol=tolerance * (step + 1),
            err_msg=f"{name} after step {step}",
        )


METHODS: list[tuple[str, dict[str, Any]]] = [
    ("SGD", {"lr": 0.1}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True}),
    ("SGD", {"lr": 0.1, "momentum": 0.8, "dampening": 0.3, "maximize": True}),
    ("Adam", {"lr": 0.02}),
    ("Adam", {"lr": 0.02, "weight_decay": 0.1, "betas": (0.8, 0.9), "amsgrad": True}),
    ("AdamW", {"lr": 0.02, "weight_decay": 0.1}),
    ("RMSprop", {"lr": 0.01}),
    ("RMSprop", {"lr": 0.01, "momentum": 0.9, "centered": True, "weight_decay": 0.01}),
    ("Adagrad", {"lr": 0.1, "lr_decay": 0.1, "weight_decay": 0.01}),
]


@pytest.mark.parametrize(("kind", "options"), METHODS)
def test_ten_steps_are_torchs(kind: str, options: dict[str, Any]) -> None:
    ours, theirs = networks()
    mine = getattr(optim, kind)(ours.parameters(), **options)
    other = getattr(torch.optim, kind)(theirs.parameters(), **options)
    for step in range(STEPS):
        loss, expected = one_step(ours, mine), their_step(theirs, other)
        np.testing.assert_allclose(loss.item(), expected.item(), rtol=2e-5)
        same_weights(ours, theirs, step)
    theirs_state = list(other.state_dict()["state"].values())
    for name, value in mine.state_dict().items():
        _, place, key = name.split(".")
        if not name.startswith("state"):
            continue
        np.testing.assert_allclose(
            value.numpy(), theirs_state[int(place)][key].numpy(), rtol=1e-4, atol=1e-6
        )


def test_lamb_steps_as_long_as_the_weights_say() -> None:
    """The first step of Lamb is the sign of the gradient, scaled to lr times the weights' norm."""
    w = nn.Parameter(draw(1, 3, 4))
    before = w.numpy()
    optimizer = optim.Lamb([w], lr=0.01)
    (w * Tensor(draw(2, 3, 4))).sum().backward()
    optimizer.step()
    moved = w.numpy() - before
    np.testing.assert_allclose(np.linalg.norm(moved), 0.01 * np.linalg.norm(before), rtol=1e-4)
    np.testing.assert_array_equal(np.sign(moved), -np.sign(draw(2, 3, 4)))


def test_groups_have_options_of_their_own() -> None:
    ours, theirs = networks()
    first, second = list(ours.parameters())[:2], list(ours.parameters())[2:]
    mine = optim.AdamW(
        [{"params": first, "lr": 0.05}, {"params": second, "weight_decay": 0.5}], lr=0.01
    )
    first, second = list(theirs.parameters())[:2], list(theirs.parameters())[2:]
    other = torch.optim.AdamW(
        [{"params": first, "lr": 0.05}, {"params": second, "weight_decay": 0.5}], lr=0.01
    )
    for step in range(3):
        one_step(ours, mine)
        their_step(theirs, other)
        same_weights(ours, theirs, step)
    assert mine.rates() == [0.05, 0.01]


@pytest.mark.skipif(uses_reference(), reason="NumPy's stand-in has no kernels to count")
def test_a_step_is_one_computation_and_steps_share_one_plan(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Counts and rates are data: no step asks for a kernel that the step before did not have."""
    ours = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    optimizer = optim.Adam(ours.parameters(), lr=0.1)
    norm = ours[1]
    assert isinstance(norm, nn.BatchNorm1d)
    calls: list[int] = []
    whole = engine.realize
    monkeypatch.setattr(engine, "realize", lambda nodes: calls.append(len(nodes)) or whole(nodes))
    one_step(ours, optimizer)
    assert len(calls) == 1
    assert norm.running_mean is not None
    assert norm.running_mean.is_realized
    kernels = sum(len(opened.kernels) for opened in engine._opened.values())
    for rate in (0.1, 0.05, 0.01):
        optimizer.lr = rate
        calls.clear()
        one_step(ours, optimizer)
        assert len(calls) == 1
    assert sum(len(opened.kernels) for opened in engine._opened.values()) == kernels


def test_a_recorded_step_is_the_step() -> None:
    """Weights, moments, running means, random numbers and a rate that changes: all are state."""

    def trained(wrap: Callable[..., Any]) -> list[Any]:
        Tensor.manual_seed(2)
        net = nn.Sequential(
            nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Dropout(0.3), nn.Linear(4, 2)
        )
        optimizer = optim.AdamW(net.parameters(), lr=0.1)
        schedule = optim.ExponentialLR(optimizer, 0.5)

        def step(x: Tensor, y: Tensor) -> Tensor:
            loss = nn.functional.mse_loss(net(x), y)
            loss.backward()
            optimizer.step(loss)
            optimizer.zero_grad()
            return loss

        run = wrap(step)
        losses = []
        for seed in range(4):
            losses.append(run(Tensor(draw(seed, 6, 3)), Tensor(Y)).item())
            schedule.step()
        state_of = {**net.state_dict(), **optimizer.state_dict()}
        return [losses, {name: value.tolist() for name, value in state_of.items()}]

    (losses, values), (plain_losses, plain) = trained(jit), trained(lambda step: step)
    np.testing.assert_allclose(losses, plain_losses, rtol=1e-5)
    assert list(values) == list(plain)
    for name, value in values.items():
        np.testing.assert_allclose(value, plain[name], rtol=1e-4, atol=1e-6, err_msg=name)


def test_training_leaves_nothing_behind() -> None:
    net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    optimizer = optim.Adam(net.parameters())

    def nodes() -> int:
        gc.collect()
        return len(node._nodes)

    for _ in range(3):
        one_step(net, optimizer)
    before = nodes()
    for _ in range(10):
        one_step(net, optimizer)
    assert nodes() <= before


def test_a_parameter_without_a_gradient_stays() -> None:
    a, b = nn.Parameter([1.0, 2.0]), nn.Parameter([3.0])
    optimizer = optim.SGD([a, b], lr=1.0, weight_decay=0.5)
    a.sum().backward()
    optimizer.step()
    assert a.tolist() == [-0.5, 0.0]
    assert b.tolist() == [3.0]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_moments_are_as_wide_as_they_need_to_be(dtype: str) -> None:
    w = nn.Parameter(Tensor([1.0, -2.0]).astype(dtype))
    optimizer = optim.Adam([w], lr=0.25)
    for _ in range(2):
        optimizer.zero_grad()
        (w * w).sum().backward()
        optimizer.step()
    assert w.dtype.name == dtype
    wide = "float64" if dtype == "float64" else "float32"
    assert optimizer.state_dict()["state.0.exp_avg"].dtype.name == wide
    np.testing.assert_allclose(w.numpy(), [0.5, -1.5], atol=2e-2)


def test_training_goes_on_from_a_file(tmp_path: Path) -> None:
    """Three steps, save, load into new objects, three more: the same as six."""
    whole, _ = networks()
    optimizer = optim.AdamW(whole.parameters(), lr=0.05)
    for _ in range(6):
        one_step(whole, optimizer)
    part, _ = networks()
    optimizer = optim.AdamW(part.parameters(), lr=0.05)
    for _ in range(3):
        one_step(part, optimizer)
    state.save(part, tmp_path / "net")
    state.save(optimizer, tmp_path / "optimizer")
    again = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    state.load(again, tmp_path / "net")
    optimizer = optim.AdamW(again.parameters(), lr=0.9)
    state.load(optimizer, tmp_path / "optimizer")
    assert optimizer.lr == 0.05
    for _ in range(3):
        one_step(again, optimizer)
    for a, b in zip(whole.parameters(), again.parameters(), strict=True):
        np.testing.assert_array_equal(a.numpy(), b.numpy())


def test_a_state_of_another_method_is_refused() -> None:
    net, _ = networks()
    saved = optim.SGD(net.parameters(), lr=0.1).state_dict()
    adam = optim.Adam(net.parameters(), lr=0.1)
    with pytest.raises(OperationError, match="exp_avg"):
        adam.load_state_dict(saved)
    wrong = adam.state_dict()
    wrong["state.0.exp_avg"] = Tensor.zeros(1)
    with pytest.raises(ShapeError, match="exp_avg"):
        adam.load_state_dict(wrong)


# -- rates

S, TS = optim, torch.optim.lr_scheduler

SCHEDULES: list[tuple[str, Callable[[Any], optim.Schedule], Callable[[Any], Any]]] = [
    ("step", lambda o: S.StepLR(o, 3, 0.5), lambda o: TS.StepLR(o, 3, 0.5)),
    ("milestones", lambda o: S.MultiStepLR(o, [2, 5]), lambda o: TS.MultiStepLR(o, [2, 5])),
    ("exponential", lambda o: S.ExponentialLR(o, 0.8), lambda o: TS.ExponentialLR(o, 0.8)),
    (
        "cosine",
        lambda o: S.CosineAnnealingLR(o, 8, 0.01),
        lambda o: TS.CosineAnnealingLR(o, 8, 0.01),
    ),
    (
        "warm-up",
        lambda o: S.LinearLR(o, 0.25, 1.0, 4),
        lambda o: TS.LinearLR(o, 0.25, 1.0, 4),
    ),
    (
        "function",
        lambda o: S.LambdaLR(o, lambda n: 1.0 / (n + 1)),
        lambda o: TS.LambdaLR(o, lambda n: 1.0 / (n + 1)),
    ),
]


@pytest.mark.parametrize(
    ("ours", "theirs"), [c[1:] for c in SCHEDULES], ids=[c[0] for c in SCHEDULES]
)
def test_rates_are_torchs(
    ours: Callable[[Any], optim.Schedule], theirs: Callable[[Any], Any]
) -> None:
    mine = optim.SGD([nn.Parameter([1.0])], lr=0.1)
    other = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.1)
    schedule, reference = ours(mine), theirs(other)
    for _ in range(STEPS):
        assert mine.lr == pytest.approx(other.param_groups[0]["lr"], rel=1e-6)
        other.step()  # torch warns if its optimiser never steps
        schedule.step()
        reference.step()


def test_a_warm_up_ends_in_a_cosine_and_goes_on_after_a_restart() -> None:
    optimizer = optim.SGD([nn.Parameter([1.0])], lr=1.0)
    schedule = optim.WarmupCosine(optimizer, warmup=2, steps=6, eta_min=0.0)
    rates = []
    for _ in range(8):
        rates.append(optimizer.lr)
        schedule.step()
    half = 0.5 + 0.5 * 2**-0.5
    expected = [0.5, 1.0, 1.0, half, 0.5, 1.0 - half, 0.0, 0.0]
    np.testing.assert_allclose(rates, expected, atol=1e-6)
    schedule.load_state_dict({"count": 4})
    assert optimizer.lr == pytest.approx(0.5)


def test_rates_fall_on_a_plateau() -> None:
    optimizer = optim.SGD([nn.Parameter([1.0])], lr=1.0)
    schedule = optim.ReduceLROnPlateau(optimizer, factor=0.5, patience=1)
    for metric in (3.0, 2.0, 2.0, 2.0, 2.0):
        schedule.step(metric)
    assert optimizer.lr == 0.5


# -- clipping


@pytest.mark.parametrize(
    ("order", "bound"), [(2.0, 0.5), (2.0, 50.0), (float("inf"), 0.1), (1.0, 1.0)]
)
def test_gradients_are_scaled_to_a_norm(order: float, bound: float) -> None:
    ours, theirs = networks()
    nn.functional.mse_loss(ours(Tensor(X)), Tensor(Y)).backward()
    torch.nn.functional.mse_loss(theirs(torch.from_numpy(X)), torch.from_numpy(Y)).backward()
    total = optim.clip_grad_norm(ours.parameters(), bound, order)
    expected = torch.nn.utils.clip_grad_norm_(theirs.parameters(), bound, order)
    grads = [p.grad for p in ours.parameters() if p.grad is not None]
    total.realize(*grads)
    assert total.item() == pytest.approx(expected.item(), rel=1e-5)
    for grad, parameter in zip(grads, theirs.parameters(), strict=True):
        np.testing.assert_allclose(grad.numpy(), parameter.grad.numpy(), rtol=1e-5, atol=1e-7)


def test_gradients_are_limited_element_by_element() -> None:
    w = nn.Parameter([1.0, 1.0])
    (w * Tensor([5.0, -0.1])).sum().backward()
    optim.clip_grad_value([w], 0.5)
    assert w.grad is not None
    np.testing.assert_allclose(w.grad.numpy(), [0.5, -0.1])
    assert optim.clip_grad_norm([nn.Parameter([1.0])], 1.0).item() == 0.0


# -- refusals

W = nn.Parameter([1.0])

REFUSED: list[tuple[Callable[[], object], type[RawGpuError], str]] = [
    (lambda: optim.SGD([]), OperationError, "no parameters"),
    (lambda: optim.SGD([W, W]), OperationError, "twice"),
    (lambda: optim.SGD([Tensor([1.0])]), OperationError, "no leaf"),
    (lambda: optim.SGD([W * 2]), OperationError, "no leaf"),
    (lambda: optim.SGD([1.0]), OperationError, "float"),  # type: ignore[list-item]
    (lambda: optim.SGD([W], lr=-1.0), OperationError, "lr"),
    (lambda: optim.SGD([W], lr=float("nan")), OperationError, "lr"),
    (lambda: optim.SGD([W], nesterov=True), OperationError, "momentum"),
    (lambda: optim.Adam([W], betas=(0.9, 1.0)), OperationError, "betas"),
    (lambda: optim.Adam([{"params": [W], "speed": 1}]), OperationError, "speed"),
    (lambda: optim.StepLR(optim.SGD([W]), 0), OperationError, "step size"),
    (lambda: optim.clip_grad_norm([W], -1.0), OperationError, "-1.0"),
]


@pytest.mark.parametrize(("call", "error", "says"), REFUSED)
def test_what_cannot_be_is_refused_at_the_call(
    call: Callable[[], object], error: type[RawGpuError], says: str
) -> None:
    with pytest.raises(error) as caught:
        call()
    assert says in str(caught.value)
