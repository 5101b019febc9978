"""Targets: a triple, a processor and features, checked against LLVM's tables before LLVM sees them.

LLVM ends the whole process on an AMD processor it does not know and silently takes a default
elsewhere (an empty x86 name means SSE2), so a name no table holds is refused here, with the nearest
ones as a hint.
"""

from __future__ import annotations

import difflib
import functools
import platform
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from rawgpu.compiler_bridge import target_names
from rawgpu.errors import CompileError, UnsupportedDevice

Passes: TypeAlias = Literal["none", "light"]
"""IR passes before code generation: none for explicit vector code, light for scalar code."""

X86_64_TRIPLE = "x86_64-unknown-linux-gnu"
AARCH64_TRIPLE = "aarch64-unknown-linux-gnu"
AMDGPU_TRIPLE = "amdgcn-amd-amdhsa"
NVPTX_TRIPLE = "nvptx64-nvidia-cuda"
SPIRV_TRIPLE = "spirv64-unknown-unknown"

# Without these, `llvm.fma`, `llvm.roundeven`, `llvm.floor` and `fpext half` become calls into libm.
MINIMUM_FEATURES: dict[str, tuple[str, ...]] = {
    "x86_64": ("avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe", "popcnt"),  # x86-64-v3
    "aarch64": ("neon",),
}


@dataclass(frozen=True)
class Target:
    """What machine code is for. `features` is LLVM's list: `+avx512f,-amx-tile`."""

    triple: str
    cpu: str
    features: str = ""

    @property
    def arch(self) -> str:
        """First word of the triple: `x86_64`, `aarch64`, `amdgcn`, `nvptx64`, `spirv64`."""
        return self.triple.split("-", 1)[0]

    @property
    def enabled(self) -> frozenset[str]:
        """Names that `features` turns on; what the processor's name implies is not among them."""
        return frozenset(word[1:] for word in self.features.split(",") if word.startswith("+"))


def check_passes(passes: str) -> None:
    """Raise CompileError unless `passes` is a set of passes that there is."""
    known = get_args(Passes)
    if passes not in known:
        raise CompileError(f"there are no passes {passes!r}; there are: {', '.join(known)}")


def _refuse(kind: str, name: str, known: tuple[str, ...], where: str) -> UnsupportedDevice:
    near = difflib.get_close_matches(name, known, n=4, cutoff=0.5)
    hint = "one of " + ", ".join(near) if near else None
    return UnsupportedDevice(f"LLVM has no {kind} {name!r} for {where}", hint=hint)


@functools.lru_cache(maxsize=256)
def check_target(target: Target) -> None:
    """Raise UnsupportedDevice unless LLVM's tables hold each name in `target`."""
    names = target_names.TABLES.get(target.arch)
    if names is None:
        raise _refuse("architecture", target.arch, tuple(target_names.TABLES), repr(target.triple))
    if names.cpus and target.cpu not in names.cpus:
        raise _refuse("processor", target.cpu, names.cpus, target.arch)
    for word in filter(None, target.features.split(",")):
        if word[0] not in "+-":
            raise UnsupportedDevice(
                f"feature {word!r} of {target.arch} has no sign",
                hint=f"+{word} to turn it on, -{word} to turn it off",
            )
        if word[1:] not in names.features:
            raise _refuse("feature", word[1:], names.features, target.arch)


@functools.cache
def host_target() -> Target:
    """The machine we run on, with every feature spelled out.

    LLVM may not know the processor (a virtual machine that reports a newer model's instructions
    under an older model's number), so the name alone would miss instructions or claim too many; the
    feature list, read from cpuid, decides and the name only steers scheduling.
    """
    from llvmlite import binding

    arch = {"amd64": "x86_64", "arm64": "aarch64"}.get(
        platform.machine().lower(), platform.machine().lower()
    )
    if arch not in MINIMUM_FEATURES:
        raise UnsupportedDevice(f"no code generation for a host of architecture {arch!r}")
    table = target_names.TABLES[arch]
    features = binding.get_host_cpu_features()
    known = [("+" if on else "-") + name for name, on in features.items() if name in table.features]
    missing = [
        name for name in MINIMUM_FEATURES[arch] if features and not features.get(name, False)
    ]
    if missing:
        raise UnsupportedDevice(
            f"this processor lacks {', '.join(missing)}",
            hint="x86-64-v3 (Haswell, Zen) or newer is the least that generated code needs",
        )
    cpu = binding.get_host_cpu_name()
    if cpu not in table.cpus:
        cpu = "generic" if arch == "aarch64" else "x86-64-v3"
    triple = X86_64_TRIPLE if arch == "x86_64" else AARCH64_TRIPLE
    return Target(triple, cpu, ",".join(sorted(known, key=lambda word: word[1:])))
