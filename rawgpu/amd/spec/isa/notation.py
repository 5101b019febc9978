"""The notation of the rows: operands, their roles, and where each role's bits stand.

`"f32 vcc = f32 f32"` says: results left of the sign, sources right of it, each a type. Roles
follow from the place: `d` and `co` left; `a b c e f` right, or what the format's own list says. A
prefix moves an operand to another register file: `s.` scalar, `v.` vector, `a.` accumulation,
`av.` either, `ss.` a scalar source. `?` marks a result that is given only on request (atomics).
Words stand for what is no register field: `vcc` (a carry that 32-bit forms imply), `exec`, `k` (a
literal that is always there), `address` (what the memory format says), and the kinds of immediate.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

_SOP = {"d": ("sdst", "sgpr"), "a": ("ssrc0", "ssrc"), "b": ("ssrc1", "ssrc")}
_VOP3 = {
    "d": ("vdst", "vgpr"),
    "co": ("sdst", "sgpr"),
    "a": ("src0", "src"),
    "b": ("src1", "src"),
    "c": ("src2", "src"),
    "e": ("scale0", "src"),
    "f": ("scale1", "src"),
}
_VOP2 = {"d": ("vdst", "vgpr"), "a": ("src0", "src"), "b": ("vsrc1", "vgpr")}
_FLAT = {
    "d": ("vdst", "vgpr"),
    "address": ("addr", "vgpr"),
    "data": ("data", "vgpr"),
    "base": ("saddr", "sgpr"),
}
_BUFFER = {
    "d": ("vdata", "vgpr"),
    "data": ("vdata", "vgpr"),
    "address": ("vaddr", "vgpr"),
    "base": ("srsrc", "sgpr"),
    "soffset": ("soffset", "ssrc"),
}

PLACES: Mapping[str, Mapping[str, tuple[str, str]]] = {
    "sop2": _SOP,
    "sop1": _SOP,
    "sopc": _SOP,
    "sopk": {"d": ("sdst", "sgpr"), "a": ("sdst", "sgpr")},
    "sopp": {},
    "vop2": _VOP2,
    "vop1": _VOP2,
    "vopc": _VOP2,
    "vop3": _VOP3,
    "vop3sd": _VOP3,
    "vop3p": _VOP3,
    "mfma": _VOP3,
    "mfma_scale": _VOP3,
    "vinterp": _VOP3,
    "smem": {"d": ("sdata", "sgpr"), "base": ("sbase", "sgpr"), "soffset": ("soffset", "sgpr")},
    "ds": {
        "d": ("vdst", "vgpr"),
        "address": ("addr", "vgpr"),
        "data": ("data0", "vgpr"),
        "data2": ("data1", "vgpr"),
    },
    "flat": _FLAT,
    "global": _FLAT,
    "scratch": _FLAT,
    "mubuf": _BUFFER,
    "mtbuf": _BUFFER,
    "ldsdir": {"d": ("vdst", "vgpr")},
    "vopd x": {
        "d": ("vdstx", "vgpr"),
        "a": ("srcx0", "src"),
        "b": ("vsrcx1", "vgpr"),
        "c": ("vsrcx2", "vgpr"),
    },
    "vopd y": {
        "d": ("vdsty", "vgpr"),
        "a": ("srcy0", "src"),
        "b": ("vsrcy1", "vgpr"),
        "c": ("vsrcy2", "vgpr"),
    },
    "exp": {
        "a": ("vsrc0", "vgpr"),
        "b": ("vsrc1", "vgpr"),
        "c": ("vsrc2", "vgpr"),
        "e": ("vsrc3", "vgpr"),
    },
}
"""Where the bits of each role stand: format → role → (field, bank)."""

ROLES_RIGHT: Mapping[str, tuple[str, ...]] = {
    "smem": ("base", "soffset", "data"),
    "ds": ("data", "data2"),
    "flat": ("data",),
    "global": ("data",),
    "scratch": ("data",),
    "mubuf": ("data",),
    "mtbuf": ("data",),
}
"""The roles that types right of `=` take in turn; `a b c e f` elsewhere."""

OP_SEL_BIT = {"a": 0, "b": 1, "c": 2, "d": 3}

BANKS = {"s": "sgpr", "v": "vgpr", "a": "agpr", "av": "av", "ss": "ssrc"}
"""Prefixes of a type in the rows that move an operand to another register file."""

IMMEDIATES = frozenset(
    [
        "uimm",
        "simm",
        "himm",
        "k16",
        "uk16",
        "label",
        "endpgm",
        "hwreg",
        "sendmsg",
        "sendmsg_rtn",
        "waitcnt",
        "delay",
        "depctr",
    ]
)
"""Words in a row's operands for constants that stand in the instruction itself."""


@cache
def parse_operands(text: str, format_: str) -> tuple[tuple[str, str | None, str], ...]:
    """(role, bank prefix or None, type token) for each operand of a row, in assembly order."""
    left, equals, right = text.partition("=")
    if not equals:
        left, right = "", text
    out: list[tuple[str, str | None, str]] = []
    roles_right = iter(ROLES_RIGHT.get(format_, ("a", "b", "c", "e", "f")))
    for side, roles in ((left, iter(("d", "co"))), (right, roles_right)):
        for token in side.split():
            if token in IMMEDIATES:
                out.append(("imm", None, token))
                continue
            if token in ("vcc", "exec", "address", "k", "lds"):
                role = {"vcc": "co" if side is left else "c", "exec": "d"}.get(token, token)
                if token == "vcc" and side is left and not out:
                    role = "d"
                out.append((role, None, token))
                continue
            bank, dot, type_ = token.rpartition(".")
            out.append((next(roles), bank if dot else None, type_.lstrip("?")))
    return tuple(out)
