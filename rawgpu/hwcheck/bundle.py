"""The bundle: results, facts and recordings in a zip that says nothing of whose machine it was.

Also the door for bundles from outside: sizes and names are judged before anything is unpacked.
"""

from __future__ import annotations

import getpass
import json
import os
import platform
import re
import socket
import zipfile
import zlib
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from rawgpu.errors import BadFile
from rawgpu.hwcheck.plan import BY_NAME
from rawgpu.hwcheck.results import Run, parse

RESULTS = "results.json"
TRACE = re.compile(r"traces/([a-z-]{1,32})\.jsonl")
MAX_ENTRIES = 64
MAX_FILE_BYTES, MAX_BYTES = 64 << 20, 256 << 20
"""Unpacked."""
COMMON = frozenset({"root", "user", "admin", "ubuntu", "debian", "localhost", "home", "linux"})
"""Names that identify nobody, and words that occur elsewhere."""
SHORTEST_NAME = 3
EPOCH = (1980, 1, 1, 0, 0, 0)
"""The time of every file in the zip: when somebody ran it is nobody's business."""


def own_names() -> list[str]:
    """What names this machine and this user, longest first."""
    names = {socket.gethostname(), platform.node()}
    for variable in ("USER", "LOGNAME", "SUDO_USER", "HOSTNAME"):
        names.add(os.environ.get(variable, ""))
    with suppress(KeyError, OSError):
        names.add(getpass.getuser())
    with suppress(RuntimeError):
        home = Path.home()
        names |= {str(home), home.name}
    names |= {name.split(".", 1)[0] for name in names if not name.startswith("/")}
    kept = {n for n in names if len(n) >= SHORTEST_NAME and n.lower() not in COMMON}
    return sorted(kept - {str(Path("/"))}, key=lambda name: (-len(name), name))


class Cleaner:
    """Takes names, and values of properties that identify a card, out of text and recordings."""

    def __init__(self, names: Iterable[str], private: Iterable[str]) -> None:
        self._texts = [
            re.compile(rf"(?<![A-Za-z0-9]){re.escape(name)}(?![A-Za-z0-9])", re.IGNORECASE)
            for name in names
        ]
        self._hex = [(name.encode().hex(), b"-".hex() * len(name.encode())) for name in names]
        words = "|".join(map(re.escape, private))
        self._private = re.compile(rf"^({words})[ \t]+\S+".encode(), re.M) if words else None

    def text(self, text: str) -> str:
        """The text without the names, also where its bytes are written as hex digits."""
        for pattern in self._texts:
            text = pattern.sub("[removed]", text)
        for digits, dashes in self._hex:
            text = text.replace(digits, dashes)
        return text

    def recording(self, lines: Iterable[str]) -> str:
        """A recording without the names, and with 0 for what identifies a card."""
        return "".join(self.text(self._file(line)) for line in lines)

    def _file(self, line: str) -> str:
        """A line; where it is a file that was read, with its private properties at 0."""
        if self._private is None or '"call":"read"' not in line:
            return line
        try:
            entry = json.loads(line)
            data = bytes.fromhex(entry["data"])
        except (ValueError, KeyError, TypeError):
            return line
        entry["data"] = self._private.sub(rb"\1 0", data).hex()
        return json.dumps(entry, separators=(",", ":")) + "\n"


def write(run: Run, traces: Path, path: Path, cleaner: Cleaner) -> None:
    """Pack a run and its recordings. Written beside and moved into place."""
    beside = path.with_name(path.name + ".new")
    with zipfile.ZipFile(beside, "w", zipfile.ZIP_DEFLATED) as packed:
        text = json.dumps(run.as_json(), indent=1)
        packed.writestr(zipfile.ZipInfo(RESULTS, EPOCH), cleaner.text(text), zipfile.ZIP_DEFLATED)
        for stage in run.results:
            trace = traces / f"{stage}.jsonl"
            if not trace.exists() or not trace.stat().st_size:
                continue
            with trace.open(encoding="utf-8", errors="replace") as file:
                clean = cleaner.recording(file)
            info = zipfile.ZipInfo(f"traces/{stage}.jsonl", EPOCH)
            packed.writestr(info, clean, zipfile.ZIP_DEFLATED)
    beside.replace(path)


@dataclass(frozen=True)
class Bundle:
    """A bundle that was read: its run, and the recordings by stage."""

    run: Run
    traces: dict[str, str]


def read(path: Path) -> Bundle:
    """A bundle from outside. BadFile for what is damaged, too large, or not one."""
    try:
        with zipfile.ZipFile(path) as packed:
            infos = packed.infolist()
            _judge(infos)
            files = {info.filename: _unpack(packed, info) for info in infos}
    except zipfile.BadZipFile as error:
        raise BadFile(f"{path} is no bundle: {error}") from None
    except (zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError) as error:
        raise BadFile(f"{path} is damaged: {error}") from None
    if RESULTS not in files:
        raise BadFile(f"{path} has no {RESULTS}")
    run = parse(files.pop(RESULTS), RESULTS)
    traces = {}
    for name, data in files.items():
        match = TRACE.fullmatch(name)
        assert match is not None, name
        if match[1] not in BY_NAME:
            raise BadFile(f"{name} is of no stage that this version has")
        try:
            traces[match[1]] = data.decode()
        except UnicodeDecodeError:
            raise BadFile(f"{name} is no text") from None
    return Bundle(run, traces)


def _judge(infos: list[zipfile.ZipInfo]) -> None:
    """Refuse before anything is unpacked."""
    if len(infos) > MAX_ENTRIES:
        raise BadFile(f"a bundle of {len(infos)} files")
    names = [info.filename for info in infos]
    if len(set(names)) != len(names):
        raise BadFile("a bundle has a file twice")
    for info in infos:
        if info.filename != RESULTS and not TRACE.fullmatch(info.filename):
            raise BadFile(f"a bundle has no file {info.filename[:80]!r}")
        if info.flag_bits & 1:
            raise BadFile(f"{info.filename} is encrypted")
        if info.file_size > MAX_FILE_BYTES:
            raise BadFile(f"{info.filename} unpacks to {info.file_size} bytes")
    if sum(info.file_size for info in infos) > MAX_BYTES:
        raise BadFile("a bundle unpacks to too much")


def _unpack(packed: zipfile.ZipFile, info: zipfile.ZipInfo) -> bytes:
    """One file; what its header said of its size is not believed."""
    with packed.open(info) as file:
        data = file.read(info.file_size + 1)
    if len(data) != info.file_size:
        raise BadFile(f"{info.filename} unpacks to another size than its header says")
    return data
