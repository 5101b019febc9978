"""The amdgpu declarations: answers over questions, versions, INFO's question union."""

from __future__ import annotations

from rawgpu.ioctl import amdgpu, amdgpu_info, drm
from rawgpu.ioctl.amdgpu import AMDGPU_2022, AMDGPU_2025


def test_gem_va_and_device_info_grow() -> None:
    assert AMDGPU_2022[amdgpu.GemVa].about.number == 0x40286448
    assert AMDGPU_2025[amdgpu.GemVa].about.number == 0x40406448
    assert AMDGPU_2022[amdgpu_info.InfoDevice].about.size == 368
    assert AMDGPU_2025[amdgpu_info.InfoDevice].about.size == 448


def test_info_has_32_bytes_and_says_where_the_answer_goes() -> None:
    request = amdgpu_info.Info(
        return_pointer=0x1000,
        return_size=8,
        query=amdgpu_info.InfoQuery.FW_VERSION,
        arguments=amdgpu_info.InfoArguments(
            query_fw=amdgpu_info.QueryFw(fw_type=amdgpu_info.FirmwareType.MES)
        ),
    )
    assert request.number == 0x40206445
    assert request.encode()[16:20] == b"\x1a\0\0\0"
    assert [(m.name, at, size) for m, at, size in request.pointers()] == [
        ("return_pointer", 0x1000, 8)
    ]


def test_the_kernels_answer_lies_over_the_question() -> None:
    request = amdgpu.GemCreate(bo_size=4096, domains=amdgpu.GemDomain.GTT)
    raw = request.replace(out=amdgpu.GemCreateOut(handle=9)).encode()
    assert raw[:4] == b"\x09\0\0\0"
    reply = amdgpu.GemCreate.decode(raw, reply=True)
    assert reply.out is not None
    assert reply.out.handle == 9
    state = amdgpu.CtxOut(state=amdgpu.CtxOutState(flags=amdgpu.CtxState.RESET, hangs=2))
    context = amdgpu.Ctx(op=amdgpu.CtxOp.QUERY_STATE2, out=state)
    answer = amdgpu.Ctx.decode(context.encode(), reply=True).out
    assert answer is not None
    assert answer.state.hangs == 2


def test_core_requests_belong_to_every_row() -> None:
    assert AMDGPU_2022.has(drm.Version)
    assert AMDGPU_2025.by_number(0xC0406400) is drm.Version
