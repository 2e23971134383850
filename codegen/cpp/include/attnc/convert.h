// Element types as they lie in memory, and their conversion to and from float: round to nearest even, NaN stays NaN.
#pragma once
#include "attnc/vector.h"

namespace attnc {
namespace {

struct f16 { uint16_t bits; };
struct bf16 { uint16_t bits; };
struct b1 { uint8_t byte; };

template <class T> constexpr int32_t dtype_code = -1;
template <> constexpr int32_t dtype_code<double> = 0;
template <> constexpr int32_t dtype_code<float> = 1;
template <> constexpr int32_t dtype_code<f16> = 2;
template <> constexpr int32_t dtype_code<bf16> = 3;
template <> constexpr int32_t dtype_code<int64_t> = 4;
template <> constexpr int32_t dtype_code<int32_t> = 5;
template <> constexpr int32_t dtype_code<int16_t> = 6;
template <> constexpr int32_t dtype_code<int8_t> = 7;
template <> constexpr int32_t dtype_code<uint8_t> = 8;
template <> constexpr int32_t dtype_code<b1> = 9;

typedef uint16_t vh __attribute__((vector_size(W * 2)));

inline vf widen_bf16(vh h) { return (vf)(__builtin_convertvector(h, vu) << 16); }

inline vh narrow_bf16(vf x) {
  const vu u = (vu)x;
  const vu rounded = (u + 0x7fff + ((u >> 16) & 1)) >> 16;
  const vu quiet = (u >> 16) | 0x40;  // rounding a NaN could carry into infinity
  return __builtin_convertvector((vu)(x != x ? (vi)quiet : (vi)rounded), vh);
}

#if defined(__F16C__) && !defined(__AVX512F__)
typedef short half8 __attribute__((vector_size(16)));
inline vf widen_f16(vh h) { return __builtin_ia32_vcvtph2ps256((half8)h); }
inline vh narrow_f16(vf x) { return (vh)__builtin_ia32_vcvtps2ph256(x, 0); }
#else
// Shift the half into float's place: the exponent is then 112 too small, which a multiplication puts right, subnormals
// included. Infinity and NaN get the full exponent.
inline vf widen_f16(vh h) {
  const vu wide = __builtin_convertvector(h, vu);
  const vi magnitude = (vi)((wide & 0x7fff) << 13);
  const vf scaled = from_bits(magnitude) * 0x1p112f;
  const vi special = magnitude | 0x7f800000;
  const vi finite = bits(scaled);
  const vi value = magnitude >= 0x7c00 << 13 ? special : finite;
  return from_bits(value | (vi)((wide & 0x8000) << 16));
}
// Subnormal results: adding 0.5 lets the float adder round at half's last place. Others: round the 13 dropped bits.
inline vh narrow_f16(vf x) {
  const vi sign = bits(x) & int32_t(0x80000000);
  const vi u = bits(x) ^ sign;
  const vi subnormal = bits(from_bits(u) + 0.5f) - 0x3f000000;
  const vi normal = (u - (112 << 23) + 0xfff + ((u >> 13) & 1)) >> 13;
  const vi infinite = vi_of(0x7c00), nan = vi_of(0x7e00);
  vi r = u < 113 << 23 ? subnormal : normal;
  r = u >= 143 << 23 ? infinite : r;
  r = u > 255 << 23 ? nan : r;
  return __builtin_convertvector((vu)(r | (vi)((vu)sign >> 16)), vh);
}
#endif

inline float widen_one(f16 h) { return widen_f16(vh{h.bits})[0]; }
inline float widen_one(bf16 h) { return widen_bf16(vh{h.bits})[0]; }

// One element as float, int64 or bool.
inline float value_of(double x) { return float(x); }
inline float value_of(float x) { return x; }
inline float value_of(f16 x) { return widen_one(x); }
inline float value_of(bf16 x) { return widen_one(x); }
inline bool value_of(b1 x) { return x.byte != 0; }
template <class T> inline int64_t value_of(T x) { return x; }

// W contiguous elements as vf, vi, vl or vb.
template <class T> struct Packed { typedef T type __attribute__((vector_size(W * sizeof(T)))); };
inline vf load_vector(const double* p) { return __builtin_convertvector(load_raw<Packed<double>::type>(p), vf); }
inline vf load_vector(const float* p) { return load(p); }
inline vf load_vector(const f16* p) { return widen_f16(load_raw<vh>(p)); }
inline vf load_vector(const bf16* p) { return widen_bf16(load_raw<vh>(p)); }
inline vl load_vector(const int64_t* p) { return load_raw<vl>(p); }
inline vi load_vector(const int32_t* p) { return load_raw<vi>(p); }
inline vb load_vector(const b1* p) {
  return __builtin_convertvector(load_raw<Packed<uint8_t>::type>(p), vi) != 0;
}
template <class T> inline vi load_vector(const T* p) {
  return __builtin_convertvector(load_raw<typename Packed<T>::type>(p), vi);
}

inline void store_vector(float* p, vf x) { store(p, x); }
inline void store_vector(f16* p, vf x) { const vh h = narrow_f16(x); memcpy(p, &h, sizeof h); }
inline void store_vector(bf16* p, vf x) { const vh h = narrow_bf16(x); memcpy(p, &h, sizeof h); }
inline void store_one(float* p, float x) { *p = x; }
inline void store_one(f16* p, float x) { p->bits = narrow_f16(vf_of(x))[0]; }
inline void store_one(bf16* p, float x) { p->bits = narrow_bf16(vf_of(x))[0]; }

// A float rounded to a 16-bit type and back, for scores evaluated as written.
inline vf round_f16(vf x) { return widen_f16(narrow_f16(x)); }
inline vf round_bf16(vf x) { return widen_bf16(narrow_bf16(x)); }
inline float round_f16(float x) { return round_f16(vf_of(x))[0]; }
inline float round_bf16(float x) { return round_bf16(vf_of(x))[0]; }

}  // namespace
}  // namespace attnc
