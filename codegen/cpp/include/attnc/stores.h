// How pages hold numbers (codegen/paged_plan.py), and their rows as floats: value = scale · number, rounded once.
#pragma once
#include "attnc/math.h"

namespace attnc {
namespace {

// A store has: `element` of its page tensors and their dtype code, `scale_code` (-1 without scales) and `scale_group`
// (features of one scale, 0: all of them); Row, one token of one head; W floats of a row from a multiple of W on, and one.

template <class T>
struct Plain {
  typedef T element;
  static constexpr int32_t code = dtype_code<T>, scale_code = -1;
  static constexpr int64_t scale_group = 0;
  struct Row {
    const T* x;
    Row(const void* numbers, const void*) : x((const T*)numbers) {}
    vf vector(int64_t i) const { return load_vector(x + i); }
    float one(int64_t i) const { return value_of(x[i]); }
  };
  static int64_t width(int64_t features) { return features; }
};

struct Scaled {
  static constexpr int32_t scale_code = dtype_code<float>;
  static constexpr int64_t scale_group = 0;
  static int64_t width(int64_t features) { return features; }
};

struct Int8 : Scaled {
  typedef int8_t element;
  static constexpr int32_t code = dtype_code<int8_t>;
  struct Row {
    const int8_t* x;
    float scale;
    Row(const void* numbers, const void* scales) : x((const int8_t*)numbers), scale(*(const float*)scales) {}
    vf vector(int64_t i) const { return to_vf(load_vector(x + i)) * scale; }
    float one(int64_t i) const { return float(x[i]) * scale; }
  };
};

// Sign, four bits of exponent (bias 7), three of mantissa: in float's place the exponent is 120 too small, which a
// multiplication puts right, subnormals included. All ones are NaN; there is no infinity.
struct Float8 : Scaled {
  typedef uint8_t element;
  static constexpr int32_t code = dtype_code<uint8_t>;
  static vf widen(vi x) {
    const vi magnitude = x & 0x7f;
    const vf value = from_bits(magnitude << 20) * 0x1p120f;
    const vi nan = vi_of(0x7fc00000), finite = bits(value);
    return from_bits((magnitude == 0x7f ? nan : finite) | ((x & 0x80) << 24));
  }
  struct Row {
    const uint8_t* x;
    float scale;
    Row(const void* numbers, const void* scales) : x((const uint8_t*)numbers), scale(*(const float*)scales) {}
    vf vector(int64_t i) const { return widen(load_vector(x + i)) * scale; }
    float one(int64_t i) const { return widen(vi_of(x[i]))[0] * scale; }
  };
};

// Two numbers -8 … 7 in a byte, the first in its low half.
struct Int4 {
  typedef uint8_t element;
  static constexpr int32_t code = dtype_code<uint8_t>, scale_code = dtype_code<f16>;
  static constexpr int64_t scale_group = 32;
  struct Row {
    const uint8_t* x;
    const f16* scale;
    Row(const void* numbers, const void* scales) : x((const uint8_t*)numbers), scale((const f16*)scales) {}
    vf vector(int64_t i) const {
      vi nibble;
      if constexpr (W == 4) {
        uint16_t bytes;
        memcpy(&bytes, x + i / 2, 2);
        nibble = vi_of(bytes);
      } else {
        int32_t bytes[W / 8];
        memcpy(bytes, x + i / 2, sizeof bytes);
        nibble = vi_of(bytes[0]);
        if constexpr (W == 16) nibble = iota() < 8 ? nibble : vi_of(bytes[W / 8 - 1]);
      }
      nibble = (nibble >> ((iota() & 7) * 4)) & 15;
      return to_vf((nibble ^ 8) - 8) * widen_one(scale[i / scale_group]);
    }
    float one(int64_t i) const {
      const int32_t nibble = x[i / 2] >> (i % 2 * 4) & 15;
      return float((nibble ^ 8) - 8) * widen_one(scale[i / scale_group]);
    }
  };
  static int64_t width(int64_t features) { return (features + 1) / 2; }
};

// One page tensor [page, head, slot, width] and its scales; strides in elements.
template <class S>
struct Pages {
  const char *numbers, *scales;
  int64_t page, head, slot, scale_page, scale_head, scale_slot, count;

  typename S::Row row(int64_t p, int64_t h, int64_t s) const {
    constexpr int64_t scale_bytes = S::scale_code == dtype_code<f16> ? 2 : 4;
    const int64_t offset = p * page + h * head + s * slot;
    const int64_t scale = p * scale_page + h * scale_head + s * scale_slot;
    return {numbers + offset * int64_t(sizeof(typename S::element)), scales + scale * scale_bytes};
  }
};

// NR rows of keys, `d` long, to one panel [d][NR] as in attnc/gemm.h.
template <class Row>
inline void pack_key_rows(const Row* k, int64_t d, float* to) {
  int64_t i = 0;
  for (; i + W <= d; i += W)
    for (int half = 0; half < NR; half += W) {
      vf x[W];
      for (int j = 0; j < W; j++) x[j] = k[half + j].vector(i);
      transpose(x);
      for (int j = 0; j < W; j++) store(to + (i + j) * NR + half, x[j]);
    }
  for (; i < d; i++)
    for (int64_t j = 0; j < NR; j++) to[i * NR + j] = k[j].one(i);
}

// One row of values, `e` long, as key `j` of panels of `capacity` keys each as in attnc/gemm.h.
template <class Row>
inline void pack_value_row(const Row& v, int64_t e, int64_t e_padded, int64_t capacity, int64_t j, float* to) {
  for (int64_t i = 0; i < e_padded; i += NR) {
    const int64_t width = e_padded - i >= NR ? NR : W;
    float* panel = to + i * capacity + j * width;
    for (int64_t n = 0; n < width; n += W) {
      if (i + n + W <= e) {
        store(panel + n, v.vector(i + n));
      } else {
        for (int64_t f = n; f < n + W; f++) panel[f] = i + f < e ? v.one(i + f) : 0.f;
      }
    }
  }
}

}  // namespace
}  // namespace attnc
