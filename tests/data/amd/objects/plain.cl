// One kernel with nothing but arguments.

__kernel void saxpy(__global const float *x, __global float *y, float a, int n) {
  int i = __builtin_amdgcn_workgroup_id_x() * 64 + __builtin_amdgcn_workitem_id_x();
  if (i < n)
    y[i] = a * x[i] + y[i];
}
