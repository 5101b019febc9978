"""Text for a terminal comes out as meant, and nothing moves where there is no terminal."""

from __future__ import annotations

import io

from rawgpu.cli.show import Progress, size, table


class Terminal(io.StringIO):
    """A text stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_columns_are_as_wide_as_their_widest_cell() -> None:
    assert table(("A", "B"), [("long", "x"), ("y", "z")]) == "A     B\nlong  x\ny     z"


def test_a_table_without_rows_is_its_head() -> None:
    assert table(("A", "B"), []) == "A  B"


def test_sizes_are_said_in_their_unit() -> None:
    said = [size(n) for n in (0, 1023, 1024, 1536, 3 << 20, 5 << 40)]
    assert said == ["0 B", "1023 B", "1.0 KiB", "1.5 KiB", "3.0 MiB", "5.0 TiB"]


def test_the_bar_fills_and_is_wiped_at_the_end() -> None:
    stream = Terminal()
    with Progress("work", 2, stream=stream) as bar:
        bar.step("half", 1)
        bar.step("done", 1)
    assert "100 %  done" in stream.getvalue()
    assert stream.getvalue().endswith("\r\x1b[K")


def test_no_bar_is_drawn_where_there_is_no_terminal() -> None:
    stream = io.StringIO()
    with Progress("work", 2, stream=stream) as bar:
        bar.step()
    assert stream.getvalue() == ""


def test_a_bar_over_nothing_does_not_divide_by_zero() -> None:
    with Progress("work", 0, stream=Terminal()) as bar:
        bar.step()
