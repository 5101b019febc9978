"""Builds LLVM IR text: modules, functions, blocks, and a typed method for each instruction.

It checks what is cheap to check (types of operands agree) and leaves the rest to LLVM's verifier.
Types and constants are in `types.py`.

    module = Module()
    f = module.function("twice", [(ptr, "p")])
    f.store(f.fmul(f.load(f32, f.args[0]), f.const(f32, 2.0)), f.args[0])
    f.ret()
    print(module)
"""

from __future__ import annotations

from collections.abc import Sequence

from rawgpu.compiler_bridge.types import Type, constant_text, i1, i32, vector, void

__all__ = ["Block", "Function", "Module", "Type", "Value"]


BITWISE = frozenset(("and", "or", "xor", "add", "sub"))


class Value:
    """An operand: its type and how the text names it (`%7`, `@table`, a literal)."""

    __slots__ = ("text", "type")

    def __init__(self, type_: Type, text: str) -> None:
        self.type = type_
        self.text = text

    @property
    def typed(self) -> str:
        """Type and name, as an operand list wants it."""
        return f"{self.type.text} {self.text}"

    def __repr__(self) -> str:
        return f"Value({self.typed})"


class Block:
    """A basic block: its label and its lines so far."""

    __slots__ = ("lines", "name", "phis")

    def __init__(self, name: str) -> None:
        self.name = name
        self.phis: list[Phi] = []
        self.lines: list[str] = []

    def __str__(self) -> str:
        return "\n".join([f"{self.name}:", *(f"  {phi.line}" for phi in self.phis), *self.lines])


class Phi(Value):
    """A phi whose incoming values may still be added, as a loop needs."""

    __slots__ = ("incoming",)

    def __init__(self, type_: Type, text: str) -> None:
        super().__init__(type_, text)
        self.incoming: list[tuple[Value, Block]] = []

    def add(self, value: Value, block: Block) -> None:
        """`value` arrives when control comes from `block`."""
        assert value.type == self.type, (value, self.type)
        self.incoming.append((value, block))

    @property
    def line(self) -> str:
        """The finished instruction."""
        pairs = ", ".join(f"[ {value.text}, %{block.name} ]" for value, block in self.incoming)
        return f"{self.text} = phi {self.type} {pairs}"


class Module:
    """Functions, global tables and the declarations that the functions came to need."""

    def __init__(self, triple: str = "", datalayout: str = "") -> None:
        self.triple, self.datalayout = triple, datalayout
        self.functions: list[Function] = []
        self._declares: dict[str, str] = {}
        self._globals: dict[str, str] = {}
        self._attributes: dict[str, int] = {}
        self._metadata: list[str] = []
        self._nontemporal: str | None = None
        self._unlikely: str | None = None
        self._verbatim: list[str] = []

    def function(
        self,
        name: str,
        params: Sequence[tuple[Type, str] | tuple[Type, str, str]] = (),
        result: Type = void,
        *,
        linkage: str = "",
        convention: str = "",
        attributes: str = "",
    ) -> Function:
        """Begin `define [linkage] [convention] result @name(params) attributes`.

        A parameter is (type, name) or (type, name, attributes): `(ptr, "x", "noalias nocapture")`.
        """
        made = Function(self, name, params, result, linkage, convention, attributes)
        self.functions.append(made)
        return made

    def declare(
        self, name: str, result: Type, params: Sequence[Type], attributes: str = ""
    ) -> None:
        """Declare `@name` once; a second, different declaration is our mistake."""
        line = (
            f"declare {result} @{name}({', '.join(p.text for p in params)}) {attributes}".rstrip()
        )
        assert self._declares.setdefault(name, line) == line, (line, self._declares[name])

    def table(
        self, name: str, element: Type, numbers: Sequence[float | int], *, space: int = 0
    ) -> Value:
        """A private constant array, found by name if it was made before; a pointer to its start."""
        items = ", ".join(f"{element} {constant_text(element, number)}" for number in numbers)
        where = f"addrspace({space}) " if space else ""
        kind = f"private unnamed_addr {where}constant [{len(numbers)} x {element}]"
        line = f"@{name} = {kind} [{items}], align {16 if space else 64}"
        assert self._globals.setdefault(name, line) == line, f"two tables named {name}"
        return Value(Type("ptr", 64, 0, space), f"@{name}")

    def global_variable(self, name: str, line: str, *, space: int = 0) -> Value:
        """A global written by hand: `line` is all after `@name = `."""
        self._globals[name] = f"@{name} = {line}"
        return Value(Type("ptr", 64, 0, space), f"@{name}")

    def metadata(self, text: str) -> str:
        """Add a metadata node and return its name, `!3`."""
        self._metadata.append(text)
        return f"!{len(self._metadata) - 1}"

    @property
    def nontemporal(self) -> str:
        """The node that `!nontemporal` wants."""
        if self._nontemporal is None:
            self._nontemporal = self.metadata("!{i32 1}")
        return self._nontemporal

    @property
    def unlikely(self) -> str:
        """The `!prof` node of a branch whose first way is rare."""
        if self._unlikely is None:
            self._unlikely = self.metadata('!{!"branch_weights", i32 1, i32 4000}')
        return self._unlikely

    def append(self, text: str) -> None:
        """Add IR text as it is: a hand-written function, named metadata, module assembly."""
        self._verbatim.append(text)

    def __str__(self) -> str:
        parts: list[str] = []
        if self.datalayout:
            parts.append(f'target datalayout = "{self.datalayout}"')
        if self.triple:
            parts.append(f'target triple = "{self.triple}"')
        parts += self._globals.values()
        parts += [str(function) for function in self.functions]
        parts += self._declares.values()
        parts += self._verbatim
        parts += [f"!{i} = {text}" for i, text in enumerate(self._metadata)]
        return "\n".join(parts) + "\n"


class Function:
    """A function being written; instructions go to the end of the current block.

    Names run %0, %1, ... in the order written; blocks are named by hint and number.
    """

    def __init__(
        self,
        module: Module,
        name: str,
        params: Sequence[tuple[Type, str] | tuple[Type, str, str]],
        result: Type,
        linkage: str,
        convention: str,
        attributes: str,
    ) -> None:
        self.module, self.name, self.result = module, name, result
        self.args = [Value(param[0], f"%{param[1]}") for param in params]
        listed = ", ".join(
            " ".join(filter(None, (p[0].text, p[2] if len(p) == 3 else "", f"%{p[1]}")))
            for p in params
        )
        head = " ".join(filter(None, ("define", linkage, convention, result.text)))
        self._head = f"{head} @{name}({listed}) {attributes}".rstrip()
        self.blocks: list[Block] = []
        self._count = 0
        self._block_names: dict[str, int] = {}
        self._bitwise: set[str] = set()
        """Vectors made by an operation that x86 can do as part of another; see `_apart`."""
        self.current = self.block("entry")
        self.debug = ""  # appended to each instruction: ", !dbg !7"

    # Blocks

    def block(self, hint: str = "b") -> Block:
        """A new block, placed after those there are; does not move the insertion point."""
        number = self._block_names.get(hint, 0)
        self._block_names[hint] = number + 1
        made = Block(f"{hint}.{number}" if number else hint)
        self.blocks.append(made)
        return made

    def at(self, block: Block) -> Block:
        """Write to the end of `block` from here on."""
        self.current = block
        return block

    def line(self, text: str) -> None:
        """An instruction without result."""
        self.current.lines.append(f"  {text}{self.debug}")

    def fresh(self) -> str:
        """A name no value has yet."""
        name = f"%v{self._count}"
        self._count += 1
        return name

    def emit(self, type_: Type, text: str) -> Value:
        """An instruction with result: `%vN = text`."""
        name = self.fresh()
        self.current.lines.append(f"  {name} = {text}{self.debug}")
        return Value(type_, name)

    def __str__(self) -> str:
        return "\n".join([self._head + " {", *(str(block) for block in self.blocks), "}"])

    # Constants and vectors

    def const(self, type_: Type, number: float | int | bool) -> Value:
        """A literal, in each lane of a vector type; floats are bit exact."""
        return Value(type_, constant_text(type_, number))

    def const_vector(self, scalar: Type, numbers: Sequence[float | int | bool]) -> Value:
        """A vector literal, lane by lane."""
        items = ", ".join(f"{scalar} {constant_text(scalar, number)}" for number in numbers)
        return Value(vector(scalar, len(numbers)), f"<{items}>")

    def undef(self, type_: Type) -> Value:
        """A value that may be anything; poison, in LLVM's word."""
        return Value(type_, "poison")

    def splat(self, value: Value, lanes: int) -> Value:
        """`value` in each of `lanes` lanes."""
        type_ = vector(value.type, lanes)
        one = self.emit(type_, f"insertelement {type_} poison, {value.typed}, i64 0")
        return self.shuffle(one, one, [0] * lanes)

    def insert(self, into: Value, value: Value, lane: int | Value) -> Value:
        """`into` with `value` in `lane`."""
        where = lane.typed if isinstance(lane, Value) else f"i64 {lane}"
        return self.emit(into.type, f"insertelement {into.typed}, {value.typed}, {where}")

    def extract(self, value: Value, lane: int | Value) -> Value:
        """One lane of a vector."""
        where = lane.typed if isinstance(lane, Value) else f"i64 {lane}"
        return self.emit(value.type.scalar, f"extractelement {value.typed}, {where}")

    def shuffle(self, a: Value, b: Value, lanes: Sequence[int]) -> Value:
        """Lanes picked from `a` followed by `b`; a negative number leaves the lane undefined."""
        mask = ", ".join("i32 poison" if lane < 0 else f"i32 {lane}" for lane in lanes)
        type_ = a.type.with_lanes(len(lanes))
        return self.emit(
            type_, f"shufflevector {a.typed}, {b.typed}, <{len(lanes)} x i32> <{mask}>"
        )

    # Arithmetic

    def binary(self, op: str, a: Value, b: Value, flags: str = "") -> Value:
        """Any two-operand instruction by its IR name; `flags` such as `nsw` or `reassoc nsz`."""
        assert a.type == b.type, (op, a, b)
        made = self.emit(a.type, f"{op} {flags + ' ' if flags else ''}{a.typed}, {b.text}")
        if op in BITWISE and a.type.lanes:
            self._bitwise.add(made.text)
        return made

    def fadd(self, a: Value, b: Value, flags: str = "") -> Value:
        return self.binary("fadd", a, b, flags)

    def fsub(self, a: Value, b: Value, flags: str = "") -> Value:
        return self.binary("fsub", a, b, flags)

    def fmul(self, a: Value, b: Value, flags: str = "") -> Value:
        return self.binary("fmul", a, b, flags)

    def fdiv(self, a: Value, b: Value, flags: str = "") -> Value:
        return self.binary("fdiv", a, b, flags)

    def fneg(self, a: Value) -> Value:
        return self.emit(a.type, f"fneg {a.typed}")

    def fma(self, a: Value, b: Value, c: Value, flags: str = "") -> Value:
        """A * b + c, rounded once."""
        return self.intrinsic("llvm.fma", a.type, [a, b, c], flags=flags)

    def unary_intrinsic(self, name: str, a: Value) -> Value:
        """`llvm.<name>` of one operand and the same type: fabs, sqrt, floor, roundeven, ctpop."""
        return self.intrinsic(f"llvm.{name}", a.type, [a])

    def add(self, a: Value, b: Value, flags: str = "") -> Value:
        return self.binary("add", a, b, flags)

    def sub(self, a: Value, b: Value, flags: str = "") -> Value:
        return self.binary("sub", a, b, flags)

    def mul(self, a: Value, b: Value, flags: str = "") -> Value:
        return self.binary("mul", a, b, flags)

    def and_(self, a: Value, b: Value) -> Value:
        return self.binary("and", a, b)

    def or_(self, a: Value, b: Value) -> Value:
        return self.binary("or", a, b)

    def xor(self, a: Value, b: Value) -> Value:
        return self.binary("xor", a, b)

    def shl(self, a: Value, b: Value, flags: str = "") -> Value:
        return self.binary("shl", a, b, flags)

    def lshr(self, a: Value, b: Value, flags: str = "") -> Value:
        return self.binary("lshr", a, b, flags)

    def ashr(self, a: Value, b: Value, flags: str = "") -> Value:
        return self.binary("ashr", a, b, flags)

    def icmp(self, relation: str, a: Value, b: Value) -> Value:
        """`relation`: eq ne ult ule ugt uge slt sle sgt sge."""
        assert a.type == b.type, (relation, a, b)
        return self.emit(a.type.bool_type, f"icmp {relation} {a.typed}, {b.text}")

    def fcmp(self, relation: str, a: Value, b: Value, flags: str = "") -> Value:
        """`relation`: oeq une olt ole ogt oge ord uno and the u- forms, true when a NaN is met."""
        assert a.type == b.type, (relation, a, b)
        prefix = f"{flags} " if flags else ""
        return self.emit(a.type.bool_type, f"fcmp {prefix}{relation} {a.typed}, {b.text}")

    def select(self, condition: Value, a: Value, b: Value) -> Value:
        """`a` where `condition`, else `b`; lane by lane for a vector of conditions."""
        assert a.type == b.type, (a, b)
        a, b = self._apart(a), self._apart(b)
        return self.emit(a.type, f"select {condition.typed}, {a.typed}, {b.typed}")

    def _apart(self, value: Value) -> Value:
        """The value, kept out of the select's own instruction where LLVM would get that wrong.

        LLVM 22 for AVX-512 makes `select m, (C & x) | (~C & y), y` one masked vpternlog and, where
        x is loaded from memory, swaps two of its inputs. A freeze in between keeps the two apart.
        """
        return (
            self.emit(value.type, f"freeze {value.typed}") if value.text in self._bitwise else value
        )

    def cast(self, op: str, a: Value, to: Type, flags: str = "") -> Value:
        """Trunc zext sext fptrunc fpext fptosi fptoui sitofp uitofp bitcast ptrtoint inttoptr."""
        if a.type == to:
            return a
        made = self.emit(to, f"{op} {flags + ' ' if flags else ''}{a.typed} to {to}")
        if a.text in self._bitwise and op == "bitcast":
            self._bitwise.add(made.text)
        return made

    def bitcast(self, a: Value, to: Type) -> Value:
        return self.cast("bitcast", a, to)

    # Memory

    def gep(
        self, base: Value, index: Value | int, element: Type, *, inbounds: bool = True
    ) -> Value:
        """`base` moved by `index` elements."""
        where = index.typed if isinstance(index, Value) else f"i64 {index}"
        vectors = isinstance(index, Value) and index.type.lanes
        type_ = vector(base.type.scalar, index.type.lanes) if vectors else base.type  # type: ignore[union-attr]
        flag = "inbounds " if inbounds else ""
        return self.emit(type_, f"getelementptr {flag}{element}, {base.typed}, {where}")

    def load(
        self,
        type_: Type,
        address: Value,
        *,
        align: int = 0,
        extra: str = "",
        volatile: bool = False,
    ) -> Value:
        """Load; `align` in bytes defaults to one element. `extra`: `, !invariant.load !0`."""
        word = "load volatile" if volatile else "load"
        return self.emit(
            type_,
            f"{word} {type_}, {address.typed}, align {align or type_.scalar.size_bytes}{extra}",
        )

    def store(
        self,
        value: Value,
        address: Value,
        *,
        align: int = 0,
        nontemporal: bool = False,
        extra: str = "",
        volatile: bool = False,
    ) -> None:
        """Store; a non-temporal one bypasses the caches where it is aligned to its size."""
        if nontemporal:
            extra += f", !nontemporal {self.module.nontemporal}"
        word = "store volatile" if volatile else "store"
        align = align or value.type.scalar.size_bytes
        self.line(f"{word} {value.typed}, {address.typed}, align {align}{extra}")

    def masked_load(
        self, type_: Type, address: Value, mask: Value, other: Value, *, align: int = 0
    ) -> Value:
        """Lanes where `mask`, from consecutive addresses; memory elsewhere is not touched."""
        name = f"llvm.masked.load.{type_.mangled}.{address.type.mangled}"
        self.module.declare(name, type_, [address.type, mask.type, type_])
        where = f"{address.type} align {align or type_.scalar.size_bytes} {address.text}"
        return self.emit(type_, f"call {type_} @{name}({where}, {mask.typed}, {other.typed})")

    def masked_store(self, value: Value, address: Value, mask: Value, *, align: int = 0) -> None:
        """Store the lanes where `mask`."""
        name = f"llvm.masked.store.{value.type.mangled}.{address.type.mangled}"
        self.module.declare(name, void, [value.type, address.type, mask.type])
        where = f"{address.type} align {align or value.type.scalar.size_bytes} {address.text}"
        self.line(f"call void @{name}({value.typed}, {where}, {mask.typed})")

    def alloca(self, type_: Type, count: int = 1, *, align: int = 0, space: int = 0) -> Value:
        """Stack memory for `count` elements, in the entry block so that loops do not add more."""
        name = self.fresh()
        where = f", addrspace({space})" if space else ""
        bound = f", align {align}" if align else ""
        self.blocks[0].lines.insert(0, f"  {name} = alloca {type_}, i64 {count}{bound}{where}")
        return Value(Type("ptr", 64, 0, space), name)

    # Control

    def phi(self, type_: Type, *incoming: tuple[Value, Block]) -> Phi:
        """A phi at the head of the current block."""
        made = Phi(type_, self.fresh())
        for value, block in incoming:
            made.add(value, block)
        self.current.phis.append(made)
        return made

    def br(self, block: Block, extra: str = "") -> None:
        self.line(f"br label %{block.name}{extra}")

    def condbr(self, condition: Value, yes: Block, no: Block, extra: str = "") -> None:
        assert condition.type == i1, condition
        self.line(f"br {condition.typed}, label %{yes.name}, label %{no.name}{extra}")

    def ret(self, value: Value | None = None) -> None:
        self.line(f"ret {value.typed}" if value is not None else "ret void")

    def unreachable(self) -> None:
        self.line("unreachable")

    # Calls

    def call(
        self,
        name: str,
        result: Type,
        args: Sequence[Value],
        *,
        flags: str = "",
        convention: str = "",
    ) -> Value:
        """Call `@name`, defined or declared elsewhere in the module."""
        listed = ", ".join(arg.typed for arg in args)
        words = " ".join(filter(None, ("call", flags, convention, result.text)))
        text = f"{words} @{name}({listed})"
        if result == void:
            self.line(text)
            return Value(void, "")
        return self.emit(result, text)

    def intrinsic(
        self,
        name: str,
        result: Type,
        args: Sequence[Value],
        *,
        suffix: Sequence[Type] | None = None,
        flags: str = "",
    ) -> Value:
        """Call an LLVM intrinsic and declare it. `suffix`: overloaded types, else the result."""
        types = [result] if suffix is None else suffix
        full = ".".join([name, *(type_.mangled for type_ in types)])
        self.module.declare(full, result, [arg.type for arg in args])
        made = self.call(full, result, args, flags=flags)
        if name == "llvm.copysign" and result.lanes:
            self._bitwise.add(made.text)
        return made

    def reduce(self, op: str, value: Value, start: Value | None = None, flags: str = "") -> Value:
        """`llvm.vector.reduce.<op>`: add mul and or xor smax umin fmax fminimum; fadd, fmul.

        The last two want a `start`; without `reassoc` among the flags they go lane by lane.
        """
        args = [value] if start is None else [start, value]
        name = f"llvm.vector.reduce.{op}"
        return self.intrinsic(name, value.type.scalar, args, suffix=[value.type], flags=flags)

    def lane_numbers(self, type_: Type = i32, lanes: int = 16) -> Value:
        """<0, 1, 2, ...>."""
        return self.const_vector(type_, range(lanes))
