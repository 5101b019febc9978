"""Versions of a kernel's ABI as rows: which requests it knows, and how long each struct is.

    KFD_1_17 = KFD_1_16.evolve("1.17", put=[CreateQueue17])

A driver asks the row of the kernel it met for the class to send (`abi[CreateQueue]`); a virtual
kernel is one row, and takes what drivers of other versions send as the real one would.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import Any, Self, TypeVar

from rawgpu.describe.generation import Table
from rawgpu.describe.request import Request, Struct, split_number
from rawgpu.describe.value import DeclarationError

S = TypeVar("S", bound=Struct)
R = TypeVar("R", bound=Request)


class Abi(Table[type[Struct]]):
    """The requests and structs of one version. A request is found by type letter and number."""

    def __init__(
        self,
        name: str,
        items: Iterable[type[Struct]],
        *,
        source: str = "",
        features: frozenset[enum.Enum] = frozenset(),
    ) -> None:
        super().__init__(name, items, source=source)
        self.features = features
        """What this version can do beyond the shapes of its structs."""
        self.requests = {(r.about.magic, r.about.nr): r for r in self if issubclass(r, Request)}
        """Every request by type letter and number."""

    def evolve(
        self,
        name: str,
        *,
        put: Iterable[type[Struct]] = (),
        drop: Iterable[type[Struct]] = (),
        source: str = "",
        features: Iterable[enum.Enum] = (),
    ) -> Self:
        """The version that follows this one; `features` are those that it added."""
        new = super().evolve(name, put=put, drop=drop, source=source)
        again = [feature.name for feature in features if feature in self.features]
        if again:
            raise DeclarationError(f"{name} adds {', '.join(again)}, which {self.name} has")
        new.features = self.features | frozenset(features)
        return new

    def key_of(self, item: type[Struct]) -> Any:
        """Versions of one struct share their oldest ancestor."""
        return root_of(item)

    def __getitem__(self, kind: type[S]) -> type[S]:
        """This version's form of `kind`; KeyError with the request's name if it has none."""
        found = self._items.get(root_of(kind))
        if found is None:
            raise KeyError(f"{self.name} has no {kind.__name__}")
        return found  # type: ignore[return-value]  # both descend from one declaration

    def has(self, kind: type[Struct]) -> bool:
        """Whether this version knows `kind`, or a form of it."""
        return root_of(kind) in self._items

    def by_number(self, number: int) -> type[Request] | None:
        """The request with this ioctl number, whatever the size in it; None if unknown."""
        _, magic, nr, _ = split_number(number)
        return self.requests.get((magic, nr))

    def receive(self, request: Request) -> Request | None:
        """`request` as this version sees it: cut off, or filled with zeros; None if unknown."""
        mine = self._items.get(root_of(type(request)))
        if mine is type(request):
            return request
        if mine is None or not issubclass(mine, Request):
            return None
        return mine.decode(request.encode()[: _limit(mine)])


def answer_to(request: R, reply: Request) -> R:
    """`reply`, which another version gave, in the form in which `request` was sent."""
    if type(reply) is type(request):
        return reply
    sent = request.encode()
    raw = reply.encode()
    return request.answered(raw[: len(sent)] + sent[len(raw) :])


def _limit(kind: type[Struct]) -> int | None:
    return None if kind.about.flexible is not None else kind.about.size


def root_of(kind: type[Struct]) -> type[Struct]:
    """The first declaration that `kind` descends from."""
    line = [k for k in kind.__mro__ if issubclass(k, Struct) and "about" in k.__dict__]
    if not line:
        raise DeclarationError(f"{kind.__name__} declares nothing")
    return line[-1]
