// The C entry point of a paged page: checks operands against the plan, cuts the work into items, runs them.
#pragma once
#include "attnc/paged.h"

// Calls f over [begin, end) from torch's threads, `grain` items at a time.
typedef int32_t (*attnc_parallel_for)(int64_t begin, int64_t end, int64_t grain, void (*f)(int64_t, int64_t, void*),
                                      void* state);

// words: number of sides, number of sizes, the sizes; then q, k pages, v pages, k scales, v scales, block table, query
// starts, context lengths, the result and the sides, each as data, dtype (as in abi.h; float8 counts as u8), rank, its
// lengths, its strides. An absent tensor has data 0 and rank 0. parallel NULL: the kernel runs its items itself.
ATTNC_EXPORT int32_t attnc_paged_run(const int64_t* words, attnc_parallel_for parallel, int64_t threads);

namespace attnc {
namespace {

// What attnc_paged_run is given, read in order.
struct Words {
  const int64_t* at;

  int64_t next() { return *at++; }
  attnc_tensor tensor() {
    const int64_t rank = at[2];
    const attnc_tensor t = {(void*)at[0], at + 3, at + 3 + rank, int32_t(rank), int32_t(at[1])};
    at += 3 + 2 * rank;
    return t;
  }
};

template <class Store>
int32_t bind_pages(const attnc_tensor& x, const attnc_tensor& scale, int64_t heads, int64_t page_size, int64_t features,
                   int32_t bad, Pages<Store>& pages) {
  if (x.ndim != 4 || x.dtype != Store::code || x.sizes[1] != heads || x.sizes[2] != page_size) return bad;
  if (x.sizes[3] != Store::width(features) || x.strides[3] != 1) return bad;
  pages = {(const char*)x.data, (const char*)scale.data, x.strides[0], x.strides[1], x.strides[2], 0, 0, 0, x.sizes[0]};
  if constexpr (Store::scale_code < 0) return scale.data ? int32_t(BAD_SCALE) : int32_t(DONE);
  constexpr int RANK = Store::scale_group ? 4 : 3;
  if (!scale.data || scale.ndim != RANK || scale.dtype != Store::scale_code) return BAD_SCALE;
  for (int i = 0; i < 3; i++)
    if (scale.sizes[i] != x.sizes[i]) return BAD_SCALE;
  if constexpr (Store::scale_group > 0)
    if (scale.sizes[3] != ceil_div(features, Store::scale_group) || scale.strides[3] != 1) return BAD_SCALE;
  pages.scale_page = scale.strides[0], pages.scale_head = scale.strides[1], pages.scale_slot = scale.strides[2];
  return DONE;
}

inline const int32_t* int_vector(const attnc_tensor& x, int64_t count) {
  const bool fits = x.ndim == 1 && x.dtype == dtype_code<int32_t> && x.sizes[0] == count;
  return fits && (count < 2 || x.strides[0] == 1) ? (const int32_t*)x.data : nullptr;
}

// Requests one after the other, their tokens all of q, their keys within the table.
template <class P>
int32_t bind_batch(Words& words, int64_t tokens, PagedCall<P>& call, int64_t* longest) {
  const attnc_tensor table = words.tensor(), starts = words.tensor(), contexts = words.tensor();
  if (table.ndim != 2 || table.dtype != dtype_code<int32_t>) return BAD_TABLE;
  if (table.sizes[1] > 1 && table.strides[1] != 1) return BAD_TABLE;
  call.requests = table.sizes[0], call.table_width = table.sizes[1], call.table_row = table.strides[0];
  call.table = (const int32_t*)table.data;
  call.query_start = int_vector(starts, call.requests + 1), call.context_len = int_vector(contexts, call.requests);
  if (!call.query_start || (!call.context_len && call.requests)) return BAD_BATCH;
  if (call.query_start[0] != 0 || call.query_start[call.requests] != tokens) return BAD_BATCH;
  for (int64_t n = 0; n < call.requests; n++) {
    if (call.new_tokens(n) < 0 || call.context_len[n] < 0) return BAD_BATCH;
    if (call.keys(n) >= LENGTH_LIMIT) return TOO_LONG;
    if (call.new_tokens(n) && ceil_div(call.keys(n), P::page_size) > call.table_width) return BAD_TABLE;
    *longest = max_of(*longest, call.keys(n));
  }
  return DONE;
}

template <class P>
int32_t bind_paged(const int64_t* given, PagedCall<P>& call) {
  constexpr int N = P::num_outer, Q = N, D = N + 2, E = N + 3;
  Words words = {given};
  Call<P>& dense = call.dense;
  Lengths<N> lengths;
  for (int64_t& n : lengths.of) n = -1;
  if (P::head_dim >= 0) lengths.of[D] = P::head_dim;
  attnc_args args = {};
  args.num_side = int32_t(words.next()), args.num_sizes = int32_t(words.next());
  args.sizes = words.at, words.at += args.num_sizes;
  const attnc_tensor q = words.tensor(), k = words.tensor(), v = words.tensor();
  const attnc_tensor k_scale = words.tensor(), v_scale = words.tensor();
  int32_t status = bind<N>(q, dtype_code<typename P::q_t>, P::q_axes, Q, D, BAD_Q, lengths, dense.q);
  if (status) return status;
  int64_t k_heads = 1, v_heads = 1;
  for (int a : P::k_heads) k_heads *= a < 0 ? 1 : lengths.of[a];
  for (int a : P::v_heads) v_heads *= a < 0 ? 1 : lengths.of[a];
  if (P::batch_axis >= 0 && lengths.of[P::batch_axis < 0 ? 0 : P::batch_axis] != 1) return BATCH_AXIS;
  dense.d = lengths.of[D], dense.e = P::value_dim >= 0 ? P::value_dim : v.ndim == 4 ? v.sizes[3] : 0;
  status = bind_pages(k, k_scale, k_heads, P::page_size, dense.d, BAD_K, call.k);
  if (!status) status = bind_pages(v, v_scale, v_heads, P::page_size, dense.e, BAD_V, call.v);
  int64_t longest = 0;
  const int64_t tokens = lengths.of[Q];
  if (!status) status = bind_batch<P>(words, tokens, call, &longest);
  if (status) return status;
  lengths.of[E] = dense.e;
  status = bind<N>(words.tensor(), dtype_code<typename P::out_t>, P::out_axes, Q, E, BAD_OUT, lengths, dense.out);
  if (status) return status;
  attnc_tensor sides[P::num_sides ? P::num_sides : 1];
  if (args.num_side != P::num_sides) return BAD_SIDE;
  for (int i = 0; i < P::num_sides; i++) sides[i] = words.tensor();
  args.side = sides;
  lengths.of[N] = P::causal ? longest : tokens, lengths.of[N + 1] = longest;
  for (int a = 0; a < N; a++) dense.length[a] = lengths.of[a];
  return bind_sides<P>(args, lengths, dense);
}

// Cuts the work into items. Where whole tiles are too few for the threads, requests of one tile are cut into splits.
template <class P>
struct Schedule {
  PagedCall<P>& call;
  int64_t threads;
  const int64_t row_floats = 2 + round_up(call.dense.e, W);
  bool cut = false;
  int64_t items = 0, merges = 0, part_floats = 0;

  int64_t tiles(int64_t n) const { return ceil_div(call.rows(n), P::block_m); }
  bool is_cut(int64_t n) const { return cut && tiles(n) == 1 && call.splits(n) > 1; }

  void size_items() {
    Call<P>& c = call.dense;
    c.kv_count = c.group_count = 1;
    for (int a = 0; a < P::num_outer; a++) (P::kv_axis[a] ? c.kv_count : c.group_count) *= c.length[a];
    int64_t all = 0, most = 1;
    for (int64_t n = 0; n < call.requests; n++) all += tiles(n), most = max_of(most, tiles(n));
    const int64_t bytes = 4 * (c.d + 2 * round_up(c.e, W)) * P::block_m;
    const int64_t spread = max_of(all * c.kv_count / (4 * threads), ceil_div(128, P::block_m));
    c.tiles_per_item = clamp(min_of(spread, (1 << 20) / bytes), 1, most);
    visit();
    cut = threads > 1 && items < 4 * threads;
    items = 0;
    visit();
  }

  // Counts items; fills them in where there is memory for them.
  void visit() {
    for (int64_t n = 0; n < call.requests; n++)
      for (int64_t kv = 0; kv < call.dense.kv_count && call.rows(n); kv++)
        is_cut(n) ? add_splits(n, kv) : add_tiles(n, kv);
  }

  void add_tiles(int64_t n, int64_t kv) {
    for (int64_t t = 0; t < tiles(n); t += call.dense.tiles_per_item)
      add({n, kv, t, min_of(call.dense.tiles_per_item, tiles(n) - t), 0, call.splits(n), -1});
  }

  void add_splits(int64_t n, int64_t kv) {
    const int64_t splits = call.splits(n), floats = call.rows(n) * row_floats;
    if (call.merges) call.merges[merges] = {n, kv, splits, part_floats};
    merges++;
    for (int64_t s = 0; s < splits; s++, part_floats += floats) add({n, kv, 0, 1, s, s + 1, part_floats});
  }

  void add(const PagedItem& item) {
    if (call.items) call.items[items] = item;
    items++;
  }

  char* build() {
    call.items = nullptr, call.merges = nullptr;
    size_items();
    const size_t item_bytes = size_t(items) * sizeof(PagedItem), merge_bytes = size_t(merges) * sizeof(PagedMerge);
    char* memory = (char*)__builtin_malloc(item_bytes + merge_bytes + size_t(part_floats) * sizeof(float) + 1);
    if (!memory) return nullptr;
    call.items = (PagedItem*)memory, call.merges = (PagedMerge*)(memory + item_bytes);
    call.parts = (float*)(memory + item_bytes + merge_bytes);
    call.num_items = items, call.num_merges = merges;
    items = merges = part_floats = 0;
    visit();
    return memory;
  }
};

// Work that threads take from a counter, so that none waits for a share that happens to be long.
template <class P>
struct Crew {
  PagedCall<P>& call;
  bool merging;
  int64_t count, next;

  static void work(int64_t, int64_t, void* state) {
    Crew& crew = *(Crew*)state;
    Paged<P> paged(crew.call);
    if (!paged.carve()) return __atomic_store_n(&crew.call.status, NO_MEMORY, __ATOMIC_RELAXED);
    for (int64_t i; (i = __atomic_fetch_add(&crew.next, 1, __ATOMIC_RELAXED)) < crew.count;)
      crew.merging ? paged.merge(crew.call.merges[i]) : paged.item(crew.call.items[i]);
  }

  void run(attnc_parallel_for parallel, int64_t threads) {
    const int64_t workers = min_of(threads, count);
    if (!parallel || workers < 2)
      work(0, 1, this);
    else if (parallel(0, workers, 1, work, this))
      call.status = NO_MEMORY;
  }
};

template <class P>
int32_t paged_run(const int64_t* words, attnc_parallel_for parallel, int64_t threads) {
  PagedCall<P> call;
  call.status = bind_paged<P>(words, call);
  if (call.status) return call.status;
  Schedule<P> schedule{call, max_of(parallel ? threads : 1, 1)};
  char* memory = schedule.build();
  if (!memory) return NO_MEMORY;
  if (call.num_items) Crew<P>{call, false, call.num_items, 0}.run(parallel, threads);
  if (call.num_merges && !call.status) Crew<P>{call, true, call.num_merges, 0}.run(parallel, threads);
  __builtin_free(memory);
  return call.status;
}

}  // namespace
}  // namespace attnc

#define ATTNC_PAGED_ENTRY(P)                                                                            \
  int32_t attnc_paged_run(const int64_t* words, attnc_parallel_for parallel, int64_t threads) {         \
    return attnc::paged_run<P>(words, parallel, threads);                                               \
  }                                                                                                     \
  uint64_t attnc_plan_digest(void) { return P::plan_digest; }
