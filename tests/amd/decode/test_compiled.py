"""Code that LLVM compiles: it decodes to the text that LLVM writes, and every row has a meaning."""

from __future__ import annotations

import io
import re

import llvmlite.binding as llvm
import pytest
from elftools.elf.elffile import ELFFile

from rawgpu.amd.decode.disasm import disassemble
from rawgpu.amd.spec.generations import GENERATIONS

KERNEL = """
target triple = "amdgcn-amd-amdhsa"
@lds = internal addrspace(3) global [256 x TYPE] poison
define amdgpu_kernel void @k(ptr addrspace(1) %x, ptr addrspace(1) %y, i32 %n) {
entry:
  %l = call i32 @llvm.amdgcn.workitem.id.x()
  br label %loop
loop:
  %i = phi i32 [%l, %entry], [%i2, %loop]
  %s = phi TYPE [ZERO, %entry], [%s2, %loop]
  %p = getelementptr TYPE, ptr addrspace(1) %x, i32 %i
  %v = load TYPE, ptr addrspace(1) %p
  %s2 = OP TYPE %s, %v
  %i2 = add i32 %i, 256
  %c = icmp ult i32 %i2, %n
  br i1 %c, label %loop, label %done
done:
  %q = getelementptr TYPE, ptr addrspace(3) @lds, i32 %l
  store TYPE %s2, ptr addrspace(3) %q
  fence syncscope("workgroup") release
  call void @llvm.amdgcn.s.barrier()
  fence syncscope("workgroup") acquire
  %l1 = xor i32 %l, 128
  %q1 = getelementptr TYPE, ptr addrspace(3) @lds, i32 %l1
  %o = load TYPE, ptr addrspace(3) %q1
  %r = DIV TYPE %o, %s2
  %pr = getelementptr TYPE, ptr addrspace(1) %y, i32 %l
  store TYPE %r, ptr addrspace(1) %pr
  %old = atomicrmw add ptr addrspace(1) %x, i32 %l syncscope("agent") monotonic
  ret void
}
declare i32 @llvm.amdgcn.workitem.id.x()
declare void @llvm.amdgcn.s.barrier()
"""
TYPES = {
    "float": ("0.0", "fadd", "fdiv"),
    "double": ("0.0", "fadd", "fdiv"),
    "half": ("0.0", "fadd", "fdiv"),
    "i32": ("0", "add", "udiv"),
    "i64": ("0", "mul", "sdiv"),
    "i16": ("0", "add", "xor"),
}
FROM_ELSEWHERE = re.compile(r"BB\d|rel32|@|null$")
"""Text that the assembler writes and the disassembler cannot: labels, and an absent offset."""


def compiled(name: str, text: str) -> tuple[list[str], bytes]:
    """LLVM's assembly, an instruction a line, and the machine code."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    target = llvm.Target.from_triple("amdgcn-amd-amdhsa")
    machine = target.create_target_machine(cpu=name, opt=2)
    assembly = machine.emit_assembly(llvm.parse_assembly(text))
    elf = ELFFile(io.BytesIO(machine.emit_object(llvm.parse_assembly(text))))
    body = assembly.partition(".section\t.rodata")[0]
    mnemonic = re.compile(r"\t((?:s|v|ds|global|flat|scratch|buffer)_.*)")
    lines = [m[1] for m in map(mnemonic.match, body.splitlines()) if m]
    return [canonical(line) for line in lines], elf.get_section_by_name(".text").data()


def canonical(line: str) -> str:
    """Without comments and with every number in decimal, modulo 2**32."""
    text = " ".join(line.split(";")[0].split()).replace("_e32", "").replace("_e64", "")
    text = re.sub(r" op_sel:\[[01,]*\]", "", text)  # registers say it; the assembler leaves it out
    return re.sub(r"0x[0-9a-f]+|-?\b\d+\b", lambda m: str(int(m[0], 0) & 0xFFFFFFFF), text)


@pytest.mark.parametrize("name", GENERATIONS)
def test_compiled_code_decodes_to_the_text_that_llvm_writes(name: str) -> None:
    machine = GENERATIONS[name]
    for type_, (zero, op, div) in TYPES.items():
        text = KERNEL.replace("TYPE", type_).replace("ZERO", zero)
        expected, code = compiled(name, text.replace("OP", op).replace("DIV", div))
        true16 = machine.family in ("gfx11", "gfx115")
        lines = list(disassemble(code, machine.family, wave=machine.waves[0], true16=true16))
        found = [line for line in lines if line.instruction.name not in ("s_code_end", "s_nop")]
        wanted = [line for line in expected if not line.startswith("s_nop")]
        for line, want in zip(found, wanted, strict=False):
            got = canonical(line.text)
            assert got == want or FROM_ELSEWHERE.search(want) or FROM_ELSEWHERE.search(got)
            halves = line.instruction.parts or (line.instruction,)
            assert all(half.meaning for half in halves), line.text
