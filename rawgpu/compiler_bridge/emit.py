"""Runs LLVM in this process: text to a relocatable object or to assembly text.

Worker processes call this for any text; `llvm.compile_in_process` calls it here for our own host
code. LLVM can end the process it runs in (bad inline assembly, an intrinsic the target lacks),
which is why text from elsewhere never comes to this file outside a worker.
"""

from __future__ import annotations

import functools
import re
from typing import Any

from llvmlite import binding

from rawgpu.compiler_bridge.logs import compile_error
from rawgpu.compiler_bridge.target import Passes, Target, check_passes, check_target
from rawgpu.errors import CompileError

_HAS_TRIPLE = re.compile(r"^\s*target\s+triple\b", re.MULTILINE)
_HAS_LAYOUT = re.compile(r"^\s*target\s+datalayout\b", re.MULTILINE)


@functools.cache
def _initialize(arch: str) -> None:
    # The host alone is 2 ms cheaper than all; a worker that compiles for GPUs pays for all once.
    if binding.get_default_triple().startswith(arch):
        binding.initialize_native_target()
        binding.initialize_native_asmprinter()
        binding.initialize_native_asmparser()
    else:
        binding.initialize_all_targets()
        binding.initialize_all_asmprinters()


@functools.lru_cache(maxsize=64)
def _machine(target: Target, level: int) -> tuple[Any, str]:
    """LLVM's target machine and its data layout.

    llvmlite's defaults are traps: `jitdefault` is the large code model, relocation `default` is
    static.
    """
    check_target(target)
    _initialize(target.arch)
    machine = binding.Target.from_triple(target.triple).create_target_machine(
        cpu=target.cpu, features=target.features, opt=level, reloc="pic", codemodel="small"
    )
    machine.set_asm_verbosity(False)
    return machine, str(machine.target_data)


def _with_header(text: str, target: Target, layout: str) -> str:
    """Put triple and layout, where absent, into line 1, so that line numbers stay."""
    header = ""
    if not _HAS_LAYOUT.search(text):
        header += f'target datalayout = "{layout}" '
    if not _HAS_TRIPLE.search(text):
        header += f'target triple = "{target.triple}" '
    return header + text


def _check_header(module: Any, target: Target, layout: str) -> None:
    """Refuse text that was written for another machine."""
    if module.triple.split("-", 1)[0] != target.arch:
        raise CompileError(f"the text is for {module.triple!r}, the target is {target.triple!r}")
    if module.data_layout != layout:
        raise CompileError(
            f"the text has data layout {module.data_layout!r}, {target.triple} has {layout!r}"
        )


def _run_light(module: Any, machine: Any) -> None:
    """Passes for scalar code. The vectorisers and the unroller stay off: our loops are explicit."""
    options = binding.create_pipeline_tuning_options(speed_level=1)
    options.loop_vectorization = options.slp_vectorization = False
    options.loop_unrolling = options.loop_interleaving = False
    builder = binding.create_pass_builder(machine, options)
    passes = binding.create_new_module_pass_manager()
    passes.add_sroa_pass()
    passes.add_instruction_combine_pass()
    passes.add_simplify_cfg_pass()
    passes.add_loop_rotate_pass()
    passes.add_new_gvn_pass()
    passes.add_instruction_combine_pass()
    passes.add_aggressive_dce_pass()
    passes.run(module, builder)


def emit(
    text: str, target: Target, *, passes: Passes = "none", level: int = 2, assembly: bool = False
) -> bytes:
    """Compile LLVM IR text here and now; ELF bytes, or assembly text in UTF-8.

    NVPTX has no object format of its own: its result is PTX text either way. SPIR-V gives its
    binary. Position-independent, small code model. Each call has its own LLVM context, so nothing
    is kept. Raises CompileError with the line at fault, UnsupportedDevice for a name LLVM does not
    know.
    """
    assert 0 <= level <= 3, level
    check_passes(passes)
    machine, layout = _machine(target, level)
    if "\0" in text:  # where LLVM would stop reading, and compile the rest
        line = text[: text.index("\0")].count("\n") + 1
        raise CompileError(f"LLVM, line {line}: a NUL character", line=line)
    context = binding.create_context()
    module = None
    try:
        try:
            module = binding.parse_assembly(_with_header(text, target, layout), context)
            module.verify()
        except RuntimeError as error:
            raise compile_error(text, str(error)) from None
        _check_header(module, target, layout)
        if passes == "light":
            _run_light(module, machine)
        try:
            if assembly or target.arch == "nvptx64":
                return str(machine.emit_assembly(module)).encode()
            return bytes(machine.emit_object(module))
        except RuntimeError as error:
            raise compile_error(text, str(error)) from None
    finally:
        if module is not None:
            module.close()
        context.close()
