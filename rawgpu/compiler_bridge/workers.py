"""Compiler processes: text in, machine code out, and LLVM's death is only an error.

LLVM answers some mistakes by ending its process, and threads do not compile in parallel, so jobs go
to child processes: started when first needed, as many as this process may use processors, each with
one job at a time. A worker that dies or exceeds its time fails its own job, with what it printed;
others run on. Workers end with this process (their input closes), and leave by themselves when idle
for minutes.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from rawgpu.compiler_bridge.frames import HEADER, Frame, FrameError, Kind, parse_header
from rawgpu.compiler_bridge.logs import compile_error, explains
from rawgpu.compiler_bridge.target import Passes, Target, check_passes, check_target
from rawgpu.errors import CompileError, UnsupportedDevice

PACKAGE = Path(__file__).resolve().parents[1]
PREPARE = """
import sys, types
package = types.ModuleType("rawgpu")
package.__path__ = [sys.argv[1]]
sys.modules["rawgpu"] = package
from rawgpu.compiler_bridge import worker
"""
"""What a worker runs first. `rawgpu` itself would load NumPy, for which a worker has no use."""
TIME_LIMIT_S = 120.0
MAX_LOG_BYTES = 1 << 20


@dataclass(frozen=True)
class Job:
    """LLVM IR text and what to make of it."""

    text: str
    target: Target
    passes: Passes = "none"
    level: int = 2
    assembly: bool = False

    def frame(self) -> Frame:
        """As the worker wants it."""
        fields = {
            "triple": self.target.triple,
            "cpu": self.target.cpu,
            "features": self.target.features,
            "passes": self.passes,
            "level": self.level,
            "assembly": self.assembly,
        }
        return Frame(Kind.JOB, fields, self.text.encode())


class _Gone(Exception):
    """The worker ended, hung or spoke nonsense; the text says which."""

    def __init__(self, reason: str, *, retry: bool = False) -> None:
        self.retry = retry
        super().__init__(reason)


def _log_file() -> IO[bytes]:
    """Where a worker prints: a file in memory, so that nobody need read it meanwhile.

    It is for appending, so that emptying it between jobs moves the worker's position back too.
    """
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("rawgpu-compiler-log")
    else:
        descriptor, path = tempfile.mkstemp(prefix="rawgpu-compiler-log-")
        os.unlink(path)
    flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
    fcntl.fcntl(descriptor, fcntl.F_SETFL, flags | os.O_APPEND)
    return os.fdopen(descriptor, "r+b", buffering=0)


class _Worker:
    """One child process and the pipes to it."""

    def __init__(self) -> None:
        self.log = _log_file()
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
            "PYTHONSAFEPATH": "1",
        }
        try:
            self.process = subprocess.Popen(
                [sys.executable, "-S", "-c", f"{PREPARE}\nworker.main()", str(PACKAGE)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self.log,
                bufsize=0,
                env=environment,
            )
        except OSError:
            self.log.close()
            raise
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.stdin, self.stdout = self.process.stdin.fileno(), self.process.stdout.fileno()
        os.set_blocking(self.stdin, False)
        os.set_blocking(self.stdout, False)
        self.started = False  # whether the present job has begun

    def run(self, job: Job, deadline: float) -> bytes:
        """Do one job. Raises _Gone if the worker is of no use afterwards."""
        self.started = False
        os.ftruncate(self.log.fileno(), 0)
        self._send(job.frame().encode(), deadline)
        answer = self._receive(deadline)
        if answer.kind is Kind.STARTED:
            self.started = True
            answer = self._receive(deadline)
        told = answer.fields
        if answer.kind is Kind.DONE:
            return answer.data
        if answer.kind is Kind.UNSUPPORTED:
            raise UnsupportedDevice(told["message"], hint=told["hint"])
        if answer.kind is Kind.COMPILE_ERROR:
            log = answer.data.decode(errors="replace")
            raise CompileError(
                told["message"], line=told["line"], text=told["text"], log=log, hint=told["hint"]
            )
        raise _Gone(f"answered a job with {answer.kind.name}")

    def _wait(self, descriptor: int, event: int, deadline: float) -> None:
        left_s = deadline - time.monotonic()
        poll = select.poll()
        poll.register(descriptor, event)
        if left_s <= 0 or not poll.poll(left_s * 1000):
            raise _Gone("did not finish in time")

    def _send(self, data: bytes, deadline: float) -> None:
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[os.write(self.stdin, rest) :]
            except BlockingIOError:
                self._wait(self.stdin, select.POLLOUT, deadline)
            except BrokenPipeError:
                raise self._ended() from None

    def _read_exactly(self, size_bytes: int, deadline: float) -> bytes:
        parts = bytearray()
        while len(parts) < size_bytes:
            try:
                part = os.read(self.stdout, min(size_bytes - len(parts), 1 << 20))
            except BlockingIOError:
                self._wait(self.stdout, select.POLLIN, deadline)
                continue
            if not part:
                raise self._ended()
            parts += part
        return bytes(parts)

    def _receive(self, deadline: float) -> Frame:
        try:
            head = self._read_exactly(HEADER.size, deadline)
            kind, fields_bytes, data_bytes = parse_header(head)
            fields = json.loads(self._read_exactly(fields_bytes, deadline))
        except (FrameError, ValueError) as error:
            raise _Gone(f"sent what is no answer: {error}") from None
        return Frame(kind, fields, self._read_exactly(data_bytes, deadline))

    def _ended(self) -> _Gone:
        try:
            status = self.process.wait(timeout=5)
        except subprocess.TimeoutExpired:  # it closed its output and lives on
            self.process.kill()
            status = self.process.wait()
        if status < 0:
            name = signal.Signals(-status).name if -status in set(signal.Signals) else str(-status)
            return _Gone(f"was ended by {name}", retry=not self.started)
        # One that left because it was idle, or was killed between jobs, did not die of this job.
        return _Gone(f"exited with status {status}", retry=not self.started)

    def read_log(self) -> str:
        """What the worker printed since the job began."""
        data = os.pread(self.log.fileno(), MAX_LOG_BYTES, 0)
        return data.decode(errors="replace")

    def close(self) -> None:
        """End the process and return what it held here."""
        self.process.kill()
        self.process.wait()
        self.abandon()

    def abandon(self) -> None:
        """Close our ends only: in a forked child, where the process is not ours to end."""
        for stream in (self.process.stdin, self.process.stdout, self.log):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()


class Pool:
    """The workers of this process. Safe to use from several threads, and after fork."""

    def __init__(self, limit: int | None = None) -> None:
        self.limit = limit or processors()
        self._reset()
        mine = weakref.WeakMethod(self._after_fork)

        def after_fork() -> None:
            reset = mine()
            if reset is not None:
                reset()

        os.register_at_fork(after_in_child=after_fork)

    def _reset(self) -> None:
        self._idle: list[_Worker] = []
        self._busy: set[_Worker] = set()
        self._changed = threading.Condition()

    def _after_fork(self) -> None:
        for worker in (*self._idle, *self._busy):
            worker.abandon()
            worker.process.returncode = 0  # not our child: nothing to wait for
        self._reset()

    def _borrow(self) -> _Worker:
        with self._changed:
            while not self._idle and len(self._busy) >= self.limit:
                self._changed.wait()
            while self._idle:
                worker = self._idle.pop()
                if worker.process.poll() is None:
                    self._busy.add(worker)
                    return worker
                worker.close()
            try:
                worker = _Worker()
            except OSError as error:
                raise CompileError(f"no compiler process could be started: {error}") from None
            self._busy.add(worker)
            return worker

    def _give_back(self, worker: _Worker, *, usable: bool) -> None:
        with self._changed:
            self._busy.discard(worker)
            if usable:
                self._idle.append(worker)
            self._changed.notify()
        if not usable:
            worker.close()

    def compile(self, job: Job, *, time_limit_s: float = TIME_LIMIT_S) -> bytes:
        """Do one job in a worker and wait for it.

        Raises CompileError, also when the worker died or took too long, and UnsupportedDevice.
        """
        check_target(job.target)
        check_passes(job.passes)
        for attempt in (0, 1):
            worker = self._borrow()
            usable = False
            try:
                result = worker.run(job, time.monotonic() + time_limit_s)
                usable = True
                return result
            except (CompileError, UnsupportedDevice):
                usable = True
                raise
            except _Gone as gone:
                if gone.retry and not attempt:
                    continue
                raise self._died(worker, job, str(gone), time_limit_s) from None
            finally:
                self._give_back(worker, usable=usable)
        raise AssertionError("unreachable")

    @staticmethod
    def _died(worker: _Worker, job: Job, reason: str, time_limit_s: float) -> CompileError:
        log = worker.read_log()
        if "in time" in reason:
            reason += f" ({time_limit_s:g} s)"
        inner = compile_error(job.text, log) if log.strip() else None
        said = f": {inner.message}" if inner else " and printed nothing"
        message = f"the compiler process {reason}{said}"
        if (
            inner and explains(log) and "in time" not in reason
        ):  # LLVM ends its process over some mistakes: that says nothing
            message = inner.message
        return CompileError(
            message,
            line=inner.line if inner else None,
            text=inner.text if inner else "",
            log=log,
        )

    def compile_each(
        self, jobs: Sequence[Job], *, time_limit_s: float = TIME_LIMIT_S
    ) -> list[bytes | CompileError | UnsupportedDevice]:
        """Do `jobs` side by side; each result in its place, an error where a job failed."""
        # What stays where an interrupt, or an error of ours, kept a job from being done.
        undone = CompileError("the job was not compiled: others were interrupted")
        results: list[bytes | CompileError | UnsupportedDevice] = [undone] * len(jobs)
        numbers: Iterator[int] = iter(range(len(jobs)))
        take = threading.Lock()

        def work() -> None:
            while True:
                with take:
                    number = next(numbers, None)
                if number is None:
                    return
                try:
                    results[number] = self.compile(jobs[number], time_limit_s=time_limit_s)
                except (CompileError, UnsupportedDevice) as error:
                    results[number] = error

        helpers = [
            threading.Thread(target=work, name="rawgpu-compile")
            for _ in range(min(self.limit, len(jobs)) - 1)
        ]
        for helper in helpers:
            helper.start()
        try:
            work()
        finally:
            with take:  # after an interrupt, the helpers finish what they have and take no more
                numbers = iter(())
            for helper in helpers:
                helper.join()
        return results

    def idle_processes(self) -> list[int]:
        """Process numbers of the workers that wait for a job."""
        with self._changed:
            return [worker.process.pid for worker in self._idle]

    def close(self) -> None:
        """End all workers; the next job starts new ones."""
        with self._changed:
            idle, self._idle = self._idle, []
        for worker in idle:
            worker.close()


def processors() -> int:
    """How many processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


_pool: Pool | None = None
_pool_lock = threading.Lock()


def pool() -> Pool:
    """The pool that `llvm.py` uses; made at the first call."""
    global _pool
    with _pool_lock:
        if _pool is None:
            _pool = Pool()
            atexit.register(_pool.close)
        return _pool
