from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rawgpu.compiler_bridge import cache as cache_module
from rawgpu.compiler_bridge.cache import HEADER, CacheWarning, DiskCache, cache, cache_directory


def entry_paths(directory: Path) -> list[Path]:
    return sorted(path for path in directory.iterdir() if path.name.startswith("object-"))


def test_what_was_put_is_found(tmp_path: Path) -> None:
    store = DiskCache(tmp_path / "c")
    assert store.get("object", "key") is None
    store.put("object", "key", b"data")
    assert store.get("object", "key") == b"data"
    assert store.get("object", b"key") == b"data"
    assert store.get("plan", "key") is None
    store.put("object", "key", b"newer")
    assert DiskCache(tmp_path / "c").get("object", "key") == b"newer"


def test_building_happens_once(tmp_path: Path) -> None:
    store = DiskCache(tmp_path / "c")
    built: list[int] = []

    def build() -> bytes:
        built.append(1)
        return b"made"

    assert store.get_or_build("native", "key", build) == b"made"
    assert store.get_or_build("native", "key", build) == b"made"
    assert len(built) == 1


def test_only_the_owner_can_read(tmp_path: Path) -> None:
    store = DiskCache(tmp_path / "a" / "c")
    store.put("object", "key", b"data")
    assert (tmp_path / "a" / "c").stat().st_mode & 0o777 == 0o700
    (path,) = entry_paths(tmp_path / "a" / "c")
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("place", [0, 5, 9, HEADER.size, -1])
def test_a_damaged_entry_is_removed_and_built_again(tmp_path: Path, place: int) -> None:
    store = DiskCache(tmp_path)
    tmp_path.chmod(0o700)
    store.put("object", "key", b"some data")
    (path,) = entry_paths(tmp_path)
    raw = bytearray(path.read_bytes())
    raw[place] ^= 0x10
    path.write_bytes(raw)
    assert store.get("object", "key") is None
    assert entry_paths(tmp_path) == []
    assert store.get_or_build("object", "key", lambda: b"again") == b"again"
    assert store.get("object", "key") == b"again"


@pytest.mark.parametrize("length", [0, 3, HEADER.size, HEADER.size + 2])
def test_a_short_entry_is_no_entry(tmp_path: Path, length: int) -> None:
    store = DiskCache(tmp_path / "c")
    store.put("object", "key", b"some data")
    (path,) = entry_paths(tmp_path / "c")
    path.write_bytes(path.read_bytes()[:length])
    assert store.get("object", "key") is None


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    store = DiskCache(tmp_path / "c")
    store.put("object", "key", b"data")
    (path,) = entry_paths(tmp_path / "c")
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    assert store.get("object", "key") is None


@pytest.mark.parametrize("mode", [0o770, 0o702])
def test_a_directory_that_others_can_write_is_not_used(tmp_path: Path, mode: int) -> None:
    directory = tmp_path / "c"
    directory.mkdir()
    directory.chmod(mode)
    with pytest.warns(CacheWarning, match="can be written by others"):
        store = DiskCache(directory)
    assert not store.enabled
    store.put("object", "key", b"data")
    assert store.get("object", "key") is None


def test_a_directory_of_another_user_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: tmp_path.stat().st_uid + 1)
    with pytest.warns(CacheWarning):
        assert not DiskCache(tmp_path / "c").enabled


def test_a_place_where_nothing_can_be_made_does_not_stop_the_work(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.warns(CacheWarning):
        store = DiskCache(tmp_path / "file" / "c")
    assert store.get_or_build("object", "key", lambda: b"built") == b"built"


def test_a_full_disk_does_not_stop_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = DiskCache(tmp_path / "c")

    def full(descriptor: int, raw: bytes) -> None:
        os.write(descriptor, raw[:3])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(DiskCache, "_write", staticmethod(full))
    assert store.get_or_build("object", "key", lambda: b"built") == b"built"
    assert list((tmp_path / "c").iterdir()) == []


def test_a_directory_removed_under_us_does_not_stop_the_work(tmp_path: Path) -> None:
    store = DiskCache(tmp_path / "c")
    (tmp_path / "c").rmdir()
    assert store.get_or_build("object", "key", lambda: b"built") == b"built"


def test_the_entries_used_longest_ago_go_first(tmp_path: Path) -> None:
    store = DiskCache(tmp_path / "c", limit_bytes=100_000)
    for i in range(12):
        store.put("object", f"key {i}", bytes(10_000))
        path = Path(store.path_of("object", f"key {i}"))
        if path.exists():
            os.utime(path, (i, i))
    store.evict()
    kept = [i for i in range(12) if store.get("object", f"key {i}") is not None]
    assert kept == list(range(12 - len(kept), 12))
    assert 5 <= len(kept) <= 9


def test_reading_renews_an_entry(tmp_path: Path) -> None:
    store = DiskCache(tmp_path / "c")
    store.put("object", "key", b"data")
    path = Path(store.path_of("object", "key"))
    os.utime(path, (1, 1))
    assert store.get("object", "key") == b"data"
    assert path.stat().st_mtime > time.time() - 3600


def test_left_over_temporary_files_go(tmp_path: Path) -> None:
    store = DiskCache(tmp_path / "c")
    old, new = tmp_path / "c" / ".old.tmp", tmp_path / "c" / ".new.tmp"
    old.write_bytes(b"x")
    new.write_bytes(b"x")
    os.utime(old, (1, 1))
    store.evict()
    assert not old.exists()
    assert new.exists()


def test_an_entry_larger_than_the_limit_is_not_kept(tmp_path: Path) -> None:
    store = DiskCache(tmp_path / "c", limit_bytes=1000)
    store.put("object", "key", bytes(1000))
    assert store.get("object", "key") is None


def test_the_environment_says_where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAWGPU_CACHE", str(tmp_path / "named"))
    assert cache_directory() == tmp_path / "named"
    assert cache().directory == tmp_path / "named"
    assert cache() is cache()
    monkeypatch.setenv("RAWGPU_CACHE", "off")
    assert not cache().enabled
    monkeypatch.delenv("RAWGPU_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_directory() == tmp_path / "xdg" / "rawgpu"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert cache_directory() == tmp_path / "home" / ".cache" / "rawgpu"


def test_a_new_compiler_finds_nothing_of_the_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = DiskCache(tmp_path / "c")
    store.put("object", "key", b"data")
    monkeypatch.setattr(cache_module, "_salt", lambda kind: b"another version")
    assert store.get("object", "key") is None


def test_plans_are_forgotten_when_our_code_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = DiskCache(tmp_path / "c")
    for kind in ("object", "plan", "tune"):
        store.put(kind, "key", b"data")
    monkeypatch.setattr(cache_module, "_sources", lambda: "edited")
    cache_module._salt.cache_clear()
    assert store.get("object", "key") == b"data"
    assert store.get("plan", "key") is None
    assert store.get("tune", "key") is None
    monkeypatch.undo()
    cache_module._salt.cache_clear()
    assert store.get("plan", "key") == b"data"


WRITER = """
import sys
from pathlib import Path
from rawgpu.compiler_bridge.cache import DiskCache
store = DiskCache(Path(sys.argv[1]), limit_bytes=400_000)
letter = sys.argv[2].encode()
for turn in range(300):
    key = f"key {turn % 20}"
    found = store.get("object", key)
    assert found is None or (len(found) == 20_000 and len(set(found)) == 1), "a torn entry"
    store.put("object", key, letter * 20_000)
"""


def test_processes_can_share_a_directory(tmp_path: Path) -> None:
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path / "c"), letter])
        for letter in "abc"
    ]
    assert [writer.wait() for writer in writers] == [0, 0, 0]
    assert not list((tmp_path / "c").glob("*.tmp"))
