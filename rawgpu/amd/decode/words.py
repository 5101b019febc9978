"""Numbers in instructions, as words of LLVM's assembly."""

from __future__ import annotations


def export_target(target: int) -> str:
    named = {8: "mrtz", 9: "null", 20: "prim", 21: "dual_src_blend0", 22: "dual_src_blend1"}
    if target in named:
        return named[target]
    if target < 8:
        return f"mrt{target}"
    return f"pos{target - 12}" if target < 20 else f"param{target - 32}"


def delay_name(value: int) -> str:
    if value <= 4:
        return f"VALU_DEP_{value}"
    if value <= 7:
        return f"TRANS32_DEP_{value - 4}"
    if value == 8:
        return "FMA_ACCUM_CYCLE_1"
    return f"SALU_CYCLE_{value - 8}" if value <= 11 else f"{value}"


def temporal_hint(name: str, th: int, scope: int) -> str:
    if "atomic" in name:
        if th & 4:
            cascades = {4: "TH_ATOMIC_CASCADE_RT", 6: "TH_ATOMIC_CASCADE_NT"}
            return cascades.get(th, f"{th:#x}") if scope >= 2 else f"{th:#x}"
        return ("", "TH_ATOMIC_RETURN", "TH_ATOMIC_NT", "TH_ATOMIC_NT_RETURN")[th]
    kind = "STORE" if "store" in name else "LOAD"
    third = "BYPASS" if scope == 3 else {"LOAD": "LU", "STORE": "RT_WB"}[kind]
    hints = ("RT", "NT", "HT", third, "RT_NT", "NT_RT", "NT_HT", "NT_WB")
    return f"TH_{kind}_{hints[th]}"


def swizzle(offset: int) -> str:
    """The lane pattern of `ds_swizzle_b32`."""
    if offset >= 0xE000:
        return f"offset:swizzle(FFT,{offset & 31})"
    if offset >= 0xC000:
        return f"offset:swizzle(ROTATE,{offset >> 10 & 1},{offset >> 5 & 31})"
    if offset >> 8 == 0x80:
        lanes = ",".join(str(offset >> 2 * i & 3) for i in range(4))
        return f"offset:swizzle(QUAD_PERM,{lanes})"
    if offset >= 0x8000:
        return f"offset:{offset}"
    and_, or_, xor = offset & 31, offset >> 5 & 31, offset >> 10 & 31
    if and_ == 31 and or_ == 0 and xor.bit_count() == 1:
        return f"offset:swizzle(SWAP,{xor})"
    if and_ == 31 and or_ == 0 and xor and (xor + 1).bit_count() == 1:
        return f"offset:swizzle(REVERSE,{xor + 1})"
    group = 32 - and_
    if group > 1 and group.bit_count() == 1 and or_ < group and xor == 0:
        return f"offset:swizzle(BROADCAST,{group},{or_})"
    zeros, ones = or_ ^ xor, (and_ | or_) ^ xor
    pattern = "".join(
        str(zeros >> i & 1) if (zeros ^ ones) >> i & 1 == 0 else "pi"[zeros >> i & 1]
        for i in range(4, -1, -1)
    )
    return f'offset:swizzle(BITMASK_PERM,"{pattern}")'


def table_number(value: int) -> str:
    return str(value) if value <= 10 else hex(value)


def short(value: int) -> str:
    return str(value) if value <= 64 else hex(value)
