"""The planner of temporaries: those alive together share no byte, and no memory is wasted."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from frontend.schedule.memory import ALIGN_BYTES, PAD_BYTES, Lifetime, place


def lifetime(size_bytes: int, first: int, length: int) -> Lifetime:
    return Lifetime(size_bytes, first, first + length)


LIVES = st.lists(
    st.builds(lifetime, st.integers(0, 5000), st.integers(0, 20), st.integers(0, 12)), max_size=30
)


def together(x: Lifetime, y: Lifetime) -> bool:
    return x.first <= y.last and y.first <= x.last


@given(LIVES)
def test_temporaries_alive_together_do_not_overlap(lives: list[Lifetime]) -> None:
    offsets, total = place(lives)
    for i, (x, at) in enumerate(zip(lives, offsets, strict=True)):
        assert at % ALIGN_BYTES == 0
        assert at >= 0
        assert at + x.size_bytes + PAD_BYTES <= total
        for y, other in zip(lives[:i], offsets[:i], strict=True):
            apart = at + x.size_bytes + PAD_BYTES <= other or other + y.size_bytes + PAD_BYTES <= at
            assert apart or not together(x, y), (x, at, y, other)


@given(LIVES)
def test_the_arena_is_no_larger_than_all_of_them(lives: list[Lifetime]) -> None:
    _, total = place(lives)
    assert total <= sum(x.size_bytes + PAD_BYTES + ALIGN_BYTES for x in lives)


@given(st.lists(st.integers(1, 10_000), min_size=1, max_size=20))
def test_a_chain_needs_no_more_than_two_neighbours(sizes: list[int]) -> None:
    lives = [Lifetime(size, i, i + 1) for i, size in enumerate(sizes)]
    _, total = place(lives)
    pairs = zip(sizes, [*sizes[1:], 0], strict=True)
    lower = max(x + y for x, y in pairs)
    # three in a row of which the middle one is small may leave a gap
    assert total <= 1.5 * lower + 4 * (PAD_BYTES + ALIGN_BYTES)


def test_memory_is_used_again_once_nobody_reads_it() -> None:
    lives = [Lifetime(1000, 0, 1), Lifetime(1000, 1, 2), Lifetime(1000, 2, 3)]
    offsets, _ = place(lives)
    assert offsets[0] == offsets[2] != offsets[1]


def test_no_temporaries_need_no_memory() -> None:
    assert place([]) == ([], 0)
