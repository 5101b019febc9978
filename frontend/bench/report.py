"""What `rawgpu bench speed` found: as data, as a table for people, and as a block of a document."""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from frontend.bench.check import Exactness
from frontend.bench.peaks import Peaks, Traffic
from frontend.bench.rivals import BadRequest
from rawgpu.cli.show import table

LEGEND = """\
OURS, TORCH, TINYGRAD  milliseconds of one call: a replay of ours, PyTorch's default call, a TinyJit
OUT=       PyTorch's call that writes to a given result, where it has one
RATIO      their time by ours, so above 1 ours is faster
PEAK       the least time that this machine allows, by ours; F if multiply-adds set it, B if bytes
ERROR      largest difference from float64, by the largest value; of integers, how many differ
BY TORCH'S our error by PyTorch's own
-          not measured"""
RATIOS = {
    "torch": "ratio",
    "torch_out": "ratio_out",
    "tinygrad": "ratio_tinygrad",
}
"""Contestants, and what the ratio of their time to ours is called."""


@dataclass
class Measured:
    """One row of the table; None where there is no such figure."""

    name: str
    ours_ms: float | None = None
    torch_ms: float | None = None
    torch_out_ms: float | None = None
    tinygrad_ms: float | None = None
    ratio: float | None = None
    ratio_out: float | None = None
    ratio_tinygrad: float | None = None
    flops: float = 0.0
    traffic: Traffic | None = None
    least_ms: float | None = None
    """What the machine's peaks allow."""
    bound: str | None = None
    """What sets `least_ms`: flops or bytes."""
    peak_share: float | None = None
    """`least_ms` by `ours_ms`."""
    error: float | None = None
    """Largest difference from float64, relative to the largest magnitude of the result."""
    torch_error: float | None = None
    error_ratio: float | None = None
    less_exact: bool = False
    """Whether our error is more than twice PyTorch's."""
    same_bits: bool | None = None
    """Whether the plan for one core and that for several give the same bytes."""
    right: bool | None = None
    failure: str | None = None
    """Why there is no figure of ours."""
    refusals: dict[str, str] = field(default_factory=dict)
    """Why there is none of a rival's."""

    def judge(self, exact: Exactness, tolerance: float) -> None:
        """Fill in what a comparison with float64 says."""
        self.error, self.torch_error = exact.ours, exact.theirs
        self.error_ratio, self.less_exact = exact.ratio, exact.is_worse
        self.right = exact.ours <= tolerance

    def fill(self, times_ms: dict[str, float]) -> None:
        """Fill in the times of all contestants, and what follows from them."""
        for name, ms in times_ms.items():
            setattr(self, f"{name}_ms", ms)
        if self.ours_ms is None:
            return
        for name, ratio in RATIOS.items():
            theirs = getattr(self, f"{name}_ms")
            setattr(self, ratio, None if theirs is None else theirs / self.ours_ms)

    def hold_against(self, peaks: Peaks) -> None:
        """Fill in what the machine allows, and the share of it that is reached."""
        if self.ours_ms is None or self.traffic is None:
            return
        self.least_ms = peaks.least_ms(self.flops, self.traffic)
        self.bound = peaks.bound(self.flops, self.traffic)
        self.peak_share = self.least_ms / self.ours_ms


def geomean(ratios: Sequence[float]) -> float | None:
    return math.exp(statistics.fmean(map(math.log, ratios))) if ratios else None


def summary(
    rows: Sequence[Measured], device: str, threads: int, peaks: Peaks | None
) -> dict[str, Any]:
    """The result of a run, as `--json` prints it. Wrong rows do not count in means."""
    right = [r for r in rows if r.right is not False]
    result: dict[str, Any] = {
        "rows": [asdict(r) for r in rows],
        "device": device,
        "threads": threads,
        "peaks": None if peaks is None else asdict(peaks),
        "wrong": [r.name for r in rows if r.right is False],
        "less_exact": [r.name for r in rows if r.less_exact],
        "other_bits": [r.name for r in rows if r.same_bits is False],
    }
    for ratio in RATIOS.values():
        found = [value for r in right if (value := getattr(r, ratio))]
        suffix = ratio.removeprefix("ratio")
        result[f"geomean{suffix}"] = geomean(found)
        result[f"median{suffix}"] = statistics.median(found) if found else None
        result[f"least{suffix}"] = min(found) if found else None
    return result


# --- for people ----------------------------------------------------------------------------------

_NAMES = {"": "torch", "_out": "torch with out=", "_tinygrad": "tinygrad"}


def text(result: dict[str, Any]) -> str:
    """The table, its legend and what it comes to."""
    if "rows" not in result:
        return training_text(result)
    head, cells = _columns(result["rows"])
    return "\n".join([table(head, cells), "", LEGEND, "", *conclusions(result)])


def conclusions(result: dict[str, Any]) -> list[str]:
    """What the rows come to, a sentence a line."""
    lines = [f"{result['device']}, threads: {result['threads']}"]
    if "nearby" in result:
        lines[0] += "; {count} random nearby rows, seed {seed}".format(**result["nearby"])
    if result["peaks"]:
        lines.append(_peaks_text(result["peaks"]))
    for suffix, name in _NAMES.items():
        if result[f"geomean{suffix}"] is not None:
            mean, median, least = (result[f"{w}{suffix}"] for w in ("geomean", "median", "least"))
            lines.append(
                f"{name} / ours: geometric mean {mean:.3f}, median {median:.3f}, least {least:.3f}"
            )
    for key, word in (
        ("wrong", "wrong"),
        ("less_exact", "with more than twice PyTorch's error"),
        ("other_bits", "with other bits on several cores"),
    ):
        if result[key]:
            named = ", ".join(result[key])
            lines.append(f"{len(result[key])} of {len(result['rows'])} {word}: {named}")
    for row in result["rows"]:
        lines += [f"{row['name']}: {name}: {why}" for name, why in row["refusals"].items()]
    return lines


def _peaks_text(peaks: dict[str, Any]) -> str:
    far = max(peaks["copy"])
    return (
        f"peaks: {peaks['fma']:.0f} GFLOP/s; from memory {peaks['copy'][far]:.1f} GB/s copied, "
        f"{peaks['read'][far]:.1f} GB/s read; at best {max(peaks['copy'].values()):.0f} and "
        f"{max(peaks['read'].values()):.0f} GB/s"
    )


def _columns(rows: Sequence[dict[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """Head and cells; columns that no row has a figure for are left out."""
    columns = [
        ("OURS ms", "ours_ms", 4), ("TORCH ms", "torch_ms", 4), ("OUT= ms", "torch_out_ms", 4),
        ("TINYGRAD ms", "tinygrad_ms", 4), ("RATIO", "ratio", 3), ("RATIO OUT=", "ratio_out", 3),
        ("RATIO TINYGRAD", "ratio_tinygrad", 3), ("PEAK", "peak_share", 2), ("ERROR", "error", 2),
        ("BY TORCH'S", "error_ratio", 2),
    ]  # fmt: skip
    shown = [c for c in columns if any(row[c[1]] is not None for row in rows)]
    head = ["NAME", *(title for title, _, _ in shown), ""]
    return head, [
        [row["name"], *(_cell(row, key, digits) for _, key, digits in shown), _remark(row)]
        for row in rows
    ]


def _cell(row: dict[str, Any], key: str, digits: int) -> str:
    value = row[key]
    if value is None:
        return "-"
    if key == "peak_share":
        return f"{value:.0%} {row['bound'][0].upper()}"
    return f"{value:.{digits}g}"


def _remark(row: dict[str, Any]) -> str:
    if row["failure"]:
        return str(row["failure"])
    if row["same_bits"] is False:
        return "OTHER BITS"
    if row["right"] is False:
        return "WRONG"
    return "less exact" if row["less_exact"] else ""


def training_text(result: dict[str, Any]) -> str:
    """The steps of whole networks."""
    head = (
        "NAME", "OURS ms", "TORCH ms", "RATIO", "LOSS APART", "GRADIENTS APART",
        "OURS MiB", "OURS RSS MiB", "TORCH RSS MiB", "",
    )  # fmt: skip
    cells = [
        [
            step["name"],
            *(_number(step[k], 4) for k in ("ours_ms", "torch_ms", "ratio")),
            *(_number(step[k], 2) for k in ("loss_apart", "gradients_apart")),
            *(_mib(step[k]) for k in ("ours_peak_bytes", "ours_rss_bytes", "torch_rss_bytes")),
            step["failure"] or ("WRONG" if step["right"] is False else ""),
        ]
        for step in result["steps"]
    ]
    lines = [
        table(head, cells), "",
        "MiB      the most that lies on the device in a step, weights and inputs included",
        "RSS MiB  how much a process of its own grows in a step, from before the network is made",
        f"{result['device']}, threads: {result['threads']}",
    ]  # fmt: skip
    return "\n".join(lines)


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}g}"


def _mib(value: int | None) -> str:
    return "-" if value is None else f"{value / (1 << 20):.1f}"


# --- for a document ------------------------------------------------------------------------------


def block_name(result: dict[str, Any]) -> str:
    """The place in a document that a result is written to."""
    kind = "training" if "steps" in result else "nearby" if "nearby" in result else "rows"
    return f"bench speed: {kind}, threads: {result['threads']}"


def write_markdown(path: Path, result: dict[str, Any]) -> None:
    """Replace what stands between the marks of this result's block. Raises BadRequest."""
    name = block_name(result)
    begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    try:
        old = path.read_text(encoding="utf-8")
    except OSError as error:
        raise BadRequest(f"--markdown {path}: {error.strerror}") from None
    place = re.compile(re.escape(begin) + ".*?" + re.escape(end), re.DOTALL)
    if not place.search(old):
        raise BadRequest(f"--markdown {path}: it has no lines {begin} and {end}")
    block = f"{begin}\n\n```\n{_shown(result)}\n```\n\n{end}"
    path.write_text(place.sub(lambda _: block, old), encoding="utf-8")


def _shown(result: dict[str, Any]) -> str:
    if "rows" not in result:
        return training_text(result)
    head, cells = _columns(result["rows"])
    return "\n".join([table(head, cells), "", *conclusions(result)])
