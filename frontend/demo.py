"""`rawgpu demo`: a small convolutional network learns to read handwritten digits, on each device.

Every number below is computed by kernels that were generated a moment ago; Python shuffles, counts
and prints. The data is the 1,797 digits of `datasets.py`: 80 % to learn from and 20 % to be asked
about, as the permutation of seed 0 divides them. A device's accuracy is the median over several
training seeds. `demo_training.py` has the network and its training, this file the command.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from dataclasses import asdict, dataclass
from typing import Any

import rawgpu
from frontend.demo_training import Data, Outcome, Plan, load_data, train
from rawgpu.cli.show import Progress, table
from rawgpu.contract import DeviceInfo
from rawgpu.errors import DeviceNotFound

VIRTUAL = "; RAWGPU_VIRTUAL=gfx1100 before the command gives it a virtual GPU"
SHADES = " ░▒▓█"
PICTURES = 6
"""Digits in a row of the picture: 16 columns each, so that a row fits a terminal."""


@dataclass(frozen=True)
class Result:
    """What one device, or one group of them, did."""

    device: str
    arch: str
    accuracy: float
    accuracies: list[float]
    compile_s: float
    run_s: float
    kernels: list[dict[str, Any]]


def positive(text: str) -> int:
    """A whole number of at least 1, for argparse."""
    number = int(text)
    if number < 1:
        raise ValueError(text)
    return number


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the demo can be told."""
    parser.add_argument(
        "--device", help="one device, by its name in `rawgpu devices`; `amd` is `amd:0`"
    )
    parser.add_argument(
        "--gpus", type=positive, metavar="N", help="train on N GPUs together, each batch divided"
    )
    parser.add_argument("--seed", type=int, default=0, help="the first training seed")
    parser.add_argument("--seeds", type=positive, default=5, help="how many; the median counts")
    parser.add_argument("--epochs", type=positive, default=10, help="passes over the data")


def is_gpu(info: DeviceInfo) -> bool:
    """Every device that is not the CPU, real or virtual."""
    return not info.name.startswith("cpu:")


def groups(options: argparse.Namespace) -> list[tuple[DeviceInfo, ...]]:
    """The devices to train on, in groups that train together."""
    found = [info for info in rawgpu.devices() if info.usable]
    hint = "`rawgpu devices` lists them, `rawgpu doctor` says why one is missing"
    if options.gpus is not None:
        # a device without a number is a vendor
        vendor = "" if options.device is None else f"{options.device}:"
        gpus = [info for info in found if is_gpu(info) and info.name.startswith(vendor)]
        if not 0 < options.gpus <= len(gpus):
            what = f" of {options.device}" if vendor else ""
            raise DeviceNotFound(
                f"{options.gpus} GPUs{what} asked for, {len(gpus)} found", hint=hint + VIRTUAL
            )
        return [tuple(gpus[: options.gpus])]
    if options.device is not None:
        full = options.device if ":" in options.device else f"{options.device}:0"
        named = [info for info in found if info.name == full]
        if not named:
            raise DeviceNotFound(f"no usable device {options.device}", hint=hint + VIRTUAL)
        return [(named[0],)]
    return [(info,) for info in found]


def median_run(outcomes: list[Outcome]) -> Outcome:
    """The run whose accuracy is the (lower) median."""
    return sorted(outcomes, key=lambda outcome: outcome.accuracy)[(len(outcomes) - 1) // 2]


def demonstrate(
    group: tuple[DeviceInfo, ...], data: Data, plan: Plan, seeds: range, *, silent: bool
) -> tuple[Result, Outcome]:
    """Train on a group of devices with each seed; what came of it, and the median run."""
    names = [info.name for info in group]
    with Progress("+".join(names), len(seeds) * plan.steps(data), silent=silent) as bar:
        outcomes = [train(names, data, plan, seed, bar.step) for seed in seeds]
    accuracies = [outcome.accuracy for outcome in outcomes]
    kernels = {kernel["sha256"]: kernel for outcome in outcomes for kernel in outcome.kernels}
    result = Result(
        device="+".join(names),
        arch="+".join(dict.fromkeys(info.arch for info in group)),
        accuracy=statistics.median(accuracies),
        accuracies=accuracies,
        compile_s=round(sum(outcome.compile_s for outcome in outcomes), 3),
        run_s=round(sum(outcome.run_s for outcome in outcomes), 3),
        kernels=list(kernels.values()),
    )
    return result, median_run(outcomes)


def picture(image: list[list[int]]) -> list[str]:
    """An 8×8 image of 0 to 16 as lines of text; two characters make a square pixel."""
    return ["".join(SHADES[(value + 3) // 4] * 2 for value in row) for row in image]


def interesting(data: Data, predictions: list[int]) -> list[int]:
    """Places in the test part to show: up to two mistakes, then what comes first."""
    truth = data.test_labels
    wrong = [i for i, guess in enumerate(predictions) if guess != truth[i]][:2]
    right = [i for i, guess in enumerate(predictions) if guess == truth[i]]
    return (right[: PICTURES - len(wrong)] + wrong)[:PICTURES]


def gallery(data: Data, predictions: list[int]) -> str:
    """A row of digits with what the network took them for."""
    places = interesting(data, predictions)
    drawn = [picture(data.test_image(place)) for place in places]
    lines = [" ".join(parts) for parts in zip(*drawn, strict=True)]
    captions = []
    for place in places:
        guess, truth = predictions[place], data.test_labels[place]
        captions.append(f"{guess}" if guess == truth else f"{guess}, but it is {truth}")
    return "\n".join([*lines, " ".join(caption.center(16) for caption in captions)])


def show(results: list[Result], elapsed_s: float) -> None:
    """Print the results as a table."""
    rows = [
        (
            result.device,
            result.arch,
            f"{100 * result.accuracy:.2f} %",
            f"{result.compile_s:.1f} s",
            f"{result.run_s:.1f} s",
            str(len(result.kernels)),
        )
        for result in results
    ]
    print(table(("DEVICE", "ARCH", "ACCURACY", "COMPILING", "RUNNING", "KERNELS"), rows))
    print(f"\nAccuracy is the median over the seeds; {elapsed_s:.1f} s in all.")


def run(options: argparse.Namespace) -> int:
    """Train, measure, print."""
    began = time.monotonic()
    data = load_data()
    plan = Plan(epochs=options.epochs)
    seeds = range(options.seed, options.seed + options.seeds)
    results = []
    for group in groups(options):
        result, shown = demonstrate(group, data, plan, seeds, silent=options.json)
        results.append(result)
        if not options.json:
            print(gallery(data, shown.predictions), end="\n\n")
    if options.json:
        print(json.dumps({"results": [asdict(result) for result in results]}))
    else:
        show(results, time.monotonic() - began)
    return 0
