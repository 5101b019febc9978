"""What failures of the self-test most likely mean on AMD GPUs, and what to try next.

Rows: stage or `*`, kind, a pattern in the message or ``, cause, next step. The first row that fits
is taken, so special ones come first. Sources: linux 6.12 amdkfd, and reports of users of other raw
and vendor runtimes, by tracker and number where one is behind a row.
"""

from __future__ import annotations

CAUSES: tuple[tuple[str, str, str, str, str], ...] = (
    ("nodes", "DeviceNotFound", "kfd",
     "the amdgpu module is not loaded, was built without HSA_AMD, or /dev/kfd was not passed in",
     "modprobe amdgpu; ls -l /dev/kfd; in a container: --device /dev/kfd --device /dev/dri"),
    ("nodes", "DeviceNotFound", "renderD",
     "the topology names a render node that is not there: a container without /dev/dri",
     "--device /dev/dri, or the one node that the message names"),
    ("nodes", "DevicePermission", "",
     "this user is not in the group of the node (render on most systems, video on some), or the "
     "container's device rules refuse it (ROCm/legacy-rocm-build #4043, #1211)",
     "the hint names the group: usermod -aG render,video, log in again; rootless: keep-groups"),
    ("nodes", "KernelCallFailed", "ENOMEM",
     "KFD could not make this process: the driver did not start up, or the process limit is reached"
     " (legacy-rocm-build #1088)",
     "dmesg | grep -i kfd; reload amdgpu; close other GPU processes"),
    ("nodes", "KernelCallFailed", "EINVAL",
     "KFD refused the process: typical of containers that miss some of the GPU's nodes",
     "pass /dev/kfd and all of /dev/dri"),
    ("nodes", "hidden", "",
     "a device cgroup hides the GPU's topology node from this process",
     "pass this GPU's render node into the container, or choose another GPU"),
    ("nodes", "no-node", "",
     "amdgpu is loaded and KFD does not support this chip, or the chip is bound to vfio or another "
     "driver", "lspci -k; dmesg | grep -i 'kfd\\|amdgpu'"),
    ("nodes", "no-row", "",
     "this chip has no row in rawgpu/amd/spec/hardware.py; rawgpu never guesses one",
     "attach the bundle to a report: a row needs the node's properties that it holds"),
    ("abi", "UnsupportedDevice", "",
     "the kernel's KFD is older than the oldest row", "a kernel of version 6.1 or later"),
    ("abi", "ProcessMustRestart", "",
     "another library in this process, or a run that was not ended, holds the GPU's address space",
     "run hwcheck alone; look for other users: fuser -v /dev/kfd"),
    ("abi", "KernelCallFailed", "AcquireVm",
     "the render file could not be bound to KFD: a different file of the GPU is bound, or the "
     "driver is in reset", "dmesg; a reboot, if a reset did not end"),
    ("abi", "apertures", "",
     "the kernel programs SH_MEM_BASES in another way than all kernels we know",
     "attach the bundle: flat addresses would be misjudged"),
    ("abi", "clock", "", "firmware or a reset set the counter back", "dmesg; run this stage again"),
    ("memory", "OutOfMemory", "VRAM",
     "another process holds the memory, or the display's BIOS carve-out is small (APUs)",
     "rocm-smi or /sys/class/drm/card*/device/mem_info_vram_used; close other programs"),
    ("memory", "OutOfMemory", "addresses",
     "the process's addresses below 1 << 40 are taken or limited", "ulimit -v unlimited"),
    ("*", "KernelCallFailed", r"CreateQueue.*EINVAL",
     "sizes of the context save area or control stack differ from the kernel's: the largest family "
     "of reports since kernel 6.12 (tinygrad #7765, #9363, #9384; TheRock #2991)",
     "compare figures save_area and save_area_told of stage abi; attach the bundle; "
     "amdgpu.cwsr_enable=0 as a trial"),
    ("*", "KernelCallFailed", r"CreateQueue.*EPERM",
     "the scheduling policy allows no more queues than the hardware has slots",
     "amdgpu.sched_policy=0; close other compute programs"),
    ("*", "KernelCallFailed", r"CreateQueue.*(ENOSPC|ENOMEM)",
     "all queues of the GPU or of the process are in use", "close other compute programs"),
    ("*", "KernelCallFailed", r"AllocMemoryOfGpu.*EINVAL",
     "the kernel does not take a flag: PUBLIC without a large BAR, or an old module",
     "attach the bundle: it holds the refused request"),
    ("*", "KernelCallFailed", r"MapMemoryToGpu",
     "the GPU's page tables could not be updated: another process hangs, or VRAM is short",
     "dmesg; run again with nothing else on the GPU"),
    ("doorbell", "doorbell-ignored", "",
     "the scheduler never put the queue on the hardware (MES or HWS firmware stuck, as after "
     "earlier hangs), or the doorbell page or the pointers are not where the firmware looks",
     "dmesg | grep -i 'mes\\|hws\\|kfd'; reboot; then attach the bundle (it has the ring)"),
    ("doorbell", "PageFault", "",
     "the command processor read the ring, the pointers or the end-of-pipe buffer at a wrong "
     "address", "attach the bundle: the address is in the message"),
    ("fence", "FenceTimeout", "",
     "packets are read (stage doorbell) and the fence is not written: RELEASE_MEM's layout for "
     "this generation, or its end-of-pipe buffer",
     "attach the bundle; dmesg for a page fault at 0"),
    ("timestamp", "clock", "",
     "the clock's frequency is not what DEV_INFO says, or the card sleeps between submits",
     "figure gpu_counter_khz of stage abi against clock_ratio here; amdgpu.runpm=0"),
    ("copy", "no-engine", "",
     "the kernel lists no SDMA engine: a virtual function, a partition, or SDMA firmware that did "
     "not load", "dmesg | grep -i sdma; copies go through a compute queue meanwhile"),
    ("copy", "DeviceError", "copy-engine queue",
     "all SDMA queues are in use (rocRAND #641)", "close other compute programs"),
    ("copy", "FenceTimeout", "",
     "the SDMA engine hangs (legacy-rocm-build #2781), or a packet's layout is wrong for this "
     "generation", "dmesg | grep -i sdma; attach the bundle"),
    ("copy", "wrong-data", "",
     "packets larger than this engine takes, or a DCC bit that must be clear (gfx12)",
     "attach the bundle: the size at which it began is in the message"),
    ("visibility", "small-bar", "",
     "Resizable BAR is off: the CPU reaches 256 MiB of VRAM. rawgpu copies through SDMA instead, "
     "which is slower and works",
     "firmware setup: Above 4G Decoding and Resizable BAR on; lspci -vv shows the BAR's size"),
    ("visibility", "stale-data", "seen by the device",
     "writes through the BAR were not flushed: the HDP flush register is not where the row says, "
     "or the MMIO page's flush does nothing here",
     "attach the bundle; the row's Feature.HDP_REGISTERS and nbio version are what to check"),
    ("visibility", "stale-data", "seen by the CPU",
     "the CPU read VRAM from HDP's read cache or a write-combining buffer",
     "attach the bundle; a platform with CXL or Thunderbolt is worth naming"),
    ("kernel", "Reset", "",
     "the wave was launched and did not end, and its queue could not be taken off the hardware: "
     "instruction cache not invalidated after upload, wave size in the initiator, scratch "
     "registers; on gfx103x try amdgpu.cwsr_enable=0 (tinygrad #5926)",
     "attach the bundle (the ring has the registers); dmesg from 'GPU reset begin' on"),
    ("*", "Reset", "",
     "the kernel reset the GPU during this stage: a hang that the scheduler could not preempt",
     "dmesg from 'GPU reset begin' on; run again with --from this stage after a reboot"),
    ("kernel", "FenceTimeout", "",
     "the wave was launched and did not end: instruction cache not invalidated after upload, wrong "
     "wave size in the initiator, or scratch registers; on gfx103x try amdgpu.cwsr_enable=0 "
     "(tinygrad #5926)", "attach the bundle (the ring has the registers); dmesg | grep sq_intr"),
    ("kernel", "stale-data", "",
     "the kernel ended and its stores are not seen: caches not written back before the fence",
     "attach the bundle; the row's CachePolicy is what to check"),
    ("kernel", "PageFault", "",
     "code, arguments or a descriptor at a wrong address; execute rights missing on VRAM",
     "the message has address and access"),
    ("arguments", "wrong-data", "",
     "kernarg offsets or preloaded SGPRs: the index in the message is the argument's number",
     "attach the bundle; on gfx90a and gfx942 check KERNARG_PRELOAD"),
    ("local", "LaunchError", "", "the row's lds_bytes is larger than this chip's",
     "compare lds_size_in_kb of the node's properties, in the bundle"),
    ("local", "FenceTimeout", "",
     "LDS_SIZE in the wrong granule (512, 1280 or 2048 bytes): the block never fits",
     "attach the bundle; lds_granule_bytes of the row"),
    ("local", "wrong-data", "",
     "less local memory was given than asked: LDS_SIZE in the wrong granule",
     "attach the bundle; lds_granule_bytes of the row"),
    ("scratch", "PageFault", "",
     "scratch base, wave size or the number of slots is wrong: waves ran past the backing",
     "attach the bundle; TMPRING_SIZE and max_slots_scratch_cu"),
    ("scratch", "wrong-data", "",
     "two waves shared scratch: WAVESIZE too small, or WAVES counted per engine where the chip "
     "counts per XCC", "attach the bundle; scratch.waves_per_engine of the row"),
    ("barriers", "wrong-data", "",
     "waves passed a barrier early, or local memory was reordered",
     "run the stage again with --only barriers; then attach the bundle"),
    ("events", "no-interrupt", "",
     "the interrupt does not carry the event's number on this firmware, or the kernel dropped it; "
     "rawgpu still works, by polling",
     "attach the bundle; interrupt_context_is_event of the row; dmesg for IH ring overflow"),
    ("queues", "FenceTimeout", "",
     "the second queue never ran: oversubscribed hardware queues, or a semaphore wait that blocks "
     "the pipe both share", "amdgpu.sched_policy=0; close other compute programs"),
    ("recording", "FenceTimeout", "",
     "an indirect buffer was not fetched: its size or VALID bit for this generation",
     "attach the bundle: the ring has the packet"),
    ("recording", "stale-data", "", "arguments patched in memory were read from a scalar cache",
     "attach the bundle; the submit row of CachePolicy"),
    ("fault-loop", "no-recovery", "",
     "the hung queue could not be removed (MES: REMOVE_QUEUE; legacy-rocm-build #6017), and the "
     "reset did not end", "dmesg; reboot"),
    ("*", "ProcessMustRestart", "",
     "after a page fault KFD before 1.19 runs nothing more for the process",
     "nothing: each stage has a process of its own"),
    ("*", "stuck", "",
     "the process is in an uninterruptible call of amdgpu (state D): the driver waits for hardware "
     "that does not answer (legacy-rocm-build #5745)",
     "dmesg; echo w > /proc/sysrq-trigger shows where; reboot"),
)  # fmt: skip
