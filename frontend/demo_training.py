"""The demo's network and how it learns, on one device or on several together.

Several devices hold a copy of the network each. A batch is divided among them, each computes the
gradient of its part, the first adds them up and hands the sum back, and all take the same step, so
that the copies stay equal.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

import frontend
from frontend import Tensor, nn, optim
from frontend.datasets import digits

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
    """How to train. The rate and the sizes were chosen on PyTorch, before this library could run."""

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
        super().__init__()
        self.strokes = nn.Conv2d(1, 16, 3, padding=1)
        self.shapes = nn.Conv2d(16, 32, 3, padding=1)
        self.scores = nn.Linear(32 * 4 * 4, 10)

    def forward(self, images: Tensor) -> Tensor:
        """Scores of shape (n, 10) for images of shape (n, 1, 8, 8)."""
        hidden = self.shapes(self.strokes(images).relu()).relu()
        return self.scores(hidden.max_pool2d(2).flatten(1))


def prepare(images: NDArray[Any], device: str) -> Tensor:
    """Images on the device, as float32 between 0 and 1, with a channel axis."""
    return (Tensor(images, device=device).astype("float32") / 16).unsqueeze(1)


class Replica:
    """A copy of the network on one device, with the data beside it."""

    def __init__(self, device: str, data: Data, plan: Plan, seed: int) -> None:
        frontend.manual_seed(seed)
        self.device = device
        self.model = Reader().to(device)
        self.optimizer = optim.Adam(self.model.parameters(), lr=plan.rate)
        self.images = prepare(data.images, device).realize()
        self.labels = Tensor(data.labels, device=device).astype("int64").realize()

    def loss(self, batch: Tensor) -> Tensor:
        """The mean loss over the images that `batch` numbers, with gradients left in the model."""
        self.optimizer.zero_grad()
        loss = self.model(self.images[batch]).cross_entropy(self.labels[batch])
        loss.backward()
        return loss

    def read(self, images: NDArray[Any]) -> list[int]:
        """What the network takes each image for."""
        with frontend.no_grad():
            guesses = self.model(prepare(images, self.device)).argmax(1).tolist()
        found: list[int] = guesses
        return found
