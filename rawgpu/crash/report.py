"""What a log tells: events in order, what caused what, what to do. For people and for programs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

MAX_EVENTS = 10_000
"""Kept; of what comes after, the number is kept. A log of gigabytes has few different events."""
RECENT = 64
"""Events that a new one is compared with, to count repeats."""
HIDDEN = ("kind", "derived", "decoded", "count")


@dataclass(frozen=True)
class Cause:
    """Why things went as they did. `events` are numbers of those that say so."""

    text: str
    events: tuple[int, ...]
    sure: bool
    """False for what usually is so."""


@dataclass
class Report:
    """The events of a log, and what follows from them."""

    events: list[dict[str, Any]] = field(default_factory=list)
    causes: list[Cause] = field(default_factory=list)
    advice: list[str] = field(default_factory=list)
    left_out: int = 0
    """Events beyond the first `MAX_EVENTS`."""

    def row(self) -> dict[str, Any]:
        """For programs."""
        causes = [
            {"text": cause.text, "events": list(cause.events), "sure": cause.sure}
            for cause in self.causes
        ]
        found: dict[str, Any] = {"events": self.events, "causes": causes, "advice": self.advice}
        return found | ({"left_out": self.left_out} if self.left_out else {})

    def text(self, say: Mapping[str, str]) -> Iterator[str]:
        """For people: the story, a table, causes and advice. `say` has a sentence a kind."""
        if not self.events:
            yield "Nothing here that a GPU driver is known to say of a crash."
            return
        yield "What happened:"
        for number, event in enumerate(self.events, 1):
            yield f"  {number}. {sentence(event, say)}"
        if self.left_out:
            yield f"  … and {self.left_out} more"
        yield ""
        yield "What the log says:"
        for number, event in enumerate(self.events, 1):
            yield f"  {number:3}  {event['kind']:20}  {details(event)}"
            if "decoded" in event:
                fields = ", ".join(f"{k}={v:#x}" for k, v in event["decoded"].items())
                yield f"{'':27}{event.get('status_register', 'status')}: {fields}"
        if self.causes:
            yield ""
            yield "Why:"
            for cause in self.causes:
                about = ", ".join(str(i + 1) for i in cause.events)
                usual = "" if cause.sure else " (usually so, not proven by this log)"
                yield f"  {cause.text}{usual} [{about}]"
        if self.advice:
            yield ""
            yield "What to do:"
            for line in self.advice:
                yield f"  {line}"


OUTCOMES: Mapping[str, str] = {
    "succeeded_vram_lost": "succeeded, and video memory was lost",
    "vram_lost": "video memory was lost",
    "succeeded_resuming": "succeeded, and the driver began to resume",
    "started_unknown_end": "began, and the log ends before it says how it went",
}
"""Outcomes of resets that are no words as they are."""


class _Blank(dict[str, Any]):
    def __missing__(self, key: str) -> str:
        return "?"


def sentence(event: Mapping[str, Any], say: Mapping[str, str]) -> str:
    """An event in words: the first of the kind's alternatives whose fields it has."""
    words_of = dict(event)
    if "reset_outcome" in event:
        outcome = event["reset_outcome"]
        words_of["reset_outcome"] = OUTCOMES.get(outcome, outcome.replace("_", " "))
    for form in say.get(event["kind"], "{kind}").split(" || "):
        try:
            words = form.format_map(words_of)
        except KeyError:
            continue
        break
    else:
        words = form.format_map(_Blank(words_of))
    where = f"{event['bdf']}: " if "bdf" in event else ""
    count = event.get("count", 1)
    return where + words + (f", {count} times" if count > 1 else "")


def details(event: Mapping[str, Any]) -> str:
    """The fields of an event on one line."""
    return ", ".join(f"{k} {v}" for k, v in event.items() if k not in HIDDEN)


class Collector:
    """Gathers events: counts repeats of one, and bounds how many are kept."""

    def __init__(self) -> None:
        self.report: Report = Report()
        self._recent: dict[str, dict[str, Any]] = {}

    def add(self, event: dict[str, Any]) -> dict[str, Any]:
        """Put an event, which may still grow, in its place."""
        self.report.events.append(event)
        return event

    def close(self, event: dict[str, Any]) -> dict[str, Any]:
        """Say that an event is complete; a repeat of a recent one is counted there instead."""
        key = repr({k: v for k, v in event.items() if k != "count"} if "count" in event else event)
        earlier = self._recent.get(key)
        events = self.report.events
        if earlier is not None and earlier is not event:
            earlier["count"] = earlier.get("count", 1) + event.get("count", 1)
            self._remove(event)
            return earlier
        self._recent[key] = event
        if len(self._recent) > RECENT:
            del self._recent[next(iter(self._recent))]
        if len(events) > MAX_EVENTS:
            self._remove(event)
            self.report.left_out += 1
        return event

    def _remove(self, event: dict[str, Any]) -> None:
        events = self.report.events
        for at in range(len(events) - 1, -1, -1):
            if events[at] is event:
                del events[at]
                return
