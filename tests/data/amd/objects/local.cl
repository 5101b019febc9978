// One kernel that has local memory and reads its dispatch packet.

__kernel void reverse(__global int *out) {
  __local int shared[200];
  __constant ushort *packet = (__constant ushort *)__builtin_amdgcn_dispatch_ptr();
  int width = packet[2], item = __builtin_amdgcn_workitem_id_x();
  int at = __builtin_amdgcn_workgroup_id_x() * width + item;
  shared[item] = at;
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
  out[at] = shared[width - 1 - item];
}
