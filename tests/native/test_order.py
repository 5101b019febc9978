"""Ordered stores, loads and copies: the right bytes, of the right width, in the right place."""

from __future__ import annotations

import re
import shutil
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest

from rawgpu.compiler_bridge.llvm import Target, compile_in_process
from rawgpu.native import system
from rawgpu.native.code import BASELINE, native_code, native_ir


def words(count: int) -> Any:
    memory = system.ffi.new("uint64_t[]", count)
    return memory, int(system.ffi.cast("uintptr_t", memory))


def test_stores_and_loads_touch_their_own_width() -> None:
    code = native_code()
    memory, at = words(3)
    memory[0] = memory[1] = memory[2] = (1 << 64) - 1
    code.store32(at + 8, 0x12345678)
    assert list(memory) == [(1 << 64) - 1, 0xFFFFFFFF12345678, (1 << 64) - 1]
    code.store64(at + 8, 0x0102030405060708)
    assert list(memory) == [(1 << 64) - 1, 0x0102030405060708, (1 << 64) - 1]
    assert code.load32(at + 8) == 0x05060708
    assert code.load64(at + 8) == 0x0102030405060708
    code.fence_device()


@pytest.mark.parametrize("width", [4, 8])
def test_copies_move_whole_words_from_any_source(width: int) -> None:
    code = native_code()
    memory, at = words(8)
    source = system.ffi.new("char[]", bytes(range(60)))
    copy = code.copy32 if width == 4 else code.copy64
    copy(at + 8, source + 3, 24 // width)
    assert bytes(system.ffi.buffer(memory)) == bytes(8) + bytes(range(3, 27)) + bytes(32)
    copy(at, source, 0)
    assert memory[0] == 0


def test_what_was_stored_before_is_seen_after() -> None:
    code = native_code()
    _, at = words(32)
    turns = 2000

    def write() -> None:
        for turn in range(1, turns + 1):
            code.store64(at + 128, turn)
            code.store64(at, turn)

    thread = threading.Thread(target=write)
    thread.start()
    seen = 0
    while seen < turns:
        seen = code.load64(at)
        assert code.load64(at + 128) >= seen
    thread.join()


@pytest.mark.skipif(
    system.MACHINE != "x86_64" or not shutil.which("objdump"), reason="needs objdump"
)
def test_each_store_and_load_is_one_instruction(tmp_path: Path) -> None:
    path = tmp_path / "native.o"
    path.write_bytes(compile_in_process(native_ir("x86_64"), Target(*BASELINE["x86_64"], "")))
    text = subprocess.run(
        ["objdump", "-d", "--no-show-raw-insn", str(path)],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    body = {
        name: re.findall(r"^\s+[0-9a-f]+:\t(\w+)\s*(.*?)\s*$", lines, re.MULTILINE)
        for name, lines in re.findall(r"<(\w+)>:\n(.*?)(?:\n\n|\Z)", text, re.DOTALL)
    }
    assert body["store32"][0] == ("mov", "%esi,(%rdi)")
    assert body["store64"][0] == ("mov", "%rsi,(%rdi)")
    assert body["load32"][0] == ("mov", "(%rdi),%eax")
    assert body["load64"][0] == ("mov", "(%rdi),%rax")
    assert body["fence_device"][0][0] == "sfence"
