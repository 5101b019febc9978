"""Generations and versions as rows that state only what changed from a parent.

    PACKETS_XG2 = PACKETS_XG1.evolve("xg2", put=[Flush2], drop=[FlushAll])
    XG2 = XG1.evolve("xg2", source="XG2 manual 0.9", lanes=32, packets=PACKETS_XG2)

Putting what is there already, and dropping what is not, are errors: a row that says too much hides
what it really changes. Code asks a row for a fact, never for its name.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Self, TypeVar

from rawgpu.describe import evidence as ledger
from rawgpu.describe.value import DeclarationError, show

T = TypeVar("T")


class Table(Generic[T]):
    """A named, fixed set of declarations with a key each: packets, registers, requests."""

    def __init__(
        self, name: str, items: Iterable[T], *, source: str = "", parent: Table[T] | None = None
    ) -> None:
        self.name = name
        self.source = source
        self.parent = parent
        self._items: dict[Any, T] = {}
        for item in items:
            key = self.key_of(item)
            if key in self._items:
                other = self.name_of(self._items[key])
                raise DeclarationError(f"{name} has {self.name_of(item)} and {other} in one place")
            self._items[key] = item

    def key_of(self, item: T) -> Any:
        """What tells items apart: an opcode, an offset, a number."""
        return item

    def name_of(self, item: T) -> str:
        """What error messages call an item."""
        return getattr(item, "__name__", str(item))

    def evolve(
        self, name: str, *, put: Iterable[T] = (), drop: Iterable[T] = (), source: str = ""
    ) -> Self:
        """A table with items added, put in place of those with the same key, and taken away."""
        items = dict(self._items)
        for item in drop:
            if items.get(self.key_of(item)) is not item:
                raise DeclarationError(
                    f"{name} drops {self.name_of(item)}, which {self.name} lacks"
                )
            del items[self.key_of(item)]
        for item in put:
            if items.get(self.key_of(item)) is item:
                raise DeclarationError(f"{name} puts {self.name_of(item)}, which {self.name} has")
            items[self.key_of(item)] = item
        table = type(self)(name, items.values(), source=source or self.source)
        table.parent = self
        return table

    def changes(self) -> tuple[list[T], list[T]]:
        """What was put and what was dropped, against the parent."""
        before = self.parent._items if self.parent is not None else {}
        put = [item for key, item in self._items.items() if before.get(key) is not item]
        drop = [item for key, item in before.items() if key not in self._items]
        return put, drop

    def __iter__(self) -> Iterator[T]:
        return iter(self._items.values())

    def __len__(self) -> int:
        return len(self._items)

    def __contains__(self, item: object) -> bool:
        return any(item is mine for mine in self._items.values())

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, {len(self)} entries)"


@dataclass(frozen=True, kw_only=True)
class Generation:
    """The base of a vendor's rows: a frozen, keyword-only dataclass adds the facts it needs."""

    name: str
    source: str
    evidence: str = ledger.NONE_YET
    parent: Generation | None = dataclasses.field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        module = type(self).__module__
        ledger.enter("row", self.name, module, self.source, self.evidence)

    def evolve(
        self,
        name: str,
        *,
        source: str,
        put: Mapping[str, Iterable[Any]] | None = None,
        drop: Mapping[str, Iterable[Any]] | None = None,
        evidence: str = ledger.NONE_YET,
        **changes: Any,
    ) -> Self:
        """The row that differs from this one by `changes`.

        `put` and `drop` add to and take from facts that are sets: `put={"features": [DOT4]}`.
        A change to what is so already, and the drop of what is not there, are DeclarationErrors.
        """
        known = {field.name for field in dataclasses.fields(self)}
        for fact, value in changes.items():
            if fact not in known:
                raise DeclarationError(f"{name} changes {fact}, which {self.name} does not state")
            if getattr(self, fact) == value:
                raise DeclarationError(f"{name}: {fact} is {show(value)} in {self.name} already")
        for fact, items in (put or {}).items():
            have = self._set(name, fact, changes)
            for item in items:
                if item in have:
                    raise DeclarationError(f"{name} puts {item} into {fact}, where it is already")
                have |= {item}
            changes[fact] = have
        for fact, items in (drop or {}).items():
            have = self._set(name, fact, changes)
            for item in items:
                if item not in have:
                    raise DeclarationError(f"{name} drops {item} from {fact}, where it is not")
                have -= {item}
            changes[fact] = have
        return dataclasses.replace(
            self, name=name, source=source, evidence=evidence, parent=self, **changes
        )

    def _set(self, name: str, fact: str, changes: Mapping[str, Any]) -> frozenset[Any]:
        have = changes.get(fact, getattr(self, fact, None))
        if not isinstance(have, frozenset):
            raise DeclarationError(f"{name}: {fact} of {self.name} is no frozenset")
        return have

    def differences(self) -> dict[str, tuple[Any, Any]]:
        """Each fact that differs from the parent's: before and now."""
        skip = {"name", "source", "evidence", "parent"}
        found = {}
        for field in dataclasses.fields(self):
            before, now = getattr(self.parent, field.name, None), getattr(self, field.name)
            if field.name not in skip and before != now:
                found[field.name] = (before, now)
        return found

    def lineage(self) -> list[str]:
        """This row's name, its parent's, and so on to the first."""
        names = [self.name]
        row = self.parent
        while row is not None:
            names.append(row.name)
            row = row.parent
        return names
