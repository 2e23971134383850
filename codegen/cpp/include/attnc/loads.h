// Reading side operands in formulas, and what a formula is evaluated on.
#pragma once
#include "attnc/math.h"

namespace attnc {
namespace {

// lo <= x < hi, of blocks or of keys.
struct Range {
  int64_t lo, hi;
};

struct SideView {
  const void* data;
  const int64_t* strides;
};

// Where a formula stands, but for the query and the keys: outer indices, lengths, named sizes, side operands.
struct Frame {
  const int64_t* axis;
  const int64_t* length;
  const int64_t* sizes;
  const SideView* side;
  int64_t q_len, k_len;
};

// W consecutive keys from `first` on, of which the first `count` exist. Lanes that do not exist repeat the last key
// that does, so an index made from them stays in range.
struct Keys {
  int64_t first, count;
  vi index;
};

inline Keys keys_at(int64_t first, int64_t k_len) {
  const vi last = vi_of(int32_t(k_len - 1)), lane = iota() + int32_t(first);
  return {first, k_len - first, lane < last ? lane : last};
}

// base[key * stride] over the keys; zero in lanes that do not exist.
template <class T>
inline auto load_keys(const T* base, int64_t stride, const Keys& keys) -> decltype(load_vector(base)) {
  const T* p = base + keys.first * stride;
  if (stride == 1 && keys.count >= W) return load_vector(p);
  T lanes[W] = {};
  const int64_t count = min_of(keys.count, W);
  for (int64_t i = 0; i < count; i++) lanes[i] = p[i * stride];
  return load_vector(lanes);
}

template <class T>
inline auto load_gather(const T* base, vl offset) -> decltype(load_vector(base)) {
  T lanes[W];
  for (int i = 0; i < W; i++) lanes[i] = base[offset[i]];
  return load_vector(lanes);
}

}  // namespace
}  // namespace attnc
