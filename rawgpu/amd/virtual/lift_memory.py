"""Helpers of lifted code, as LLVM functions: loads and stores of a wave's lanes.

Each tests at run time for the shapes that are common, lanes at consecutive addresses and all lanes
at one; first for all lanes, then for each sixteen of them, since waves are often laid out in rows,
which may all be at the same addresses. The rest is done by gather and scatter. There are three
kinds: "near" has a host pointer and 32-bit offsets, "far" has 64-bit GPU addresses checked against
the window, "lds" has 32-bit offsets of which those beyond the bound read 0 and write nothing;
"words" is the same for two accesses of one word, side by side, each with its own bound. A helper is
written when first asked for.
"""

from __future__ import annotations

from rawgpu.compiler_bridge.text import Block, Function, Module, Value
from rawgpu.compiler_bridge.types import Type, i1, i8, i32, i64, ptr, vector
from rawgpu.virtual.lift import integer

VOID = Type("void", 0)
CHUNK = 16
"""Lanes that are looked at together where those of the whole wave have no common shape."""


class Helpers:
    """The helpers of one module, for waves of `lanes`."""

    def __init__(self, module: Module, lanes: int) -> None:
        self.module, self.lanes = module, lanes
        self.row = vector(i32, lanes)
        self.bools = vector(i1, lanes)
        self.mask_type = integer(lanes)
        self._made: set[str] = set()
        self._rooms: dict[tuple[int, int], Value] = {}

    def room(self, function: Function, count: int) -> Value:
        """Stack memory of `function` for `count` rows, used again and again."""
        key = (id(function), count)
        found = self._rooms.get(key)
        if found is None:
            found = self._rooms[key] = function.alloca(self.row, count, align=64)
        return found

    def permute(self) -> str:
        name = "permute"
        if name in self._made:
            return name
        self._made.add(name)
        f = self.module.function(
            name, [(self.row, "x"), (self.row, "lanes")], self.row, linkage="internal"
        )
        table = f.alloca(self.row, 1, align=64)
        f.store(f.args[0], table, align=64)
        at = f.gep(table, f.cast("zext", f.args[1], vector(i64, self.lanes)), i32)
        f.ret(self._gather(f, self.row, at, f.const(self.bools, True)))
        return name

    def _gather(self, f: Function, row: Type, at: Value, mask: Value) -> Value:
        name = f"llvm.masked.gather.{row.mangled}.{at.type.mangled}"
        self.module.declare(name, row, [at.type, mask.type, row])
        zero = f.const(row, 0)
        where = f"{at.type} align {row.scalar.size_bytes if row.bits < 32 else 1} {at.text}"
        return f.emit(row, f"call {row} @{name}({where}, {mask.typed}, {zero.typed})")

    def _scatter(self, f: Function, row: Value, at: Value, mask: Value) -> None:
        name = f"llvm.masked.scatter.{row.type.mangled}.{at.type.mangled}"
        self.module.declare(name, VOID, [row.type, at.type, mask.type])
        f.line(f"call void @{name}({row.typed}, {at.type} align 1 {at.text}, {mask.typed})")

    # Loads.

    def load(self, kind: str, size: int, masked: bool, signed: bool) -> str:
        """A function (base, lanes, bound, [mask,] result) for `size` bytes a lane."""
        name = f"load_{kind}{size}{'_signed' if signed else ''}{'_masked' if masked else ''}"
        if name not in self._made:
            self._made.add(name)
            _Access(self, name, kind, size, masked, self.lanes).load(signed)
        return name

    def load_chunk(self, kind: str, size: int, masked: bool, signed: bool) -> str:
        """The same for `CHUNK` lanes; the result's rows are as far apart as a wave's."""
        name = f"part_{kind}{size}{'_signed' if signed else ''}{'_masked' if masked else ''}"
        if name not in self._made:
            self._made.add(name)
            _Access(self, name, kind, size, masked, CHUNK).load(signed)
        return name

    def store(self, kind: str, size: int, masked: bool) -> str:
        """A function (base, lanes, bound, [mask,] rows …) for `size` bytes a lane."""
        name = f"store_{kind}{size}{'_masked' if masked else ''}"
        if name not in self._made:
            self._made.add(name)
            _Access(self, name, kind, size, masked, self.lanes).store()
        return name


class _Access:
    """Writes one helper."""

    def __init__(
        self, helpers: Helpers, name: str, kind: str, size: int, masked: bool, lanes: int
    ) -> None:
        self.h, self.name, self.kind, self.size, self.masked = helpers, name, kind, size, masked
        self.n = lanes
        self.row, self.bools, self.mask_type = vector(i32, lanes), vector(i1, lanes), integer(lanes)
        self.count = max(1, size // 4)
        self.element = i32 if size >= 4 else integer(8 * size)
        self.wide = kind == "far"
        self.index = vector(i64 if self.wide else i32, self.n)

    def _begin(self, extra: list[tuple[Type, str]]) -> None:
        params: list[tuple[Type, str]] = [(ptr, "base"), (self.index, "lanes"), (i64, "bound")]
        if self.masked:
            params.append((self.mask_type, "mask"))
        self.f = f = self.h.module.function(self.name, [*params, *extra], linkage="internal")
        self.base, self.lanes, self.bound = f.args[:3]
        self.rest = f.args[3 + self.masked :]
        self.bits = f.args[3] if self.masked else f.const(self.mask_type, -1)
        self.mask = f.bitcast(self.bits, self.bools) if self.masked else f.const(self.bools, True)
        self._first()

    def _first(self) -> None:
        """The index of the first lane that is on, less what consecutive lanes would add to it."""
        f, scalar = self.f, self.index.scalar
        if not self.masked:
            self.one = self.start = f.extract(self.lanes, 0)
            return
        no = f.const(i1, False)
        lane = f.intrinsic("llvm.cttz", self.bits.type, [self.bits, no])
        lane = f.and_(lane, f.const(lane.type, self.n - 1))
        if lane.type.bits != scalar.bits:
            lane = f.cast("zext" if lane.type.bits < scalar.bits else "trunc", lane, scalar)
        self.one = f.extract(self.lanes, lane)
        self.start = f.sub(self.one, f.mul(lane, f.const(scalar, self.size)))

    def _all(self, test: Value) -> Value:
        """Whether `test` holds in all lanes that are on."""
        f = self.f
        if self.masked:
            test = f.or_(test, f.xor(self.mask, f.const(self.bools, True)))
        whole = f.bitcast(test, self.mask_type)
        return f.icmp("eq", whole, f.const(whole.type, -1))

    def _inside(self, index: Value, reach: int) -> Value:
        """Whether `reach` bytes from a scalar index are within the bound."""
        f = self.f
        if self.kind == "near":
            return f.const(i1, True)
        wide = index if index.type.bits == 64 else f.cast("zext", index, i64)
        end = f.add(wide, f.const(i64, reach))
        fits = f.icmp("ule", end, self.bound)
        if index.type.bits < 64:  # which cannot wrap around
            return fits
        return f.and_(fits, f.icmp("ule", wide, self.bound))

    def _branches(self) -> tuple[Block, Block, Block, Block]:
        """Blocks for consecutive lanes, for one address, for any, and the end."""
        f = self.f
        straight, next_test = f.block("straight"), f.block("test")
        single, scattered, done = f.block("single"), f.block("scattered"), f.block("done")
        if self.masked:
            some = f.block("some")
            nothing = f.icmp("eq", self.bits, f.const(self.bits.type, 0))
            empty = f.block("empty")
            f.condbr(nothing, empty, some)
            f.at(empty)
            self._nothing()
            f.br(done)
            f.at(some)
        steps = f.const_vector(self.index.scalar, [i * self.size for i in range(self.n)])
        line = f.add(f.splat(self.start, self.n), steps)
        straight_lanes = self._all(f.icmp("eq", self.lanes, line))
        inside = self._inside(self.start, self.size * self.n)
        f.condbr(f.and_(straight_lanes, inside), straight, next_test)
        f.at(next_test)
        same = self._all(f.icmp("eq", self.lanes, f.splat(self.one, self.n)))
        f.condbr(f.and_(same, self._inside(self.one, self.size)), single, scattered)
        return straight, single, scattered, done

    def _nothing(self) -> None:
        """Where no lane is on a load gives what nobody reads."""

    def _at(self, index: Value) -> Value:
        wide = index if index.type.bits == 64 else self.f.cast("zext", index, i64)
        return self.f.gep(self.base, wide, i8, inbounds=False)

    def _reaches(self, size: int) -> Value:
        """Which lanes have so many bytes within the bound."""
        f = self.f
        wide = f.cast("zext", self.lanes, vector(i64, self.n))
        end = f.add(wide, f.const(wide.type, size))
        return f.icmp("ule", end, f.splat(self.bound, self.n))

    def _lane_pointers(self) -> tuple[Value, Value]:
        """Pointers of all lanes, and which of them may be used."""
        f, mask = self.f, self.mask
        wide = self.lanes
        if self.kind in ("lds", "words"):  # those that would be negative are beyond the bound
            inside = self._reaches(self.size if self.kind == "lds" else 4)
            return f.gep(self.base, wide, i8, inbounds=False), f.and_(mask, inside)
        if not self.wide:
            wide = f.cast("zext", self.lanes, vector(i64, self.n))
        if self.kind == "far":
            end = f.add(wide, f.const(wide.type, self.size))
            inside = f.icmp("ule", end, f.splat(self.bound, self.n))
            # The window's start is nobody's: a fault.
            wide = f.select(inside, wide, f.const(wide.type, 0))
        return f.gep(self.base, wide, i8, inbounds=False), mask

    def load(self, signed: bool) -> None:
        self._begin([(ptr, "result")])
        self.signed = signed
        f = self.f
        if self.n > CHUNK and not self.masked:
            self._load_in_rows()
            f.ret()
            return
        straight, single, scattered, done = self._branches()
        f.at(straight)
        self._load_straight()
        f.br(done)
        f.at(single)
        at = self._at(self.one)
        for i in range(self.count):
            word = f.load(self.element, f.gep(at, 4 * i, i8), align=1)
            self._give(i, f.splat(self._extended(word), self.n))
        f.br(done)
        f.at(scattered)
        if self.n > CHUNK:
            self._load_each_chunk()
        elif self.count == 4:
            self._load_by_lane()
        else:
            self._gather_words()
        f.br(done)
        f.at(done)
        f.ret()

    def _gather_words(self) -> None:
        f = self.f
        pointers, mask = self._lane_pointers()
        if self.kind == "words":
            for i in range(self.count):
                own = f.and_(mask, self._reaches(4 * i + 4))
                at = f.gep(pointers, 4 * i, i8)
                self._give(i, self.h._gather(f, self.row, at, own))
            return
        if self.count == 2:
            wide = self.h._gather(f, vector(i64, self.n), pointers, mask)
            self._give(0, f.cast("trunc", wide, self.row))
            high = f.lshr(wide, f.const(wide.type, 32))
            self._give(1, f.cast("trunc", high, self.row))
            return
        for i in range(self.count):
            at = f.gep(pointers, 4 * i, i8) if i else pointers
            row = self.h._gather(f, vector(self.element, self.n), at, mask)
            self._give(i, self._extended(row))

    def _load_in_rows(self) -> None:
        """Of a whole wave, all lanes on. The first two lanes say what it is worth to look for."""
        f = self.f
        straight, level, repeated = f.block("straight"), f.block("level"), f.block("repeated")
        apart, done = f.block("apart"), f.block("done")
        may_be_level, may_be_straight = f.block("may_be_level"), f.block("may_be_straight")
        may_repeat = f.block("may_repeat")
        together = f.icmp("eq", self.start, f.extract(self.lanes, 1))
        f.condbr(together, may_be_level, may_be_straight)
        f.at(may_be_straight)
        steps = f.const_vector(self.index.scalar, [i * self.size for i in range(self.n)])
        line = f.add(f.splat(self.start, self.n), steps)
        in_line = self._all(f.icmp("eq", self.lanes, line))
        inside = self._inside(self.start, self.size * self.n)
        f.condbr(f.and_(in_line, inside), straight, may_repeat)
        f.at(may_repeat)
        f.condbr(self._lanes_are([i % CHUNK for i in range(self.n)]), repeated, apart)
        f.at(may_be_level)
        same = self._lanes_are([i // CHUNK * CHUNK for i in range(self.n)])
        heads = [f.extract(self.lanes, first) for first in range(0, self.n, CHUNK)]
        last = heads[0]
        for head in heads[1:]:
            last = f.intrinsic("llvm.umax", last.type, [last, head])
        f.condbr(f.and_(same, self._inside(last, self.size)), level, apart)
        for block, write in (
            (straight, self._load_straight),
            (level, lambda: self._load_level(heads)),
            (repeated, self._load_repeated),
            (apart, self._load_each_chunk),
        ):
            f.at(block)
            write()
            f.br(done)
        f.at(done)

    def _lanes_are(self, sources: list[int]) -> Value:
        """Whether each lane has the index of that one."""
        return self._all(
            self.f.icmp("eq", self.lanes, self.f.shuffle(self.lanes, self.lanes, sources))
        )

    def _load_level(self, heads: list[Value]) -> None:
        """Sixteen lanes each at one address."""
        f = self.f
        for number, head in enumerate(heads):
            at = self._at(head)
            for i in range(self.count):
                word = f.load(self.element, f.gep(at, 4 * i, i8), align=1)
                self._give(i, f.splat(self._extended(word), CHUNK), CHUNK * number)

    def _load_repeated(self) -> None:
        """What the first sixteen lanes get, all get."""
        f, part = self.f, vector(i32, CHUNK)
        name = self.h.load_chunk(self.kind, self.size, False, self.signed)
        lanes = f.shuffle(self.lanes, self.lanes, range(CHUNK))
        f.call(name, VOID, [self.base, lanes, self.bound, self.rest[0]])
        for i in range(self.count):
            row = f.load(part, f.gep(self.rest[0], 4 * i * self.h.lanes, i8), align=64)
            for first in range(CHUNK, self.n, CHUNK):
                self._give(i, row, first)

    def _load_each_chunk(self) -> None:
        f = self.f
        name = self.h.load_chunk(self.kind, self.size, self.masked, self.signed)
        for first in range(0, self.n, CHUNK):
            lanes = f.shuffle(self.lanes, self.lanes, range(first, first + CHUNK))
            masked = []
            if self.masked:
                moved = f.lshr(self.bits, f.const(self.bits.type, first))
                masked = [f.cast("trunc", moved, integer(CHUNK))]
            result = f.gep(self.rest[0], 4 * first, i8)
            f.call(name, VOID, [self.base, lanes, self.bound, *masked, result])

    def _load_by_lane(self) -> None:
        """Four words of each of sixteen lanes: a load for each lane, then turned into rows."""
        f, quad = self.f, vector(i32, 4)
        index, inside = self.lanes, None
        if self.masked:  # a lane that is off goes where the first one goes that is on
            index = f.select(self.mask, index, f.splat(self.one, self.n))
        wide = index if self.wide else f.cast("zext", index, vector(i64, self.n))
        if self.kind != "near":
            end = f.add(wide, f.const(wide.type, self.size))
            inside = f.icmp("ule", end, f.splat(self.bound, self.n))
            wide = f.select(inside, wide, f.const(wide.type, 0))
        quads = []
        for lane in range(self.n):
            at = f.gep(self.base, f.extract(wide, lane), i8, inbounds=False)
            quads.append(f.load(quad, at, align=1))
        columns = [self._column(quads, first) for first in range(4)]
        for i, row in enumerate(self._transposed(columns)):
            if self.kind == "lds":
                assert inside is not None
                row = f.select(inside, row, f.const(row.type, 0))
            self._give(i, row)

    def _column(self, quads: list[Value], first: int) -> Value:
        """The words of lanes `first`, `first` + 4 …, one lane's after another's."""
        f = self.f
        low = f.shuffle(quads[first], quads[first + 4], range(8))
        high = f.shuffle(quads[first + 8], quads[first + 12], range(8))
        return f.shuffle(low, high, range(16))

    def _transposed(self, columns: list[Value]) -> list[Value]:
        """Four blocks of 4 x 4 words turned, side by side."""
        f = self.f

        def pairs(a: Value, b: Value, pattern: tuple[int, ...]) -> Value:
            return f.shuffle(a, b, [4 * (i // 4) + pattern[i % 4] for i in range(16)])

        low, high = (0, 16, 1, 17), (2, 18, 3, 19)
        even, odd = (0, 1, 16, 17), (2, 3, 18, 19)
        a, b = (pairs(columns[i], columns[i + 1], low) for i in (0, 2))
        c, d = (pairs(columns[i], columns[i + 1], high) for i in (0, 2))
        return [pairs(a, b, even), pairs(a, b, odd), pairs(c, d, even), pairs(c, d, odd)]

    def _extended(self, value: Value) -> Value:
        word = "sext" if self.signed else "zext"
        return self.f.cast(word, value, value.type.like(i32))

    def _give(self, number: int, row: Value, lane: int = 0) -> None:
        """Part of the result: word `number` of the lanes from `lane` on."""
        at = self.f.gep(self.rest[0], 4 * (number * self.h.lanes + lane), i8)
        self.f.store(row, at, align=64)

    def _load_straight(self) -> None:
        f, total = self.f, self.n * self.count
        whole = vector(self.element, total)
        at = self._at(self.start)
        if self.masked:
            mask = self._each(self.mask)
            found = f.masked_load(whole, at, mask, f.const(whole, 0), align=1)
        else:
            found = f.load(whole, at, align=1)
        if self.count == 1:
            self._give(0, self._extended(found))
            return
        for i in range(self.count):
            self._give(i, f.shuffle(found, found, range(i, total, self.count)))

    def _each(self, mask: Value) -> Value:
        """A mask of lanes as a mask of their words."""
        if self.count == 1:
            return mask
        lanes = [i // self.count for i in range(self.n * self.count)]
        return self.f.shuffle(mask, mask, lanes)

    def store(self) -> None:
        self._begin([(self.row, f"row{i}") for i in range(self.count)])
        f = self.f
        self.rows = [self._narrowed(row) for row in self.rest]
        straight, single, scattered, done = self._branches()
        f.at(straight)
        self._store_straight()
        f.br(done)
        f.at(single)
        last = self._last()
        at = self._at(self.one)
        for i, row in enumerate(self.rows):
            f.store(f.extract(row, last), f.gep(at, 4 * i, i8), align=1)
        f.br(done)
        f.at(scattered)
        pointers, mask = self._lane_pointers()
        for i, row in enumerate(self.rows):
            self.h._scatter(f, row, f.gep(pointers, 4 * i, i8) if i else pointers, mask)
        f.br(done)
        f.at(done)
        f.ret()

    def _narrowed(self, row: Value) -> Value:
        return self.f.cast("trunc", row, vector(self.element, self.n))

    def _last(self) -> Value | int:
        """The highest lane that is on: its value stays."""
        if not self.masked:
            return self.n - 1
        f = self.f
        zeros = f.intrinsic("llvm.ctlz", self.bits.type, [self.bits, f.const(i1, False)])
        return f.sub(f.const(zeros.type, self.n - 1), zeros)

    def _store_straight(self) -> None:
        f, at = self.f, self._at(self.start)
        whole = self.rows[0]
        if self.count > 1:
            whole = self._interleaved()
        if self.masked:
            f.masked_store(whole, at, self._each(self.mask), align=1)
        else:
            f.store(whole, at, align=1)

    def _interleaved(self) -> Value:
        f, n = self.f, self.n
        rows = list(self.rows)
        if len(rows) == 3:
            rows.append(f.undef(self.row))
        low = f.shuffle(rows[0], rows[1], range(2 * n))
        if self.count == 2:
            order = [i // 2 + n * (i % 2) for i in range(2 * n)]
            return f.shuffle(low, low, order)
        high = f.shuffle(rows[2], rows[3], range(2 * n))
        order = [i // self.count + n * (i % self.count) for i in range(n * self.count)]
        return f.shuffle(low, high, order)
