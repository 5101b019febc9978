// Private memory: an array at a run-time index, a recursion, and a call through a pointer.

#pragma OPENCL EXTENSION __cl_clang_function_pointers : enable

int place(void) {
  int groups = __builtin_amdgcn_workgroup_id_x();
  return groups * 64 + __builtin_amdgcn_workitem_id_x();
}

__kernel void array(__global int *out, int n) {
  volatile int room[63];
  int item = __builtin_amdgcn_workitem_id_x();
  for (int i = 0; i < n; i++)
    room[i % 63] = i * i + item;
  out[place()] = room[(item + n) % 63];
}

__attribute__((noinline)) int fibonacci(int n) {
  return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2);
}

__kernel void recursion(__global int *out, __global const int *in) {
  out[place()] = fibonacci(in[place()] % 6);
}

__attribute__((noinline)) int twice(int x) { return 2 * x; }
__attribute__((noinline)) int square(int x) { return x * x; }

__kernel void indirect(__global int *out, int which) {
  int (*chosen)(int) = which ? twice : square;
  out[place()] = chosen(place());
}
