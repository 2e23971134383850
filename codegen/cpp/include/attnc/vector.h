// Vectors of W lanes on GCC/Clang vector extensions: one source for AVX2, AVX-512, NEON and plain SSE2.
//
// Glossary
//   vf  W floats                vi  W int32            vl  W int64 (may take two registers)
//   vb  W truth values, held as int32 lanes of 0 or -1 (the result of comparing vf or vi)
//   MR  rows of a register tile; NR = 2 W its columns. MR * 2 accumulators + 3 must fit the register file.
#pragma once
#include <stdint.h>
#include <string.h>

namespace attnc {
namespace {

#if defined(__AVX512F__)
constexpr int W = 16, MR = 8;
#elif defined(__AVX__)
constexpr int W = 8, MR = 6;
#elif defined(__aarch64__)
constexpr int W = 4, MR = 8;
#else
constexpr int W = 4, MR = 6;
#endif
constexpr int NR = 2 * W;

typedef float vf __attribute__((vector_size(W * 4)));
typedef int32_t vi __attribute__((vector_size(W * 4)));
typedef uint32_t vu __attribute__((vector_size(W * 4)));
typedef int64_t vl __attribute__((vector_size(W * 8)));
typedef vi vb;

constexpr float INF = __builtin_inff();

inline vf vf_of(float x) { return x - vf{}; }  // x - 0, not x + 0: keeps -0
inline vi vi_of(int32_t x) { return x + vi{}; }
inline vl vl_of(int64_t x) { return x + vl{}; }
inline vb vb_of(bool x) { return vi_of(-int32_t(x)); }

template <class V, class T>
inline V load_raw(const T* p) {
  V r;
  memcpy(&r, p, sizeof r);
  return r;
}
inline vf load(const float* p) { return load_raw<vf>(p); }
inline void store(float* p, vf x) { memcpy(p, &x, sizeof x); }

inline vi bits(vf x) { return (vi)x; }
inline vf from_bits(vi x) { return (vf)x; }

inline vf select(vb c, vf a, vf b) { return c ? a : b; }
inline vi select(vb c, vi a, vi b) { return c ? a : b; }
inline vl select(vb c, vl a, vl b) { return __builtin_convertvector(c, vl) ? a : b; }

// a * b + c, rounded once wherever the machine can. Contraction by the compiler is not enough: tuned for Zen, GCC leaves
// a single chain unfused, and a row alone would get other bits than the same row among others.
inline vf multiply_add(vf a, vf b, vf c) {
#if defined(__clang__)
#if __has_builtin(__builtin_elementwise_fma)
  return __builtin_elementwise_fma(a, b, c);
#else
  return a * b + c;
#endif
#elif defined(__AVX512F__)
  return __builtin_ia32_vfmaddps512_mask(a, b, c, -1, 4);
#elif defined(__FMA__)
  return __builtin_ia32_vfmaddps256(a, b, c);
#else
  return a * b + c;
#endif
}

// The larger; where either is NaN, b. Written so that it is one max instruction.
inline vf max_or_second(vf a, vf b) { return a > b ? a : b; }

inline vi iota() {
  vi r;
  for (int i = 0; i < W; i++) r[i] = i;
  return r;
}
inline vb first_lanes(int64_t n) { return iota() < vi_of(int32_t(n)); }

inline bool any(vb x) {
  int32_t r = 0;
  for (int i = 0; i < W; i++) r |= x[i];
  return r != 0;
}
inline float max_lane(vf x) {
  for (int half = W / 2; half; half /= 2)
    for (int i = 0; i < half; i++) x[i] = x[i + half] > x[i] ? x[i + half] : x[i];
  return x[0];
}
inline float sum_lanes(vf x) {
  for (int half = W / 2; half; half /= 2)
    for (int i = 0; i < half; i++) x[i] += x[i + half];
  return x[0];
}

// Lanes of two vectors interleaved: a0 b0 a1 b1 …; low half of the result and high half.
#if defined(__AVX512F__)
#define ATTNC_LOW(a, b) \
  __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23)
#define ATTNC_HIGH(a, b) \
  __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31)
#elif defined(__AVX__)
#define ATTNC_LOW(a, b) __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11)
#define ATTNC_HIGH(a, b) __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15)
#else
#define ATTNC_LOW(a, b) __builtin_shufflevector(a, b, 0, 4, 1, 5)
#define ATTNC_HIGH(a, b) __builtin_shufflevector(a, b, 2, 6, 3, 7)
#endif

// Transpose in place. One step interleaves row i with row i + W/2; log2 W such perfect shuffles are a transpose.
inline void transpose(vf (&x)[W]) {
  for (int step = 1; step < W; step *= 2) {
    vf y[W];
    for (int i = 0; i < W / 2; i++) {
      y[2 * i] = ATTNC_LOW(x[i], x[i + W / 2]);
      y[2 * i + 1] = ATTNC_HIGH(x[i], x[i + W / 2]);
    }
    for (int i = 0; i < W; i++) x[i] = y[i];
  }
}

constexpr int64_t round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }
inline int64_t min_of(int64_t a, int64_t b) { return a < b ? a : b; }
inline int64_t max_of(int64_t a, int64_t b) { return a > b ? a : b; }

}  // namespace
}  // namespace attnc
