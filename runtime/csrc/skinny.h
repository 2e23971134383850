// x (M, K) times the transpose of packed weights (N, K), for few rows: memory is read once, for all of them.
//
// Glossary
//   PANEL  output features side by side in memory: weights lie [ceil(N / PANEL)][K][PANEL], zero beyond feature N - 1
//   NV     vectors of one k of a panel     ROWS   rows of the register tile, which has ROWS * NV accumulators
//   DEPTH  k of one run of the tile: its weights stay in L1 while all groups of rows pass over them
//   BLOCK  rows that pass over a panel together, in groups of at most ROWS
//
// An output's sum has one order whatever M, the row's place and the threads: runs of DEPTH, each from zero by one
// multiply_add after the other in order of k; the runs' sums added in order; the bias last.
//
// Cost: M multiply-adds a weight. AVX2 does 16 a cycle in each core, so that f32 weights can come at 64 / M bytes a
// cycle and bf16 ones at 32 / M: for M = 8 and 3 GHz at 24 and 12 GB/s a core. Memory gives one 10 to 20, so M up to 8
// costs little more than M = 1, as long as memory is kept busy: the tile asks for the next run while it works on this.
#pragma once
#include "attnc/convert.h"

namespace attnc {
namespace {

#if defined(__AVX512F__) || defined(__aarch64__)
constexpr int REGISTERS = 32;
#else
constexpr int REGISTERS = 16;
#endif
constexpr int PANEL = 16, NV = PANEL / W, BLOCK = 16, DEPTH = 64;
constexpr int FREE = (REGISTERS - NV - 1) / NV;  // beside the weights of one k and one element of x
constexpr int ROWS = FREE < BLOCK ? FREE : BLOCK;

// Leaves x in a register: GCC would load a weight again for every row of a small tile, which is then bound by loads.
inline void keep(vf& x) {
#if defined(__AVX512F__)
  __asm__("" : "+v"(x));
#elif defined(__SSE2__)
  __asm__("" : "+x"(x));
#elif defined(__aarch64__)
  __asm__("" : "+w"(x));
#endif
}

// One k of a panel. bf16 is taken apart two vectors at a time, its even features and its odd ones, which costs one
// operation a vector; in_order puts sums of the two back into the order of features.
inline void load_features(const float* from, vf (&to)[NV]) {
  for (int n = 0; n < NV; n++) to[n] = load(from + n * W);
}
inline void load_features(const bf16* from, vf (&to)[NV]) {
  if constexpr (NV == 1) {
    to[0] = load_vector(from);
  } else {
    for (int n = 0; n < NV; n += 2) {
      const vu pairs = load_raw<vu>(from + n * W);
      to[n] = (vf)(pairs << 16);
      to[n + 1] = (vf)(pairs & 0xffff0000u);
    }
  }
}
inline void in_order(vf (&)[NV], const float*) {}
inline void in_order(vf (&x)[NV], const bf16*) {
  for (int n = 0; n + 1 < NV; n += 2) {
    const vf even = x[n], odd = x[n + 1];
    x[n] = ATTNC_LOW(even, odd);
    x[n + 1] = ATTNC_HIGH(even, odd);
  }
}

// sums (R, PANEL) += x (R, depth) · weights (depth, PANEL). Meanwhile asks for memory from `ahead`, `step` bytes a k.
template <int R, class T>
inline __attribute__((always_inline)) void linear_tile(const float* x, int64_t x_stride, const T* weights,
                                                       int64_t depth, const char* ahead, int64_t step,
                                                       float (*sums)[PANEL]) {
  vf acc[R][NV] = {};
#pragma GCC unroll 4
  for (int64_t k = 0; k < depth; k++, ahead += step) {
    __builtin_prefetch(ahead);
    vf features[NV];
    load_features(weights + k * PANEL, features);
    for (int n = 0; n < NV; n++) keep(features[n]);
    for (int r = 0; r < R; r++) {
      const vf factor = vf_of(x[r * x_stride + k]);
      for (int n = 0; n < NV; n++) acc[r][n] = multiply_add(factor, features[n], acc[r][n]);
    }
  }
  for (int r = 0; r < R; r++) {
    in_order(acc[r], weights);
    for (int n = 0; n < NV; n++) store(sums[r] + n * W, load(sums[r] + n * W) + acc[r][n]);
  }
}

template <int R = ROWS, class T>
inline __attribute__((always_inline)) void linear_rows(int64_t rows, const float* x, int64_t x_stride, const T* weights,
                                                       int64_t depth, const char* ahead, int64_t step,
                                                       float (*sums)[PANEL]) {
  if constexpr (R > 1)
    if (rows < R) return linear_rows<R - 1>(rows, x, x_stride, weights, depth, ahead, step, sums);
  linear_tile<R>(x, x_stride, weights, depth, ahead, step, sums);
}

// sums (rows, PANEL) += x (rows, depth) · panel (depth, PANEL), at most BLOCK rows. The groups of rows share the work
// of asking for the next run, so that memory is busy while they compute.
template <class T>
__attribute__((noinline)) void linear_panel(int64_t rows, const float* x, int64_t x_stride, const T* panel,
                                            int64_t depth, float (*sums)[PANEL]) {
  const int64_t groups = (rows + ROWS - 1) / ROWS;
  const int64_t step = (PANEL * int64_t(sizeof(T)) + groups - 1) / groups;
  for (int64_t k = 0; k < depth; k += DEPTH) {
    const char* next = reinterpret_cast<const char*>(panel + (k + DEPTH) * PANEL);
    for (int64_t g = 0; g < groups; g++) {
      const int64_t first = rows * g / groups, last = rows * (g + 1) / groups;
      linear_rows(last - first, x + first * x_stride + k, x_stride, panel + k * PANEL, min_of(DEPTH, depth - k),
                  next + g * DEPTH * step, step, sums + first);
    }
  }
}

// out (rows, features) = sums + bias, of the features that the panel has.
template <class T>
inline void store_sums(int64_t rows, const float (*sums)[PANEL], const float* bias, int64_t features, T* out,
                       int64_t out_stride) {
  for (int64_t r = 0; r < rows; r++, out += out_stride)
    if (features >= PANEL) {
      for (int n = 0; n < PANEL; n += W) store_vector(out + n, load(sums[r] + n) + load(bias + n));
    } else {
      for (int64_t n = 0; n < features; n++) store_one(out + n, sums[r][n] + bias[n]);
    }
}

}  // namespace
}  // namespace attnc
