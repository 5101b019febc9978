"""Tells when a program gets another thread, while that one has not begun.

A virtual GPU may hold back what the CPU writes as long as a single thread writes: afterwards a
write could fall between its look at a page and what it does with that page. So it must know before
the second thread's first write, which only the interpreter can tell.
"""

from __future__ import annotations

import functools
import sys
import threading
import weakref
from typing import Any, Protocol

STARTS = ("_thread.start_new_thread", "_thread.start_joinable_thread")
"""Audit events, of Python 3.12, and of what `threading` calls from 3.13 on."""
OWN_PREFIX = "rawgpu-"
"""Names of our own threads, which touch no GPU's memory, begin so."""


class Host(Protocol):
    """What wants to know."""

    def another_thread_begins(self) -> None: ...


_hosts: weakref.WeakSet[Any] = weakref.WeakSet()


def watch(host: Host) -> None:
    """Call `host.another_thread_begins` in the thread that starts one, each time, while it lives.

    Threads that were there before are not told of, nor those that C code starts.
    """
    _listen()
    _hosts.add(host)


@functools.cache
def _listen() -> None:
    if sys.version_info >= (3, 12):
        sys.addaudithook(_on_event)
        return
    start = threading.Thread.start  # Python 3.11 has no such event

    @functools.wraps(start)
    def announced(thread: threading.Thread) -> None:
        _announce(thread)
        start(thread)

    threading.Thread.start = announced  # type: ignore[method-assign, assignment]


def _on_event(event: str, arguments: tuple[Any, ...]) -> None:
    if event in STARTS:
        _announce(getattr(arguments[0], "__self__", None))


def _announce(thread: object) -> None:
    if isinstance(thread, threading.Thread) and thread.name.startswith(OWN_PREFIX):
        return
    for host in list(_hosts):
        host.another_thread_begins()
