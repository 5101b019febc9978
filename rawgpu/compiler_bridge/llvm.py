"""LLVM IR text to machine code: the door to the compiler.

`compile_ir` compiles in a worker process, whatever the text; `compile_many` does so side by side;
`compile_in_process` is for host code that our own generator wrote, and saves the trip.

    compile_ir(Path("saxpy.ll").read_text(), Target("amdgcn-amd-amdhsa", "gfx1100"))
"""

from __future__ import annotations

from collections.abc import Sequence

from rawgpu.compiler_bridge.target import Passes, Target, check_target, host_target
from rawgpu.compiler_bridge.workers import Job, pool, processors
from rawgpu.errors import CompileError, UnsupportedDevice

__all__ = [
    "Job",
    "Passes",
    "Target",
    "assembly",
    "check_target",
    "compile_each",
    "compile_in_process",
    "compile_ir",
    "compile_many",
    "host_target",
    "in_process_pays",
]

# Together, the texts of jobs that are not worth sharing out, by whether workers are there already.
COLD_BYTES, WARM_BYTES = 128 << 10, 8 << 10


def compile_in_process(
    text: str, target: Target | None = None, *, passes: Passes = "none", level: int = 2
) -> bytes:
    """Compile host code of our own generator in this process; a relocatable ELF.

    Never for hand-written or foreign text: LLVM may end the process. `target` defaults to the host.
    """
    from rawgpu.compiler_bridge.emit import emit

    return emit(text, target or host_target(), passes=passes, level=level)


def compile_ir(
    text: str,
    target: Target,
    *,
    passes: Passes = "none",
    level: int = 2,
    own: bool = False,
) -> bytes:
    """Compile any text in a worker; a relocatable ELF, position-independent, small code model.

    `own` says that our own generator wrote the text; then a small host job is done here.
    Raises CompileError with the line at fault and LLVM's log, UnsupportedDevice for unknown names.
    """
    job = Job(text, target, passes, level)
    return compile_many([job], own=own)[0]


def in_process_pays(jobs: Sequence[Job], *, own: bool) -> bool:
    """Whether to compile here: only host code of our own, and too little of it to share out.

    LLVM takes 2 to 3 ms for a KB of vector code. A worker takes 0.2 s to start, so that a cold pool
    wins from about 0.4 s of work on; a warm one costs a job less than 1 ms.
    """
    if not own or any(job.target.arch != host_target().arch for job in jobs):
        return False
    if len(jobs) < 2 or processors() < 2:
        return True
    limit = WARM_BYTES if pool().idle_processes() else COLD_BYTES
    return sum(len(job.text) for job in jobs) < limit


def compile_each(
    jobs: Sequence[Job], *, own: bool = False
) -> list[bytes | CompileError | UnsupportedDevice]:
    """Compile `jobs` side by side; an error in the place of each that failed."""
    if not in_process_pays(jobs, own=own):
        return pool().compile_each(jobs)
    results: list[bytes | CompileError | UnsupportedDevice] = []
    for job in jobs:
        try:
            results.append(
                compile_in_process(job.text, job.target, passes=job.passes, level=job.level)
            )
        except (CompileError, UnsupportedDevice) as error:
            results.append(error)
    return results


def compile_many(jobs: Sequence[Job], *, own: bool = False) -> list[bytes]:
    """Compile `jobs` side by side; raises the first job's error after all have run."""
    objects: list[bytes] = []
    for result in compile_each(jobs, own=own):
        if not isinstance(result, bytes):
            raise result
        objects.append(result)
    return objects


def assembly(text: str, target: Target, *, passes: Passes = "none", level: int = 2) -> str:
    """Assembly text of `text` on `target`, as LLVM prints it; in a worker."""
    return pool().compile(Job(text, target, passes, level, assembly=True)).decode()
