"""The rows of generations.py beside those of hardware.py."""

from __future__ import annotations

from rawgpu.amd.spec.generations import GENERATIONS, Trait


def test_rows_state_what_their_parents_do_not() -> None:
    for machine in GENERATIONS.values():
        if machine.parent is not None:
            assert machine.parent.name in GENERATIONS


def test_matrix_units_are_of_one_kind() -> None:
    for machine in GENERATIONS.values():
        kinds = {Trait.MFMA, Trait.WMMA} & machine.traits
        assert len(kinds) <= 1
        assert (machine.accumulators > 0) == (Trait.MFMA in machine.traits)


def test_wave32_machines_keep_the_upper_half() -> None:
    for machine in GENERATIONS.values():
        assert (32 in machine.waves) == (Trait.KEEPS_UPPER_HALF in machine.traits)
