"""Code objects by another toolchain: clang and ld.lld, kept as data so that tests need neither.

Sources are in `tests/data/amd/objects`. `python -m tests.amd.driver.foreign_objects` builds them
anew into `objects.tar.xz` there; the version of the compiler is in the archive.
"""

from __future__ import annotations

import functools
import io
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "data" / "amd" / "objects"
ARCHIVE = FOLDER / "objects.tar.xz"
VERSION = "version.txt"
CLANG, LINKER, BUNDLER = "clang-19", "ld.lld-19", "clang-offload-bundler-19"
COMPILE = (
    CLANG, "--target=amdgcn-amd-amdhsa", "-nogpulib", "-cl-std=CL2.0", "-O2", "-w", "-c",
)  # fmt: skip
CPUS = ("gfx1100", "gfx1201", "gfx942", "gfx90a")
WAVE64_CPUS = ("gfx942", "gfx90a")
PRELOAD_CPUS = ("gfx942", "gfx90a")
VERSIONS = (4, 5, 6)
BUNDLED = ("gfx1100", "gfx942")


@dataclass(frozen=True)
class Build:
    """One object: its name, and what the compiler is told."""

    name: str
    source: str
    cpu: str
    flags: tuple[str, ...] = ()


def builds() -> Iterator[Build]:
    """All objects. Each is kept as `NAME.o` and `NAME.so`."""
    for cpu in CPUS:
        for source in ("parts", "stack", "plain", "local"):
            yield Build(f"{source}-{cpu}", f"{source}.cl", cpu)
        wide = ("-DWAVE64",) if cpu in WAVE64_CPUS else ()
        yield Build(f"lanes-{cpu}", "lanes.cl", cpu, wide)
        if not wide:
            flags = ("-DWAVE64", "-mwavefrontsize64")
            yield Build(f"lanes-{cpu}-wave64", "lanes.cl", cpu, flags)
        for version in VERSIONS:
            # Version 4 has 56 bytes of hidden arguments, later ones 256.
            dwords = 14 if version == 4 else 64
            flags = (f"-mcode-object-version={version}", f"-DHIDDEN_DWORDS={dwords}")
            yield Build(f"shape-{cpu}-v{version}", "shape.cl", cpu, flags)
    for cpu in PRELOAD_CPUS:
        flags = ("-mllvm", "-amdgpu-kernarg-preload-count=4")
        yield Build(f"preload-{cpu}", "parts.cl", cpu, flags)


def compiler_version() -> str | None:
    """The first line of `clang-19 --version`; None where the tools are not installed."""
    if any(shutil.which(tool) is None for tool in (CLANG, LINKER, BUNDLER)):
        return None
    ran = subprocess.run([CLANG, "--version"], check=True, capture_output=True, text=True)
    return ran.stdout.splitlines()[0]


def make(build: Build, folder: Path) -> None:
    """Compile and link one object into `folder`. Paths do not get into the files."""
    run = functools.partial(subprocess.run, check=True, capture_output=True)
    shutil.copy(FOLDER / build.source, folder)
    loose = f"{build.name}.o"
    run([*COMPILE, f"-mcpu={build.cpu}", *build.flags, build.source, "-o", loose], cwd=folder)
    run([LINKER, "-shared", loose, "-o", f"{build.name}.so"], cwd=folder)


def make_bundles(folder: Path) -> None:
    """Bundles of two linked objects, as the compiler driver makes them: plain and compressed."""
    targets = ["host-x86_64-unknown-linux-gnu-"]
    targets += [f"hipv4-amdgcn-amd-amdhsa--{cpu}" for cpu in BUNDLED]
    (folder / "empty").write_bytes(b"")
    inputs = ["empty", *(f"parts-{cpu}.so" for cpu in BUNDLED)]
    command = [BUNDLER, "-type=o", f"-targets={','.join(targets)}"]
    command += [f"-input={name}" for name in inputs]
    for output, more in (("parts.bundle", []), ("parts-zstd.bundle", ["-compress"])):
        subprocess.run(
            [*command, *more, f"-output={output}"], check=True, capture_output=True, cwd=folder
        )


def build_all(folder: Path) -> dict[str, bytes]:
    """Every file, by name."""
    for build in builds():
        make(build, folder)
    make_bundles(folder)
    names = [f"{build.name}.{kind}" for build in builds() for kind in ("o", "so")]
    names += ["parts.bundle", "parts-zstd.bundle"]
    return {name: (folder / name).read_bytes() for name in names}


@functools.cache
def archive() -> dict[str, bytes]:
    """Every kept file, by name."""
    with tarfile.open(ARCHIVE) as tar:
        found = {}
        for member in tar.getmembers():
            stream = tar.extractfile(member)
            assert stream is not None
            found[member.name] = stream.read()
        return found


def kept(name: str) -> bytes:
    """A kept file: `parts-gfx1100.so`."""
    return archive()[name]


def main() -> None:
    version = compiler_version()
    if version is None:
        raise SystemExit(f"{CLANG}, {LINKER} or {BUNDLER} is not installed")
    with tempfile.TemporaryDirectory() as folder, tarfile.open(ARCHIVE, "w:xz") as tar:
        files = {VERSION: version.encode(), **build_all(Path(folder))}
        for name, data in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
    print(f"{len(files)} files, {ARCHIVE.stat().st_size} bytes of archive")


if __name__ == "__main__":
    main()
