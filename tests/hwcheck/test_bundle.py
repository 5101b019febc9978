"""Bundles name nobody, replay elsewhere, and are judged before they are believed."""

from __future__ import annotations

import io
import json
import socket
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rawgpu.amd.virtual  # noqa: F401
from rawgpu.cli import main as cli
from rawgpu.cli.hwcheck import replayed
from rawgpu.errors import BadFile
from rawgpu.hwcheck import bundle
from rawgpu.hwcheck.plan import BY_NAME
from rawgpu.hwcheck.probe import probe_for
from rawgpu.hwcheck.replay import replay_stage
from rawgpu.hwcheck.results import Result, Run
from tests.hwcheck.rooms import stage

pytestmark = pytest.mark.virtual
HOST, USER = "grünkohl-7.example.net", "maximiliane"


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """Recordings of a few stages on a virtual GPU."""
    found = {}
    for name in ("nodes", "doorbell", "events"):
        file = io.StringIO()
        assert stage(name, record=file).status == "passed"
        found[name] = file.getvalue().splitlines(keepends=True)
    return found


def replay(tmp_path: Path, name: str, lines: list[str]) -> dict[str, Any]:
    path = tmp_path / f"{name}.jsonl"
    path.write_text("".join(lines))
    return replay_stage(BY_NAME[name], "amd:0", probe_for("amd:0"), path, 0)


def test_a_bundle_names_neither_machine_nor_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recorded: dict[str, list[str]]
) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: HOST)
    monkeypatch.setenv("USER", USER)
    monkeypatch.setenv("HOME", f"/home/{USER}")
    traces = tmp_path / "traces"
    traces.mkdir()
    secret = f"unique_id 1234567890123\nof {USER} on {HOST.split('.')[0]}\n".encode()
    line = json.dumps({"call": "read", "path": "/sys/x", "data": secret.hex()}) + "\n"
    memory = {"call": "memory", "by": "driver", "label": "x", "address": 1,
              "data": f"--{USER}--".encode().hex()}  # fmt: skip
    lines = [*recorded["nodes"], line.replace(": ", ":").replace(", ", ",")]
    (traces / "nodes.jsonl").write_text("".join([*lines, json.dumps(memory) + "\n"]))
    run = Run("amd:0", facts={"path": f"/home/{USER}/x", "host": HOST.upper()})
    run.put(Result(stage="nodes", status="failed", kind="bug", detail=f"in /home/{USER}/y.py"))
    cleaner = bundle.Cleaner(bundle.own_names(), ("unique_id",))
    bundle.write(run, traces, tmp_path / "out.zip", cleaner)
    with zipfile.ZipFile(tmp_path / "out.zip") as packed:
        text = b"".join(packed.read(name) for name in packed.namelist()).decode()
        assert {info.date_time for info in packed.infolist()} == {bundle.EPOCH}
    for word in (HOST, HOST.split(".")[0], USER, "1234567890123"):
        assert word.lower() not in text.lower()
        assert word.encode().hex() not in text
    again = bundle.read(tmp_path / "out.zip")
    assert again.run.results["nodes"].detail == "in [removed]/y.py"
    assert '"unique_id' not in text


def test_names_that_name_nobody_are_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "localhost")
    monkeypatch.setenv("USER", "root")
    monkeypatch.setenv("LOGNAME", "it")
    assert not {"root", "localhost", "it"} & set(bundle.own_names())
    assert bundle.Cleaner(["anna"], ()).text("banana annals anna") == "banana annals [removed]"


@pytest.mark.parametrize("name", ["nodes", "doorbell", "events"])
def test_a_recording_replays_to_the_same_calls(
    tmp_path: Path, recorded: dict[str, list[str]], name: str
) -> None:
    found = replay(tmp_path, name, recorded[name])
    assert found["status"] == "passed"
    assert found["differences"] == []
    assert found["calls"] > 15
    assert found["left"] == 0


def changed(
    lines: list[str], wanted: Callable[[dict[str, Any]], bool], change: dict[str, Any]
) -> list[str]:
    """The recording with one entry changed, the first that is wanted."""
    out, done = lines[:1], False
    for line in lines[1:]:
        entry = json.loads(line)
        if not done and wanted(entry):
            entry, done = {**entry, **change}, True
        out.append(json.dumps(entry) + "\n")
    assert done
    return out


def request(name: str) -> Callable[[dict[str, Any]], bool]:
    return lambda entry: str(entry.get("request")).startswith(name)


def test_a_request_that_differs_is_named_with_its_field(
    tmp_path: Path, recorded: dict[str, list[str]]
) -> None:
    queue = next(e for e in map(json.loads, recorded["doorbell"][1:]) if request("CreateQueue")(e))
    sent = bytearray.fromhex(queue["sent"])
    sent[32] ^= 1  # part of ring_size, as that day's driver sent it
    lines = changed(recorded["doorbell"], request("CreateQueue"), {"sent": sent.hex()})
    found = replay(tmp_path, "doorbell", lines)
    assert len(found["differences"]) == 1
    assert "ring_size was 65537, is 65536" in found["differences"][0]
    assert found["status"] == "passed", "the recorded answers are given all the same"


def test_packets_that_differ_are_named_by_ring_and_byte(
    tmp_path: Path, recorded: dict[str, list[str]]
) -> None:
    ring = next(
        e for e in map(json.loads, recorded["events"][1:])
        if e["call"] == "memory" and e["by"] == "driver" and "compute" in e["label"]
    )  # fmt: skip
    data = "ff" * 4 + ring["data"][8:]
    lines = changed(
        recorded["events"],
        lambda e: e["call"] == "memory" and e.get("data") == ring["data"],
        {"data": data},
    ) if "call" in ring else []  # fmt: skip
    found = replay(tmp_path, "events", lines)
    assert any("compute" in d and "byte 0x0" in d for d in found["differences"])


def test_a_write_of_the_device_that_the_recorder_took_for_the_drivers_is_no_difference(
    tmp_path: Path, recorded: dict[str, list[str]]
) -> None:
    lines = changed(
        recorded["events"],
        lambda e: e["call"] == "memory" and e["label"] == "64 bytes",
        {"by": "driver"},
    )
    found = replay(tmp_path, "events", lines)
    assert (found["status"], found["differences"]) == ("passed", [])


def test_a_recorded_refusal_is_met_again(tmp_path: Path) -> None:
    file = io.StringIO()
    then = stage("doorbell", plant=lambda f: f.fail("CreateQueue", errno=22), record=file)
    found = replay(tmp_path, "doorbell", file.getvalue().splitlines(keepends=True))
    assert then.kind == found["kinds"][0] == "KernelCallFailed"
    assert found["differences"] == []


def test_another_kernel_makes_the_driver_go_another_way(
    tmp_path: Path, recorded: dict[str, list[str]]
) -> None:
    lines = changed(recorded["events"], request("GetVersion"), {"got": "0200000011000000"})
    found = replay(tmp_path, "events", lines)
    assert found["kinds"][0] == "ReplayMismatch"
    assert "ioctl came then, and now close" in found["message"]
    assert "UnsupportedDevice" in found["detail"], "and what led to it is there to be read"


HOSTILE: dict[str, tuple[Callable[[dict[str, Any]], bool], dict[str, Any]]] = {
    "a write to any memory": (
        lambda e: e["call"] == "memory" and e["by"] == "device", {"address": 0x400000}),
    "a write past the driver's memory": (
        lambda e: e["call"] == "memory" and e["by"] == "device", {"data": "00" * (8 << 20)}),
    "a mapping elsewhere": (lambda e: e["call"] == "mmap" and e["address"] != 0,
                            {"result": 0x10000}),
    "no descriptor": (lambda e: e["call"] == "open", {"fd": "x"}),
    "bytes that are none": (request("GetVersion"), {"got": "zz"}),
    "a number that is none": (lambda e: e["call"] == "mmap", {"result": None}),
    "a time that is none": (lambda e: e["call"] == "open", {"ns": []}),
}  # fmt: skip


@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_recording_is_refused(
    tmp_path: Path, recorded: dict[str, list[str]], case: str
) -> None:
    wanted, change = HOSTILE[case]
    found = replay(tmp_path, "events", changed(recorded["events"], wanted, change))
    assert found["status"] == "failed"
    assert "BadFile" in found["kinds"], found


@pytest.mark.parametrize(
    "text", ["", "[" * 100_000 + "\n", '{"format":"other"}\n', '{"call":"open"}\n']
)
def test_a_file_that_is_no_recording_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(BadFile):
        replay(tmp_path, "nodes", [text])


def packed(path: Path, **files: bytes | str) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as made:
        for name, data in files.items():
            made.writestr(name, data)
    return path


GOOD = json.dumps(Run("amd:0").as_json())
BAD: dict[str, dict[str, Any]] = {
    "no results": {"traces/nodes.jsonl": ""},
    "traversal": {"results.json": GOOD, "../../evil.jsonl": "x"},
    "absolute": {"results.json": GOOD, "/etc/passwd": "x"},
    "a stage of another version": {"results.json": GOOD, "traces/dance.jsonl": "x"},
    "broken results": {"results.json": "{"},
    "deep results": {"results.json": "[" * 100_000},
    "no text": {"results.json": GOOD, "traces/nodes.jsonl": b"\xff\xfe"},
    "too many": {f"traces/a{'b' * n}.jsonl": "" for n in range(30)}
    | {f"traces/c{'b' * n}.jsonl": "" for n in range(30)} | {f"x{n}": "" for n in range(9)},
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_a_hostile_bundle_is_refused(tmp_path: Path, case: str) -> None:
    with pytest.raises(BadFile):
        bundle.read(packed(tmp_path / "b.zip", **BAD[case]))


@pytest.mark.parametrize(
    ("claimed", "message"),
    [
        (len(GOOD), "Bad CRC|another size"),
        (64 << 20 | 1, "unpacks to 67108865 bytes"),
        (1 << 31, "unpacks"),
    ],
)
def test_a_size_in_the_header_is_judged_and_not_believed(
    tmp_path: Path, claimed: int, message: str
) -> None:
    path = packed(tmp_path / "b.zip", **{"results.json": GOOD + " " * 5000})
    data = path.read_bytes()
    size = (len(GOOD) + 5000).to_bytes(4, "little")
    assert data.count(size) == 2
    path.write_bytes(data.replace(size, claimed.to_bytes(4, "little")))
    with pytest.raises(BadFile, match=message):
        bundle.read(path)


@pytest.mark.parametrize("data", [b"", b"PK\x03\x04", b"no zip at all" * 10])
def test_a_file_that_is_no_zip_is_refused_by_the_command(
    tmp_path: Path, data: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "b.zip"
    path.write_bytes(data)
    assert cli.main(["hwcheck", "--replay", str(path), "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["error"]["kind"] == "BadFile"


def test_a_replay_is_judged_by_its_calls_and_by_how_it_failed() -> None:
    run = Run("amd:0")
    run.put(Result(stage="copy", status="failed", kind="no-engine"))
    run.put(Result(stage="fence", status="passed"))
    failed = {"status": "failed", "kinds": ["no-engine"], "message": "m"}
    assert replayed("copy", run, failed)["same"]
    assert replayed("copy", run, {"status": "passed"})["same"], "the recording ended before"
    assert not replayed("fence", run, failed)["same"]
    assert not replayed("fence", run, {"status": "passed", "differences": ["x"]})["same"]
    assert replayed("fence", run, failed)["differences"] == ["no-engine: m"]
