"""Objects by clang 19, loose and linked by ld.lld 19, run and are relocated as the linker does.

The objects are kept as data (`foreign_objects.py`); where clang is installed they are built anew.
"""

from __future__ import annotations

import dataclasses
import struct
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rawgpu.amd.driver.device import AmdDevice
from rawgpu.amd.driver.program import AmdKernel
from rawgpu.amd.objects import codeobject, elffile
from rawgpu.amd.objects.metadata import kernel_rows
from rawgpu.amd.spec.descriptor import Properties
from rawgpu.amd.virtual.wave import interpret_dispatch, run_dispatch
from tests.amd.driver import foreign_objects, rooms
from tests.amd.driver.foreign_objects import CPUS, PRELOAD_CPUS, VERSIONS, kept
from tests.amd.driver.objects import build

pytestmark = pytest.mark.virtual
KINDS = ("o", "so")
BLOCK = 64
ROOM = 63
"""Places of the array that each item of `stack.cl` has."""


@pytest.fixture(
    params=[
        *((cpu, interpret_dispatch) for cpu in CPUS),
        *(pytest.param((cpu, run_dispatch), marks=pytest.mark.full) for cpu in CPUS),
    ],
    ids=lambda pair: f"{pair[0]}-{pair[1].__name__}",
)
def gpu(request: pytest.FixtureRequest) -> Iterator[AmdDevice]:
    """Each GPU, whose waves are interpreted; in the full set lifted to native code as well."""
    cpu, runner = request.param
    with rooms.opened(cpu, runner) as opened:
        yield opened


def zeros(gpu: AmdDevice, count: int, dtype: Any = np.int32) -> Any:
    return gpu.array(np.zeros(count, dtype))


def run_saxpy(gpu: AmdDevice, kernel: AmdKernel) -> None:
    number = np.arange(200, dtype=np.float32)
    x, y = gpu.array(number), gpu.array(np.ones(200, np.float32))
    kernel(x, y, np.float32(2), np.int32(150), grid=4, block=BLOCK)
    wanted = np.where(number < 150, 2 * number + 1, 1)
    np.testing.assert_array_equal(y.numpy(), wanted)


@pytest.mark.parametrize("kind", KINDS)
def test_kernels_of_one_object(gpu: AmdDevice, kind: str) -> None:
    """Local memory, data that points to data, a constant table, a call, half and double."""
    program = gpu.load(kept(f"parts-{gpu.hardware.name}.{kind}"))
    assert set(program) == {"saxpy", "mirror", "bump", "convert"}
    run_saxpy(gpu, program["saxpy"])
    out = zeros(gpu, 512)
    program["mirror"](out, grid=2, block=256)
    assert out.numpy().tolist() == np.arange(512).reshape(2, 256)[:, ::-1].reshape(-1).tolist()
    pair = zeros(gpu, 2)
    program["bump"](pair, np.int32(3))
    assert pair.numpy().tolist() == [4000 + 9, 0]  # table[3], counter 7 + 2, zeros
    program["bump"](pair, np.int32(3))
    assert pair.numpy().tolist() == [4000 + 11, 4009]
    assert program.read_global("counter") == struct.pack("<i", 11)
    values = np.random.default_rng(1).normal(size=100).astype(np.float32)
    wide, narrow = zeros(gpu, 100, np.float64), zeros(gpu, 100, np.float16)
    program["convert"](gpu.array(values), wide, narrow, block=100)
    np.testing.assert_array_equal(wide.numpy(), values.astype(np.float64) ** 2)
    np.testing.assert_array_equal(narrow.numpy(), values.astype(np.float16))


def test_private_memory_and_calls(gpu: AmdDevice) -> None:
    program = gpu.load(kept(f"stack-{gpu.hardware.name}.so"))
    out, count = zeros(gpu, 2 * BLOCK), np.arange(2 * BLOCK)
    steps = 66
    program["array"](out, np.int32(steps), grid=2, block=BLOCK)
    place = (count % BLOCK + steps) % ROOM
    last = place + np.where(place < steps - ROOM, ROOM, 0)
    assert out.numpy().tolist() == (last**2 + count % BLOCK).tolist()
    which = np.random.default_rng(0).integers(0, 6, len(count)).astype(np.int32)
    program["recursion"](out, gpu.array(which), grid=2, block=BLOCK)
    assert out.numpy().tolist() == np.array([0, 1, 1, 2, 3, 5])[which].tolist()
    indirect = program["indirect"]
    assert indirect.descriptor.kernel_code_properties & Properties.USES_DYNAMIC_STACK
    assert indirect.private_bytes >= 1024
    for chosen, wanted in ((0, count**2), (1, 2 * count)):
        indirect(out, np.int32(chosen), grid=2, block=BLOCK)
        assert out.numpy().tolist() == wanted.tolist()


def test_native_code_calls_functions_that_lie_before_the_kernel() -> None:
    """Their distance from the entry is negative; what is not lifted is fetched there as well."""
    with rooms.opened("gfx1100", run_dispatch) as gpu:
        program = gpu.load(kept("stack-gfx1100.so"))
        places = program._image.parsed.globals
        assert places["fibonacci"].offset < places["recursion"].offset
        out, which = zeros(gpu, BLOCK), np.arange(BLOCK, dtype=np.int32) % 6
        program["array"](out, np.int32(1), block=BLOCK)  # for its private memory
        program["recursion"](out, gpu.array(which), block=BLOCK)
        assert out.numpy().tolist() == np.array([0, 1, 1, 2, 3, 5])[which].tolist()


GRID, SHAPE = (3, 1, 2), (8, 4, 2)
HIDDEN_V5 = struct.Struct("<3I 3H 3H 16x 3Q H")
"""Block counts, group sizes, remainders, offsets, dimensions."""


@pytest.mark.parametrize("version", VERSIONS)
def test_hidden_arguments_of_each_version(gpu: AmdDevice, version: int) -> None:
    program = gpu.load(kept(f"shape-{gpu.hardware.name}-v{version}.so"))
    kernel = program["hidden"]
    assert kernel.image.parsed.file.version == version
    dwords, odd = 14 if version == 4 else 64, 1000
    out = zeros(gpu, dwords, np.uint32)
    kernel(out, np.uint16(odd), grid=GRID, block=SHAPE)
    found = (out.numpy() - odd).astype("<u4").tobytes()
    assert len(found) == 4 * dwords
    if version == 4:  # offsets, and services that are not there
        assert found == bytes(4 * dwords)
        return
    assert HIDDEN_V5.unpack_from(found) == (*GRID, *SHAPE, 0, 0, 0, 0, 0, 0, 3)
    queue = int.from_bytes(found[200:208], "little")
    declared = {kind for kind, _ in hidden_rows(kernel)}
    assert bool(queue) == ("hidden_queue_ptr" in declared)
    assert found[HIDDEN_V5.size : 200] == bytes(200 - HIDDEN_V5.size)
    assert found[208:] == bytes(48)


def hidden_rows(kernel: AmdKernel) -> Iterator[tuple[str, int]]:
    for row in kernel_rows(kernel.image.parsed.file)[kernel.name][".args"]:
        if row[".value_kind"].startswith("hidden_"):
            yield row[".value_kind"], row[".offset"]


@pytest.mark.parametrize("version", VERSIONS)
def test_items_number_themselves(gpu: AmdDevice, version: int) -> None:
    """By the dispatch packet's sizes, and by hidden arguments from version 5 on."""
    program = gpu.load(kept(f"shape-{gpu.hardware.name}-v{version}.so"))
    sizes = [blocks * threads for blocks, threads in zip(GRID, SHAPE, strict=True)]
    out = zeros(gpu, sizes[0] * sizes[1] * sizes[2], np.uint32)
    program["number"](out, grid=GRID, block=SHAPE)
    z = np.arange(sizes[2]).repeat(sizes[0] * sizes[1])
    code = SHAPE[0] + 100 * SHAPE[1] + 10000 * SHAPE[2]
    assert out.numpy().tolist() == (code + 1000000 * z).tolist()


@pytest.mark.parametrize(
    ("cpu", "name", "lanes"),
    [
        ("gfx1100", "lanes-gfx1100", 32),
        ("gfx1100", "lanes-gfx1100-wave64", 64),
        ("gfx1201", "lanes-gfx1201", 32),
        ("gfx1201", "lanes-gfx1201-wave64", 64),
        ("gfx942", "lanes-gfx942", 64),
        ("gfx90a", "lanes-gfx90a", 64),
    ],
)
def test_waves_are_as_wide_as_the_kernel_wants(cpu: str, name: str, lanes: int) -> None:
    with rooms.opened(cpu, interpret_dispatch) as gpu:
        kernel = gpu.load(kept(f"{name}.so"))["votes"]
        assert kernel.lanes == lanes
        count = 150
        votes, last = zeros(gpu, count, np.uint64), zeros(gpu, count)
        kernel(votes, last, block=count)
        item = np.arange(count)
        wanted = []
        for begin in range(0, count, lanes):
            wave = [n for n in range(begin, begin + lanes) if n < count]
            wanted += [sum(1 << n - begin for n in wave if n % 3 == 0)] * len(wave)
        assert votes.numpy().tolist() == wanted
        mirrored = item // lanes * lanes + lanes - 1 - item % lanes
        assert last.numpy().tolist() == np.where(mirrored < count, mirrored, 0).tolist()


@pytest.mark.parametrize("cpu", PRELOAD_CPUS)
@pytest.mark.parametrize("kind", KINDS)
def test_arguments_preloaded_into_registers(cpu: str, kind: str) -> None:
    with rooms.opened(cpu, interpret_dispatch) as gpu:
        kernel = gpu.load(kept(f"preload-{cpu}.{kind}"))["saxpy"]
        assert kernel.preload_dwords == 6  # two addresses, a float, an int
        run_saxpy(gpu, kernel)


@pytest.mark.parametrize(
    "name", ["parts.bundle", "parts-zstd.bundle", "zlib 1", "zlib 2", "zlib 3"]
)
def test_bundles_of_the_compiler(name: str) -> None:
    if "zstd" in name:
        zstd_or_skip()
    plain = kept("parts.bundle")
    data = kept(name) if name.endswith("bundle") else compressed(plain, int(name[-1]))
    for cpu in foreign_objects.BUNDLED:
        with rooms.opened(cpu, interpret_dispatch) as gpu:
            run_saxpy(gpu, gpu.load(data)["saxpy"])


def zstd_or_skip() -> None:
    try:
        import compression.zstd  # type: ignore[import-not-found]  # noqa: F401
    except ImportError:
        pytest.importorskip("zstandard")


def compressed(plain: bytes, version: int) -> bytes:
    """A bundle in a header of clang's: magic, version, method 0 for zlib, sizes, a hash."""
    body = zlib.compress(plain)
    counted = {1: "<IQ", 2: "<IIQ", 3: "<QQQ"}[version]
    sizes: tuple[int, ...] = (len(plain), 0)
    if version > 1:
        sizes = (8 + struct.calcsize(counted) + len(body), *sizes)
    return b"CCOB" + struct.pack("<HH", version, 0) + struct.pack(counted, *sizes) + body


NAMES = [build.name for build in foreign_objects.builds()]


@pytest.mark.parametrize("name", NAMES)
def test_relocation_equals_the_linker_s(name: str) -> None:
    """Our relocator, told where the linker put things, makes its bytes, wherever they are loaded.

    Code, constants and data, all of them, with both files relocated for the same address.
    """
    loose, linked = (elffile.read(memoryview(kept(f"{name}.{kind}"))) for kind in KINDS)
    theirs = codeobject.parse(kept(f"{name}.so"))
    at = addresses(kept(f"{name}.so"))
    mine, _ = codeobject.lay_out(loose)
    starts = {i: at[loose.sections[i].name] for i in mine if loose.sections[i].name in at}
    assert {loose.sections[i].name for i in mine if loose.sections[i].size_bytes} <= set(at)
    ours = codeobject.assemble(loose, starts, theirs.size_bytes)
    got = next((s for s in linked.sections if s.name == ".got"), None)
    slots = {
        linked.dynamic_symbols[rela.symbol].value + rela.addend: rela.offset
        for rela in linked.dynamic_relocations
        if got is not None and 0 <= rela.offset - at[".got"] < got.size_bytes
    }
    wanted = {
        number: slots[starts[loose.symbols[number].section] + loose.symbols[number].value]
        for number in ours.slots
    }
    ours = dataclasses.replace(ours, slots=wanted)
    compared = 0
    for base in (0, 0x12_3456_7000):
        left, right = ours.image_at(base), theirs.image_at(base)
        for section in linked.sections:
            if section.name in (".text", ".rodata", ".data", ".got"):
                begin = at[section.name]
                end = begin + section.size_bytes
                assert left[begin:end] == right[begin:end], f"{section.name} at {base:#x}"
                compared += 1
    assert compared >= 4  # .text and .rodata, twice
    assert ours.fixes


def addresses(image: bytes) -> dict[str, int]:
    """Where a linked file's sections lie."""
    from elftools.elf.elffile import ELFFile

    with tempfile.TemporaryFile() as stream:
        stream.write(image)
        return {s.name: s["sh_addr"] for s in ELFFile(stream).iter_sections() if s["sh_flags"] & 2}


def rebuilt_or_skip() -> None:
    version, wanted = foreign_objects.compiler_version(), kept(foreign_objects.VERSION).decode()
    if version is None:
        pytest.skip("clang-19 is not installed")
    if version != wanted:
        pytest.skip(f"the objects were made by {wanted!r}, and this is {version!r}")


def test_the_objects_are_what_the_compiler_makes(tmp_path: Path) -> None:
    rebuilt_or_skip()
    build = next(build for build in foreign_objects.builds() if build.name == "parts-gfx1100")
    foreign_objects.make(build, tmp_path)
    for kind in KINDS:
        name = f"{build.name}.{kind}"
        assert (tmp_path / name).read_bytes() == kept(name), name


@pytest.mark.full
def test_all_objects_are_what_the_compiler_makes(tmp_path: Path) -> None:
    rebuilt_or_skip()
    made = foreign_objects.build_all(tmp_path)
    assert set(made) | {foreign_objects.VERSION} == set(foreign_objects.archive())
    for name, data in made.items():
        assert data == kept(name), name


DYNAMIC = """
define amdgpu_kernel void @dynamic(ptr addrspace(1) %out, i32 %n) #0 {
entry:
  %item = call i32 @llvm.amdgcn.workitem.id.x()
  %room = alloca i32, i32 %n, align 4, addrspace(5)
  br label %fill
fill:
  %i = phi i32 [0, %entry], [%next, %fill]
  %p = getelementptr i32, ptr addrspace(5) %room, i32 %i
  %scaled = mul i32 %i, 3
  %v = add i32 %scaled, %item
  store volatile i32 %v, ptr addrspace(5) %p
  %next = add i32 %i, 1
  %more = icmp slt i32 %next, %n
  br i1 %more, label %fill, label %done
done:
  %last = sub i32 %n, 1
  %q = getelementptr i32, ptr addrspace(5) %room, i32 %last
  %r = load volatile i32, ptr addrspace(5) %q
  %wide = zext i32 %item to i64
  %to = getelementptr i32, ptr addrspace(1) %out, i64 %wide
  store i32 %r, ptr addrspace(1) %to
  ret void
}
"""


def test_a_stack_that_grows_at_run_time(gpu: AmdDevice) -> None:
    """Of an object by llvmlite: the LLVM of clang 19 cannot compile it."""
    kernel = gpu.load(build(DYNAMIC, gpu.hardware.name))["dynamic"]
    assert kernel.descriptor.kernel_code_properties & Properties.USES_DYNAMIC_STACK
    out = zeros(gpu, BLOCK)
    for n in (1, 9):
        kernel(out, np.int32(n), block=BLOCK)
        assert out.numpy().tolist() == [3 * (n - 1) + item for item in range(BLOCK)]
