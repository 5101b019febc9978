"""The demo's network and how it learns, on one device or on several together.

Several devices hold a copy of the network each. A batch is divided among them, each computes the
gradient of its part, the first adds them up and hands the sum back, and all take the same step, so
that the copies stay equal.
"""

from __future__ import annotations

import hashlib
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from frontend import Tensor, engine, jit, manual_seed, nn, no_grad, optim
from frontend.datasets import digits

R = TypeVar("R")

SPLIT_SEED = 0
LEARN_PERCENT = 80


@dataclass(frozen=True)
class Data:
    """The digits, divided: images are uint8 (n, 8, 8), labels whole numbers."""

    images: NDArray[Any]
    labels: NDArray[Any]
    test_images: NDArray[Any]
    test_labels: list[int]

    def test_image(self, place: int) -> list[list[int]]:
        """One image of the test part, as rows of 0 to 16."""
        rows: list[list[int]] = self.test_images[place].tolist()
        return rows


@dataclass(frozen=True)
class Plan:
    """How to train. Network, rate and batch were chosen in PyTorch, for an accuracy near 99 %."""

    epochs: int = 10
    batch: int = 64
    rate: float = 5e-3

    def steps(self, data: Data) -> int:
        """Steps of one training; a last, smaller batch is left out of each pass."""
        return self.epochs * (len(data.labels) // self.batch)


@dataclass(frozen=True)
class Outcome:
    """What one training gave."""

    accuracy: float
    predictions: list[int]
    compile_s: float
    run_s: float
    kernels: list[dict[str, Any]]


def load_data() -> Data:
    """The digits, divided by the permutation of seed 0."""
    images, labels = digits()
    order = np.random.default_rng(SPLIT_SEED).permutation(len(labels))
    learn = len(labels) * LEARN_PERCENT // 100
    first, rest = order[:learn], order[learn:]
    return Data(images[first], labels[first], images[rest], labels[rest].tolist())


class Reader(nn.Module):
    """Two convolutions, a pool, and one linear layer: 8×8 pixels in, ten scores out."""

    def __init__(self) -> None:
        self.strokes = nn.Conv2d(1, 16, 3, padding=1)
        self.shapes = nn.Conv2d(16, 32, 3, padding=1)
        self.scores = nn.Linear(32 * 4 * 4, 10)

    def forward(self, images: Tensor) -> Tensor:
        """Scores of shape (n, 10) for images of shape (n, 1, 8, 8)."""
        hidden = self.shapes(self.strokes(images).relu()).relu()
        scores: Tensor = self.scores(hidden.max_pool2d(2).flatten(1))
        return scores


def prepare(images: NDArray[Any], device: str) -> Tensor:
    """Images on the device, as float32 between 0 and 1, with a channel axis."""
    return (Tensor(images, device=device).astype("float32") / 16).unsqueeze(1)


class Replica:
    """A copy of the network on one device, with the data beside it."""

    def __init__(self, device: str, data: Data, plan: Plan, seed: int) -> None:
        manual_seed(seed)
        self.device = device
        self.model = Reader().to(device)
        self.optimizer = optim.Adam(self.model.parameters(), lr=plan.rate)
        self.images = prepare(data.images, device).realize()
        self.labels = Tensor(data.labels, device=device).astype("int64").realize()

    def learn_from(self, part: Tensor, batch: int) -> Tensor:
        """Gradients of the loss over the images that `part` numbers, as its share of a batch."""
        self.optimizer.zero_grad()
        scores = self.model(self.images[part])
        loss: Tensor = scores.cross_entropy(self.labels[part], reduction="sum") / batch
        loss.backward()
        return loss

    def read(self, images: NDArray[Any]) -> list[int]:
        """What the network takes each image for."""
        with no_grad():
            guesses: list[int] = self.model(prepare(images, self.device)).argmax(1).tolist()
        return guesses


def share_gradients(replicas: Sequence[Replica]) -> None:
    """Give every copy the sum of all copies' gradients, added on the first device."""
    for same in zip(*(replica.model.parameters() for replica in replicas), strict=True):
        total = same[0].grad
        for parameter in same[1:]:
            total = total + parameter.grad.to(replicas[0].device)
        for parameter, replica in zip(same, replicas, strict=True):
            parameter.grad = total.to(replica.device)


def recorded_step(replicas: Sequence[Replica], batch: int) -> Callable[[list[Tensor]], Tensor]:
    """One training step on parts of a batch, one for each copy; recorded once, then replayed."""

    @jit
    def step(parts: list[Tensor]) -> Tensor:
        losses = [r.learn_from(part, batch) for r, part in zip(replicas, parts, strict=True)]
        if len(replicas) > 1:
            share_gradients(replicas)
        for replica in replicas:
            replica.optimizer.step()
        return losses[0]

    return step


def divide(places: Sequence[int], devices: Sequence[str]) -> list[Tensor]:
    """Every n-th place for each of n devices, there as a tensor."""
    count = len(devices)
    return [Tensor(places[i::count], device=device) for i, device in enumerate(devices)]


def batches(count: int, plan: Plan, seed: int) -> Iterator[list[int]]:
    """Places of the images of each step: every pass in another order."""
    chance = random.Random(seed)
    order = list(range(count))
    for _ in range(plan.epochs):
        chance.shuffle(order)
        for first in range(0, count - plan.batch + 1, plan.batch):
            yield order[first : first + plan.batch]


def loaded(devices: Sequence[str]) -> dict[str, str]:
    """Every kernel that the devices have loaded so far: its name, by its text."""
    found: dict[str, str] = {}
    for device in devices:
        found |= {text: kernel.name for text, kernel in engine.opened(device).kernels.items()}
    return found


class Stopwatch:
    """Tells calls that brought new kernels, and so compiled, from calls that only ran."""

    def __init__(self, devices: Sequence[str]) -> None:
        self.devices = devices
        self.compile_s = 0.0
        self.run_s = 0.0

    def __call__(self, work: Callable[[], R]) -> R:
        """Do `work` and put its time where it belongs."""
        before = len(loaded(self.devices))
        began = time.perf_counter()
        result = work()
        taken = time.perf_counter() - began
        if len(loaded(self.devices)) > before:
            self.compile_s += taken
        else:
            self.run_s += taken
        return result


def train(
    devices: Sequence[str], data: Data, plan: Plan, seed: int, tell: Callable[[str], None]
) -> Outcome:
    """Train from `seed` on `devices` together, and ask about the images that were kept back.

    `tell` hears of every step.
    """
    watch = Stopwatch(devices)
    replicas = watch(lambda: [Replica(device, data, plan, seed) for device in devices])
    step = recorded_step(replicas, plan.batch)
    for number, places in enumerate(batches(len(data.labels), plan, seed)):
        watch(lambda places=places: step(divide(places, devices)))  # type: ignore[misc]
        tell(f"seed {seed}, step {number + 1}")
    predictions = watch(lambda: replicas[0].read(data.test_images))
    right = sum(guess == label for guess, label in zip(predictions, data.test_labels, strict=True))
    kernels = [
        {"name": name, "sha256": hashlib.sha256(text.encode()).hexdigest()}
        for text, name in loaded(devices).items()
    ]
    return Outcome(right / len(predictions), predictions, watch.compile_s, watch.run_s, kernels)
