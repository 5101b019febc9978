"""The lines that amdgpu, amdkfd and the ROCm runtime print when things break, one row a shape.

What a line does to the story is a method of `log.Story` by that name. Kernel ranges are those in
which the text is known to be printed so; where a range begins or ends elsewhere, nothing breaks.
"""

# ruff: noqa: E501  a shape is a line

from __future__ import annotations

from rawgpu.crash.shape import Shape

_PROCESS = "process {process:*} pid {pid:d} thread {thread:*} pid {tid:d}"
_GMC = "linux amdgpu/gmc_v9_0.c, gmc_v10_0.c, gmc_v11_0.c, gmc_v12_0.c"
_GMC8 = "linux amdgpu/gmc_v6_0.c, gmc_v7_0.c, gmc_v8_0.c"
_HUB = "linux amdgpu/gfxhub_v*.c, mmhub_v*.c, print_l2_protection_fault_status"
_JOB = "linux amdgpu/amdgpu_job.c"
_RESET = "linux amdgpu/amdgpu_device.c"
_MES = "linux amdgpu/mes_v11_0.c, mes_v12_0.c"
_KFD = "linux amdkfd/kfd_device_queue_manager.c"
_RAS = "linux amdgpu/amdgpu_ras.c"
_SMU = "linux amdgpu/pm/swsmu/smu_cmn.c"
_ROCR = "ROCR-Runtime core/runtime/runtime.cpp"

# fmt: off
SHAPES: tuple[Shape, ...] = (
    # Page faults: a header, then lines about it.
    Shape("fault", "[{hub}] «no-retry »«retry »«VMC »page fault (src_id:{src_id:d} ring:{ih_ring:d} vmid:{vmid:d} pasid:{pasid:d}«, for " + _PROCESS + "»)", "4.18 on", _GMC),
    Shape("fault", "[{hub}] VMC page fault (src_id:{src_id:d} ring:{ih_ring:d} vm_id:{vmid:d} pas_id:{pasid:d})", "4.15 to 4.17", _GMC),
    Shape("process", "Process " + _PROCESS.removeprefix("process "), "6.8 on", _GMC),
    Shape("process", " for " + _PROCESS, "5.2 to 6.8", _GMC),
    Shape("process", " in " + _PROCESS, "6.7 to 6.12", _GMC),
    Shape("process", "Process information: " + _PROCESS, "4.20 to 6.8", _JOB),
    Shape("address", "in page starting at address {fault_address:x} from IH client {client_number:x} ({client_word})", "5.8 on", _GMC),
    Shape("address", "in page starting at address {fault_address:x} from client {client_number:x} ({client_word})", "5.8 on", _GMC),
    Shape("address", "in page starting at address {fault_address:x} from client {client_number}", "5.0 on", _GMC),
    Shape("address", "in page starting at address {fault_address:x} from {client_number:d}", "4.18 to 5.7", _GMC),
    Shape("address", "  at page {fault_address:x} from {client_number:d}", "4.15 to 4.17", _GMC),
    Shape("die", "cookie node_id {node_id:d} fault from die {die}", "6.5 on", _GMC),
    Shape("status", "{status_register}_PROTECTION_FAULT_STATUS:{status:x}", "4.15 on", _HUB),
    Shape("status", "{status_register}_PROTECTION_FAULT_STATUS_LO32:{status:x}", "6.10 on", _HUB),
    Shape("client", "Faulty UTCL2 client ID: {client:*} ({client_id:x})", "5.8 on", _HUB),
    Shape("client", "Faulty UTCL2 client ID: {client_id:x}", "5.5 to 5.7", _HUB),
    Shape("field", "MORE_FAULTS: {more_faults:x}", "5.0 on", _HUB),
    Shape("field", "WALKER_ERROR: {walker_error:x}", "5.0 on", _HUB),
    Shape("field", "PERMISSION_FAULTS: {permission_faults:x}", "5.0 on", _HUB),
    Shape("field", "MAPPING_ERROR: {mapping_error:x}", "5.0 on", _HUB),
    Shape("field", "\t RW: {rw:x}", "5.5 on", _HUB),
    Shape("field", "     RW: {rw:x}", "5.5 on", _HUB),
    # Page faults of GPUs before gfx9.
    Shape("old_fault", "GPU fault detected: {src_id:d} {data:x}« for " + _PROCESS + "»", "3.15 on", _GMC8),
    Shape("old_address", "VM_CONTEXT1_PROTECTION_FAULT_ADDR   {page:x}", "3.15 on", _GMC8),
    Shape("old_status", "VM_CONTEXT1_PROTECTION_FAULT_STATUS {status:x}", "3.15 on", _GMC8),
    Shape("old_words", "VM fault ({protections:x}, vmid {vmid:d}«, pasid {pasid:d}») at page {fault_page:d}, {rw} from '{client}' ({client_tag:x}) ({client_id:d})", "3.15 on", _GMC8),
    # Hangs, and what the driver does about them.
    Shape("timeout", "ring {engine_or_ring} timeout, signaled seq={signaled_seq:d}, emitted seq={emitted_seq:d}", "4.20 on", _JOB),
    Shape("timeout", "ring {engine_or_ring} timeout, but soft recovered", "4.20 on", _JOB, {"reset_outcome": "soft_recovered"}),
    Shape("illegal_opcode", "[drm:{ip}_bad_op_irq [amdgpu]] *ERROR* Illegal opcode in command stream", "6.11 on", "linux amdgpu/gfx_v11_0.c"),
    Shape("illegal_opcode", "[drm:{ip}_priv_inst_irq [amdgpu]] *ERROR* Illegal instruction in command stream", "4.2 on", "linux amdgpu/gfx_v*.c"),
    Shape("illegal_register", "[drm:{ip}_priv_reg_irq [amdgpu]] *ERROR* Illegal register access in command stream", "4.2 on", "linux amdgpu/gfx_v*.c"),
    Shape("illegal_opcode", "Illegal opcode in command stream", "6.11 on", "linux amdgpu/gfx_v11_0.c"),
    Shape("illegal_opcode", "Illegal instruction in command stream", "4.2 on", "linux amdgpu/gfx_v*.c"),
    Shape("illegal_register", "Illegal register access in command stream", "4.2 on", "linux amdgpu/gfx_v*.c"),
    Shape("sdma_illegal", "SDMA gets an Register Write {command} command in non-privilege command buffer", "6.5 on", "linux amdgpu/sdma_v4_4_2.c"),
    Shape("ip_hung", "IP block:{ip} is hung!", "4.8 on", _RESET),
    Shape("mes", "MES failed to respond to msg={message}", "6.9 on", _MES),
    Shape("mes", "MES({mes_pipe:d}) failed to respond to msg={message}", "6.11 on", _MES),
    Shape("mes", "MES failed to response msg={message_id:d}", "5.15 to 6.8", _MES),
    Shape("mes_doorbell", "failed to remove hardware queue from MES, doorbell={doorbell:x}", "6.0 on", _KFD),
    Shape("queue_reset_start", "Starting {engine_or_ring} ring reset", "6.11 on", _JOB),
    Shape("queue_reset_error", "reset via MES failed and try pipe reset {error_code:d}", "6.12 on", "linux amdgpu/gfx_v11_0.c"),
    Shape("queue_reset_end", "Ring {engine_or_ring} reset failed", "6.11 on", _JOB, {"reset_outcome": "failed"}),
    Shape("queue_reset_end", "Ring {engine_or_ring} reset succeeded", "6.11 on", _JOB, {"reset_outcome": "succeeded"}),
    Shape("queue_reset_end", "Ring {engine_or_ring} reset failure", "6.11 on", _JOB, {"reset_outcome": "failed"}),
    Shape("reset_start", "GPU reset begin!«. Source:  {source:d}»", "4.2 on", _RESET),
    Shape("reset_start", "GPU reset begin!. Source: {source:d}", "6.9 on", _RESET),
    Shape("reset_method", "GPU «smu »«psp »mode1 reset", "4.20 on", _RESET, {"method": "MODE1"}),
    Shape("reset_method", "MODE1 reset", "5.5 on", "linux amdgpu/soc15.c, soc21.c, nv.c", {"method": "MODE1"}),
    Shape("reset_method", "MODE2 reset", "5.5 on", "linux amdgpu/soc15.c, soc21.c, nv.c", {"method": "MODE2"}),
    Shape("reset_method", "GPU mode2 reset", "5.5 on", "linux amdgpu/soc15.c", {"method": "MODE2"}),
    Shape("reset_method", "BACO reset", "5.5 on", "linux amdgpu/soc15.c, cik.c, vi.c", {"method": "BACO"}),
    Shape("reset_method", "PCI CONFIG reset", "5.5 on", "linux amdgpu/cik.c, vi.c", {"method": "PCI CONFIG"}),
    Shape("reset_resume", "GPU reset succeeded, trying to resume", "4.2 on", _RESET),
    Shape("vram_lost", "VRAM is lost due to GPU reset!", "4.14 on", _RESET),
    Shape("reset_done", "GPU reset({reset_count:d}) succeeded!", "4.20 on", _RESET),
    Shape("reset_failed", "GPU reset({reset_count:d}) failed", "4.20 on", _RESET),
    Shape("reset_failed", "GPU reset end with ret = {error_code:d}", "5.8 on", _RESET),
    Shape("coredump", "AMDGPU device coredump file has been created", "6.2 on", "linux amdgpu/amdgpu_dev_coredump.c"),
    Shape("coredump_path", "Check your {path}", "6.11 on", "linux amdgpu/amdgpu_dev_coredump.c"),
    Shape("wedged", "device wedged, but recovered through reset", "6.15 on", "linux drm/drm_drv.c", {"reset_outcome": "recovered_through_reset"}),
    Shape("wedged", "device wedged, needs recovery", "6.15 on", "linux drm/drm_drv.c", {"reset_outcome": "declared_wedged"}),
    Shape("lost", "device lost from bus!", "5.16 on", _RESET),
    Shape("ib_test", "IB test failed on {engine_or_ring} ({error_code:d})", "4.2 on", "linux amdgpu/amdgpu_ib.c"),
    Shape("ring_test", "ring {engine_or_ring} test failed ({error_code:d})", "4.2 on", "linux amdgpu/amdgpu_ring.c"),
    Shape("fallback", "Fence fallback timer expired on ring {engine_or_ring}", "4.2 on", "linux amdgpu/amdgpu_fence.c"),
    Shape("rejected", "Failed to initialize parser {error_code:d}!", "4.2 on", "linux amdgpu/amdgpu_cs.c"),
    Shape("ih_overflow", "IH ring buffer overflow (", "4.2 on", "linux amdgpu/vega10_ih.c, navi10_ih.c"),
    Shape("init", "{stage} of IP block <{block}> failed {error_code:d}", "4.2 on", _RESET),
    # Compute: KFD, and the runtime in user space.
    Shape("sq", "sq_intr: error, «se {se:d}, »detail {detail:x}, type {type:d}, sh {sh:d}, priv {priv:d}", "4.20 on", "linux amdkfd/kfd_int_process_v*.c"),
    Shape("sq", "sq_intr: error, detail {detail:x}, type {type:d}", "5.8 on", "linux amdkfd/kfd_int_process_v*.c"),
    Shape("preemption", "qcm fence wait loop timeout expired", "4.9 on", _KFD),
    Shape("preemption_why", "The cp might be in an unrecoverable state due to an unsuccessful queues preemption", "4.9 on", _KFD),
    Shape("evict", "Failed to evict process queues", "4.18 on", _KFD),
    Shape("evict", "Failed to evict queue {queue:d}", "6.0 on", _KFD),
    Shape("restore", "Failed to restore process queues", "4.18 on", _KFD),
    Shape("vital", "Freeing queue vital buffer {address:x}, queue evicted", "6.4 on", "linux amdkfd/kfd_queue.c"),
    Shape("hsa_memory", "Memory access fault by GPU node-{hsa_node:d} (Agent handle: {agent_handle:x}) on address {fault_address:x}. Reason: {fault_type:*}", "ROCm 1.8 on", _ROCR),
    Shape("hsa_memory", "Memory access fault by GPU node-{hsa_node:d} (Agent handle: {agent_handle:x}) on address (nil). Reason: {fault_type:*}", "ROCm 1.8 on", _ROCR, {"fault_address": "0x0"}),
    Shape("hsa_exception", "HW Exception by GPU node-{hsa_node:d} (Agent handle: {agent_handle:x}) reason :{reason:*}", "ROCm 2 on", _ROCR),
    # Memory errors and firmware.
    Shape("ras", "socket: {socket:d}, die: {die:d}, {new:d} new {severity} hardware errors detected in {block} block", "6.8 on", _RAS),
    Shape("ras", "socket: {socket:d}, die: {die:d} {count:d} {severity} hardware errors detected in {block} block", "5.9 on", _RAS),
    Shape("ras", " {count:d} {severity} hardware errors detected in {block} block", "5.9 on", _RAS),
    Shape("ras", "{severity} hardware error({event}) detected!", "5.1 on", _RAS),
    Shape("smu", "SMU: I'm not done with your previous command", "5.13 on", _SMU, {"message": "I'm not done with your previous command"}),
    Shape("smu", "SMU: No response msg_reg: {message} resp_reg: {response:x}", "5.13 on", _SMU),
    Shape("smu", "Failed to send message {message:x}, response {response:x}", "5.5 to 5.12", _SMU),
    Shape("psp", "psp gfx command {command}({code:x}) failed and response status is ({response:x})", "5.3 on", "linux amdgpu/amdgpu_psp.c"),
    # The driver before amdgpu.
    Shape("stalled", "ring {engine_or_ring:d} stalled for more than {stalled_ms:d}msec", "2.6.35 on", "linux radeon/radeon_ring.c"),
    Shape("lockup", "GPU lockup (current fence id {current_fence:x} last fence id {last_fence:x} on ring {engine_or_ring:d})", "3.11 on", "linux radeon/radeon_fence.c"),
)
# fmt: on
