// What a kernel is told of its launch: the hidden arguments as they lie in memory, and sizes.

#ifndef HIDDEN_DWORDS
#define HIDDEN_DWORDS 64
#endif

__kernel void hidden(__global uint *out, ushort odd) {
  __constant uint *words = (__constant uint *)__builtin_amdgcn_implicitarg_ptr();
  uint item = __builtin_amdgcn_workitem_id_x();
  for (uint i = item; i < HIDDEN_DWORDS; i += __builtin_amdgcn_workgroup_size_x())
    out[i] = words[i] + odd;
}

__kernel void number(__global uint *out) {
  uint width = __builtin_amdgcn_workgroup_size_x(), height = __builtin_amdgcn_workgroup_size_y();
  uint depth = __builtin_amdgcn_workgroup_size_z();
  uint x = __builtin_amdgcn_workgroup_id_x() * width + __builtin_amdgcn_workitem_id_x();
  uint y = __builtin_amdgcn_workgroup_id_y() * height + __builtin_amdgcn_workitem_id_y();
  uint z = __builtin_amdgcn_workgroup_id_z() * depth + __builtin_amdgcn_workitem_id_z();
  uint row = __builtin_amdgcn_grid_size_x(), plane = row * __builtin_amdgcn_grid_size_y();
  out[z * plane + y * row + x] = width + 100 * height + 10000 * depth + 1000000 * z;
}
