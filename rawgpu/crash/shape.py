"""The shape of a log line, declared as the driver prints it.

    Shape("ring", "ring {engine_or_ring} timeout, signaled seq={signaled_seq:d}", …)

`{name}` is a word, `{name:d}` a decimal number, `{name:x}` a hexadecimal one, `{name:*}` some text
that ends where what follows begins; `«…»` may be missing. Every piece has a longest length, so that
matching a line takes time in proportion to it, whatever it holds.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

LONGEST_TEXT = 64
_PIECES = {
    "": r"[^\s,()\[\]]{1,64}",
    "d": r"-?[0-9]{1,20}",
    "x": r"(?:0[xX])?[0-9a-fA-F]{1,16}",
    "*": r".{0,64}?",
}
_TOKEN = re.compile(r"\{(\w+)(?::(.))?\}|([«»])")
LEAST_KEY = 5
Value = str | int


@dataclass(frozen=True)
class Shape:
    """A kind of line: what it does to the story, its text, which kernels print it, who says so."""

    does: str
    text: str
    kernels: str
    source: str
    sets: Mapping[str, Value] = field(default_factory=dict)
    """What the line says without a field of its own."""

    @cached_property
    def key(self) -> str:
        """The longest text that every such line has: lines without it are not looked at."""
        bare = re.sub(r"«[^»]*»", "\0", self.text)
        pieces = re.split(r"\{[^}]*\}|\0", bare)
        key = max(pieces, key=len)
        if len(key) < LEAST_KEY:
            raise ValueError(f"{self.text!r} has too little text to be found by")
        return key

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """The text as a regular expression in which every repetition is bounded."""
        out: list[str] = []
        at = 0
        for token in _TOKEN.finditer(self.text):
            out.append(re.escape(self.text[at : token.start()]))
            name, kind, bracket = token.groups()
            if bracket:
                out.append("(?:" if bracket == "«" else ")?")
            else:
                out.append(f"(?P<{name}>{_PIECES[kind or '']})")
            at = token.end()
        out.append(re.escape(self.text[at:]))
        if self.text.endswith(":*}"):
            out.append(r"$")
        return re.compile("".join(out))

    @cached_property
    def kinds(self) -> dict[str, str]:
        """Field name → letter after its colon."""
        return {t[1]: t[2] or "" for t in _TOKEN.finditer(self.text) if t[1]}

    def match(self, line: str) -> dict[str, Value] | None:
        """The fields of a line of this shape, decimal numbers as such; None for other lines."""
        found = self.pattern.search(line)
        if found is None:
            return None
        fields: dict[str, Value] = dict(self.sets)
        kinds = self.kinds
        for name, text in found.groupdict().items():
            if text is not None:
                fields[name] = int(text) if kinds[name] == "d" else text
        return fields
