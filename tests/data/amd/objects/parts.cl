// Local memory, a constant table, data that points to data, a call, and several kernels in one file.

#pragma OPENCL EXTENSION cl_khr_fp16 : enable

__constant int table[8] = {1, 20, 300, 4000, 50000, 600000, 7000000, 80000000};
#define SEEN __attribute__((visibility("default")))  // reached through the table of addresses
SEEN __global int counter = 7;
__global int *__global pointer = &counter;
SEEN __global int zeros[16];

__attribute__((noinline)) int look_up(int value, int number) {
  counter += value;
  return table[number & 7] + *pointer;
}

__kernel void saxpy(__global const float *x, __global float *y, float a, int n) {
  int i = __builtin_amdgcn_workgroup_id_x() * 64 + __builtin_amdgcn_workitem_id_x();
  if (i < n)
    y[i] = a * x[i] + y[i];
}

__attribute__((reqd_work_group_size(256, 1, 1)))
__kernel void mirror(__global int *out) {
  __local int shared[256];
  int item = __builtin_amdgcn_workitem_id_x();
  int at = __builtin_amdgcn_workgroup_id_x() * 256 + item;
  shared[item] = at;
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
  out[at] = shared[255 - item];
}

__attribute__((reqd_work_group_size(1, 1, 1)))
__kernel void bump(__global int *out, int number) {
  out[0] = look_up(2, number);
  out[1] = zeros[number & 15];
  zeros[number & 15] = out[0];
}

__kernel void convert(__global const float *in, __global double *wide, __global half *narrow) {
  int i = __builtin_amdgcn_workitem_id_x();
  wide[i] = (double)in[i] * (double)in[i];
  narrow[i] = (half)in[i];
}
