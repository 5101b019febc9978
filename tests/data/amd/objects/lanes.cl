// How wide waves are: who votes, and what a lane reads of its wave's last one.

__kernel void votes(__global ulong *out, __global int *last) {
  int item = __builtin_amdgcn_workitem_id_x();
#ifdef WAVE64
  out[item] = __builtin_amdgcn_ballot_w64(item % 3 == 0);
  int lane = __builtin_amdgcn_mbcnt_hi(-1, __builtin_amdgcn_mbcnt_lo(-1, 0));
#else
  out[item] = __builtin_amdgcn_ballot_w32(item % 3 == 0);
  int lane = __builtin_amdgcn_mbcnt_lo(-1, 0);
#endif
  int other = __builtin_amdgcn_wavefrontsize() - 1 - lane;
  last[item] = __builtin_amdgcn_ds_bpermute(4 * other, item);
}
