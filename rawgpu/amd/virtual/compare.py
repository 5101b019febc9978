"""The comparison of waits, which PM4 and SDMA have in common."""

from __future__ import annotations

from rawgpu.amd.spec.pm4 import Function


def holds(function: Function, value: int, reference: int) -> bool:
    """Whether the masked value compares to the reference; both unsigned, 32 bits."""
    return {
        Function.ALWAYS: True,
        Function.LESS: value < reference,
        Function.LESS_EQUAL: value <= reference,
        Function.EQUAL: value == reference,
        Function.NOT_EQUAL: value != reference,
        Function.GREATER_EQUAL: value >= reference,
        Function.GREATER: value > reference,
    }[function]
