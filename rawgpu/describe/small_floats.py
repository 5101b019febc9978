"""Floats of 4, 6 and 8 bits: what their bits mean.

Sources: the OCP documents "8-bit Floating Point Specification" 1.0 and "Microscaling Formats (MX)"
1.0; for the variants without infinity and -0 the LLVM types Float8E4M3FNUZ and Float8E5M2FNUZ.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SmallFloat:
    """A format. The sign is the top bit, the exponent below it, the mantissa at the bottom.

    `specials` says which codes are no numbers: "none"; "ieee" (the top exponent holds infinity and
    NaN); "fn" (all ones but the sign are NaN, there is no infinity); "fnuz" (the code of -0 is the
    only NaN, there is no infinity).
    """

    name: str
    exponent: int
    mantissa: int
    bias: int
    specials: str

    @property
    def bits(self) -> int:
        return 1 + self.exponent + self.mantissa

    @property
    def nan(self) -> int | None:
        """The code of a NaN, sign bit clear where the format has a choice."""
        top = (1 << (self.bits - 1)) - 1
        return {"none": None, "ieee": top, "fn": top, "fnuz": top + 1}[self.specials]

    @property
    def infinity(self) -> int | None:
        """The code of +infinity."""
        ones = (1 << self.exponent) - 1
        return ones << self.mantissa if self.specials == "ieee" else None

    @property
    def largest(self) -> int:
        """The code of the largest number."""
        past = {"none": 1, "ieee": 1 << self.mantissa, "fn": 1, "fnuz": 0}[self.specials]
        top = (1 << (self.bits - 1)) - 1
        return top if self.specials == "none" else top - past

    def value(self, code: int) -> float:
        """The number that `code` stands for."""
        sign = -1.0 if code >> (self.bits - 1) else 1.0
        body = code & ((1 << (self.bits - 1)) - 1)
        if self.specials == "fnuz" and code == self.nan:
            return math.nan
        if self.infinity is not None and body >= self.infinity:
            return sign * math.inf if body == self.infinity else math.nan
        if self.specials == "fn" and body == self.nan:
            return math.nan
        field, fraction = body >> self.mantissa, body & ((1 << self.mantissa) - 1)
        if field == 0:
            return sign * math.ldexp(fraction, 1 - self.bias - self.mantissa)
        return sign * math.ldexp(fraction | 1 << self.mantissa, field - self.bias - self.mantissa)


OCP: Mapping[str, SmallFloat] = {
    made.name: made
    for made in (
        SmallFloat("fp8", 4, 3, 7, "fn"),
        SmallFloat("bf8", 5, 2, 15, "ieee"),
        SmallFloat("fp6", 2, 3, 1, "none"),
        SmallFloat("bf6", 3, 2, 3, "none"),
        SmallFloat("fp4", 2, 1, 1, "none"),
    )
}
"""The formats of the OCP documents, by their short names."""

FNUZ: Mapping[str, SmallFloat] = {
    **OCP,
    "fp8": SmallFloat("fp8", 4, 3, 8, "fnuz"),
    "bf8": SmallFloat("bf8", 5, 2, 16, "fnuz"),
}
"""8 bits in the variants of Graphcore and AMD, which have a larger bias and one NaN."""
