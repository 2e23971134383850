// The register tile both products share, c (R, NV*W) (+)= a (R, depth) · b (depth, NV*W), and the packing it needs.
//
// Packed layouts, float32 whatever the operand's dtype:
//   K block   panels of NR keys, each [d][NR]: a transpose, so that a vector holds the same d of W keys
//   V block   panels of NR features, each [key][NR]; the last one is [key][W] where W features or fewer remain
//   Q tile    [row][d], the score's constant factor multiplied in
// What lies beyond the last key or the last feature is zero.
#pragma once
#include "attnc/convert.h"

namespace attnc {
namespace {

template <int R, int NV, bool ACCUMULATE>
inline __attribute__((always_inline)) void register_tile(const float* a, int64_t a_stride, const float* b, int64_t depth,
                                                         float* c, int64_t c_stride) {
  vf acc[R][NV];
  for (int r = 0; r < R; r++)
    for (int n = 0; n < NV; n++) acc[r][n] = ACCUMULATE ? load(c + r * c_stride + n * W) : vf{};
#pragma GCC unroll 4
  for (int64_t i = 0; i < depth; i++) {
    vf column[NV];
    for (int n = 0; n < NV; n++) column[n] = load(b + i * NV * W + n * W);
    for (int r = 0; r < R; r++) {
      const vf x = vf_of(a[r * a_stride + i]);
      for (int n = 0; n < NV; n++) acc[r][n] = multiply_add(x, column[n], acc[r][n]);
    }
  }
  for (int r = 0; r < R; r++)
    for (int n = 0; n < NV; n++) store(c + r * c_stride + n * W, acc[r][n]);
}

// The product for any number of rows, in tiles of MR, then 4, 2 and 1 rows. Each row's sums are the same whichever tile it
// is in.
template <int NV, bool ACCUMULATE, int R = MR>
inline __attribute__((always_inline)) void multiply(int64_t rows, const float* a, int64_t a_stride, const float* b,
                                                    int64_t depth, float* c, int64_t c_stride) {
  for (; rows >= R; rows -= R, a += R * a_stride, c += R * c_stride)
    register_tile<R, NV, ACCUMULATE>(a, a_stride, b, depth, c, c_stride);
  if constexpr (R > 1) multiply<NV, ACCUMULATE, (R > 4 ? 4 : R / 2)>(rows, a, a_stride, b, depth, c, c_stride);
}

// `count` rows (at most NR) of k, `d` long, to one panel [d][NR].
template <class T>
inline void pack_key_panel(const T* k, int64_t row, int64_t col, int64_t count, int64_t d, float* to) {
  int64_t i = 0;
  if (col == 1) {
    for (; i + W <= d; i += W)
      for (int half = 0; half < NR; half += W) {
        vf x[W];
        for (int j = 0; j < W; j++) x[j] = half + j < count ? load_vector(k + (half + j) * row + i) : vf{};
        transpose(x);
        for (int j = 0; j < W; j++) store(to + (i + j) * NR + half, x[j]);
      }
  }
  for (; i < d; i++)
    for (int64_t j = 0; j < NR; j++) to[i * NR + j] = j < count ? value_of(k[j * row + i * col]) : 0.f;
}

// One row of x, `n` long, to floats times `factor`.
template <class T>
inline void pack_row(const T* x, int64_t col, int64_t n, float factor, float* to) {
  int64_t i = 0;
  if (col == 1)
    for (; i + W <= n; i += W) store(to + i, load_vector(x + i) * factor);
  for (; i < n; i++) to[i] = value_of(x[i * col]) * factor;
}

// `count` rows of v, features from e0 to e0 + min(width, left), to one panel [count][width].
template <class T>
inline void pack_value_panel(const T* v, int64_t row, int64_t col, int64_t count, int64_t left, int64_t width, float* to) {
  for (int64_t j = 0; j < count; j++, v += row, to += width) {
    if (col == 1 && left >= width) {
      for (int64_t i = 0; i < width; i += W) store(to + i, load_vector(v + i));
    } else {
      for (int64_t i = 0; i < width; i++) to[i] = i < left ? value_of(v[i * col]) : 0.f;
    }
  }
}

// One row of floats to an operand's dtype.
template <class T>
inline void store_row(const float* x, int64_t n, float factor, T* to, int64_t col) {
  int64_t i = 0;
  if (col == 1)
    for (; i + W <= n; i += W) store_vector(to + i, load(x + i) * factor);
  for (; i < n; i++) store_one(to + i * col, x[i] * factor);
}

}  // namespace
}  // namespace attnc
