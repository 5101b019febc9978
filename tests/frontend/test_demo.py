"""The demo learns, says so in numbers and in pictures, and refuses devices that are not there."""

from __future__ import annotations

import argparse
import json
import re
from collections import Counter

import numpy as np
import pytest

import rawgpu
from frontend import demo
from frontend.demo_training import Data, Outcome, Plan, batches, load_data, train
from rawgpu.cli.main import main
from rawgpu.contract import DeviceInfo
from rawgpu.errors import DeviceNotFound

CPU = DeviceInfo(name="cpu:0", arch="x86_64", title="CPU")
GPUS = [DeviceInfo(name=f"xg:{i}", arch="xg1", title="XG", virtual=True) for i in range(2)]
BROKEN = DeviceInfo(name="xg:2", arch="xg1", title="XG", usable=False, note="closed")


def options(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    demo.add_arguments(parser)
    return parser.parse_args(words)


def names(*words: str) -> list[list[str]]:
    return [[info.name for info in group] for group in demo.groups(options(*words))]


@pytest.fixture
def house(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with a CPU, two GPUs and one that cannot be opened."""
    monkeypatch.setattr(rawgpu, "devices", lambda: [*GPUS, BROKEN, CPU])


@pytest.mark.usefixtures("house")
def test_every_usable_device_trains_by_itself_unless_told_otherwise() -> None:
    assert names() == [["xg:0"], ["xg:1"], ["cpu:0"]]


@pytest.mark.usefixtures("house")
def test_one_device_or_several_gpus_together_can_be_asked_for() -> None:
    assert names("--device", "xg:1") == [["xg:1"]]
    assert names("--gpus", "2") == [["xg:0", "xg:1"]]
    assert names("--device", "xg", "--gpus", "2") == [["xg:0", "xg:1"]]


@pytest.mark.usefixtures("house")
@pytest.mark.parametrize(
    "words",
    [
        ["--device", "xg:2"],
        ["--device", "no"],
        ["--gpus", "3"],
        ["--device", "yg", "--gpus", "1"],
        ["--device", "xg:0", "--gpus", "2"],
    ],
)
def test_devices_that_are_not_there_are_refused(words: list[str]) -> None:
    with pytest.raises(DeviceNotFound, match="rawgpu devices"):
        names(*words)


@pytest.mark.parametrize("words", [["--gpus", "0"], ["--epochs", "-1"], ["--seeds", "x"]])
def test_numbers_below_one_are_refused(words: list[str]) -> None:
    with pytest.raises(SystemExit):
        options(*words)


def test_the_split_is_the_one_of_seed_0() -> None:
    data = load_data()
    assert len(data.labels) == 1437
    assert len(data.test_labels) == 360
    order = np.random.default_rng(0).permutation(1797)
    from frontend.datasets import digits

    images, labels = digits()
    assert np.array_equal(data.test_images[0], images[order[1437]])
    assert data.test_labels[-1] == labels[order[-1]]


def test_every_pass_sees_an_image_at_most_once_and_in_another_order() -> None:
    seen = list(batches(130, Plan(epochs=2, batch=64), seed=3))
    assert [len(batch) for batch in seen] == [64] * 4
    assert max(Counter(seen[0] + seen[1]).values()) == 1
    assert seen[0] != seen[2]
    assert seen == list(batches(130, Plan(epochs=2, batch=64), seed=3))


@pytest.fixture(scope="module")
def data() -> Data:
    return load_data()


@pytest.fixture(scope="module")
def alone(data: Data) -> Outcome:
    return train(["cpu:0"], data, Plan(epochs=2), 0, lambda note: None)


def test_two_passes_already_learn_most_digits(alone: Outcome) -> None:
    assert alone.accuracy > 0.85
    assert alone.kernels
    assert all(re.fullmatch(r"[0-9a-f]{64}", kernel["sha256"]) for kernel in alone.kernels)


def test_two_copies_that_divide_each_batch_learn_the_same(data: Data, alone: Outcome) -> None:
    together = train(["cpu:0", "cpu:0"], data, Plan(epochs=2), 0, lambda note: None)
    agreed = sum(a == b for a, b in zip(alone.predictions, together.predictions, strict=True))
    assert agreed / len(alone.predictions) > 0.97


def test_an_image_becomes_shades_two_characters_wide() -> None:
    lines = demo.picture([[0, 1, 4, 5, 8, 12, 13, 16]] * 8)
    assert lines == ["  ░░░░▒▒▒▒▓▓████"] * 8


def test_the_gallery_shows_mistakes_with_the_truth(data: Data) -> None:
    guesses = list(data.test_labels)
    guesses[100] = (guesses[100] + 1) % 10
    text = demo.gallery(data, guesses)
    assert f"{guesses[100]}, but it is {data.test_labels[100]}" in text
    assert {len(line) for line in text.splitlines()[:8]} == {demo.PICTURES * 17 - 1}


@pytest.mark.full
def test_the_demo_reads_97_of_100_digits(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--device", "cpu:0", "--json"]) == 0
    (result,) = json.loads(capsys.readouterr().out)["results"]
    assert result["accuracy"] >= 0.97
    assert len(result["accuracies"]) == 5


def test_the_demo_reports_what_it_did(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["demo", "--device", "cpu:0", "--seeds", "1", "--epochs", "1"]
    assert main([*words, "--json"]) == 0
    (result,) = json.loads(capsys.readouterr().out)["results"]
    assert result["device"] == "cpu:0"
    assert {"arch", "accuracy", "compile_s", "run_s", "kernels"} <= result.keys()
    assert {"name", "sha256"} <= result["kernels"][0].keys()
    assert main(words) == 0
    text = capsys.readouterr().out
    assert "ACCURACY" in text
    assert "█" in text
