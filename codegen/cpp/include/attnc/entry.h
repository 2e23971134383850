// The C entry points of a page: checks operands against the plan, sizes the work, runs it.
#pragma once
#include <unistd.h>

#include "attnc/flash.h"

namespace attnc {
namespace {

// Status codes; attnc_status of the page has the texts. STATUS_AXIS + i: operands disagree on the length of axis i,
// the outer axes first, then q, k, d, e.
enum Status { DONE, BAD_Q, BAD_K, BAD_V, BAD_OUT, BAD_LSE, BAD_SIDE, BAD_SIZES, TOO_LONG, NO_MEMORY, SHORT_SIDE, STATUS_AXIS = 16 };

constexpr int64_t LENGTH_LIMIT = int64_t(1) << 30;  // sums of two lengths fit in 32-bit lanes

// Lengths of the outer axes, then of q, k, d, e; -1 where not yet seen.
template <int N>
struct Lengths {
  int64_t of[N + 4];
};

// `axes[i]` is the axis of dimension i, ROW and COL those of the operand's last two roles.
template <int N, int RANK>
int32_t bind(const attnc_tensor& x, int32_t dtype, const int (&axes)[RANK], int row, int col, int32_t bad, Lengths<N>& lengths,
             Operand<N>& operand) {
  if (x.ndim != RANK || x.dtype != dtype) return bad;
  operand = {};
  operand.data = (char*)x.data;
  for (int i = 0; i < RANK; i++) {
    const int axis = axes[i];
    if (x.sizes[i] < 0 || x.sizes[i] >= LENGTH_LIMIT) return TOO_LONG;
    if (lengths.of[axis] < 0) lengths.of[axis] = x.sizes[i];
    if (lengths.of[axis] != x.sizes[i]) return STATUS_AXIS + axis;
    if (axis < N) operand.outer[axis] = x.strides[i];
    if (axis == row) operand.row = x.strides[i];
    if (axis == col) operand.col = x.strides[i];
  }
  return DONE;
}

template <class P>
int32_t bind_inputs(const attnc_args& args, Lengths<P::num_outer>& lengths, Call<P>& call) {
  constexpr int N = P::num_outer, Q = N, K = N + 1, D = N + 2, E = N + 3;
  for (int64_t& n : lengths.of) n = -1;
  if (P::head_dim >= 0) lengths.of[D] = P::head_dim;
  if (P::value_dim >= 0) lengths.of[E] = P::value_dim;
  int32_t status = bind<N>(args.q, dtype_code<typename P::q_t>, P::q_axes, Q, D, BAD_Q, lengths, call.q);
  if (!status) status = bind<N>(args.k, dtype_code<typename P::k_t>, P::k_axes, K, D, BAD_K, lengths, call.k);
  if (!status) status = bind<N>(args.v, dtype_code<typename P::v_t>, P::v_axes, K, E, BAD_V, lengths, call.v);
  return status;
}

template <class P>
int32_t bind_outputs(const attnc_args& args, Lengths<P::num_outer>& lengths, Call<P>& call) {
  constexpr int N = P::num_outer, Q = N, E = N + 3;
  int32_t status = bind<N>(args.out, dtype_code<typename P::out_t>, P::out_axes, Q, E, BAD_OUT, lengths, call.out);
  if constexpr (P::returns_lse)
    if (!status) status = bind<N>(args.lse, dtype_code<float>, P::lse_axes, Q, -1, BAD_LSE, lengths, call.lse);
  return status;
}

template <class P>
int32_t bind_sides(const attnc_args& args, const Lengths<P::num_outer>& lengths, Call<P>& call) {
  if (args.num_side != P::num_sides) return BAD_SIDE;
  for (int i = 0; i < P::num_sides; i++) {
    const attnc_tensor& x = args.side[i];
    if (x.dtype != P::side_dtype[i] || x.ndim != P::side_rank[i]) return BAD_SIDE;
    call.side[i] = {x.data, x.strides};
  }
  for (int i = 0; i < P::num_reads; i++)
    if (args.side[P::reads[i][0]].sizes[P::reads[i][1]] < lengths.of[P::reads[i][2]]) return SHORT_SIDE;
  if (args.num_sizes != P::num_sizes) return BAD_SIZES;
  for (int i = 0; i < P::num_sizes; i++)
    if (args.sizes[i] <= -LENGTH_LIMIT || args.sizes[i] >= LENGTH_LIMIT) return TOO_LONG;
  call.sizes = args.sizes;
  return DONE;
}

inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
inline int64_t clamp(int64_t x, int64_t lo, int64_t hi) { return max_of(lo, min_of(x, hi)); }

// How much one item does. Items are as large as leaves four for each processor, so that packing is shared widely, but
// their rows stay below 1 MiB; a chunk of packed keys and values fills half a common L2 cache. None of it changes the
// order in which a row meets its keys.
template <class P>
void size_work(Call<P>& c, bool parallel) {
  c.kv_count = c.group_count = 1;
  for (int a = 0; a < P::num_outer; a++) (P::kv_axis[a] ? c.kv_count : c.group_count) *= c.length[a];
  const int64_t bytes = 4 * (c.d + round_up(c.e, W)) + 4;
  c.tiles_per_group = ceil_div(c.q_len, P::block_m);
  const int64_t tiles = c.group_count * c.tiles_per_group, all = tiles * c.kv_count;
  const int64_t processors = parallel ? max_of(sysconf(_SC_NPROCESSORS_ONLN), 1) : 1;
  const int64_t spread = max_of(all / (4 * processors), ceil_div(128, P::block_m));
  c.tiles_per_item = clamp(min_of(spread, (1 << 20) / (bytes * P::block_m)), 1, tiles);
  c.items_per_kv = ceil_div(tiles, c.tiles_per_item);
  c.blocks = ceil_div(c.k_len, P::block_n);
  c.blocks_per_chunk = clamp((256 << 10) / (bytes * P::block_n), 1, max_of(c.blocks, 1));
}

template <class P>
void run_items(void* state, int64_t begin, int64_t end) {
  Call<P>& call = *(Call<P>*)state;
  Flash<P> flash(call);
  if (!flash.carve()) return __atomic_store_n(&call.failed, true, __ATOMIC_RELAXED);
  for (int64_t i = begin; i < end; i++) flash.item(i);
}

template <class P>
int32_t run(const attnc_args& args) {
  Call<P> call;
  Lengths<P::num_outer> lengths;
  int32_t status = bind_inputs<P>(args, lengths, call);
  if (!status) status = bind_outputs<P>(args, lengths, call);
  if (!status) status = bind_sides<P>(args, lengths, call);
  if (status) return status;
  constexpr int N = P::num_outer;
  bool empty = false;
  for (int a = 0; a < N; a++) call.length[a] = lengths.of[a], empty |= lengths.of[a] == 0;
  call.q_len = lengths.of[N], call.k_len = lengths.of[N + 1], call.d = lengths.of[N + 2], call.e = lengths.of[N + 3];
  if (empty || call.q_len == 0) return DONE;
  call.failed = false;
  size_work(call, args.parallel != nullptr);
  const int64_t items = call.kv_count * call.items_per_kv;
  if (args.parallel && items > 1)
    args.parallel(items, run_items<P>, &call);
  else
    run_items<P>(&call, 0, items);
  return __atomic_load_n(&call.failed, __ATOMIC_RELAXED) ? NO_MEMORY : DONE;
}

// Sizes of the results in the order of their axes, from q, k, v.
template <class P>
int32_t shape(const attnc_args& args, int64_t* out_sizes, int64_t* lse_sizes) {
  Call<P> call;
  Lengths<P::num_outer> lengths;
  const int32_t status = bind_inputs<P>(args, lengths, call);
  if (status) return status;
  for (int axis : P::out_axes) *out_sizes++ = lengths.of[axis];
  if constexpr (P::returns_lse)
    for (int axis : P::lse_axes) *lse_sizes++ = lengths.of[axis];
  return DONE;
}

}  // namespace
}  // namespace attnc

#define ATTNC_ENTRY(P)                                                                                  \
  int32_t attnc_run(const attnc_args* args) { return attnc::run<P>(*args); }                            \
  int32_t attnc_shape(const attnc_args* args, int64_t* out_sizes, int64_t* lse_sizes) {                 \
    return attnc::shape<P>(*args, out_sizes, lse_sizes);                                                \
  }                                                                                                     \
  uint64_t attnc_plan_digest(void) { return P::plan_digest; }
