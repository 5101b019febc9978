"""Clang's offload bundles: several code objects in one file, one a target.

Compressed ones with zlib are read; zstd needs Python's `compression.zstd` or package `zstandard`.

Source: clang/docs/ClangOffloadBundler.rst, LLVM 22.1.
"""

from __future__ import annotations

import importlib
import struct
import zlib
from collections.abc import Callable

from rawgpu.errors import BadElf, BadFile

MAGIC, COMPRESSED = b"__CLANG_OFFLOAD_BUNDLE__", b"CCOB"
MAX_ENTRIES = 256
MAX_BYTES = 1 << 30
ZLIB, ZSTD = 0, 1
_ENTRY = struct.Struct("<QQQ")


def is_bundle(data: bytes) -> bool:
    return data.startswith((MAGIC, COMPRESSED))


def processor(target: str) -> str:
    """`gfx90a` of `hipv4-amdgcn-amd-amdhsa--gfx90a:xnack+`; "" where the target names none."""
    return target.partition(":")[0].rpartition("-")[2] if "amdgcn" in target else ""


def choose(data: bytes, arch: str) -> bytes:
    """The code object for `arch` in a bundle. BadElf if it has none, or is damaged."""
    found = entries(data)
    for target, image in found.items():
        if processor(target) == arch:
            return image
    names = ", ".join(found) or "nothing"
    raise BadElf(f"the bundle has no code object for {arch}; it has {names}")


def entries(data: bytes) -> dict[str, bytes]:
    """Each code object of a bundle, by target. BadElf for what is damaged or no bundle."""
    if data.startswith(COMPRESSED):
        data = _inflate(data)
    if not data.startswith(MAGIC) or len(data) < len(MAGIC) + 8:
        raise BadElf("no offload bundle", offset=0)
    at = len(MAGIC)
    count = int.from_bytes(data[at : at + 8], "little")
    at += 8
    if count > MAX_ENTRIES:
        raise BadElf(f"a bundle of {count} code objects", offset=at)
    found = {}
    for _ in range(count):
        if len(data) - at < _ENTRY.size:
            raise BadElf("the bundle ends inside its table", offset=at)
        offset, size, name_bytes = _ENTRY.unpack_from(data, at)
        at += _ENTRY.size
        name = data[at : at + name_bytes]
        if len(name) != name_bytes or offset > len(data) or size > len(data) - offset:
            raise BadElf("an entry of the bundle lies outside it", offset=at)
        at += name_bytes
        if size:
            found[name.decode("utf-8", "backslashreplace")] = data[offset : offset + size]
    return found


def _inflate(data: bytes) -> bytes:
    """The bundle inside a compressed one. The header has versions 1 to 3."""
    if len(data) < 8:
        raise BadElf("a compressed bundle without header", offset=0)
    version, method = struct.unpack_from("<HH", data, 4)
    layout = {1: "<IQ", 2: "<IIQ", 3: "<QQQ"}.get(version)
    if layout is None or len(data) < 8 + struct.calcsize(layout):
        raise BadElf(f"a compressed bundle of version {version}", offset=4)
    size = struct.unpack_from(layout, data, 8)[-2]
    if size > MAX_BYTES:
        raise BadElf(f"a compressed bundle of {size} bytes", offset=8)
    body = data[8 + struct.calcsize(layout) :]
    if method == ZLIB:
        try:
            plain = zlib.decompressobj().decompress(body, size)
        except zlib.error as error:
            raise BadElf(f"the compressed bundle is damaged: {error}") from None
    elif method == ZSTD:
        plain = _zstd(body, size)
    else:
        raise BadElf(f"a bundle compressed by method {method}", offset=6)
    if len(plain) != size:
        raise BadElf(f"the bundle has {len(plain)} bytes, and its header says {size}")
    return plain


def _zstd(body: bytes, size: int) -> bytes:
    """At most `size` bytes of what `body` holds."""
    decompress = _zstd_of_python() or _zstd_of_a_package()
    if decompress is None:
        raise BadFile(
            "this bundle is compressed with zstd",
            hint="pip install zstandard, or compile with --no-offload-compress",
        )
    return decompress(body, size)


def _zstd_of_python() -> Callable[[bytes, int], bytes] | None:
    """Python's own, from 3.14 on."""
    try:
        module = importlib.import_module("compression.zstd")
    except ImportError:
        return None

    def decompress(body: bytes, size: int) -> bytes:
        try:
            return bytes(module.ZstdDecompressor().decompress(body, size))
        except (module.ZstdError, EOFError) as error:
            raise BadElf(f"the compressed bundle is damaged: {error}") from None

    return decompress


def _zstd_of_a_package() -> Callable[[bytes, int], bytes] | None:
    try:
        module = importlib.import_module("zstandard")
    except ImportError:
        return None

    def decompress(body: bytes, size: int) -> bytes:
        try:
            with module.ZstdDecompressor().stream_reader(body) as reader:
                return bytes(reader.read(size))
        except module.ZstdError as error:
            raise BadElf(f"the compressed bundle is damaged: {error}") from None

    return decompress
