// Attention over pages on CPUs: many requests, each with cached keys and new tokens, in one call.
//
// Glossary (beside that of attnc/flash.h)
//   P         the emitted page's struct: constants, stores, formulas, tile ranges of single rows
//   request   tokens query_start[n] … query_start[n + 1] of q; its keys are pages that row n of the block table names
//   row       one token of one query head; the rows of a tile share a kv head, heads of one token side by side
//   split     keys [i · P::split, (i + 1) · P::split) of a request, the first at position 0
//   own       the keys of a block from the first to the last that one row sees
//   narrow    a tile of few rows: keys and values are packed NR at a time, which stay in L1
//   part      the result of one row over one split: m, l and o as in attnc/flash.h, before they are merged
//
// A row's bits depend on its request's data and on its position alone:
//   - a score is one chain of multiply_add over d, and a weighted value one over the row's own keys in order, whichever
//     rows share a register tile; keys of the tile that are not the row's own are left out, not multiplied by zero
//   - blocks begin at multiples of block_n and parts at multiples of P::split; what a row does not see changes nothing
//   - what is done to one row's numbers is done by one compiled function (ATTNC_ONE_COPY), so that no two copies of it are
//     contracted differently
//   - parts are merged in key order, in the same way whether one item makes them all or each item one
#pragma once
#include "attnc/entry.h"
#include "attnc/stores.h"

#if defined(__clang__)
#define ATTNC_ONE_COPY __attribute__((noinline))
#else
#define ATTNC_ONE_COPY __attribute__((noinline, noclone))
#endif

namespace attnc {
namespace {

enum PagedStatus { BAD_SCALE = 11, BAD_TABLE, BAD_BATCH, BATCH_AXIS };
enum BlockKind { FULL, RESIDUAL, MASKED };  // what hides keys of a block: nothing, the residual mask, the mask

struct PagedItem {
  int64_t request, kv, first_tile, tiles, split_lo, split_hi;
  int64_t part;  // where in `parts` the only split goes; -1: the rows are merged and written
};

// A tile whose parts are merged once all items are done.
struct PagedMerge {
  int64_t request, kv, splits, part;
};

template <class P>
struct PagedCall {
  static constexpr int N = P::num_outer;
  Call<P> dense;  // q, out, sides, sizes, lengths of outer axes
  Pages<typename P::k_store> k;
  Pages<typename P::v_store> v;
  const int32_t *table, *query_start, *context_len;
  int64_t table_row, table_width, requests;
  PagedItem* items;
  PagedMerge* merges;
  float* parts;
  int64_t num_items, num_merges;
  int32_t status;

  int64_t new_tokens(int64_t n) const { return query_start[n + 1] - query_start[n]; }
  int64_t keys(int64_t n) const { return context_len[n] + (P::causal ? new_tokens(n) : 0); }
  int64_t rows(int64_t n) const { return new_tokens(n) * dense.group_count; }
  int64_t splits(int64_t n) const { return ceil_div(keys(n), P::split); }
};

template <class P>
struct Paged {
  static constexpr int N = P::num_outer, S = P::num_segments ? P::num_segments : 1;
  static constexpr int64_t BM = P::block_m, BN = P::block_n, BNP = round_up(BN, NR), BLOCKS = P::split / BN, NARROW = 16;
  static constexpr int64_t STRIP = NARROW > MR ? NARROW : MR;
  static constexpr float SCALE = P::log2_units ? 1.f : LOG2E;
  typedef typename P::k_store::Row KRow;

  struct Tile {
    int64_t rows, visits;
    int64_t axis[BM][N ? N : 1], position[BM], token[BM];
    Frame frame[BM];
    Range segment[BM][S];
    int16_t seen[BLOCKS];  // how many rows visit a block of the split
    uint8_t kind[BLOCKS];
    float *q, *o, *total;
    float m[BM], l[BM], total_m[BM], total_l[BM];  // of the split, of the splits merged so far
  };

  PagedCall<P>& call;
  const int64_t d = P::head_dim >= 0 ? P::head_dim : call.dense.d;
  const int64_t e = P::value_dim >= 0 ? P::value_dim : call.dense.e;
  const int64_t e_padded = round_up(e, W);
  float *scores, *packed_k, *packed_v, *zeros;
  vi *masks, *full;
  const vi* visible[STRIP];
  Range own[STRIP];
  Tile* tiles;
  int64_t request = 0, k_len = 0, k_head = 0, v_head = 0, kv_axis[N ? N : 1];
  const int32_t* table = nullptr;

  explicit Paged(PagedCall<P>& c) : call(c) {}

  bool carve() {
    const int64_t count = call.dense.tiles_per_item, row = d + 2 * e_padded, zero = round_up(max_of(d, e), 16) + 16;
    const int64_t floats = STRIP * BNP * 2 + BNP + BNP * (d + e_padded) + zero + count * BM * row + 64;
    if (!arena.reserve(size_t(floats * 4) + size_t(count) * sizeof(Tile))) return false;
    float* p = arena.floats();
    scores = p, p += STRIP * BNP;
    masks = (vi*)p, p += STRIP * BNP;
    full = (vi*)p, p += BNP;
    packed_k = p, p += BNP * d;
    packed_v = p, p += BNP * e_padded;
    zeros = p, p += zero;
    memset(zeros, 0, size_t(zero) * sizeof(float));
    tiles = (Tile*)(((uintptr_t)(p + count * BM * row) + 63) & ~uintptr_t(63));
    for (int64_t t = 0; t < count; t++, p += BM * row)
      tiles[t].q = p, tiles[t].o = p + BM * d, tiles[t].total = tiles[t].o + BM * e_padded;
    return true;
  }

  // ---- one item -----------------------------------------------------------------------------------------------------

  void item(const PagedItem& it) {
    open_request(it.request, it.kv);
    for (int64_t t = 0; t < it.tiles; t++) open_tile(tiles[t], it.first_tile + t);
    for (int64_t s = it.split_lo; s < it.split_hi; s++) {
      int64_t visits = 0;
      for (int64_t t = 0; t < it.tiles; t++) visits += plan_split(tiles[t], s);
      if (visits) split_pass(s, it.tiles);
      if (it.part >= 0)
        save_part(tiles[0], call.parts + it.part);
      else if (visits)
        for (int64_t t = 0; t < it.tiles; t++) merge_tile(tiles[t], tiles[t].m, tiles[t].l, tiles[t].o);
    }
    if (it.part >= 0) return;
    for (int64_t t = 0; t < it.tiles; t++) write_tile(tiles[t]);
  }

  void merge(const PagedMerge& job) {
    open_request(job.request, job.kv);
    Tile& t = tiles[0];
    open_tile(t, 0);
    const float* part = call.parts + job.part;
    for (int64_t s = 0; s < job.splits; s++, part += t.rows * (2 + e_padded))
      merge_tile(t, part, part + t.rows, part + 2 * t.rows);
    write_tile(t);
  }

  void open_request(int64_t n, int64_t kv) {
    request = n, k_len = call.keys(n), table = call.table + n * call.table_row;
    split(kv, P::kv_axis, kv_axis);
    k_head = v_head = 0;
    for (int a : P::k_heads)
      if (a >= 0) k_head = k_head * call.dense.length[a] + kv_axis[a];
    for (int a : P::v_heads)
      if (a >= 0) v_head = v_head * call.dense.length[a] + kv_axis[a];
  }

  template <class Take>
  void split(int64_t flat, const Take& take, int64_t* index) const {
    for (int a = N; a-- > 0;)
      if (take[a]) index[a] = flat % call.dense.length[a], flat /= call.dense.length[a];
  }

  void open_tile(Tile& t, int64_t index) const {
    const int64_t groups = call.dense.group_count, context = call.context_len[request];
    t.rows = min_of(BM, call.rows(request) - index * BM);
    for (int64_t i = 0; i < t.rows; i++) {
      const int64_t flat = index * BM + i, local = flat / groups;
      for (int a = 0; a < N; a++) t.axis[i][a] = kv_axis[a];
      split(flat % groups, P::group_axis, t.axis[i]);
      t.token[i] = call.query_start[request] + local;
      t.position[i] = P::causal ? context + local : local;
      t.frame[i] = {t.axis[i], call.dense.length, call.dense.sizes, call.dense.side,
                    P::causal ? k_len : call.new_tokens(request), k_len};
      P::segments(t.frame[i], t.position[i], t.segment[i]);
      const auto* q = call.dense.q.template at<const typename P::q_t>(t.axis[i]) + t.token[i] * call.dense.q.row;
      pack_row(q, call.dense.q.col, d, P::q_factor, t.q + i * d);
      t.total_m[i] = -INF;
      t.total_l[i] = 0;
    }
    memset(t.total, 0, size_t(t.rows * e_padded) * sizeof(float));
  }

  // Which blocks of a split the rows visit, and what hides keys there.
  int64_t plan_split(Tile& t, int64_t s) const {
    const int64_t begin = s * BLOCKS, end = min_of(begin + BLOCKS, ceil_div(k_len, BN));
    memset(t.seen, 0, sizeof t.seen);
    memset(t.kind, FULL, sizeof t.kind);
    t.visits = 0;
    for (int64_t i = 0; i < t.rows; i++) {
      t.m[i] = -INF;
      t.l[i] = 0;
      for (int n = 0; n < P::num_segments; n++) {
        const Range r = t.segment[i][n];
        const int64_t step = P::segment_step[n], stop = min_of(r.hi, end);
        for (int64_t b = r.lo < begin ? r.lo + round_up(begin - r.lo, step) : r.lo; b < stop; b += step) {
          if (!P::guard(n, t.frame[i], t.position[i], b)) continue;
          t.visits += t.seen[b - begin]++ == 0;
          if (P::segment_kind[n] > t.kind[b - begin]) t.kind[b - begin] = P::segment_kind[n];
        }
      }
    }
    if (t.visits) memset(t.o, 0, size_t(t.rows * e_padded) * sizeof(float));
    return t.visits;
  }

  void split_pass(int64_t s, int64_t count) {
    const bool narrow = count == 1 && tiles[0].rows <= NARROW;
    for (int64_t b = 0; b < BLOCKS; b++) {
      const int64_t key = (s * BLOCKS + b) * BN, valid = min_of(BN, k_len - key);
      bool packed = false;
      for (int64_t t = 0; t < count; t++) {
        if (!tiles[t].seen[b]) continue;
        if (!packed) open_block(key, valid, narrow), packed = true;
        const int kind = tiles[t].seen[b] < tiles[t].rows ? int(MASKED) : tiles[t].kind[b];
        if (narrow)
          rows_block<true>(tiles[t], 0, tiles[t].rows, kind, key, valid);
        else
          for (int64_t i = 0; i < tiles[t].rows; i += MR)
            rows_block<false>(tiles[t], i, min_of(MR, tiles[t].rows - i), kind, key, valid);
      }
    }
  }

  // ---- packing ------------------------------------------------------------------------------------------------------

  void open_block(int64_t key, int64_t valid, bool narrow) {
    for (int64_t j = 0; j < BNP; j += W) full[j / W] = first_lanes(valid - j);
    if (narrow) return;
    for (int64_t j = 0; j < valid; j += NR) pack_keys(key + j, min_of(NR, valid - j), packed_k + j * d);
    pack_values(key, valid, BN, packed_v);
  }

  // The row of a key; zeros in the null page.
  template <class Store>
  typename Store::Row row_of(const Pages<Store>& pages, int64_t head, int64_t key) const {
    const int64_t page = table[key / P::page_size];
    if (page > 0 && page < pages.count) return pages.row(page, head, key % P::page_size);
    if (page) __atomic_store_n(&call.status, BAD_TABLE, __ATOMIC_RELAXED);
    return {zeros, zeros};
  }

  void pack_keys(int64_t key, int64_t count, float* to) const {
    alignas(KRow) char memory[NR * sizeof(KRow)];
    KRow* rows = (KRow*)memory;
    for (int64_t j = 0; j < NR; j++) rows[j] = j < count ? row_of(call.k, k_head, key + j) : KRow(zeros, zeros);
    pack_key_rows(rows, d, to);
  }

  void pack_values(int64_t key, int64_t count, int64_t capacity, float* to) const {
    for (int64_t j = 0; j < count; j++)
      pack_value_row(row_of(call.v, v_head, key + j), e, e_padded, capacity, j, to);
  }

  // ---- some rows against one block ----------------------------------------------------------------------------------

  template <bool NARROW_TILE>
  __attribute__((noinline)) void rows_block(Tile& t, int64_t i, int64_t rows, int kind, int64_t key, int64_t valid) {
    const Range keys = see(t, i, rows, kind, key, valid);
    if (keys.lo >= keys.hi) return;
    const float* q = t.q + i * d;
    for (int64_t j = keys.lo / NR * NR; j < keys.hi; j += NR) {
      if (NARROW_TILE) pack_keys(key + j, min_of(NR, valid - j), packed_k);
      query_key(rows, q, packed_k + (NARROW_TILE ? 0 : j * d), scores + j);
    }
    for (int64_t r = 0; r < rows; r++)
      if (own[r].lo < own[r].hi)
        softmax_row(scores + r * BNP, visible[r], t.frame[i + r], t.position[i + r], key, own[r], t.m[i + r], t.l[i + r],
                    t.o + (i + r) * e_padded, e_padded);
    float* o = t.o + i * e_padded;
    if (!NARROW_TILE) return weighted_values(rows, packed_v, BN, {0, valid}, o);
    for (int64_t j = keys.lo / NR * NR; j < keys.hi; j += NR) {
      const int64_t count = min_of(NR, valid - j);
      pack_values(key + j, count, NR, packed_v);
      weighted_values(rows, packed_v, NR, {j, j + count}, o);
    }
  }

  // Fills `visible` and `own` of each row; the keys that some row sees.
  Range see(const Tile& t, int64_t i, int64_t rows, int kind, int64_t key, int64_t valid) {
    if (kind == FULL) {
      for (int64_t r = 0; r < rows; r++) visible[r] = full, own[r] = {0, valid};
      return {0, valid};
    }
    Range all = {valid, 0};
    for (int64_t r = 0; r < rows; r++) {
      vi* mask = masks + r * (BNP / W);
      visible[r] = mask;
      own[r] = kind == RESIDUAL ? see_row<typename P::Residual>(t.frame[i + r], t.position[i + r], key, valid, mask)
                                : see_row<typename P::Mask>(t.frame[i + r], t.position[i + r], key, valid, mask);
      if (own[r].lo < own[r].hi) all = {min_of(all.lo, own[r].lo), max_of(all.hi, own[r].hi)};
    }
    return all;
  }

  template <class Mask>
  Range see_row(const Frame& frame, int64_t position, int64_t key, int64_t valid, vi* mask) const {
    int64_t lo = valid, hi = 0;
    const Mask sees(frame, position);
    for (int64_t j = 0; j < valid; j += W) {
      vb x = full[j / W];
      if constexpr (!Mask::identity) x &= sees(keys_at(key + j, k_len));
      mask[j / W] = x;
      if (any(x)) lo = min_of(lo, j), hi = j + W;
    }
    if (lo >= hi) return {0, 0};
    while (!mask[lo / W][lo % W]) lo++;
    while (!mask[(hi - 1) / W][(hi - 1) % W]) hi--;
    return {lo, hi};
  }

  // Scores of a row's own keys become weights; its m, l and o follow.
  static ATTNC_ONE_COPY void softmax_row(float* s, const vi* visible, const Frame& frame, int64_t position, int64_t key,
                                         Range keys, float& m, float& l, float* o, int64_t width) {
    const typename P::Visible score(frame, position);
    const int64_t begin = keys.lo / W * W;
    vf top = vf_of(-INF);
    for (int64_t j = begin; j < keys.hi; j += W) {
      vf x = load(s + j);
      if constexpr (!P::Visible::identity) x = score(x, keys_at(key + j, frame.k_len));
      x = select(visible[j / W], x, vf_of(-INF));
      store(s + j, x);
      top = max_or_second(x, top);
    }
    const float before = m, best = max_lane(top), now = best > before ? best : before, shift = now == -INF ? 0.f : now;
    const typename P::Weight weight(frame, position);
    vf sum = {};
    for (int64_t j = begin; j < keys.hi; j += W) {
      vf x = exp2_weight((load(s + j) - shift) * SCALE);
      sum += x;
      if constexpr (!P::Weight::identity) x *= weight(keys_at(key + j, frame.k_len));
      store(s + j, x);
    }
    if (now > before) {
      const float factor = exp2_weight(vf_of((before - now) * SCALE))[0];
      l *= factor;
      for (int64_t i = 0; i < width; i += W) store(o + i, load(o + i) * factor);
      m = now;
    }
    l += sum_lanes(sum);
  }

  // The products: not inlined, so that narrow and other tiles share them.
  __attribute__((noinline)) void query_key(int64_t rows, const float* q, const float* panel, float* s) const {
    multiply<2, false>(rows, q, d, panel, d, s, BNP);
  }

  // Rows from the first on, features of the panel at i, keys of one range; the panel begins with key `held`.
  __attribute__((noinline)) void add_values(int64_t rows, const float* panel, int64_t i, int64_t held, Range keys,
                                            float* o) const {
    const float* p = scores + keys.lo;
    if (e_padded - i >= NR)
      multiply<2, true>(rows, p, BNP, panel + (keys.lo - held) * NR, keys.hi - keys.lo, o + i, e_padded);
    else
      multiply<1, true>(rows, p, BNP, panel + (keys.lo - held) * W, keys.hi - keys.lo, o + i, e_padded);
  }

  // The same for one row.
  __attribute__((noinline)) void add_row_values(int64_t r, const float* panel, int64_t i, int64_t held, Range keys,
                                                float* o) const {
    const float* p = scores + r * BNP + keys.lo;
    float* to = o + r * e_padded + i;
    if (e_padded - i >= NR)
      register_tile<1, 2, true>(p, BNP, panel + (keys.lo - held) * NR, keys.hi - keys.lo, to, e_padded);
    else
      register_tile<1, 1, true>(p, BNP, panel + (keys.lo - held) * W, keys.hi - keys.lo, to, e_padded);
  }

  // o += weights · values over each row's own keys, of those that `v` holds: `held`, in panels of `capacity` keys.
  void weighted_values(int64_t rows, const float* v, int64_t capacity, Range held, float* o) const {
    Range mine[STRIP], common = held;
    for (int64_t r = 0; r < rows; r++) {
      mine[r] = {max_of(own[r].lo, held.lo), min_of(own[r].hi, held.hi)};
      common = {max_of(common.lo, mine[r].lo), min_of(common.hi, mine[r].hi)};
    }
    if (common.lo >= common.hi) common = {held.hi, held.hi};
    for (int64_t i = 0; i < e_padded; i += NR) {
      const float* panel = v + i * capacity;
      for (int64_t r = 0; r < rows; r++) {
        const Range before = {mine[r].lo, min_of(mine[r].hi, common.lo)};
        if (before.lo < before.hi) add_row_values(r, panel, i, held.lo, before, o);
      }
      if (common.lo < common.hi) add_values(rows, panel, i, held.lo, common, o);
      for (int64_t r = 0; r < rows; r++) {
        const Range after = {max_of(mine[r].lo, common.hi), mine[r].hi};
        if (after.lo < after.hi) add_row_values(r, panel, i, held.lo, after, o);
      }
    }
  }

  // ---- the end of a split and of a row ------------------------------------------------------------------------------

  void save_part(const Tile& t, float* part) const {
    memcpy(part, t.m, size_t(t.rows) * sizeof(float));
    memcpy(part + t.rows, t.l, size_t(t.rows) * sizeof(float));
    memcpy(part + 2 * t.rows, t.o, size_t(t.rows * e_padded) * sizeof(float));
  }

  void merge_tile(Tile& t, const float* m, const float* l, const float* o) const {
    for (int64_t i = 0; i < t.rows; i++)
      merge_row(m[i], l[i], o + i * e_padded, t.total_m[i], t.total_l[i], t.total + i * e_padded, e_padded);
  }

  // m' = max(m, part m), and l and o of both weighted by the exponentials of what they are below it.
  static ATTNC_ONE_COPY void merge_row(float part_m, float part_l, const float* part, float& m, float& l, float* o,
                                       int64_t width) {
    if (part_m == -INF && part_l == 0) return;
    const float now = part_m > m ? part_m : m, shift = now == -INF ? 0.f : now;
    const float a = exp2_weight(vf_of((m - shift) * SCALE))[0], b = exp2_weight(vf_of((part_m - shift) * SCALE))[0];
    m = now;
    l = multiply_add(vf_of(l), vf_of(a), vf_of(part_l * b))[0];
    for (int64_t i = 0; i < width; i += W) store(o + i, multiply_add(load(o + i), vf_of(a), load(part + i) * b));
  }

  void write_tile(const Tile& t) const {
    for (int64_t i = 0; i < t.rows; i++) {
      auto* out = call.dense.out.template at<typename P::out_t>(t.axis[i]) + t.token[i] * call.dense.out.row;
      const float factor = last_factor(t.frame[i], t.position[i], t.total_m[i], t.total_l[i]);
      store_row(t.total + i * e_padded, e, factor, out, call.dense.out.col);
    }
  }

  // What a row's o is multiplied by: 1 / l, the sink in it.
  static ATTNC_ONE_COPY float last_factor(const Frame& frame, int64_t position, float m, float l) {
    const bool dead = m == -INF && l == 0;
    if constexpr (P::has_sink) {
      m = P::log2_units ? m * LN2 : m;
      const float sink = P::sink(frame, position), top = max(m, sink), scale = dead ? 0.f : exp(m - top);
      return scale / (dead ? 1.f : scale * l + exp(sink - top));
    }
    return dead && (P::dead_rows != DEAD_NONE || !frame.k_len) ? 0.f : 1.f / l;
  }
};

}  // namespace
}  // namespace attnc
