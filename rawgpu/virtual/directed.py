"""Float arithmetic rounded up, down or towards zero, exactly: number by number in fractions.

NumPy rounds to nearest only. Programs ask for another direction rarely, so this may be slow.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from rawgpu.virtual.interpret import FLOAT, NumpyLanes
from rawgpu.virtual.meaning import Raw

SHAPES = {16: (10, -14), 32: (23, -126), 64: (52, -1022)}
"""Mantissa bits and least exponent of a normal number, by width."""
NEAREST, UP, DOWN, TO_ZERO = range(4)
"""The numbers of directions, as AMD's MODE register has them."""


def rounded(exact: Fraction, bits: int, direction: int) -> float:
    """`exact`, which is not 0, as a float of `bits`; past the largest as the direction has it."""
    mantissa, least = SHAPES[bits]
    size = abs(exact)
    power = size.numerator.bit_length() - size.denominator.bit_length()
    if Fraction(2) ** power > size:
        power -= 1
    step = Fraction(2) ** (max(power, least) - mantissa)
    count, rest = divmod(size, step)
    away = direction == (UP if exact > 0 else DOWN)
    if direction == NEAREST:
        away = 2 * rest > step or (2 * rest == step and count % 2 == 1)
    if rest and away:
        count += 1
    result = count * step
    largest = (2 - Fraction(1, 1 << mantissa)) * Fraction(2) ** (1 - least)
    if result > largest:
        result_float = math.inf if away or direction == NEAREST else float(largest)
    else:
        result_float = float(result)
    return math.copysign(result_float, 1 if exact > 0 else -1)


class DirectedLanes(NumpyLanes):
    """`NumpyLanes` whose rounding has a direction, by the width of the result."""

    def __init__(self, directions: dict[int, int]) -> None:
        super().__init__()
        self.directions = directions

    def _each(self, plain: Raw, bits: int, exact: Callable[..., Fraction], *sources: Raw) -> Raw:
        """`plain`, nearest, with what is finite rounded anew from the exact value."""
        direction = self.directions[bits]
        if direction == NEAREST:
            return plain
        out: Any = np.array(plain)
        rows = np.broadcast_arrays(*sources)
        for at in range(len(out)):
            numbers = [row[at].item() for row in rows]
            if not all(map(math.isfinite, numbers)):
                continue
            try:
                value = exact(*map(Fraction, numbers))
            except ZeroDivisionError:
                continue
            if value:
                out[at] = FLOAT[bits](rounded(value, bits, direction))
            elif direction == DOWN and any(numbers):
                out[at] = self._zero_down(out[at], numbers)
        return out

    @staticmethod
    def _zero_down(plain: Any, numbers: list[float]) -> Any:
        """A difference of equal numbers is -0 when rounding down; a product keeps its sign."""
        product_is_zero = len(numbers) > 1 and 0.0 in numbers[:2]
        return plain if product_is_zero else -abs(plain)

    def binary(self, op: str, bits: int, a: Raw, b: Raw) -> Raw:
        plain = super().binary(op, bits, a, b)
        steps: dict[str, Callable[..., Fraction]] = {
            "fadd": lambda x, y: x + y,
            "fsub": lambda x, y: x - y,
            "fmul": lambda x, y: x * y,
            "fdiv": lambda x, y: x / y,
        }
        return self._each(plain, bits, steps[op], a, b) if op in steps else plain

    def fma(self, bits: int, a: Raw, b: Raw, c: Raw) -> Raw:
        return self._each(super().fma(bits, a, b, c), bits, lambda x, y, z: x * y + z, a, b, c)

    def float_resize(self, a: Raw, bits: int, to_bits: int) -> Raw:
        plain = super().float_resize(a, bits, to_bits)
        return plain if to_bits > bits else self._each(plain, to_bits, lambda x: x, a)

    def int_to_float(self, a: Raw, bits: int, to_bits: int, *, signed: bool) -> Raw:
        plain = super().int_to_float(a, bits, to_bits, signed=signed)
        numbers = a.view(np.dtype(f"i{bits // 8}")) if signed else a
        return self._each(plain, to_bits, lambda x: x, numbers)
