"""The words that an instruction's meaning may use, and a reader that checks them.

A meaning is one or more assignments separated by `;`, each a Python expression:

    f32(a) + f32(b)                                 the result `d`
    d = a + b; scc = carry(a, b)                    more than one result
    exec = f32(a) < f32(b)                          a state that is no operand

A bare expression is assigned to `d`. A target that is neither operand nor state is a name for use
in the statements after it. Every expression is evaluated before lanes are written, and only lanes
that are on write; scalar instructions have one lane.

*Operands* are bound to their bits as unsigned integers of the width the row declares, after the
input modifiers (negate, absolute value, half and byte selection, lane permutes); `d` before
assignment is the old destination. *Views* give the bits a type: `f32(a)`, `i32(a)`; a view of a
wider value takes its low bits, of a narrower one extends it (sign for `i`, zero for `u`).
Arithmetic on a view keeps its type and wraps; comparisons give booleans; a shift's right side is a
plain number. A float result passes the output modifiers (scale, clamp), the mode's rounding and
denormals, then becomes bits.

Two engines evaluate the same expressions: over numpy lanes, and over LLVM values. `parse` gives
both the checked syntax trees.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache


class MeaningError(ValueError):
    """A meaning that cannot be read, or uses a word that does not exist."""


VIEWS: Mapping[str, str] = {
    **{f"u{n}": f"the low {n} bits, unsigned" for n in (4, 8, 16, 24, 32, 64, 128)},
    **{f"i{n}": f"the low {n} bits, signed" for n in (4, 8, 16, 24, 32, 64, 128)},
    "f16": "IEEE half precision",
    "bf16": "bfloat16: the upper half of a float32",
    "f32": "IEEE single precision",
    "f64": "IEEE double precision",
    "fp8": "8-bit float, 4 exponent bits, in the family's variant",
    "bf8": "8-bit float, 5 exponent bits, in the family's variant",
}
"""Bits as a value of a type."""

CONVERSIONS: Mapping[str, str] = {
    "to_f16": "the number x as a half, rounded by the mode",
    "to_bf16": "the number x as a bfloat16, rounded to nearest even",
    "to_f32": "the number x as a float32, rounded by the mode",
    "to_f64": "the number x as a float64",
    "to_f16_rtz": "the number x as a half, rounded towards zero",
    "to_i16": "the float x towards zero; out of range to the nearest end, NaN to 0",
    "to_u16": "the float x towards zero; out of range to the nearest end, NaN to 0",
    "to_i32": "the float x towards zero; out of range to the nearest end, NaN to 0",
    "to_u32": "the float x towards zero; out of range to the nearest end, NaN to 0",
    "to_fp8": "the float x as an fp8, rounded to nearest even, saturated by the mode",
    "to_bf8": "the float x as a bf8, rounded to nearest even, saturated by the mode",
    "to_fp8_sr": "to_fp8_sr(x, r): rounded by adding the random bits r",
    "to_bf8_sr": "to_bf8_sr(x, r): rounded by adding the random bits r",
    "scaled": "scaled(x, from, to, scale): all parts of x times (or, to a small float, divided by) "
    "the power of two in the exponent of scale",
    "scaled_sr": "scaled_sr(x, from, to, scale, r): the same, each part rounded by random bits",
    "to_f16_sr": "to_f16_sr(x, r): as a half, rounded by adding the random bits r",
    "to_bf16_sr": "to_bf16_sr(x, r): as a bfloat16, rounded by adding the random bits r",
    "norm_i16": "x in [-1, 1] as 16 bits signed, 1.0 being 32767",
    "norm_u16": "x in [0, 1] as 16 bits unsigned, 1.0 being 65535",
    "sat_i16": "the integer x clamped to 16 bits signed",
    "sat_u16": "the integer x clamped to 16 bits unsigned",
    "to_u8": "the float x as 8 bits unsigned, by the rounding mode, clamped",
    "sat_i8": "the integer x clamped to 8 bits signed",
    "sat_u8": "the integer x clamped to 8 bits unsigned",
}
"""Numbers from one type to another."""

ARITHMETIC: Mapping[str, str] = {
    "add": "x + y, saturated where the instruction's clamp bit is set",
    "sub": "x - y, saturated where the instruction's clamp bit is set",
    "mul_add": "x * y + z with two roundings (the old MAC and MAD), denormals flushed",
    "mul_zero": "x * y, where anything times zero is zero",
    "fma": "x * y + z, rounded once",
    "fma_zero": "fma where anything times zero is zero",
    "minimum": "the smaller; for floats NaN wins and -0 < +0",
    "maximum": "the larger; for floats NaN wins and -0 < +0",
    "min_num": "the smaller of two floats; a number wins over NaN",
    "max_num": "the larger of two floats; a number wins over NaN",
    "med3": "the middle of three; min3 of them where one is NaN",
    "carry": "whether x + y (+ z) leaves the type",
    "borrow": "whether x - y (- z) leaves the type",
    "overflow_add": "whether x + y leaves the signed type",
    "overflow_sub": "whether x - y leaves the signed type",
    "mul_hi": "the upper half of the product, of the type of x and y",
    "absolute": "|x|",
    "absolute_difference": "|x - y|, unsigned",
    "sqrt": "square root",
    "rcp": "1 / x, the hardware's approximation",
    "rsq": "1 / sqrt(x), the hardware's approximation",
    "exp2": "2**x, the hardware's approximation",
    "log2": "base-2 logarithm, the hardware's approximation",
    "sin_turns": "sin(2πx)",
    "cos_turns": "cos(2πx)",
    "floor": "rounded down",
    "ceil": "rounded up",
    "trunc": "rounded towards zero",
    "rint": "rounded to nearest, halves to even",
    "fract": "x - floor(x), below 1",
    "ldexp": "x * 2**n",
    "frexp_mant": "mantissa in ±[0.5, 1)",
    "frexp_exp": "exponent that goes with frexp_mant",
    "tanh": "hyperbolic tangent",
    "div_scale": "div_scale(x, denominator, numerator): x scaled for a division",
    "div_scale_flag": "whether div_scale scaled, for div_fmas",
    "div_fmas": "div_fmas(x, y, z, flag): fma, scaled back where the flag is set",
    "div_fixup": "div_fixup(q, denominator, numerator): special cases of a division",
    "trig_preop": "bits of 2/π for an argument of this size",
    "is_class": "is_class(x, mask): whether the kind of float x is in the mask",
    "mul_lit": "x * y, the least number where y or z has no light to give",
    "cube_id": "face of a cube map",
    "cube_sc": "S coordinate on the face of a cube map",
    "cube_tc": "T coordinate on the face of a cube map",
    "cube_ma": "major axis of a cube map, times 2",
    "ordered": "neither is NaN",
    "unordered": "one is NaN",
    "canonicalize": "x quieted, denormals by the mode",
}
"""Arithmetic beyond Python's operators."""

BITS: Mapping[str, str] = {
    "select": "select(condition, x, y)",
    "bits": "bits(x, low, count): a field of x",
    "byte": "byte(x, i): byte i of x",
    "half": "half(x, i): 16-bit half i of x",
    "nibble": "nibble(x, i): 4 bits of x",
    "pack": "pack(low, high): two equal parts, low first",
    "sext": "sext(x, n): the low n bits, signed",
    "sext_bits": "sext_bits(x, low, count): a field of x, signed",
    "interleaved": "words of x and y in turn",
    "next_random": "the next number of a shift register",
    "popcount": "how many bits are one",
    "clz": "zeros from the top; -1 for 0",
    "ctz": "zeros from the bottom; -1 for 0",
    "cls": "place of the highest bit that differs from the sign; -1 if none",
    "reverse_bits": "bit 0 becomes the top bit",
    "bit": "bit(x, i)",
    "bit_mask": "bit_mask(count, low): ones in a field",
    "insert": "insert(old, x, low, count): old with a field replaced",
    "byte_permute": "byte_permute(x, y, selector)",
    "align": "align(high, low, shift): bits of the 64-bit pair, shifted right",
    "whole_quads": "every group of 4 lanes of which one bit is set",
    "quad_mask": "one bit a group of 4: whether any is set",
    "zip_bits": "each bit doubled",
    "sad_u8": "sum of absolute differences of 4 bytes, plus z",
    "sad_hi_u8": "the same, shifted up by 16",
    "sad_u16": "sum of absolute differences of two halves, plus z",
    "masked_sad_u8": "sad_u8 of the bytes whose reference is not zero",
    "quad_sad": "quad_sad(x, y, z, n): sad_u8 of bytes 0, 1, 2 and 3 of x on, parts of n bits",
    "quad_masked_sad": "the same with masked_sad_u8",
    "lerp_u8": "averages of 4 bytes, rounded by bit 0 of z's bytes",
    "dot": "dot(a, b, c, kind[, kind of b]): c plus the products of the parts of a and b",
    "halves": "halves(x): x on both 16-bit halves, of operand halves by op_sel and op_sel_hi",
    "words": "words(x): x on both 32-bit halves, of operand words by op_sel and op_sel_hi",
    "pairs": "pairs(a, b): a word of a, by op_sel, below a word of b, by op_sel_hi",
    "truth_table": "truth_table(a, b, c): bitwise, bit a * 4 + b * 2 + c of its 8-bit table",
    "clamped": "a part of a result after scale and clamp",
    "mix": "mix(x, i): source i of a mixed-precision fma as float32, by op_sel",
}
"""Bits, fields and packed parts."""

LANES: Mapping[str, str] = {
    "read_lane": "read_lane(x, lane)",
    "read_first_lane": "x of the lowest lane that is on, lane 0 if none is",
    "write_lane": "write_lane(old, value, lane): old in all other lanes; ignores EXEC",
    "permute_forward": "each lane sends x to lane (index / 4); the highest sender wins",
    "permute_backward": "each lane takes x of lane (index / 4)",
    "permute_backward_fi": "the same, of lanes that are off as well",
    "swizzle": "the lane pattern of ds_swizzle",
    "permlane16": "permlane16(x, low, high): within rows of 16, by 4-bit selectors",
    "permlanex16": "the same, from the other row of 16",
    "permlane16_var": "by a selector a lane, within rows of 16",
    "permlanex16_var": "the same, from the other row of 16",
    "permlane64": "the other half of a wave of 64",
    "lanes_below_low": "how many bits of x are set for lanes below this one, of lanes 0 to 31",
    "lanes_below_high": "the same of lanes 32 to 63",
    "lane_bit": "this lane's bit of a mask",
    "upper_from": "upper_from(x, y, n): x; in lanes with bit n, y of the lane n below",
    "lower_from": "lower_from(x, y, n): x; in lanes without bit n, y of the lane n above",
    "move_relative_source": "register a + M0",
    "move_relative_destination": "to register d + M0",
    "move_relative_both": "from register a + M0 to d + M0",
    "move_relative_each": "the same; M0's low 10 bits count for a, those from 16 on for d",
    "swap_relative": "registers a and d change places, with M0 as before",
    "index_registers": "index_registers(index, mode): from now M0 moves vector registers' numbers",
    "index_registers_off": "no longer",
    "set_register_index": "the index in M0",
    "set_index_mode": "which operands are moved, in M0: bits for a, b, c and d",
}
"""Other lanes."""

MEMORY: Mapping[str, str] = {
    "load": "load(address, bits): zero-extended",
    "load_signed": "load_signed(address, bits): sign-extended",
    "store": "store(address, bits, value)",
    "load_lds": "memory to LDS, bits a lane, at M0 and the lane's place",
    "load_lds_signed": "the same, sign-extended",
    "store_scalar": "store_scalar(address, bits, value): through the constant cache",
    "load_block": "32 registers from memory, those that have a bit in M0",
    "store_block": "the same to memory",
    "lds_load": "lds_load(address, bits): zero-extended",
    "lds_load_signed": "lds_load_signed(address, bits): sign-extended",
    "lds_store": "lds_store(address, bits, value)",
    "load_scalar": "load_scalar(address, bits): through the constant cache",
    "load_scalar_signed": "the same, sign-extended",
    "load_transposed": "load_transposed(address, element bits, bits)",
    "lds_load_transposed": "the same from LDS",
    "lds_append": "add or subtract the number of active lanes at M0's address",
    **{
        f"{space}atomic_{what}": f"{text}; gives the old value"
        for space in ("", "lds_", "scalar_")
        for what, text in (
            ("swap", "the value replaces memory"),
            ("cmpswap", "(address, compare, value): where memory equals compare"),
            ("add", "memory + value"),
            ("sub", "memory - value"),
            ("rsub", "value - memory"),
            ("sub_clamp", "memory - value, 0 at least"),
            ("cond_sub", "memory - value where memory ≥ value"),
            ("min", "the smaller, by the value's type"),
            ("max", "the larger, by the value's type"),
            ("and", "memory & value"),
            ("or", "memory | value"),
            ("xor", "memory ^ value"),
            ("mskor", "(address, mask, value): memory & ~mask | value"),
            ("inc", "memory + 1, or 0 where it is ≥ value"),
            ("dec", "memory - 1, or value where it is 0 or > value"),
            ("wrap", "(address, limit, step)"),
            ("cond_swap", "the value without its top bit replaces memory, where that bit is set"),
            ("add_packed", "both halves + value's halves, by kind"),
        )
    },
    "cache_control": "write back or invalidate caches",
    "prefetch": "ask for memory early; no effect on values",
}
"""Memory. `address` covers base, register offsets and constant; faults are the engine's."""

FLOW: Mapping[str, str] = {
    "branch_if": "branch_if(condition): to the label",
    "jump": "jump(address)",
    "end": "the wave ends",
    "barrier": "wait for all waves of the group",
    "barrier_signal": "say that this wave has come",
    "barrier_wait": "wait until all have come",
    "barrier_is_first": "whether this wave signalled first",
    "barrier_leave": "the wave leaves the group's barrier",
    "wait": "wait for counters; values do not change",
    "idle": "no effect on values: hints, delays, priorities",
    "sleep": "stop for a while",
    "message": "message(kind): to the outside; may give a value",
    "trap": "enter the trap handler",
    "halt": "stop until told to go on",
    "set_mode": "set_mode(field, value): rounding or denormals",
    "read_hardware": "hardware register, offset and size as encoded",
    "write_hardware": "write_hardware(register, value)",
    "clock": "ticks of the shader clock",
    "real_time": "ticks of the constant clock",
    "allocate_vgprs": "dynamic registers; gives success",
}
"""Control flow and the rest of the machine."""

MATRIX: Mapping[str, str] = {
    "wmma": "wmma(a, b, c, ab, cd, m, n, k): RDNA's register layout of the family",
    "swmmac": "swmmac(a, b, d, index, ab, cd, m, n, k): a is 2:4 sparse",
    "mfma": "mfma(a, b, c, ab, cd, m, n, k, blocks): CDNA's register layout",
    "smfmac": "smfmac(a, b, d, index, ab, cd, m, n, k): a is 2:4 sparse",
    "mfma_scaled": "mfma with shared scales; cbsz and blgp choose the types",
}
"""Matrix multiplies: a word each, since the layout of lanes is the meaning."""

WORDS: Mapping[str, str] = {
    **VIEWS,
    **CONVERSIONS,
    **ARITHMETIC,
    **BITS,
    **LANES,
    **MEMORY,
    **FLOW,
    **MATRIX,
}
"""Every word and what it means."""

STATE: Mapping[str, str] = {
    "scc": "the scalar condition bit",
    "vcc": "the vector condition mask; this lane's bit in vector instructions",
    "exec": "the mask of lanes that are on",
    "m0": "register M0",
    "pc": "the address of the next instruction",
    "lane": "this lane's number",
    "address": "where a memory instruction points, from all that its format adds up",
    "lane_address": "the same, and four bytes for each lane before this one",
    "imm": "the constant in the instruction, as encoded",
    "offset0": "first offset of an LDS instruction with two",
    "offset1": "second offset of an LDS instruction with two",
    "vccz": "whether VCC is zero",
    "execz": "whether EXEC is zero",
}
"""What is no operand and may be read or assigned."""

_OPERATORS = (
    ast.Add,
    ast.Sub,
    ast.Mult,
    ast.FloorDiv,
    ast.Mod,
    ast.LShift,
    ast.RShift,
    ast.BitAnd,
    ast.BitOr,
    ast.BitXor,
    ast.Invert,
    ast.USub,
    ast.Eq,
    ast.NotEq,
    ast.Lt,
    ast.LtE,
    ast.Gt,
    ast.GtE,
    ast.Load,
)


@dataclass(frozen=True)
class Statement:
    """`target` takes the value of `value`; None where it is an action with no result."""

    target: str | None
    value: ast.expr


ACTIONS = frozenset(
    word
    for word in WORDS
    if "store" in word or word in FLOW or word in ("cache_control", "prefetch", "load_lds")
) - {"barrier_is_first", "message", "read_hardware", "clock", "real_time", "allocate_vgprs"}
"""Words that act and give nothing: a bare call of one assigns to nothing."""


@cache
def parse(meaning: str) -> tuple[Statement, ...]:
    """The statements of a meaning. Raises `MeaningError` for what is no such language."""
    statements = []
    for text in meaning.split(";"):
        try:
            tree = ast.parse(text.strip()).body
        except SyntaxError as error:
            raise MeaningError(f"{meaning!r}: {error.msg}") from error
        if len(tree) != 1:
            raise MeaningError(f"{meaning!r}: an empty statement")
        node = tree[0]
        if isinstance(node, ast.Assign):
            target = node.targets[0]
            if len(node.targets) > 1 or not isinstance(target, ast.Name):
                raise MeaningError(f"{meaning!r}: only a name can be assigned")
            statements.append(Statement(target.id, node.value))
        elif isinstance(node, ast.Expr):
            statements.append(Statement(None if _acts(node.value) else "d", node.value))
        else:
            raise MeaningError(f"{meaning!r}: neither an assignment nor an expression")
    return tuple(statements)


def _acts(node: ast.expr) -> bool:
    return (
        isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ACTIONS
    )


def unknown_names(meaning: str, operands: Iterable[str]) -> list[str]:
    """The names in `meaning` that are no word, operand, state or earlier target; and bad syntax."""
    known = set(operands) | set(STATE) | {"d"}
    bad: list[str] = []
    for statement in parse(meaning):
        called = {id(node.func) for node in ast.walk(statement.value) if isinstance(node, ast.Call)}
        for node in ast.walk(statement.value):
            if isinstance(node, ast.Name):
                known_here = WORDS if id(node) in called else known
                if node.id not in known_here:
                    bad.append(node.id)
            elif not isinstance(
                node,
                (
                    ast.Call,
                    ast.BinOp,
                    ast.UnaryOp,
                    ast.Compare,
                    ast.Constant,
                    ast.keyword,
                    *_OPERATORS,
                ),
            ):
                bad.append(type(node).__name__)
        if statement.target is not None:
            known.add(statement.target)
    return bad
