"""Processor and feature names of LLVM's tables, one row per architecture. Data.

Printed by LLVM itself when asked for the processor "help"; a test asks again, so that
a new LLVM with other names fails there. SPIR-V has neither processors nor features.
Source: LLVM 22.1 in llvmlite 0.50.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Names:
    """Names of one architecture; an empty `cpus` means that any processor name is ignored."""

    cpus: tuple[str, ...]
    features: tuple[str, ...]


def _names(cpus: str, features: str) -> Names:
    return Names(tuple(cpus.split()), tuple(features.split()))


TABLES: dict[str, Names] = {
    "x86_64": _names(
        """
        alderlake amdfam10 arrowlake arrowlake-s arrowlake_s athlon athlon-4 athlon-fx athlon-mp
        athlon-tbird athlon-xp athlon64 athlon64-sse3 atom atom_sse4_2 atom_sse4_2_movbe
        barcelona bdver1 bdver2 bdver3 bdver4 bonnell broadwell btver1 btver2 c3 c3-2 cannonlake
        cascadelake clearwaterforest cooperlake core-avx-i core-avx2 core2 core_2_duo_sse4_1
        core_2_duo_ssse3 core_2nd_gen_avx core_3rd_gen_avx core_4th_gen_avx core_4th_gen_avx_tsx
        core_5th_gen_avx core_5th_gen_avx_tsx core_aes_pclmulqdq core_i7_sse4_2 corei7
        corei7-avx diamondrapids emeraldrapids generic geode goldmont goldmont-plus
        goldmont_plus gracemont grandridge graniterapids graniterapids-d graniterapids_d haswell
        i386 i486 i586 i686 icelake-client icelake-server icelake_client icelake_server
        ivybridge k6 k6-2 k6-3 k8 k8-sse3 knl knm lakemont lunarlake meteorlake mic_avx512
        nehalem nocona novalake opteron opteron-sse3 pantherlake penryn pentium pentium-m
        pentium-mmx pentium2 pentium3 pentium3m pentium4 pentium4m pentium_4 pentium_4_sse3
        pentium_ii pentium_iii pentium_iii_no_xmm_regs pentium_m pentium_mmx pentium_pro
        pentiumpro prescott raptorlake rocketlake sandybridge sapphirerapids sierraforest
        silvermont skx skylake skylake-avx512 skylake_avx512 slm tigerlake tremont westmere
        wildcatlake winchip-c6 winchip2 x86-64 x86-64-v2 x86-64-v3 x86-64-v4 yonah znver1 znver2
        znver3 znver4 znver5
        """,
        """
        16bit-mode 32bit-mode 64bit 64bit-mode adx aes allow-light-256-bit amx-avx512 amx-bf16
        amx-complex amx-fp16 amx-fp8 amx-int8 amx-movrs amx-tf32 amx-tile avx avx10.1
        avx10.1-512 avx10.2 avx10.2-512 avx2 avx512bf16 avx512bitalg avx512bw avx512cd avx512dq
        avx512f avx512fp16 avx512ifma avx512vbmi avx512vbmi2 avx512vl avx512vnni
        avx512vp2intersect avx512vpopcntdq avxifma avxneconvert avxvnni avxvnniint16 avxvnniint8
        bmi bmi2 branch-hint branchfusion ccmp cf cldemote clflushopt clwb clzero cmov cmpccxadd
        crc32 cx16 cx8 egpr enqcmd ermsb evex512 f16c false-deps-getmant false-deps-lzcnt-tzcnt
        false-deps-mulc false-deps-mullq false-deps-perm false-deps-popcnt false-deps-range
        fast-11bytenop fast-15bytenop fast-7bytenop fast-bextr fast-dpwssd fast-gather fast-hops
        fast-imm16 fast-lzcnt fast-movbe fast-scalar-fsqrt fast-scalar-shift-masks
        fast-shld-rotate fast-variable-crosslane-shuffle fast-variable-perlane-shuffle
        fast-vector-fsqrt fast-vector-shift-masks faster-shift-than-shuffle fma fma4 fsgsbase
        fsrm fxsr gfni harden-sls-ijmp harden-sls-ret hreset idivl-to-divb idivq-to-divl
        inline-asm-use-gpr32 invpcid kl lea-sp lea-uses-ag lvi-cfi lvi-load-hardening lwp lzcnt
        macrofusion mmx movbe movdir64b movdiri movrs mwaitx ndd nf no-bypass-delay
        no-bypass-delay-blend no-bypass-delay-mov no-bypass-delay-shuffle nopl
        pad-short-functions pclmul pconfig pku popcnt ppx prefer-128-bit prefer-256-bit
        prefer-legacy-setcc prefer-mask-registers prefer-movmsk-over-vtest prefer-no-gather
        prefer-no-scatter prefetchi prfchw ptwrite push2pop2 raoint rdpid rdpru rdrnd rdseed
        retpoline retpoline-external-thunk retpoline-indirect-branches retpoline-indirect-calls
        rtm sahf sbb-dep-breaking serialize seses sgx sha sha512 shstk slow-3ops-lea slow-incdec
        slow-lea slow-pmaddwd slow-pmulld slow-pmullq slow-shld slow-two-mem-ops
        slow-unaligned-mem-16 slow-unaligned-mem-32 sm3 sm4 soft-float sse sse-unaligned-mem
        sse2 sse3 sse4.1 sse4.2 sse4a ssse3 tagged-globals tbm tsxldtrk
        tuning-fast-imm-vector-shift uintr use-glm-div-sqrt-costs use-slm-arith-costs usermsr
        vaes vpclmulqdq vzeroupper waitpkg wbnoinvd widekl x32 x87 xop xsave xsavec xsaveopt
        xsaves zu
        """,
    ),
    "aarch64": _names(
        """
        a64fx ampere1 ampere1a ampere1b ampere1c apple-a10 apple-a11 apple-a12 apple-a13
        apple-a14 apple-a15 apple-a16 apple-a17 apple-a18 apple-a19 apple-a7 apple-a8 apple-a9
        apple-m1 apple-m2 apple-m3 apple-m4 apple-m5 apple-s10 apple-s4 apple-s5 apple-s6
        apple-s7 apple-s8 apple-s9 c1-nano c1-premium c1-pro c1-ultra carmel cobalt-100
        cortex-a320 cortex-a34 cortex-a35 cortex-a510 cortex-a520 cortex-a520ae cortex-a53
        cortex-a55 cortex-a57 cortex-a65 cortex-a65ae cortex-a710 cortex-a715 cortex-a72
        cortex-a720 cortex-a720ae cortex-a725 cortex-a73 cortex-a75 cortex-a76 cortex-a76ae
        cortex-a77 cortex-a78 cortex-a78ae cortex-a78c cortex-r82 cortex-r82ae cortex-x1
        cortex-x1c cortex-x2 cortex-x3 cortex-x4 cortex-x925 cyclone exynos-m3 exynos-m4
        exynos-m5 falkor fujitsu-monaka gb10 generic grace kryo neoverse-512tvb neoverse-e1
        neoverse-n1 neoverse-n2 neoverse-n3 neoverse-v1 neoverse-v2 neoverse-v3 neoverse-v3ae
        olympus oryon-1 saphira thunderx thunderx2t99 thunderx3t110 thunderxt81 thunderxt83
        thunderxt88 tsv110
        """,
        """
        CONTEXTIDREL2 a320 a35 a510 a520 a520ae a53 a55 a57 a64fx a65 a710 a715 a72 a720 a720ae
        a73 a75 a76 a77 a78 a78ae a78c addr-lsl-slow-14 aes aggressive-fma
        aggressive-interleaving all alternate-sextload-cvt-f32-pattern altnzcv alu-lsl-fast am
        ampere1 ampere1a ampere1b ampere1c amvs apple-a10 apple-a11 apple-a12 apple-a13
        apple-a14 apple-a15 apple-a16 apple-a17 apple-a7 apple-m4 apple-m5 arith-bcc-fusion
        arith-cbz-fusion ascend-store-address avoid-ldapur balance-fp-ops bf16 brbe bti btie
        c1-nano c1-premium c1-pro c1-ultra call-saved-x10 call-saved-x11 call-saved-x12
        call-saved-x13 call-saved-x14 call-saved-x15 call-saved-x18 call-saved-x8 call-saved-x9
        carmel ccdp ccidx ccpp chk clrbhb cmh cmp-bcc-fusion cmpbr complxnum cortex-a725
        cortex-r82 cortex-r82ae cortex-x1 cortex-x2 cortex-x3 cortex-x4 cortex-x925 cpa crc
        crypto cssc d128 disable-fast-inc-vl disable-latency-sched-heuristic disable-ldp
        disable-maximize-scalable-bandwidth disable-stp disable-unpredicated-ld-st-lower dit
        dotprod ecv el2vmsa el3 enable-select-opt ete execute-only exynos-cheap-as-move exynosm3
        exynosm4 f16f32dot f16f32mm f16mm f32mm f64mm f8f16mm f8f32mm falkor faminmax fgt
        fix-cortex-a53-835769 flagm fmv force-32bit-jump-tables fp-armv8 fp16fml fp8 fp8dot2
        fp8dot4 fp8fma fpac fprcvt fptoint fujitsu-monaka fullfp16 fuse-address
        fuse-addsub-2reg-const1 fuse-adrp-add fuse-aes fuse-arith-logic fuse-crypto-eor
        fuse-csel fuse-cset fuse-literals gcie gcs harden-sls-blr harden-sls-nocomdat
        harden-sls-retbr hbc hcx i8mm ite jsconv kryo ldp-aligned-only lor ls64 lscp lse lse128
        lse2 lsfe lsui lut max-interleave-factor-4 mec mops mops-go mpam mpamv2 mte mtetc neon
        neoverse512tvb neoversee1 neoversen1 neoversen2 neoversen3 neoversev1 neoversev2
        neoversev3 neoversev3AE nmi no-bti-at-return-twice no-neg-immediates no-sve-fp-ld1r
        no-zcz-fpr64 nv occmo olympus oryon-1 outline-atomics pan pan-rwv pauth pauth-lr
        pcdphint perfmon poe2 pops predictable-select-expensive predres prfm-slc-target rand ras
        rasv2 rcpc rcpc-immo rcpc3 rdm reserve-lr-for-ra reserve-x1 reserve-x10 reserve-x11
        reserve-x12 reserve-x13 reserve-x14 reserve-x15 reserve-x18 reserve-x2 reserve-x20
        reserve-x21 reserve-x22 reserve-x23 reserve-x24 reserve-x25 reserve-x26 reserve-x27
        reserve-x28 reserve-x3 reserve-x4 reserve-x5 reserve-x6 reserve-x7 reserve-x9 rme
        saphira sb sel2 sha2 sha3 slow-misaligned-128store slow-paired-128 slow-strqro-store sm4
        sme sme-b16b16 sme-f16f16 sme-f64f64 sme-f8f16 sme-f8f32 sme-fa64 sme-i16i64 sme-lutv2
        sme-mop4 sme-tmop sme2 sme2p1 sme2p2 sme2p3 spe spe-eef specres2 specrestrict ssbs
        ssve-aes ssve-bitperm ssve-fexpa ssve-fp8dot2 ssve-fp8dot4 ssve-fp8fma
        store-pair-suppress stp-aligned-only strict-align sve sve-aes sve-aes2 sve-b16b16
        sve-b16mm sve-bfscale sve-bitperm sve-f16f32mm sve-sha3 sve-sm4 sve2 sve2-aes
        sve2-bitperm sve2-sha3 sve2-sm4 sve2p1 sve2p2 sve2p3 tagged-globals tev the thunderx
        thunderx2t99 thunderx3t110 thunderxt81 thunderxt83 thunderxt88 tlb-rmi tlbid tlbiw
        tpidr-el1 tpidr-el2 tpidr-el3 tpidrro-el0 tracev8.4 trbe tsv110 uaops
        use-experimental-zeroing-pseudos use-fixed-over-scalable-if-equal-cost
        use-postra-scheduler use-reciprocal-square-root use-wzr-to-vec-move v8.1a v8.2a v8.3a
        v8.4a v8.5a v8.6a v8.7a v8.8a v8.9a v8a v8r v9.1a v9.2a v9.3a v9.4a v9.5a v9.6a v9.7a
        v9a vh wfxt xs zcm-fpr128 zcm-fpr32 zcm-fpr64 zcm-gpr32 zcm-gpr64 zcz-fp-workaround
        zcz-fpr128 zcz-gpr32 zcz-gpr64
        """,
    ),
    "amdgcn": _names(
        """
        bonaire carrizo fiji generic generic-hsa gfx10-1-generic gfx10-3-generic gfx1010 gfx1011
        gfx1012 gfx1013 gfx1030 gfx1031 gfx1032 gfx1033 gfx1034 gfx1035 gfx1036 gfx11-generic
        gfx1100 gfx1101 gfx1102 gfx1103 gfx1150 gfx1151 gfx1152 gfx1153 gfx12-generic gfx1200
        gfx1201 gfx1250 gfx1251 gfx600 gfx601 gfx602 gfx700 gfx701 gfx702 gfx703 gfx704 gfx705
        gfx801 gfx802 gfx803 gfx805 gfx810 gfx9-4-generic gfx9-generic gfx900 gfx902 gfx904
        gfx906 gfx908 gfx909 gfx90a gfx90c gfx942 gfx950 hainan hawaii iceland kabini kaveri
        mullins oland pitcairn polaris10 polaris11 stoney tahiti tonga tongapro verde
        """,
        """
        1024-addressable-vgprs 16-bit-insts 45-bit-num-records-buffer-resource 64-bit-literals
        DumpCode a16 add-min-max-insts add-no-carry-insts add-sub-u64-insts
        addressablelocalmemorysize163840 addressablelocalmemorysize32768
        addressablelocalmemorysize327680 addressablelocalmemorysize65536
        agent-scope-fine-grained-remote-memory-atomics allocate1_5xvgprs aperture-regs
        architected-flat-scratch architected-sgprs ashr-pk-insts assembler-permissive-wavesize
        atomic-buffer-global-pk-add-f16-insts atomic-buffer-global-pk-add-f16-no-rtn-insts
        atomic-buffer-pk-add-bf16-inst atomic-csub-no-rtn-insts atomic-ds-pk-add-16-insts
        atomic-fadd-no-rtn-insts atomic-fadd-rtn-insts atomic-flat-pk-add-16-insts
        atomic-fmin-fmax-flat-f32 atomic-fmin-fmax-flat-f64 atomic-fmin-fmax-global-f32
        atomic-fmin-fmax-global-f64 atomic-global-pk-add-bf16-inst auto-waitcnt-before-barrier
        back-off-barrier bf16-cvt-insts bf16-pk-insts bf16-trans-insts bf8-cvt-scale-insts
        bitop3-insts block-vgpr-csr bvh-dual-bvh-8-insts ci-insts clusters cube-insts cumode
        cvt-fp8-vop1-bug cvt-norm-insts cvt-pk-f16-f32-inst cvt-pknorm-vop2-insts
        cvt-pknorm-vop3-insts d16-write-vgpr32 default-component-broadcast
        default-component-zero dl-insts dot1-insts dot10-insts dot11-insts dot12-insts
        dot13-insts dot2-insts dot3-insts dot4-insts dot5-insts dot6-insts dot7-insts dot8-insts
        dot9-insts dpp dpp-64bit dpp-src1-sgpr dpp8 ds-src2-insts dumpcode
        emulated-system-scope-atomics enable-ds128 enable-flat-scratch enable-prt-strict-null
        extended-image-insts f16bf16-to-fp6bf6-cvt-scale-insts f32-to-f16bf16-cvt-sr-insts
        fast-denormal-f32 fast-fmaf flat-address-space flat-atomic-fadd-f32-inst
        flat-buffer-global-fadd-f64-inst flat-for-global flat-global-insts flat-gvs-mode
        flat-inst-offsets flat-scratch-insts flat-segment-offset-bug fma-mix-bf16-insts
        fma-mix-insts fmacf64-inst fmaf fp4-cvt-scale-insts fp64 fp6bf6-cvt-scale-insts
        fp8-conversion-insts fp8-cvt-scale-insts fp8-insts fp8e5m3-insts full-rate-64-ops g16
        gcn3-encoding gds get-wave-id-inst gfx10 gfx10-3-insts gfx10-insts gfx10_a-encoding
        gfx10_b-encoding gfx11 gfx11-insts gfx12 gfx12-insts gfx1250-insts gfx7-gfx8-gfx9-insts
        gfx8-insts gfx9 gfx9-insts gfx90a-insts gfx940-insts gfx950-insts
        globally-addressable-scratch gws half-rate-64-ops ieee-minimum-maximum-insts
        image-gather4-d16-bug image-insts image-store-d16-bug inst-fwd-prefetch-bug
        int-clamp-insts inv-2pi-inline-imm kernarg-preload lds-barrier-arrive-atomic
        lds-branch-vmem-war-hazard lds-misaligned-bug ldsbankcount16 ldsbankcount32 lerp-inst
        load-store-opt lshl-add-u64-inst mad-intra-fwd-bug mad-mac-f32-insts mad-mix-insts
        mad-u32-inst mai-insts max-hard-clause-length-32 max-hard-clause-length-63
        max-private-element-size-16 max-private-element-size-4 max-private-element-size-8
        mcast-load-insts memory-atomic-fadd-f32-denormal-support mfma-inline-literal-bug
        mimg-r128 min3-max3-pkf16 minimum3-maximum3-f16 minimum3-maximum3-f32
        minimum3-maximum3-pkf16 movrel msaa-load-dst-sel-bug negative-scratch-offset-bug
        negative-unaligned-scratch-offset-bug no-data-dep-hazard no-sdst-cmpx nsa-clause-bug
        nsa-encoding nsa-to-vmem-bug offset-3f-bug packed-fp32-ops packed-tid
        partial-nsa-encoding permlane16-swap permlane32-swap pk-add-min-max-insts
        pk-fmac-f16-inst point-sample-accel precise-memory priv-enabled-trap2-nop-bug prng-inst
        promote-alloca pseudo-scalar-trans qsad-insts r128-a16 real-true16
        relaxed-buffer-oob-mode required-export-priority requires-cov6 restricted-soffset
        s-memrealtime s-memtime-inst s-wakeup-barrier-inst sad-insts safe-cu-prefetch
        safe-smem-prefetch salu-float scalar-atomics scalar-dwordx3-loads
        scalar-flat-scratch-insts scalar-stores sdwa sdwa-mav sdwa-omod sdwa-out-mods-vopc
        sdwa-scalar sdwa-sdst sea-islands setprio-inc-wg-inst setreg-vgpr-msb-fixup
        sgpr-init-bug shader-cycles-hi-lo-registers shader-cycles-register si-scheduler
        smem-to-vector-write-hazard southern-islands sramecc sramecc-support tanh-insts
        tensor-cvt-lut-insts tgsplit transpose-load-f4f6-insts trap-handler trig-reduced-range
        true16 unaligned-access-mode unaligned-buffer-access unaligned-ds-access
        unaligned-scratch-access unpacked-d16-vmem unsafe-ds-offset-folding user-sgpr-init16-bug
        valu-trans-use-hazard vcmpx-exec-war-hazard vcmpx-permlane-hazard vgpr-align2
        vgpr-index-mode vmem-pref-insts vmem-to-lds-load-insts vmem-to-scalar-write-hazard
        vmem-write-vgpr-in-order volcanic-islands vop3-literal vop3p vopd vscnt wait-xcnt
        waits-before-system-scope-stores wavefrontsize16 wavefrontsize32 wavefrontsize64
        xf32-insts xnack xnack-support
        """,
    ),
    "nvptx64": _names(
        """
        sm_100 sm_100a sm_100f sm_101 sm_101a sm_101f sm_103 sm_103a sm_103f sm_110 sm_110a
        sm_110f sm_120 sm_120a sm_120f sm_121 sm_121a sm_121f sm_20 sm_21 sm_30 sm_32 sm_35
        sm_37 sm_50 sm_52 sm_53 sm_60 sm_61 sm_62 sm_70 sm_72 sm_75 sm_80 sm_86 sm_87 sm_88
        sm_89 sm_90 sm_90a
        """,
        """
        ptx32 ptx40 ptx41 ptx42 ptx43 ptx50 ptx60 ptx61 ptx62 ptx63 ptx64 ptx65 ptx70 ptx71
        ptx72 ptx73 ptx74 ptx75 ptx76 ptx77 ptx78 ptx80 ptx81 ptx82 ptx83 ptx84 ptx85 ptx86
        ptx87 ptx88 ptx90 sm_100 sm_100a sm_100f sm_101 sm_101a sm_101f sm_103 sm_103a sm_103f
        sm_110 sm_110a sm_110f sm_120 sm_120a sm_120f sm_121 sm_121a sm_121f sm_20 sm_21 sm_30
        sm_32 sm_35 sm_37 sm_50 sm_52 sm_53 sm_60 sm_61 sm_62 sm_70 sm_72 sm_75 sm_80 sm_86
        sm_87 sm_88 sm_89 sm_90 sm_90a
        """,
    ),
    "spirv64": Names((), ()),
}
