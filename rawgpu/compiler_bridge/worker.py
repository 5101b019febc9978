"""A compiler process: reads jobs from its standard input, answers on its standard output.

Started by `workers.py`; `frames.py` describes the messages. It ends when its input closes, so it
cannot outlive the process that started it, not even while LLVM is busy: a thread does the reading,
and LLVM runs without Python's lock.
"""

from __future__ import annotations

import os
import queue
import resource
import signal
import threading

from rawgpu.compiler_bridge.frames import Frame, Kind, read_frame, write_frame

IDLE_SECONDS = 300.0
MAX_PRINTED_BYTES = 64 << 20


def _read_jobs(source: int, jobs: queue.SimpleQueue[Frame]) -> None:
    while True:
        frame = read_frame(source)
        if frame is None:
            os._exit(0)
        jobs.put(frame)


def _answer(frame: Frame) -> Frame:
    from rawgpu.compiler_bridge.emit import emit
    from rawgpu.compiler_bridge.target import Target
    from rawgpu.errors import CompileError, UnsupportedDevice

    job = frame.fields
    target = Target(job["triple"], job["cpu"], job["features"])
    try:
        data = emit(
            frame.data.decode(),
            target,
            passes=job["passes"],
            level=job["level"],
            assembly=job["assembly"],
        )
    except CompileError as error:
        told = {"message": error.message, "hint": error.hint, "line": error.line}
        return Frame(Kind.COMPILE_ERROR, told | {"text": error.text}, error.log.encode())
    except UnsupportedDevice as error:
        return Frame(Kind.UNSUPPORTED, {"message": error.message, "hint": error.hint})
    return Frame(Kind.DONE, {}, data)


def main() -> None:
    """Serve until the input closes, or nothing has come for a while."""
    resource.setrlimit(
        resource.RLIMIT_CORE, (0, 0)
    )  # LLVM's abort is an answer, not a crash to keep
    resource.setrlimit(resource.RLIMIT_FSIZE, (MAX_PRINTED_BYTES, MAX_PRINTED_BYTES))
    signal.signal(
        signal.SIGINT, signal.SIG_IGN
    )  # control-C is for the process that has the terminal
    answers = os.dup(1)
    os.dup2(2, 1)  # what LLVM prints must not mix with the frames
    jobs: queue.SimpleQueue[Frame] = queue.SimpleQueue()
    threading.Thread(target=_read_jobs, args=(0, jobs), daemon=True).start()
    import rawgpu.compiler_bridge.emit  # noqa: F401  # load LLVM while the first job is on its way

    while True:
        try:
            frame = jobs.get(timeout=IDLE_SECONDS)
        except queue.Empty:
            os._exit(0)
        try:
            write_frame(answers, Frame(Kind.STARTED, {}))
            write_frame(answers, _answer(frame))
        except BrokenPipeError:
            os._exit(0)
