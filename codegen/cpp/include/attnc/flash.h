// Flash attention on CPUs: online softmax over key blocks, float32 statistics and accumulators.
//
// Glossary
//   P         the emitted page's struct: constants, dtypes, formulas
//   row       one query position;      tile   block_m rows of one outer index (a query tile)
//   block     block_n keys;            chunk  consecutive blocks packed at a time, small enough for the L2 cache
//   strip     MR rows of a tile, what one register tile works on
//   item      a unit of parallel work: a run of tiles that read the same keys and values (query heads of one group,
//             query tiles of one head), so that each block is packed once per item
//   unit      a score is kept in log2 units where the page folded log2(e) into q (P::log2_units), else in natural ones
//
// For one row, over the blocks in order (m running maximum, l denominator, o accumulator, all from -inf, 0, 0):
//   m' = max(m, max_j s_j);  a = exp(m - m');  l = a l + sum_j exp(s_j - m');  o = a o + sum_j w_j exp(s_j - m') v_j
// and at the end out = o / l, lse = m + log l. A masked score is -inf, whose exponential is exactly 0. While a row has
// seen no visible key m is -inf and 0 stands in for it, so that no -inf - -inf arises.
#pragma once
#include "attnc/abi.h"
#include "attnc/gemm.h"
#include "attnc/loads.h"

namespace attnc {
namespace {

enum DeadRows { DEAD_NONE, DEAD_ZERO, DEAD_AS_WRITTEN };  // as KernelPlan.dead_rows

// Formulas that are absent from a page.
struct PlainScore {
  static constexpr bool identity = true;
  PlainScore(const Frame&, int64_t) {}
};
typedef PlainScore NoWeight;
struct NoMask : PlainScore {
  static constexpr bool rows_alike = false;
  using PlainScore::PlainScore;
};

template <int N>
struct Operand {
  char* data;
  int64_t outer[N ? N : 1];  // stride of each outer axis, 0 where the operand lacks it
  int64_t row, col;          // strides of q or k, and of d or e

  template <class T>
  T* at(const int64_t* index) const {
    int64_t offset = 0;
    for (int a = 0; a < N; a++) offset += index[a] * outer[a];
    return (T*)data + offset;
  }
};

// One call: read-only while items run.
template <class P>
struct Call {
  static constexpr int N = P::num_outer;
  Operand<N> q, k, v, out, lse;
  int64_t length[N ? N : 1];
  int64_t q_len, k_len, d, e;
  const int64_t* sizes;
  SideView side[P::num_sides ? P::num_sides : 1];
  int64_t kv_count, group_count, tiles_per_group, tiles_per_item, items_per_kv, blocks, blocks_per_chunk;
  bool failed;
};

// Memory one thread keeps from call to call.
struct Arena {
  char* data = nullptr;
  size_t size = 0;
  ~Arena() { __builtin_free(data); }
  bool reserve(size_t need) {
    if (need <= size) return true;
    __builtin_free(data);
    size = 0;
    data = (char*)__builtin_malloc(need + 64);
    if (data) size = need;
    return data != nullptr;
  }
  float* floats() const { return (float*)(((uintptr_t)data + 63) & ~uintptr_t(63)); }
};
thread_local Arena arena;

template <class P>
struct Flash {
  static constexpr int N = P::num_outer;
  static constexpr int64_t BM = P::block_m, BN = P::block_n, BNP = round_up(BN, NR), BMP = round_up(BM, MR);
  typedef typename P::q_t q_t;
  typedef typename P::k_t k_t;
  typedef typename P::v_t v_t;
  typedef typename P::out_t out_t;

  // A query tile in work. `position` maps its rows to query positions; the dead-row pass shortens it.
  struct Tile {
    int64_t axis[N ? N : 1];
    Frame frame;
    int64_t index, rows;
    int32_t position[BM];
    Range segment[P::num_segments ? P::num_segments : 1];
    float *q, *o;
    float m[BMP], l[BMP];
  };

  const Call<P>& call;
  const int64_t d = P::head_dim >= 0 ? P::head_dim : call.d;
  const int64_t e = P::value_dim >= 0 ? P::value_dim : call.e;
  const int64_t e_padded = round_up(e, W);
  float *scores, *packed_k, *packed_v;
  bool* packed;
  Tile* tiles;
  int64_t chunk_begin = 0, kv_axis[N ? N : 1];

  explicit Flash(const Call<P>& c) : call(c) {}

  static size_t floats_needed(const Call<P>& c, int64_t d, int64_t e) {
    const int64_t ep = round_up(e, W);
    return size_t(MR * BNP * 2 + c.blocks_per_chunk * BNP * (d + ep) + c.tiles_per_item * BMP * (d + ep)) + 64;
  }

  bool carve() {
    const size_t floats = floats_needed(call, d, e);
    const size_t bytes = floats * 4 + size_t(call.tiles_per_item) * sizeof(Tile) + size_t(call.blocks_per_chunk);
    if (!arena.reserve(bytes)) return false;
    float* p = arena.floats();
    scores = p, p += MR * BNP * 2;
    packed_k = p, p += call.blocks_per_chunk * BNP * d;
    packed_v = p, p += call.blocks_per_chunk * BNP * e_padded;
    float* rows = p;
    p += call.tiles_per_item * BMP * (d + e_padded);
    tiles = (Tile*)(((uintptr_t)p + 63) & ~uintptr_t(63));
    packed = (bool*)(tiles + call.tiles_per_item);
    for (int64_t t = 0; t < call.tiles_per_item; t++, rows += BMP * (d + e_padded)) {
      tiles[t].q = rows;
      tiles[t].o = rows + BMP * d;
    }
    return true;
  }

  // ---- one item -----------------------------------------------------------------------------------------------------

  void item(int64_t index) {
    const int64_t kv = index / call.items_per_kv;
    const int64_t first = index % call.items_per_kv * call.tiles_per_item;
    const int64_t count = min_of(call.tiles_per_item, call.group_count * call.tiles_per_group - first);
    split(kv, P::kv_axis, kv_axis);
    for (int64_t t = 0; t < count; t++) open_tile(tiles[t], first + t);
    main_pass(count);
    for (int64_t t = 0; t < count; t++) close_tile<P::dead_rows != DEAD_AS_WRITTEN>(tiles[t], P::log2_units);
    if constexpr (P::dead_rows == DEAD_AS_WRITTEN) {
      int64_t dead = 0;
      for (int64_t t = 0; t < count; t++) dead += tiles[t].rows;
      if (!dead) return;
      written_pass(count);
      for (int64_t t = 0; t < count; t++) close_tile<true>(tiles[t], false);
    }
  }

  // The outer indices of a flat index over the axes where `take` holds; the others stay as they are.
  template <class Take>
  void split(int64_t flat, const Take& take, int64_t* index) const {
    for (int a = N; a-- > 0;)
      if (take[a]) index[a] = flat % call.length[a], flat /= call.length[a];
  }

  void open_tile(Tile& t, int64_t flat) const {
    for (int a = 0; a < N; a++) t.axis[a] = kv_axis[a];
    split(flat / call.tiles_per_group, P::group_axis, t.axis);
    t.index = flat % call.tiles_per_group;
    t.frame = {t.axis, call.length, call.sizes, call.side, call.q_len, call.k_len};
    t.rows = min_of(BM, call.q_len - t.index * BM);
    for (int64_t i = 0; i < t.rows; i++) t.position[i] = int32_t(t.index * BM + i);
    P::segments(t.frame, t.index, t.segment);
    start_rows(t, P::q_factor);
  }

  void start_rows(Tile& t, float factor) const {
    const q_t* q = call.q.template at<const q_t>(t.axis);
    for (int64_t i = 0; i < t.rows; i++) {
      pack_row(q + t.position[i] * call.q.row, call.q.col, d, factor, t.q + i * d);
      t.m[i] = -INF;
      t.l[i] = 0;
    }
    memset(t.o, 0, size_t(t.rows * e_padded) * sizeof(float));
  }

  void main_pass(int64_t count) {
    int64_t lo = call.blocks, hi = 0;
    for (int64_t t = 0; t < count; t++)
      for (int s = 0; s < P::num_segments; s++) {
        const Range r = tiles[t].segment[s];
        if (r.lo < r.hi) lo = min_of(lo, r.lo), hi = max_of(hi, min_of(r.hi, call.blocks));
      }
    for (int64_t chunk = max_of(lo, 0) / call.blocks_per_chunk; chunk * call.blocks_per_chunk < hi; chunk++) {
      open_chunk(chunk);
      const int64_t end = min_of(chunk_begin + call.blocks_per_chunk, call.blocks);
      for (int64_t t = 0; t < count; t++) P::visit(*this, tiles[t], chunk_begin, end);
    }
  }

  // Blocks lo, lo + step, … < hi of one segment that lie in [begin, end).
  template <class Mask, int64_t STEP, class Guard>
  void visit_blocks(Tile& t, Range r, int64_t begin, int64_t end, Guard guard) {
    int64_t block = r.lo;
    if (block < begin) block += round_up(begin - block, STEP);
    for (const int64_t stop = min_of(r.hi, end); block < stop; block += STEP)
      if (guard(block)) visit_block<Mask>(t, block);
  }

  template <class Mask>
  void visit_block(Tile& t, int64_t block) {
    if constexpr (Mask::rows_alike) {
      const Seen seen = seen_of<Mask>(t, block);
      if (!seen.some) return;
      if (seen.all) return do_block<NoMask, typename P::Visible, P::log2_units>(t, block);
    }
    do_block<Mask, typename P::Visible, P::log2_units>(t, block);
  }

  struct Seen {
    bool some, all;
  };

  // Whether some and whether all keys of a block are visible under a mask that is the same for every row.
  template <class Mask>
  Seen seen_of(const Tile& t, int64_t block) const {
    const int64_t key = block * BN, valid = min_of(BN, call.k_len - key);
    const Mask visible(t.frame, t.position[0]);
    Seen seen = {false, true};
    for (int64_t j = 0; j < valid; j += W) {
      const vb x = visible(keys_at(key + j, call.k_len));
      seen.some |= any(x), seen.all &= !any(!x);
    }
    return seen;
  }

  void written_pass(int64_t count) {
    for (int64_t t = 0; t < count; t++) start_rows(tiles[t], 1.f);
    for (int64_t chunk = 0; chunk * call.blocks_per_chunk < call.blocks; chunk++) {
      open_chunk(chunk);
      const int64_t end = min_of(chunk_begin + call.blocks_per_chunk, call.blocks);
      for (int64_t t = 0; t < count; t++)
        for (int64_t block = chunk_begin; block < end; block++)
          if (tiles[t].rows) do_block<NoMask, typename P::Written, false>(tiles[t], block);
    }
  }

  // ---- packing ------------------------------------------------------------------------------------------------------

  void open_chunk(int64_t chunk) {
    chunk_begin = chunk * call.blocks_per_chunk;
    memset(packed, 0, size_t(call.blocks_per_chunk));
  }

  void pack_block(int64_t block) {
    const int64_t slot = block - chunk_begin, key = block * BN, count = min_of(BN, call.k_len - key);
    packed[slot] = true;
    const k_t* k = call.k.template at<const k_t>(kv_axis) + key * call.k.row;
    float* to = packed_k + slot * BNP * d;
    for (int64_t j = 0; j < count; j += NR)
      pack_key_panel(k + j * call.k.row, call.k.row, call.k.col, min_of(NR, count - j), d, to + j * d);
    const v_t* v = call.v.template at<const v_t>(kv_axis) + key * call.v.row;
    to = packed_v + slot * BNP * e_padded;
    for (int64_t i = 0; i < e; i += NR)
      pack_value_panel(v + i * call.v.col, call.v.row, call.v.col, count, e - i, e_padded - i >= NR ? NR : W, to + i * BNP);
  }

  // ---- one tile against one block -----------------------------------------------------------------------------------

  template <class Mask, class Score, bool LOG2>
  __attribute__((noinline)) void do_block(Tile& t, int64_t block) {
    const int64_t slot = block - chunk_begin;
    if (!packed[slot]) pack_block(block);
    const int64_t key = block * BN, valid = min_of(BN, call.k_len - key);
    const float *k = packed_k + slot * BNP * d, *v = packed_v + slot * BNP * e_padded;
    for (int64_t i = 0; i < t.rows; i += MR) {
      const int64_t rows = min_of(MR, t.rows - i);
      Range keys = {0, valid};  // of this strip, vectors that hold a visible key
      if constexpr (!Mask::identity) keys = mask_strip<Mask>(t, i, rows, key, valid);
      if (keys.lo >= keys.hi) continue;
      query_key(rows, t.q + i * d, k, keys);
      for (int64_t r = 0; r < rows; r++) softmax_row<!Mask::identity, Score, LOG2>(t, i + r, r, key, valid, keys);
      weighted_values(rows, scores + keys.lo, v, keys, t.o + i * e_padded);
    }
  }

  vi* mask_row(int64_t r) const { return (vi*)(scores + (MR + r) * BNP); }

  template <class Mask>
  Range mask_strip(const Tile& t, int64_t i, int64_t rows, int64_t key, int64_t valid) const {
    int64_t lo = valid, hi = 0;
    for (int64_t r = 0; r < rows; r++) {
      const Mask visible(t.frame, t.position[i + r]);
      for (int64_t j = 0; j < valid; j += W) {
        const vb x = visible(keys_at(key + j, call.k_len));
        mask_row(r)[j / W] = x;
        if (any(x)) lo = min_of(lo, j), hi = max_of(hi, j + W);
      }
    }
    return {lo, min_of(hi, valid)};
  }

  template <bool MASK, class Score, bool LOG2>
  inline __attribute__((always_inline)) void softmax_row(Tile& t, int64_t row, int64_t r, int64_t key, int64_t valid,
                                                         Range keys) {
    float* s = scores + r * BNP;
    const Score score(t.frame, t.position[row]);
    vf top = vf_of(-INF);
    const auto score_vector = [&](int64_t j, bool tail) __attribute__((always_inline)) {
      vf x = load(s + j);
      if constexpr (!Score::identity) x = score(x, keys_at(key + j, call.k_len));
      if constexpr (MASK) x = select(mask_row(r)[j / W], x, vf_of(-INF));
      if (tail) x = select(first_lanes(valid - j), x, vf_of(-INF));
      if (MASK || tail || !Score::identity) store(s + j, x);
      top = max_or_second(x, top);
    };
    int64_t j = keys.lo;
    for (; j + W <= keys.hi; j += W) score_vector(j, false);
    if (j < keys.hi) score_vector(j, true);

    const float before = t.m[row], best = max_lane(top), now = best > before ? best : before, m = now == -INF ? 0.f : now;
    const float scale = LOG2 ? 1.f : LOG2E;
    const typename P::Weight weight(t.frame, t.position[row]);
    vf sum = {};
    for (j = keys.lo; j < keys.hi; j += W) {
      vf x = load(s + j) - m;
      if constexpr (!LOG2) x *= scale;
      x = exp2_weight(x);
      sum += x;
      if constexpr (!P::Weight::identity) x *= weight(keys_at(key + j, call.k_len));
      store(s + j, x);
    }
    if (now > before) {
      rescale(t, row, exp2_weight(vf_of((before - now) * scale))[0]);
      t.m[row] = now;
    }
    t.l[row] += sum_lanes(sum);
  }

  void rescale(Tile& t, int64_t row, float factor) const {
    t.l[row] *= factor;
    float* o = t.o + row * e_padded;
    for (int64_t i = 0; i < e_padded; i += W) store(o + i, load(o + i) * factor);
  }

  // The two products of a strip: not inlined, so that the bodies share them.
  __attribute__((noinline)) void query_key(int64_t rows, const float* q, const float* k, Range keys) const {
    for (int64_t j = keys.lo / NR * NR; j < keys.hi; j += NR)
      multiply<2, false>(rows, q, d, k + j * d, d, scores + j, BNP);
  }

  __attribute__((noinline)) void weighted_values(int64_t rows, const float* p, const float* v, Range keys, float* o) const {
    const int64_t depth = keys.hi - keys.lo;
    int64_t i = 0;
    for (; i + NR <= e_padded; i += NR)
      multiply<2, true>(rows, p, BNP, v + i * BNP + keys.lo * NR, depth, o + i, e_padded);
    if (i < e_padded) multiply<1, true>(rows, p, BNP, v + i * BNP + keys.lo * W, depth, o + i, e_padded);
  }

  // ---- the end of a tile --------------------------------------------------------------------------------------------

  // Writes the rows that are done. Unless LAST, dead rows move to the front and stay in the tile for the written pass.
  template <bool LAST>
  void close_tile(Tile& t, bool log2) const {
    int64_t kept = 0;
    for (int64_t i = 0; i < t.rows; i++) {
      const bool dead = t.m[i] == -INF && t.l[i] == 0;
      if (dead && !LAST)
        t.position[kept++] = t.position[i];
      else
        write_row(t, i, log2, dead);
    }
    t.rows = kept;
  }

  void write_row(const Tile& t, int64_t i, bool log2, bool dead) const {
    const int64_t position = t.position[i];
    float m = log2 ? t.m[i] * LN2 : t.m[i], l = t.l[i], factor = 1.f / l;
    if constexpr (P::has_sink) {
      const float sink = P::sink(t.frame, position), top = max(m, sink), scale = dead ? 0.f : exp(m - top);
      l = dead ? 1.f : scale * l + exp(sink - top);
      factor = scale / l;
      m = top;
    } else if (dead && (P::dead_rows || !call.k_len)) {
      factor = 0;
    }
    store_row(t.o + i * e_padded, e, factor, call.out.template at<out_t>(t.axis) + position * call.out.row, call.out.col);
    if constexpr (P::returns_lse) call.lse.template at<float>(t.axis)[position * call.lse.row] = m + log(l);
  }
};

}  // namespace
}  // namespace attnc
