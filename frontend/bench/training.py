"""`rawgpu bench speed --training`: steps of whole networks, ours recorded by `jit`, torch's eager.

Both sides begin with the same weights and get the same batches, several in turn. Before anything is
timed, loss and gradients of the first step (of a mere forward pass, its result) are compared, with
PyTorch in float32: the last digits differ by the order of sums. Memory is measured elsewhere, in
`training_memory.py`.

A network is written once: `nn` is our `frontend.nn` or `torch.nn`, whose names are the same.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np

from frontend import Tensor, jit, nn, no_grad, optim
from frontend.bench.rivals import BadRequest, pytorch
from frontend.bench.row import Array
from frontend.bench.timer import Call, Timer
from frontend.bench.training_memory import memory_of
from rawgpu.errors import RawGpuError

BATCHES = 3
SEED = 5
LOSS_TOLERANCE = 1e-4
GRADIENT_TOLERANCE = 2e-3
"""Largest differences from PyTorch, relative to the largest value: both sides are float32."""


# --- networks ------------------------------------------------------------------------------------


def convnet(nn: Any) -> Any:
    """Two convolutions with pools, and two linear layers, for images of 28 x 28."""
    return nn.Sequential(
        nn.Conv2d(1, 32, 3), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(64 * 5 * 5, 128), nn.ReLU(), nn.Linear(128, 10),
    )  # fmt: skip


def encoder(nn: Any, layers: int = 6, width: int = 384, heads: int = 12) -> Any:
    """Transformer encoder layers without dropout, which could not be compared."""
    return nn.Sequential(
        *(
            nn.TransformerEncoderLayer(
                width, heads, 4 * width, dropout=0.0, activation="gelu", batch_first=True
            )
            for _ in range(layers)
        )
    )


def images_and_labels(rng: np.random.Generator) -> tuple[Array, Array]:
    return rng.random((128, 1, 28, 28), dtype=np.float32), rng.integers(0, 10, 128)


def texts_and_targets(rng: np.random.Generator, batch: int = 32, length: int = 128) -> Any:
    shape = (batch, length, 384)
    return tuple(rng.standard_normal(shape, dtype=np.float32) for _ in range(2))


def cross_entropy(scores: Any, labels: Any, functional: Any) -> Any:
    return functional.cross_entropy(scores, labels)


def along(out: Any, target: Any, functional: Any) -> Any:
    """A loss whose gradients vanish nowhere; of a norm's result, the mean square would be 1."""
    return (out * target).mean()


# --- steps ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Workload:
    """A step of a network: on a batch, forward, and perhaps backward, and perhaps an update."""

    name: str
    network: Callable[[Any], Any]
    batch: Callable[[np.random.Generator], tuple[Array, Array]]
    loss: Callable[[Any, Any, Any], Any]
    is_forward_only: bool = False
    updates: bool = False
    """Whether Adam takes a step."""
    measures_memory: bool = False

    def batches(self) -> list[tuple[Array, Array]]:
        rng = np.random.default_rng(SEED)
        return [self.batch(rng) for _ in range(BATCHES)]


WORKLOADS = (
    Workload(
        "convnet_step", convnet, images_and_labels, cross_entropy, updates=True,
        measures_memory=True,
    ),
    Workload("encoder_forward", encoder, texts_and_targets, along, is_forward_only=True),
    Workload("encoder_forward_backward", encoder, texts_and_targets, along),
)  # fmt: skip


class Side:
    """A network at work: a call for each batch, and what the last call left."""

    calls: list[Callable[[], Any]]
    gradients: Callable[[], dict[str, Array]]

    def first(self) -> tuple[Array, dict[str, Array]]:
        """What the first call gives, a loss or a result, and its gradients."""
        return np.asarray(self.calls[0]().numpy()), self.gradients()


class Ours(Side):
    """With `jit`; `weights` by name, or None for those the layers draw."""

    def __init__(self, work: Workload, device: str, weights: dict[str, Array] | None) -> None:
        self.model = work.network(nn).to(device)
        if weights is not None:
            self.model.load_state_dict(weights)
        optimizer = optim.Adam(self.model.parameters(), lr=1e-3) if work.updates else None

        def forward(x: Tensor, _: Tensor) -> Any:
            with no_grad():
                return self.model(x)

        def step(x: Tensor, target: Tensor) -> Any:
            self.model.zero_grad()
            loss = work.loss(self.model(x), target, nn.functional)
            loss.backward()
            if optimizer is not None:
                optimizer.step()
            return loss

        self.model.train(not work.is_forward_only)
        self.step = jit(forward if work.is_forward_only else step)
        batches = [[Tensor(a, device=device).realize() for a in b] for b in work.batches()]
        self.calls = [partial(self.step, *b) for b in batches]

    def gradients(self) -> dict[str, Array]:
        named = self.model.named_parameters()
        return {name: p.grad.numpy() for name, p in named if p.grad is not None}


class Theirs(Side):
    """PyTorch's, eager."""

    def __init__(self, work: Workload, torch: Any) -> None:
        torch.manual_seed(SEED)
        model = self.model = work.network(torch.nn)
        model.train(not work.is_forward_only)
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3) if work.updates else None

        def forward(x: Any, _: Any) -> Any:
            with torch.inference_mode():
                return model(x)

        def step(x: Any, target: Any) -> Any:
            model.zero_grad()
            loss = work.loss(model(x), target, torch.nn.functional)
            loss.backward()
            if optimizer is not None:
                optimizer.step()
            return loss.detach()

        batches = [[torch.tensor(a) for a in b] for b in work.batches()]
        self.calls = [partial(forward if work.is_forward_only else step, *b) for b in batches]

    def weights(self) -> dict[str, Array]:
        return {name: value.numpy().copy() for name, value in self.model.state_dict().items()}

    def gradients(self) -> dict[str, Array]:
        named = self.model.named_parameters()
        return {name: p.grad.numpy() for name, p in named if p.grad is not None}


# --- measuring -----------------------------------------------------------------------------------


@dataclass
class Step:
    """One workload's figures; None where there is no such figure."""

    name: str
    ours_ms: float | None = None
    torch_ms: float | None = None
    ratio: float | None = None
    loss_apart: float | None = None
    """From PyTorch's, relative; of a mere forward pass, of the result's largest value."""
    gradients_apart: float | None = None
    """Of the worst parameter, relative to its largest gradient."""
    kernels: int | None = None
    ours_peak_bytes: int | None = None
    ours_rss_bytes: int | None = None
    torch_rss_bytes: int | None = None
    right: bool | None = None
    failure: str | None = None


def measure_training(device: str, timer: Timer, with_torch: bool, pattern: str) -> dict[str, Any]:
    """All workloads whose names match. Raises BadRequest where none does."""
    wanted = [work for work in WORKLOADS if re.search(pattern, work.name)]
    if not wanted:
        names = ", ".join(work.name for work in WORKLOADS)
        raise BadRequest(f"no training step matches {pattern!r}; there are: {names}")
    torch = pytorch() if with_torch else None
    steps = [measure_step(work, device, timer, torch) for work in wanted]
    return {
        "steps": [asdict(step) for step in steps],
        "device": device,
        "threads": timer.threads,
        "wrong": [step.name for step in steps if step.right is False],
    }


def measure_step(work: Workload, device: str, timer: Timer, torch: Any | None) -> Step:
    """Compare and time one workload."""
    found = Step(work.name)
    theirs = None if torch is None else Theirs(work, torch)
    contestants: list[Sequence[Call]] = []
    try:
        ours = Ours(work, device, None if theirs is None else theirs.weights())
        _compare(ours, theirs, found)
        (recordings,) = ours.step._recordings.values()
        found.kernels = len(recordings[0].plan.steps)
        contestants.append(ours.calls)
    except RawGpuError as error:
        found.failure, found.right = f"{type(error).__name__}: {error}".split("\n")[0], False
    if theirs is not None:
        contestants.append(theirs.calls)
    times = timer.medians_ms(contestants)
    if found.failure is None:
        found.ours_ms = times.pop(0)
    if times:
        found.torch_ms = times.pop(0)
    if found.ours_ms and found.torch_ms:
        found.ratio = found.torch_ms / found.ours_ms
    if work.measures_memory and found.failure is None:
        _fill_memory(work, device, timer.threads, found, torch is not None)
    return found


def _compare(ours: Side, theirs: Side | None, found: Step) -> None:
    got, gradients = ours.first()
    if theirs is None:
        return
    expected, their_gradients = theirs.first()
    found.loss_apart = _apart(got, expected)
    found.right = found.loss_apart <= LOSS_TOLERANCE
    if their_gradients:
        assert gradients.keys() == their_gradients.keys(), "the networks differ"
        found.gradients_apart = max(
            _apart(gradients[name], their_gradients[name]) for name in gradients
        )
        found.right = found.right and found.gradients_apart <= GRADIENT_TOLERANCE


def _apart(got: Array, expected: Array) -> float:
    assert got.shape == expected.shape, f"shape {got.shape}, not {expected.shape}"
    apart = float(np.abs(got - expected).max())
    return apart / max(float(np.abs(expected).max()), 1e-30) if math.isfinite(apart) else math.inf


def _fill_memory(work: Workload, device: str, threads: int, found: Step, with_torch: bool) -> None:
    ours = memory_of(work.name, "ours", device, threads)
    found.ours_peak_bytes, found.ours_rss_bytes = ours["device_bytes"], ours["rss_bytes"]
    if with_torch:
        found.torch_rss_bytes = memory_of(work.name, "torch", device, threads)["rss_bytes"]
