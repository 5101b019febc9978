// The kernels of `rawgpu bench virtual`, for clang 19 (`__init__.py` has the command).

#define TILE 64
#define DEPTH 16
#define ITEMS 256

static void barrier_of_group(void) {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}

// c = a b, row-major, n a multiple of 64. A group makes 64 x 64 of c, an item 4 x 4, through tiles
// of 16 columns of a, transposed, and 16 rows of b in local memory.
__kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1)))
void matmul(__global const float4 *a, __global const float4 *b, __global float4 *c, unsigned n) {
  __local float left[DEPTH][TILE];
  __local float4 right[DEPTH][TILE / 4];
  unsigned item = __builtin_amdgcn_workitem_id_x();
  unsigned row0 = __builtin_amdgcn_workgroup_id_y() * TILE;
  unsigned column0 = __builtin_amdgcn_workgroup_id_x() * TILE;
  unsigned x = item % 16, y = item / 16;
  unsigned quads = n / 4;
  float4 sum[4] = {0, 0, 0, 0};
  for (unsigned k0 = 0; k0 < n; k0 += DEPTH) {
    unsigned row = item / 4, quad = item % 4;
    float4 part = a[(row0 + row) * quads + k0 / 4 + quad];
    left[4 * quad + 0][row] = part.x;
    left[4 * quad + 1][row] = part.y;
    left[4 * quad + 2][row] = part.z;
    left[4 * quad + 3][row] = part.w;
    right[y][x] = b[(k0 + y) * quads + column0 / 4 + x];
    barrier_of_group();
    for (unsigned k = 0; k < DEPTH; k++) {
      float4 l = *(__local float4 *)&left[k][4 * y];
      float4 r = right[k][x];
      sum[0] += l.x * r;
      sum[1] += l.y * r;
      sum[2] += l.z * r;
      sum[3] += l.w * r;
    }
    barrier_of_group();
  }
  for (unsigned i = 0; i < 4; i++)
    c[(row0 + 4 * y + i) * quads + column0 / 4 + x] = sum[i];
}

static float sum_of_group(__local float *room, unsigned item, float value) {
  room[item] = value;
  for (unsigned step = ITEMS / 2; step; step /= 2) {
    barrier_of_group();
    if (item < step)
      room[item] += room[item + step];
  }
  barrier_of_group();
  return room[0];
}

// out[g] = the sum of x[16 * 256 * g] and the 4095 that follow.
__kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1)))
void reduction(__global const float *x, __global float *out) {
  __local float room[ITEMS];
  unsigned item = __builtin_amdgcn_workitem_id_x(), group = __builtin_amdgcn_workgroup_id_x();
  float sum = 0;
  for (unsigned i = 0; i < 16; i++)
    sum += x[(group * 16 + i) * ITEMS + item];
  sum = sum_of_group(room, item, sum);
  if (item == 0)
    out[group] = sum;
}

// Row g of out = the softmax of row g of x; rows of 1024.
__kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1)))
void softmax(__global const float *x, __global float *out) {
  __local float room[ITEMS];
  unsigned item = __builtin_amdgcn_workitem_id_x(), group = __builtin_amdgcn_workgroup_id_x();
  float value[4], most = -__builtin_inff();
  for (unsigned i = 0; i < 4; i++) {
    value[i] = x[group * 1024 + i * ITEMS + item];
    most = __builtin_fmaxf(most, value[i]);
  }
  room[item] = most;
  for (unsigned step = ITEMS / 2; step; step /= 2) {
    barrier_of_group();
    if (item < step)
      room[item] = __builtin_fmaxf(room[item], room[item + step]);
  }
  barrier_of_group();
  most = room[0];
  barrier_of_group();
  float sum = 0;
  for (unsigned i = 0; i < 4; i++) {
    value[i] = __builtin_amdgcn_exp2f((value[i] - most) * 1.44269504f);
    sum += value[i];
  }
  sum = sum_of_group(room, item, sum);
  float scale = __builtin_amdgcn_rcpf(sum);
  for (unsigned i = 0; i < 4; i++)
    out[group * 1024 + i * ITEMS + item] = value[i] * scale;
}
