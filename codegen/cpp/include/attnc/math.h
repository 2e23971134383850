// The functions emitted formulas call. Each has one name and overloads for scalars and vectors, so that the text of an
// expression is the same for both.
#pragma once
#include "attnc/convert.h"

namespace attnc {
namespace {

// 2^x for softmax weights, x <= 0 or so: 0 for x <= -127 (so -inf gives exactly 0), NaN for NaN; x < 128 required.
// Adding the magic number rounds x to an integer n held in the low bits, biased by 127: shifted up it is 2^n.
// The polynomial is the minimax fit of 2^f on [-1/2, 1/2] with p(0) = 1; relative error 1.7e-7.
inline vf exp2_weight(vf x) {
  const vf lowest = vf_of(-127.f), magic = vf_of(12582912.f + 127.f);
  x = max_or_second(lowest, x);
  const vf shifted = x + magic, f = x - (shifted - magic);
  vf p = f * 1.326472731307149e-3f + 9.671512991189957e-3f;
  p = p * f + 5.550733581185341e-2f;
  p = p * f + 2.4022242426872253e-1f;
  p = p * f + 6.931470036506653e-1f;
  p = p * f + 1.f;
  return p * from_bits(bits(shifted) << 23);
}

constexpr float LOG2E = 1.4426950408889634f, LN2 = 0.6931471805599453f;

// e^x over the whole range, error 2 ulp: e^(n ln 2 + f) with ln 2 in two parts, 2^n in two factors.
inline vf exp(vf x) {
  const vf magic = vf_of(12582912.f), lowest = vf_of(-104.f), highest = vf_of(89.f);
  const vf clamped = max_or_second(lowest, x);
  const vf y = highest < clamped ? highest : clamped;
  const vf n = (y * LOG2E + magic) - magic;
  const vf f = (y - n * 0.693359375f) - n * -2.12194440e-4f;
  vf p = f * 1.9875691500e-4f + 1.3981999507e-3f;
  p = p * f + 8.3334519073e-3f;
  p = p * f + 4.1665795894e-2f;
  p = p * f + 1.6666665459e-1f;
  p = p * f + 5.0000001201e-1f;
  p = p * f * f + f + 1.f;
  const vi whole = __builtin_convertvector(n == n ? n : vf{}, vi), half = whole >> 1;
  return p * from_bits((half + 127) << 23) * from_bits((whole - half + 127) << 23);
}

inline vf abs(vf x) { return from_bits(bits(x) & 0x7fffffff); }
inline vi abs(vi x) { return x < 0 ? -x : x; }
inline vl abs(vl x) { return x < 0 ? -x : x; }
inline float abs(float x) { return __builtin_fabsf(x); }
inline int64_t abs(int64_t x) { return x < 0 ? -x : x; }

// tanh x = 1 - 2/(e^2x + 1) where that loses nothing, an odd polynomial (error 3e-8) for |x| < 0.625.
inline vf tanh(vf x) {
  const vf a = abs(x), s = x * x;
  const vf far = 1.f - 2.f / (exp(2.f * a) + 1.f);
  vf p = s * -5.70498872745e-3f + 2.06390887954e-2f;
  p = p * s - 5.37397155531e-2f;
  p = p * s + 1.33314422036e-1f;
  p = p * s - 3.33332819422e-1f;
  p = p * s * x + x;
  const vf signed_far = from_bits(bits(far) | (bits(x) & int32_t(0x80000000)));
  return a < 0.625f ? p : signed_far;
}
inline vf sigmoid(vf x) { return 1.f / (1.f + exp(-x)); }

// Through one lane, so that a formula gives the same number wherever it is evaluated.
inline float exp(float x) { return exp(vf_of(x))[0]; }
inline float tanh(float x) { return tanh(vf_of(x))[0]; }
inline float sigmoid(float x) { return sigmoid(vf_of(x))[0]; }

#define ATTNC_LANEWISE(name, call)                  \
  inline float name(float x) { return call; }       \
  inline vf name(vf v) {                            \
    for (int i = 0; i < W; i++) v[i] = name(v[i]);  \
    return v;                                       \
  }
ATTNC_LANEWISE(exp2, __builtin_exp2f(x))
ATTNC_LANEWISE(log, __builtin_logf(x))
ATTNC_LANEWISE(sqrt, __builtin_sqrtf(x))
ATTNC_LANEWISE(rsqrt, 1.f / __builtin_sqrtf(x))
ATTNC_LANEWISE(erf, __builtin_erff(x))
ATTNC_LANEWISE(floor, __builtin_floorf(x))
ATTNC_LANEWISE(ceil, __builtin_ceilf(x))
ATTNC_LANEWISE(sin, __builtin_sinf(x))
ATTNC_LANEWISE(cos, __builtin_cosf(x))
#undef ATTNC_LANEWISE

#define ATTNC_LANEWISE2(vec, name)                           \
  inline vec name(vec a, vec b) {                            \
    for (int i = 0; i < W; i++) a[i] = name(a[i], b[i]);     \
    return a;                                                \
  }
inline float power(float a, float b) { return __builtin_powf(a, b); }
ATTNC_LANEWISE2(vf, power)
inline int64_t power(int64_t a, int64_t b) {
  int64_t r = 1;
  for (; b > 0; b--) r *= a;
  return r;
}
inline int32_t power(int32_t a, int32_t b) { return int32_t(power(int64_t(a), int64_t(b))); }
ATTNC_LANEWISE2(vi, power)
ATTNC_LANEWISE2(vl, power)

// Floor division and the remainder that has the divisor's sign. A zero divisor gives 0: in a lane whose value is
// selected away it must not trap.
template <class T> inline T floor_div_int(T a, T b) {
  if (b == 0) return 0;
  const T d = a / b;
  return d - ((a % b != 0) && ((a < 0) != (b < 0)));
}
template <class T> inline T floor_mod_int(T a, T b) { return b == 0 ? 0 : a - floor_div_int(a, b) * b; }
inline int64_t floor_div(int64_t a, int64_t b) { return floor_div_int(a, b); }
inline int64_t floor_mod(int64_t a, int64_t b) { return floor_mod_int(a, b); }
inline int32_t floor_div(int32_t a, int32_t b) { return floor_div_int(a, b); }
inline int32_t floor_mod(int32_t a, int32_t b) { return floor_mod_int(a, b); }
// As Python and torch do it: through the exact remainder, so that a quotient that rounds up to an integer does not count.
inline float floor_div(float a, float b) {
  if (b == 0) return a / b;
  const float r = __builtin_fmodf(a, b), d = (a - r) / b - (r != 0 && (r < 0) != (b < 0)), f = __builtin_floorf(d);
  return d - f > 0.5f ? f + 1 : f;
}
inline float floor_mod(float a, float b) {
  const float r = __builtin_fmodf(a, b);
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}
ATTNC_LANEWISE2(vf, floor_div)
ATTNC_LANEWISE2(vf, floor_mod)
ATTNC_LANEWISE2(vi, floor_div)
ATTNC_LANEWISE2(vi, floor_mod)
ATTNC_LANEWISE2(vl, floor_div)
ATTNC_LANEWISE2(vl, floor_mod)
#undef ATTNC_LANEWISE2
// By 2^shift: the arithmetic shift and the mask are the floor forms.
template <class T> inline T shift_div(T a, int shift) { return a >> shift; }
template <class T> inline T mask_mod(T a, int32_t mask) { return a & mask; }

// NaN wins, as in torch.
inline vf min(vf a, vf b) { return (a < b) | (a != a) ? a : b; }
inline vf max(vf a, vf b) { return (a > b) | (a != a) ? a : b; }
inline vi min(vi a, vi b) { return a < b ? a : b; }
inline vi max(vi a, vi b) { return a > b ? a : b; }
inline vl min(vl a, vl b) { return a < b ? a : b; }
inline vl max(vl a, vl b) { return a > b ? a : b; }
inline float min(float a, float b) { return a < b || a != a ? a : b; }
inline float max(float a, float b) { return a > b || a != a ? a : b; }
inline int64_t min(int64_t a, int64_t b) { return a < b ? a : b; }
inline int64_t max(int64_t a, int64_t b) { return a > b ? a : b; }

#define ATTNC_COMPARE(name, op)                                                       \
  inline bool name(float a, float b) { return a op b; }                               \
  inline bool name(int64_t a, int64_t b) { return a op b; }                           \
  inline vb name(vf a, vf b) { return a op b; }                                       \
  inline vb name(vi a, vi b) { return a op b; }                                       \
  inline vb name(vl a, vl b) { return __builtin_convertvector(a op b, vi); }
ATTNC_COMPARE(lt, <)
ATTNC_COMPARE(le, <=)
ATTNC_COMPARE(gt, >)
ATTNC_COMPARE(ge, >=)
ATTNC_COMPARE(eq, ==)
ATTNC_COMPARE(ne, !=)
#undef ATTNC_COMPARE

inline bool both(bool a, bool b) { return a && b; }
inline bool either(bool a, bool b) { return a || b; }
inline bool negate(bool a) { return !a; }
inline vb both(vb a, vb b) { return a & b; }
inline vb either(vb a, vb b) { return a | b; }
inline vb negate(vb a) { return ~a; }
inline bool isnan(float x) { return x != x; }
inline vb isnan(vf x) { return x != x; }

template <class T> inline T where(bool c, T a, T b) { return c ? a : b; }
template <class T> inline T where(vb c, T a, T b) { return select(c, a, b); }

// Casts between lane kinds. Floats go to integers towards zero.
inline vf to_vf(vi x) { return __builtin_convertvector(x, vf); }
inline vf to_vf(vl x) { return __builtin_convertvector(x, vf); }
inline vl to_vl(vi x) { return __builtin_convertvector(x, vl); }
inline vl to_vl(vf x) { return __builtin_convertvector(x, vl); }
inline vi to_vi(vl x) { return __builtin_convertvector(x, vi); }
inline int32_t saturate(int64_t x) { return int32_t(min(max(x, int64_t(INT32_MIN)), int64_t(INT32_MAX))); }

}  // namespace
}  // namespace attnc
