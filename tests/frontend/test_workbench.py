"""The workbench: other loops, other text; what is wrong, kills LLVM or faults is an error."""

from __future__ import annotations

import platform
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rawgpu
from frontend import Tensor, concat
from frontend.loops.nest import Kind, Mark, Order, Split
from frontend.profile import profile
from frontend.workbench import Kernel, Workbench
from rawgpu.errors import CompileError, KernelFault, LaunchError, OperationError
from tests.frontend.evaluator import uses_reference

pytestmark = [
    pytest.mark.skipif(uses_reference(), reason="there are no kernels"),
    pytest.mark.host,  # kernels are written by hand here, for this processor
]


def draw(*shape: int) -> Any:
    return np.random.default_rng(1).standard_normal(shape).astype(np.float32)


def columns() -> Workbench:
    """Sums of 8 columns: one kernel with loops k0 over rows and i0 over columns."""
    return Workbench(Tensor(draw(96, 8)).sum(0))


def doubled(name: str, count: int = 16, factor: str = "2.0", extra: str = "") -> str:
    """IR that doubles `count` floats in one block."""
    kind = f"<{count} x float>"
    return f"""
define void @{name}(ptr %args, i64 %begin, i64 %end) {{
  %from = load ptr, ptr %args
  %slot = getelementptr ptr, ptr %args, i64 1
  %to = load ptr, ptr %slot
  {extra}
  %x = load {kind}, ptr %from, align 4
  %one = insertelement {kind} poison, float {factor}, i32 0
  %k = shufflevector {kind} %one, {kind} poison, <{count} x i32> zeroinitializer
  %y = fmul {kind} %x, %k
  store {kind} %y, ptr %to, align 4
  ret void
}}
"""


def simple() -> tuple[Workbench, Kernel]:
    bench = Workbench(Tensor(draw(16)) * 2)
    return bench, bench[0]


# --- looking -------------------------------------------------------------------------------------


def test_every_level_of_a_kernel_can_be_read() -> None:
    kernel = columns()["sum"]
    assert "sum= " in kernel.loops and "k0" in kernel.loops
    assert "load" in kernel.instructions
    assert f"define void @{kernel.name}(" in kernel.text
    assert kernel.name in kernel.asm
    assert kernel.buffers == ["leaf 0, 3072 bytes", "result 0, 32 bytes"]
    assert not kernel.changed


def test_kernels_are_found_by_name_and_position() -> None:
    a = Tensor(draw(7, 5))
    bench = Workbench((a @ a.T).softmax(-1).contiguous().sum(0), a.argsort(1))
    names = [k.name for k in bench.kernels]
    assert len(names) > 1 and bench[0].name == names[0] and bench[names[1]].name == names[1]
    with pytest.raises(OperationError, match=r"no kernel 'nothing'; there are: .*sort"):
        bench["nothing"]
    report = bench.run(repeat=1)
    assert [row.name for row in report.rows] == names
    sort = next(k for k in bench.kernels if "sort" in k.name)
    with pytest.raises(OperationError, match="no loop nest to edit\n  try: replace its text"):
        sort.schedule()
    assert sort.loops == "" and sort.instructions == "" and "define" in sort.text


def test_computed_tensors_have_nothing_to_look_at() -> None:
    with pytest.raises(OperationError, match="has its value already"):
        Workbench(Tensor(draw(3)))


# --- other loops ---------------------------------------------------------------------------------

FOUR_SUMS = (
    Split("k0", 4),
    Order(("k0/4", "k0%4", "i0")),
    Mark("k0%4", Kind.UNROLL),
    Mark("i0", Kind.VECTOR),
)


def test_another_schedule_gives_the_same_and_a_report() -> None:
    bench = columns()
    kernel = bench["sum"]
    before = kernel.text
    kernel.schedule(*FOUR_SUMS)
    assert kernel.changed and kernel.text != before
    assert kernel.steps() == FOUR_SUMS
    assert "unroll reduce k0%4 in 4" in kernel.loops
    report = bench.run(repeat=3)
    (row,) = report.rows
    assert row.changed and row.name == kernel.name
    assert row.before_ns > 0 and row.after_ns > 0
    assert row.gflops == pytest.approx(96 * 8 / row.after_ns)
    assert row.gbytes == pytest.approx((96 * 8 + 8) * 4 / row.after_ns)
    assert 0 <= report.errors[0] < 1e-5
    head, line, last = report.table().splitlines()
    assert head.split() == ["kernel", "before", "µs", "after", "µs", "speed-up", "GFLOP/s", "GB/s"]
    assert line.split()[0] == kernel.name and line.endswith(" changed")
    assert last.startswith("largest difference from the original: ")
    kernel.reset()
    assert not kernel.changed and kernel.text == before
    assert not bench.run(repeat=1).rows[0].changed


@pytest.mark.parametrize(
    ("steps", "complaint"),
    [
        ([Split("rows", 4)], r"no loop 'rows' among i0, k0"),
        ([Mark("k1", Kind.UNROLL)], r"no loop 'k1' among i0, k0"),
        ([Split("k0", 0)], r"cannot split k0 by 0"),
        ([Order(("k0",))], r"order \('k0',\) does not name each of i0, k0 once"),
        ([Mark("k0", Kind.GRID)], r"loops must stand as grid, outputs|cannot be a grid axis"),
        ([Mark("i0", Kind.VECTOR)], r"loops must stand as .*i0 \(vector\), k0 \(loop\)"),
        ([Mark("i0", Kind.VECTOR), Mark("k0", Kind.VECTOR)], r"one vector loop at most"),
        ([Split("i0", 3), Mark("i0/3", Kind.GRID), Mark("i0%3", Kind.GRID)], r"does not divide i0"),
        ([Split("i0", 2), Order(("i0%2", "i0/2", "k0"))], r"i0/2 must stand outside i0%2"),
    ],
)
def test_a_step_that_breaks_a_rule_is_refused(steps: list[Any], complaint: str) -> None:
    bench = columns()
    kernel = bench["sum"]
    with pytest.raises(OperationError, match=f"^{kernel.name}: .*({complaint})"):
        kernel.schedule(*steps)
    assert not kernel.changed
    bench.run(repeat=1)


def test_a_nest_that_is_not_there_is_refused() -> None:
    kernel = columns()["sum"]
    with pytest.raises(OperationError, match="has 1 nests, and no nest 3"):
        kernel.schedule(*FOUR_SUMS, nest=3)
    with pytest.raises(OperationError, match="no nest -2"):
        kernel.steps(-2)


def test_the_loops_that_nests_share_can_be_scheduled() -> None:
    bench = Workbench(Tensor(draw(40, 24)).softmax(-1))
    kernel = bench[0]
    assert kernel.steps(-1) is not None
    kernel.schedule(Split("row", 5), Mark("row/5", Kind.GRID), nest=-1)
    assert kernel.blocks == 8
    assert bench.run(repeat=1).errors[0] < 1e-6


# --- other text ----------------------------------------------------------------------------------


def test_hand_written_ir_takes_a_kernels_place() -> None:
    bench, kernel = simple()
    kernel.replace_text(doubled(kernel.name), blocks=1)
    report = bench.run(repeat=2)
    assert report.errors == [0] and report.rows[0].changed
    assert kernel.name in kernel.asm


def test_hand_written_ir_with_another_meaning_is_found_out() -> None:
    bench, kernel = simple()
    kernel.replace_text(doubled(kernel.name, factor="2.5"), blocks=1)
    with pytest.raises(OperationError, match=r"tensor 0 differs from the original by 0.25 of its"):
        bench.run()
    kernel.replace_text(doubled(kernel.name, factor="0x7FF8000000000000"), blocks=1)
    with pytest.raises(OperationError, match="differs"):
        bench.run()


def test_what_is_left_unwritten_is_found_out() -> None:
    bench, kernel = simple()
    for _ in range(3):
        bench.run(repeat=1)
        kernel.replace_text(doubled(kernel.name, count=8), blocks=1)
        with pytest.raises(OperationError, match="differs"):
            bench.run(repeat=1)
        kernel.reset()


def test_integers_must_be_equal() -> None:
    bench = Workbench(Tensor([1, 2, 3, 4]) + 1)
    kernel = bench[0]
    text = f"define void @{kernel.name}(ptr %args, i64 %begin, i64 %end) {{\n ret void\n}}\n"
    kernel.replace_text(text, blocks=1)
    with pytest.raises(OperationError, match="tensor 0 differs"):
        bench.run(tolerance=0.5)


def test_a_kernel_that_writes_its_input_is_found_out_and_harms_nothing() -> None:
    x = Tensor(draw(16)).realize()
    bench = Workbench(x * 2)
    kernel = bench[0]
    kernel.replace_text(doubled(kernel.name, extra="store float 7.0, ptr %from"), blocks=1)
    with pytest.raises(OperationError, match="wrote into its input, leaf 0"):
        bench.run()
    np.testing.assert_array_equal(x.numpy(), draw(16))


def test_a_schedule_within_a_tolerance_that_is_too_narrow_is_refused() -> None:
    bench = columns()
    bench["sum"].schedule(*FOUR_SUMS)
    with pytest.raises(OperationError, match="differs from the original by"):
        bench.run(tolerance=0.0)


@pytest.mark.parametrize(
    "body",
    [
        "this is no IR",
        "define void @{name}(ptr %args, i64 %begin, i64 %end) {{\n  ret i32 0\n}}",
        "define void @{name}(ptr %a, i64 %b, i64 %c) {{\n  ret void\n",
        # what follows ends LLVM's process: an assembler error, and an intrinsic that x86 lacks
        "define void @{name}(ptr %a, i64 %b, i64 %c) {{\n"
        '  call void asm sideeffect "no such instruction", ""()\n  ret void\n}}',
        "declare i32 @llvm.amdgcn.workitem.id.x()\n"
        "define void @{name}(ptr %a, i64 %b, i64 %c) {{\n"
        "  %i = call i32 @llvm.amdgcn.workitem.id.x()\n"
        "  store volatile i32 %i, ptr %a\n  ret void\n}}",
    ],
)
def test_text_that_llvm_refuses_or_dies_of_is_a_compile_error(body: str) -> None:
    bench, kernel = simple()
    kernel.replace_text(body.format(name=kernel.name), blocks=1)
    with pytest.raises(CompileError):
        bench.run()
    with pytest.raises(CompileError):
        _ = kernel.asm
    kernel.reset()
    assert bench.run(repeat=1).errors == [0]


def test_text_without_the_kernel_is_refused() -> None:
    bench, kernel = simple()
    kernel.replace_text(doubled("another"), blocks=1)
    with pytest.raises(LaunchError, match=f"no kernel '{kernel.name}'; it has another"):
        bench.run()


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the assembly is x86-64's")
def test_hand_written_assembly_takes_a_kernels_place() -> None:
    bench, kernel = simple()
    source = f"""
        .text
        .globl {kernel.name}
        .type {kernel.name}, @function
{kernel.name}:                      # "quotes" and \\ survive
        movq (%rdi), %rax
        movq 8(%rdi), %rcx
        xorl %edx, %edx
1:      movups (%rax,%rdx), %xmm0
        addps %xmm0, %xmm0
        movups %xmm0, (%rcx,%rdx)
        addq $16, %rdx
        cmpq $64, %rdx
        jne 1b
        ret
        .size {kernel.name}, . - {kernel.name}
"""
    kernel.replace_assembly(source, blocks=1)
    assert bench.run(repeat=1).errors == [0]
    kernel.replace_assembly(source.replace("addps", "mulps"), blocks=1)
    with pytest.raises(OperationError, match="differs"):
        bench.run()
    kernel.replace_assembly(source.replace("addps", "addpotatoes"), blocks=1)
    with pytest.raises(CompileError):
        bench.run()


def test_a_kernel_that_faults_leaves_bench_and_device_usable() -> None:
    bench, kernel = simple()
    wild = "store volatile i32 1, ptr inttoptr (i64 64 to ptr)"
    kernel.replace_text(doubled(kernel.name, extra=wild), blocks=1)
    for _ in range(2):
        with pytest.raises(KernelFault) as caught:
            bench.run()
        assert caught.value.kernel == kernel.name
        assert caught.value.address == 64
        assert caught.value.device_usable
    kernel.replace_text(doubled(kernel.name), blocks=1)
    assert bench.run(repeat=1).errors == [0]
    assert (Tensor([1.0]) + 1).item() == 2


# --- together ------------------------------------------------------------------------------------


def test_one_of_several_kernels_is_replaced_and_all_results_are_compared() -> None:
    a, b = Tensor(draw(16)), Tensor(draw(96, 8))
    bench = Workbench(a * 2, b.sum(0), concat([a, a]).argsort())
    bench["sum"].schedule(*FOUR_SUMS)
    report = bench.run(repeat=2)
    assert [row.changed for row in report.rows] == [k.changed for k in bench.kernels]
    assert sum(row.changed for row in report.rows) == 1
    assert len(report.errors) == 3 and report.errors[0] == report.errors[2] == 0


def test_an_unwritten_value_between_kernels_is_found_out() -> None:
    a = Tensor(draw(16, 16))
    bench = Workbench((a @ a).contiguous().sum(0).argsort())
    kernel = bench.kernels[0]
    text = f"define void @{kernel.name}(ptr %args, i64 %begin, i64 %end) {{\n ret void\n}}\n"
    bench.run(repeat=1)
    kernel.replace_text(text, blocks=1)
    with pytest.raises(OperationError, match="differs"):
        bench.run()


def test_the_bench_changes_nothing_of_the_program() -> None:
    x = Tensor(draw(96, 8))
    total = x.sum(0)
    bench = Workbench(total)
    bench["sum"].schedule(*FOUR_SUMS)
    with profile() as p:
        bench.run(repeat=1)
    assert p.rows and not total.is_realized
    np.testing.assert_allclose(total.numpy(), draw(96, 8).sum(0), rtol=1e-5, atol=1e-5)
    assert rawgpu.devices()


def test_the_worked_example_of_the_documents_runs(capsys: pytest.CaptureFixture[str]) -> None:
    page = Path(__file__).parents[2] / "docs" / "tuning.md"
    blocks = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
    assert len(blocks) > 4
    exec(compile("\n".join(blocks), str(page), "exec"), {})
    said = capsys.readouterr().out
    assert said.count(" changed\n") == 2
    assert "differs from the original by 0.00508328 of its largest value" in said
