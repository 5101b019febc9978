from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Iterator

import pytest

from rawgpu.compiler_bridge.llvm import Job, Target, host_target
from rawgpu.compiler_bridge.target import AMDGPU_TRIPLE
from rawgpu.compiler_bridge.workers import PACKAGE, PREPARE, Pool, processors
from rawgpu.errors import CompileError

GOOD = Job("define i32 @answer() {\n  ret i32 42\n}\n", host_target())
# Each of these ends the process that compiles it.
BAD_ASSEMBLY = Job(
    'define void @f() {\n  call void asm sideeffect "bogus eax", ""()\n  ret void\n}\n',
    Target("x86_64-unknown-linux-gnu", "x86-64-v3"),
)
NO_SUCH_INTRINSIC = Job(
    "define void @f() {\n  call void @llvm.amdgcn.s.barrier()\n  ret void\n}\n"
    "declare void @llvm.amdgcn.s.barrier()\n",
    Target("x86_64-unknown-linux-gnu", "x86-64-v3"),
)
TOO_MUCH_LDS = Job(
    "@lds = addrspace(3) global [100000 x i32] undef\n"
    "define amdgpu_kernel void @f() {\n  store i32 1, ptr addrspace(3) @lds\n  ret void\n}\n",
    Target(AMDGPU_TRIPLE, "gfx1100"),
)


def slow_job(operations: int = 30000) -> Job:
    """A function so long that LLVM needs many seconds for it."""
    lines = [f"  %v{i + 1} = mul i64 %v{i}, %v{i // 2}" for i in range(operations)]
    body = "\n".join(lines)
    text = f"define i64 @slow(i64 %v0) {{\n{body}\n  ret i64 %v{operations}\n}}\n"
    return Job(text, host_target())


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    made = Pool(2)
    yield made
    made.close()


@pytest.mark.parametrize(
    ("job", "said", "line"),
    [
        (BAD_ASSEMBLY, "invalid instruction mnemonic 'bogus'", 2),
        (NO_SUCH_INTRINSIC, "Cannot select", 2),
        (TOO_MUCH_LDS, r"local memory \(400000\) exceeds limit", 2),
    ],
)
def test_the_death_of_llvm_is_a_compile_error(pool: Pool, job: Job, said: str, line: int) -> None:
    with pytest.raises(CompileError, match=said) as caught:
        pool.compile(job)
    assert caught.value.line == line
    message = caught.value.message
    assert message.startswith("LLVM, line 2: "), "its own words, and not how its process ended"
    assert "<unknown>" not in message
    assert caught.value.log
    assert pool.compile(GOOD)  # a new worker took its place


def test_deaths_do_not_lose_other_jobs(pool: Pool) -> None:
    results = pool.compile_each([GOOD, BAD_ASSEMBLY, GOOD, NO_SUCH_INTRINSIC, GOOD])
    kinds = [type(result) for result in results]
    assert kinds == [bytes, CompileError, bytes, CompileError, bytes]


def test_a_worker_that_hangs_is_ended() -> None:
    pool = Pool(1)
    pool.compile(GOOD)
    started = time.monotonic()
    with pytest.raises(CompileError, match=r"did not finish in time \(0\.2 s\)"):
        pool.compile(slow_job(), time_limit_s=0.2)
    assert time.monotonic() - started < 30
    assert pool.compile(GOOD)
    pool.close()


def test_a_worker_killed_between_jobs_is_replaced() -> None:
    pool = Pool(1)
    pool.compile(GOOD)
    process = pool.idle_processes()[0]
    os.kill(process, signal.SIGKILL)  # may or may not be noticed before the next job is sent
    assert pool.compile(GOOD)
    assert pool.idle_processes() != [process]
    pool.close()


def read_state(process: int) -> str:
    with open(f"/proc/{process}/stat") as file:
        return file.read().rsplit(")", 1)[1].split()[0]


def test_no_more_workers_than_the_limit() -> None:
    pool = Pool(2)
    threads = [threading.Thread(target=pool.compile, args=(GOOD,)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert 1 <= len(pool.idle_processes()) <= 2
    pool.close()
    assert pool.idle_processes() == []


def test_nothing_starts_before_it_is_needed() -> None:
    assert Pool(2).idle_processes() == []


def test_a_worker_that_cannot_start_is_a_compile_error(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = Pool(2)
    with monkeypatch.context() as patch:
        patch.setattr(sys, "executable", "/nowhere/python")
        with pytest.raises(CompileError, match="could be started"):
            pool.compile(GOOD)
        results = pool.compile_each([GOOD, GOOD, GOOD])
    assert [type(result) for result in results] == [CompileError] * 3
    assert pool.compile(GOOD)
    pool.close()


def test_a_worker_that_fails_at_once_tells_why(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = Pool(1)
    monkeypatch.setattr(
        "rawgpu.compiler_bridge.workers.PREPARE", "raise SystemExit('no LLVM here')"
    )
    with pytest.raises(CompileError, match="no LLVM here"):
        pool.compile(GOOD)
    pool.close()


def test_a_forked_child_has_workers_of_its_own() -> None:
    pool = Pool(1)
    pool.compile(GOOD)
    before = pool.idle_processes()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # forking with threads is the point
        child = os.fork()
    if child == 0:  # no pytest in here, whatever happens
        status = 1
        try:
            if not pool.idle_processes() and pool.compile(GOOD):
                status = 0
            pool.close()
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert pool.compile(GOOD)
    assert pool.idle_processes() == before
    pool.close()


def test_workers_end_with_their_parent() -> None:
    script = (
        "import os\n"
        "from rawgpu.compiler_bridge.llvm import *\n"
        "from rawgpu.compiler_bridge.workers import pool\n"
        "compile_ir('define i32 @f() {\\n  ret i32 1\\n}', host_target())\n"
        "print(pool().idle_processes()[0], flush=True)\n"
        "os._exit(3)\n"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert run.returncode == 3, run.stderr
    process = int(run.stdout)
    deadline = time.monotonic() + 20
    while os.path.exists(f"/proc/{process}") and read_state(process) != "Z":
        assert time.monotonic() < deadline, "the worker outlived its parent"
        time.sleep(0.02)


def test_a_worker_loads_little() -> None:
    path = os.pathsep.join(filter(None, sys.path))
    script = PREPARE + "import rawgpu.compiler_bridge.emit\nprint(*sys.modules)"
    run = subprocess.run(
        [sys.executable, "-S", "-c", script, str(PACKAGE)],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": path},
    )
    loaded = set(run.stdout.split())
    assert "llvmlite.binding" in loaded, run.stderr
    assert not loaded & {"numpy", "cffi", "rawgpu.contract", "rawgpu.runtime"}


def test_there_is_at_least_one_processor() -> None:
    assert processors() >= 1
