"""Ordered access to memory that a device also sees: what Python itself cannot promise.

Aligned 32 and 64-bit stores with release and loads with acquire, one instruction each; a fence that
also empties write-combining buffers; copies to device memory in whole aligned words, in ascending
order.
"""

from __future__ import annotations

from rawgpu.native.layout import expand

FENCE = {"x86_64": "sfence", "aarch64": "dmb oshst"}
"""What orders write-combined stores before a doorbell. Intel SDM 3A 12.3.1; Arm ARM B2.3.12."""

_ORDER = """
define hidden void @store32(i64 %address, i32 %value) {
  %p = inttoptr i64 %address to ptr
  store atomic volatile i32 %value, ptr %p release, align 4
  ret void
}

define hidden void @store64(i64 %address, i64 %value) {
  %p = inttoptr i64 %address to ptr
  store atomic volatile i64 %value, ptr %p release, align 8
  ret void
}

define hidden i32 @load32(i64 %address) {
  %p = inttoptr i64 %address to ptr
  %value = load atomic volatile i32, ptr %p acquire, align 4
  ret i32 %value
}

define hidden i64 @load64(i64 %address) {
  %p = inttoptr i64 %address to ptr
  %value = load atomic volatile i64, ptr %p acquire, align 8
  ret i64 %value
}

define hidden void @fence_device() {
  call void asm sideeffect "$FENCE", "~{memory}"()
  fence seq_cst
  ret void
}
"""

_COPY = """
define hidden void @copy$BITS(i64 %target, ptr %source, i64 %words) {
entry:
  %to = inttoptr i64 %target to ptr
  br label %head
head:
  %i = phi i64 [0, %entry], [%next, %body]
  %end = icmp uge i64 %i, %words
  br i1 %end, label %done, label %body
body:
  %of = getelementptr i$BITS, ptr %source, i64 %i
  %value = load i$BITS, ptr %of, align 1
  %at = getelementptr i$BITS, ptr %to, i64 %i
  store volatile i$BITS %value, ptr %at
  %next = add i64 %i, 1
  br label %head
done:
  ret void
}
"""


def order_ir(machine: str) -> str:
    """IR text for `machine`."""
    copies = "".join(expand(_COPY.replace("$BITS", str(bits))) for bits in (32, 64))
    return expand(_ORDER, {"FENCE": FENCE[machine]}) + copies
