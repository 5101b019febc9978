"""What was built once and may be wanted again, kept on disk between runs.

An entry is found by the SHA-256 of its kind and key; the key holds all that the result depends on
(text, target, options), and this file adds LLVM's version and, for plans, our own. Entries are
written to a temporary file and renamed, so that readers of other processes see a whole entry or
none; each carries its length and checksum, so that a damaged one is removed and built again.
Nothing here may stop the work: a directory that is missing, full or not ours alone only means that
things are built again.

`RAWGPU_CACHE` names the directory, or is `off`; otherwise $XDG_CACHE_HOME/rawgpu or
~/.cache/rawgpu.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import stat
import struct
import threading
import time
import warnings
import zlib
from collections.abc import Callable
from pathlib import Path

import llvmlite

KINDS = ("object", "plan", "native", "tune")
FORMAT = 1
LIMIT_BYTES = 1 << 30
# magic, format, checksum of the data, its length
HEADER = struct.Struct("<4sIIQ")
MAGIC = b"RGC1"
# An entry's time of use is renewed when it is older than this: writing it at each read costs 10 µs.
TOUCH_SECONDS = 3600.0
STALE_SECONDS = 600.0


class CacheWarning(UserWarning):
    """The disk cache cannot be used; everything is built anew."""


def cache_directory() -> Path | None:
    """The directory that the environment asks for; None if the cache is off."""
    named = os.environ.get("RAWGPU_CACHE", "")
    if named.lower() in ("off", "0", "none"):
        return None
    if named:
        return Path(named).expanduser()
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if base else Path.home() / ".cache") / "rawgpu"


@functools.cache
def _sources() -> str:
    """A stamp of our own source files: another one when any is changed, added or removed."""
    root = Path(__file__).resolve().parents[2]
    digest = hashlib.sha256()
    for package in ("rawgpu", "frontend"):
        for path in sorted((root / package).rglob("*.py")):
            with contextlib.suppress(OSError):  # an editor may just be replacing it
                about = path.stat()
                digest.update(f"{path.name} {about.st_size} {about.st_mtime_ns}\n".encode())
    return digest.hexdigest()


@functools.cache
def _salt(kind: str) -> bytes:
    """What an entry of `kind` depends on beyond its key.

    Code comes from text that the key holds, through LLVM. A plan or a measurement is the work of
    our own Python, which changes between two runs of whoever writes it.
    """
    made_by = _sources() if kind in ("plan", "tune") else ""
    return f"{kind}, format {FORMAT}, llvmlite {llvmlite.__version__}, {made_by}\n".encode()


class DiskCache:
    """At most `limit_bytes` of entries in `directory`; with None, finds and keeps nothing."""

    def __init__(self, directory: Path | None, *, limit_bytes: int = LIMIT_BYTES) -> None:
        self.limit_bytes = limit_bytes
        self.directory = self._prepare(directory) if directory is not None else None
        self._root = f"{self.directory}/" if self.directory is not None else ""
        self._lock = threading.Lock()
        # Some processes look at the size at their first put, so that many short ones do, too.
        self._written_bytes = limit_bytes // 16 if os.getpid() % 16 == 0 else 0

    @staticmethod
    def _prepare(directory: Path) -> Path | None:
        """Make the directory if need be; None, with a warning, if it is not safe or not possible.

        Machine code is loaded from here: nobody but this user may be able to put files in it.
        """
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            found = directory.stat()
        except OSError as error:
            warnings.warn(f"no disk cache: {error}", CacheWarning, stacklevel=4)
            return None
        if found.st_uid != os.geteuid() or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            warnings.warn(
                f"no disk cache: {directory} belongs to or can be written by others "
                f"(try: chmod 700, or name another directory in RAWGPU_CACHE)",
                CacheWarning,
                stacklevel=4,
            )
            return None
        return directory

    @property
    def enabled(self) -> bool:
        """Whether entries are kept."""
        return self.directory is not None

    def _name(self, kind: str, key: bytes | str) -> str:
        assert kind in KINDS, kind
        data = key.encode() if isinstance(key, str) else key
        digest = hashlib.sha256(_salt(kind))
        digest.update(data)
        return f"{kind}-{digest.hexdigest()}"

    def path_of(self, kind: str, key: bytes | str) -> str:
        """Where the entry is kept, if it is."""
        return self._root + self._name(kind, key)

    def get(self, kind: str, key: bytes | str) -> bytes | None:
        """The entry's data; None if there is none. A damaged entry is removed."""
        if self.directory is None:
            return None
        path = self.path_of(kind, key)
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:
            return None
        try:
            found = os.fstat(descriptor)
            raw = self._read(descriptor, found.st_size)
        except OSError:
            return None
        finally:
            os.close(descriptor)
        data = self._open_entry(raw)
        with contextlib.suppress(OSError):
            if data is None:
                os.unlink(path)
            elif time.time() - found.st_mtime > TOUCH_SECONDS:
                os.utime(path)
        return data

    @staticmethod
    def _read(descriptor: int, size_bytes: int) -> bytes:
        raw = os.read(descriptor, size_bytes + 1)
        while len(raw) < size_bytes:  # only beyond 2 GB, or on strange file systems
            more = os.read(descriptor, size_bytes - len(raw))
            if not more:
                break
            raw += more
        return raw

    @staticmethod
    def _open_entry(raw: bytes) -> bytes | None:
        if len(raw) < HEADER.size:
            return None
        magic, format_, checksum, size_bytes = HEADER.unpack_from(raw)
        data = raw[HEADER.size :]
        whole = magic == MAGIC and format_ == FORMAT and size_bytes == len(data)
        return data if whole and zlib.crc32(data) == checksum else None

    def put(self, kind: str, key: bytes | str, data: bytes) -> None:
        """Keep `data`; does nothing when it cannot be kept."""
        if self.directory is None or len(data) + HEADER.size > self.limit_bytes:
            return
        name = self._name(kind, key)
        temporary = f"{self._root}.{name[-16:]}.{os.getpid()}.{threading.get_ident()}.tmp"
        header = HEADER.pack(MAGIC, FORMAT, zlib.crc32(data), len(data))
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
            descriptor = os.open(temporary, flags, 0o600)
            try:
                self._write(descriptor, header + data)
            finally:
                os.close(descriptor)
            os.replace(temporary, self._root + name)
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            return
        self._count(len(data) + HEADER.size)

    @staticmethod
    def _write(descriptor: int, raw: bytes) -> None:
        rest = memoryview(raw)
        while rest:
            rest = rest[os.write(descriptor, rest) :]

    def get_or_build(self, kind: str, key: bytes | str, build: Callable[[], bytes]) -> bytes:
        """The entry's data, or else what `build` gives, which is then kept."""
        data = self.get(kind, key)
        if data is None:
            data = build()
            self.put(kind, key, data)
        return data

    def _count(self, size_bytes: int) -> None:
        """Look at the whole directory once for each sixteenth of the limit written."""
        with self._lock:
            self._written_bytes += size_bytes
            if self._written_bytes < self.limit_bytes // 16:
                return
            self._written_bytes = 0
        self.evict()

    def evict(self) -> None:
        """Remove the entries used longest ago until three quarters of the limit are left.

        Also removes temporary files that a process left when it died. Another process may be doing
        the same; a file that is gone is as good as removed.
        """
        if self.directory is None:
            return
        entries: list[tuple[float, int, str]] = []
        now = time.time()
        with contextlib.suppress(OSError), os.scandir(self.directory) as found:
            for item in found:
                with contextlib.suppress(OSError):
                    about = item.stat(follow_symlinks=False)
                    if item.name.endswith(".tmp") and now - about.st_mtime > STALE_SECONDS:
                        os.unlink(item.path)
                    elif item.name.startswith(tuple(f"{kind}-" for kind in KINDS)):
                        entries.append((about.st_mtime, about.st_size, item.path))
        total_bytes = sum(size for _, size, _ in entries)
        if total_bytes <= self.limit_bytes:
            return
        for _, size, path in sorted(entries):
            if total_bytes <= self.limit_bytes * 3 // 4:
                break
            with contextlib.suppress(OSError):
                os.unlink(path)
            total_bytes -= size


_caches: dict[str, DiskCache] = {}


def cache() -> DiskCache:
    """The cache that the environment asks for now."""
    # Keyed by the variables so that a test, or a user, may change them; building one touches the
    # disk.
    key = "\0".join(os.environ.get(name, "") for name in ("RAWGPU_CACHE", "XDG_CACHE_HOME", "HOME"))
    found = _caches.get(key)
    if found is None:
        found = _caches[key] = DiskCache(cache_directory())
    return found
