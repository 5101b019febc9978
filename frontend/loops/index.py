"""Integer index expressions, kept in one normal form.

An `Index` is a sum of atoms with integer coefficients plus a constant. An atom is a loop variable,
or the quotient or remainder of an `Index` by a positive constant. Every atom knows its range, so
that quotients and remainders fall away wherever a range proves them trivial; that is what makes
reshapes free.

    >>> i, j = Var("i", 4), Var("j", 8)
    >>> flat = Index.of(i) * 8 + Index.of(j)
    >>> flat // 8, flat % 8
    (i, j)
    >>> (flat // 16) * 16 + flat % 16
    8*i + j
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True)
class Var:
    """A loop variable, or a value read at run time, in `range(extent)`."""

    name: str
    extent: int

    @property
    def low(self) -> int:
        return 0

    @property
    def high(self) -> int:
        return self.extent - 1

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Quotient:
    """`floor(index / by)`."""

    index: Index
    by: int

    @property
    def low(self) -> int:
        return self.index.low // self.by

    @property
    def high(self) -> int:
        return self.index.high // self.by

    def __str__(self) -> str:
        return f"({self.index})//{self.by}"


@dataclass(frozen=True)
class Remainder:
    """`index - by*floor(index / by)`."""

    index: Index
    by: int

    @property
    def low(self) -> int:
        return 0

    @property
    def high(self) -> int:
        return self.by - 1

    def __str__(self) -> str:
        return f"({self.index})%{self.by}"


Atom: TypeAlias = "Var | Quotient | Remainder"


class Index:
    """A normalised sum; immutable, hashable, equal when the sums are."""

    __slots__ = ("_hash", "constant", "terms")

    terms: tuple[tuple[Atom, int], ...]
    constant: int

    def __init__(self, terms: Iterable[tuple[Atom, int]] = (), constant: int = 0) -> None:
        self.terms = tuple(terms)
        self.constant = constant
        self._hash = hash((frozenset(self.terms), constant))

    @staticmethod
    def of(value: Atom | Index | int) -> Index:
        if isinstance(value, Index):
            return value
        if isinstance(value, int):
            return Index((), value)
        if isinstance(value, Var) and value.extent == 1:
            return Index()
        return Index(((value, 1),))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Index) or self._hash != other._hash:
            return False
        if self.constant != other.constant or len(self.terms) != len(other.terms):
            return False
        return self.terms == other.terms or set(self.terms) == set(other.terms)

    @property
    def low(self) -> int:
        return self.constant + sum(c * (a.low if c > 0 else a.high) for a, c in self.terms)

    @property
    def high(self) -> int:
        return self.constant + sum(c * (a.high if c > 0 else a.low) for a, c in self.terms)

    @property
    def is_constant(self) -> bool:
        return not self.terms

    def __add__(self, other: Index | int) -> Index:
        if isinstance(other, int):
            return Index(self.terms, self.constant + other)
        if not other.terms:
            return Index(self.terms, self.constant + other.constant)
        if not self.terms:
            return Index(other.terms, self.constant + other.constant)
        sums = dict(self.terms)
        for atom, coefficient in other.terms:
            sums[atom] = sums.get(atom, 0) + coefficient
        return _rejoined(sums, self.constant + other.constant)

    def __sub__(self, other: Index | int) -> Index:
        return self + (other * -1 if isinstance(other, Index) else -other)

    def __mul__(self, factor: int) -> Index:
        if factor == 0:
            return Index()
        if factor == 1:
            return self
        return Index(((a, c * factor) for a, c in self.terms), self.constant * factor)

    def __floordiv__(self, by: int) -> Index:
        assert by > 0, by
        if by == 1:
            return self
        whole, rest = self._divided(by)
        low = rest.low // by
        if low == rest.high // by:
            return whole + low
        if len(rest.terms) == 1 and rest.constant == 0:
            atom, coefficient = rest.terms[0]
            if coefficient == 1 and isinstance(atom, Quotient):
                return whole + atom.index // (atom.by * by)
        split = rest._coarse(by)
        if split is not None:
            grain, coarse, _ = split
            return whole + coarse // (by // grain)
        return whole + Index(((Quotient(rest, by), 1),))

    def __mod__(self, by: int) -> Index:
        assert by > 0, by
        if by == 1:
            return Index()
        _, rest = self._divided(by)
        low = rest.low // by
        if low == rest.high // by:
            return rest - low * by
        if len(rest.terms) == 1 and rest.constant == 0:
            atom, coefficient = rest.terms[0]
            if coefficient == 1 and isinstance(atom, Remainder) and atom.by % by == 0:
                return atom.index % by
        split = rest._coarse(by)
        if split is not None:
            grain, coarse, fine = split
            return (coarse % (by // grain)) * grain + fine
        return Index(((Remainder(rest, by), 1),))

    def _divided(self, by: int) -> tuple[Index, Index]:
        """(whole, rest) with self == whole*by + rest; rest holds what `by` does not divide.

        A coefficient is split only where it is divisible; anything else would move the range of
        the rest.
        """
        whole, rest = [], []
        for atom, coefficient in self.terms:
            if coefficient % by == 0:
                whole.append((atom, coefficient // by))
            else:
                rest.append((atom, coefficient))
        return Index(whole, self.constant // by), Index(rest, self.constant % by)

    def _coarse(self, by: int) -> tuple[int, Index, Index] | None:
        """(grain, coarse, fine) with self == coarse*grain + fine, 0 <= fine < grain.

        `grain` divides `by`, so the fine part never carries into a quotient by `by`.
        """
        for grain in sorted({abs(c) for _, c in self.terms}, reverse=True):
            if grain == 1 or by % grain:
                continue
            fine = Index(((a, c) for a, c in self.terms if c % grain), self.constant % grain)
            if fine.low >= 0 and fine.high < grain:
                coarse = ((a, c // grain) for a, c in self.terms if c % grain == 0)
                return grain, Index(coarse, self.constant // grain), fine
        return None

    def coefficient(self, var: Var) -> int | None:
        """How the value grows with `var`; None when it is not by a constant step."""
        step = 0
        for atom, c in self.terms:
            if atom == var:
                step = c
            elif not isinstance(atom, Var) and atom.index.depends_on(var):
                return None
        return step

    def depends_on(self, var: Var) -> bool:
        return any(
            atom == var if isinstance(atom, Var) else atom.index.depends_on(var)
            for atom, _ in self.terms
        )

    def variables(self) -> set[Var]:
        found: set[Var] = set()
        for atom, _ in self.terms:
            found |= {atom} if isinstance(atom, Var) else atom.index.variables()
        return found

    def substitute(self, values: Mapping[Var, Index]) -> Index:
        """Replace variables, and normalise again."""
        result = Index((), self.constant)
        for atom, c in self.terms:
            if isinstance(atom, Var):
                value = values.get(atom)
                result = result + (Index(((atom, c),)) if value is None else value * c)
            elif isinstance(atom, Quotient):
                result = result + (atom.index.substitute(values) // atom.by) * c
            else:
                result = result + (atom.index.substitute(values) % atom.by) * c
        return result

    def evaluate(self, value_of: Callable[[Var], int]) -> int:
        total = self.constant
        for atom, c in self.terms:
            if isinstance(atom, Var):
                total += c * value_of(atom)
            elif isinstance(atom, Quotient):
                total += c * (atom.index.evaluate(value_of) // atom.by)
            else:
                total += c * (atom.index.evaluate(value_of) % atom.by)
        return total

    def __str__(self) -> str:
        parts = [str(a) if c == 1 else f"{c}*{a}" for a, c in self.terms]
        if self.constant or not parts:
            parts.append(str(self.constant))
        return " + ".join(parts)

    __repr__ = __str__


def _rejoined(sums: dict[Atom, int], constant: int) -> Index:
    """The sum, with what divisions took apart put together again.

    `c*by*(e//by) + c*(e%by)` is `c*e`, and `c*by*(e//by%n) + c*(e%by)` is `c*(e%(by*n))`.
    """
    for atom in list(sums):
        if not isinstance(atom, Remainder) or not sums.get(atom):
            continue
        coefficient, whole = sums[atom], atom.index // atom.by
        if len(whole.terms) != 1 or whole.constant or whole.terms[0][1] != 1:
            continue
        quotient = whole.terms[0][0]
        joined: Index | None = None
        if sums.get(quotient) == coefficient * atom.by:
            joined, partner = atom.index, quotient
        else:
            for other, c in sums.items():
                if c == coefficient * atom.by and isinstance(other, Remainder):
                    if other.index == whole:
                        joined, partner = atom.index % (atom.by * other.by), other
                        break
        if joined is not None:
            del sums[atom], sums[partner]
            rest = Index(((a, c) for a, c in sums.items() if c), constant)
            return rest + joined * coefficient
    return Index(((a, c) for a, c in sums.items() if c), constant)


@dataclass(frozen=True)
class InRange:
    """The condition `0 <= index < extent`."""

    index: Index
    extent: int

    @property
    def always(self) -> bool:
        return self.index.low >= 0 and self.index.high < self.extent

    def substitute(self, values: Mapping[Var, Index]) -> InRange:
        return InRange(self.index.substitute(values), self.extent)

    def __str__(self) -> str:
        return f"0 <= {self.index} < {self.extent}"


@dataclass(frozen=True)
class Divides:
    """The condition `index % by == 0`."""

    index: Index
    by: int

    @property
    def always(self) -> bool:
        return (self.index % self.by) == Index()

    def substitute(self, values: Mapping[Var, Index]) -> Divides:
        return Divides(self.index.substitute(values), self.by)

    def __str__(self) -> str:
        return f"{self.index} % {self.by} == 0"


Condition: TypeAlias = "InRange | Divides"


def flatten(indices: Iterable[Index], shape: Iterable[int]) -> Index:
    """Row-major position of `indices` in an array of `shape`."""
    position = Index()
    for index, extent in zip(indices, shape, strict=True):
        position = position * extent + index
    return position


def unflatten(position: Index, shape: tuple[int, ...]) -> tuple[Index, ...]:
    """The indices at a row-major position; the inverse of `flatten`."""
    indices = []
    for extent in reversed(shape):
        indices.append(position % extent if extent else Index())
        position = position // extent if extent else Index()
    return tuple(reversed(indices))
