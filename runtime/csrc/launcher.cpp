// The CPU kernel of attnc::attention: looks its plan up, checks the operands, allocates the results, calls the plan's
// kernel. Written against torch's stable ABI alone (no c10:: or at:: symbol), so it builds in seconds and one binary
// serves several torch releases. Knows nothing about attention.
#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <sstream>
#include <stdexcept>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "attnc/abi.h"

using torch::stable::Tensor;
using Sides = std::vector<std::optional<Tensor>>;
using Sizes = std::vector<int64_t>;

extern "C" {
// Mirrors runtime/abi.py. `run` null: the plan has no kernel here, torch operators do the work.
typedef struct {
  int32_t (*run)(const attnc_args*);
  int32_t (*shape)(const attnc_args*, int64_t*, int64_t*);
  const char* (*status)(int32_t);
  int32_t dtypes[4];  // q, k, v, out
  int32_t ranks[4];
  const int32_t* side_dtypes;
  const int32_t* side_ranks;
  int32_t num_side, num_sizes, returns_lse;
} PlanRecord;
// 0: the key has been registered; else `message` says why it can't be.
typedef int32_t (*Resolver)(int64_t key, char* message, int64_t capacity);
}

namespace {

constexpr int MAX_RANK = 16;
constexpr int64_t ITEMS_PER_THREAD = 16;  // work items handed out at once shrink to n / (threads * this)

struct Plan {
  PlanRecord record;
  std::vector<int32_t> side_dtypes, side_ranks;
};

std::shared_mutex table_mutex;
std::unordered_map<int64_t, const Plan*> table;  // a replaced Plan is never freed: another thread may be running it
std::atomic<Resolver> resolver{nullptr};

const char* const DTYPE_NAMES[] = {"f64", "f32", "f16", "bf16", "i64", "i32", "i16", "i8", "u8", "b1"};

// torch's code of each ABI dtype, in the order of DTYPE_NAMES.
const int32_t* torch_dtypes() {
  static const int32_t codes[] = {
      aoti_torch_dtype_float64(), aoti_torch_dtype_float32(), aoti_torch_dtype_float16(), aoti_torch_dtype_bfloat16(),
      aoti_torch_dtype_int64(),   aoti_torch_dtype_int32(),   aoti_torch_dtype_int16(),   aoti_torch_dtype_int8(),
      aoti_torch_dtype_uint8(),   aoti_torch_dtype_bool()};
  return codes;
}

const char* dtype_name(int32_t torch_dtype) {
  for (int code = 0; code < 10; code++)
    if (torch_dtypes()[code] == torch_dtype) return DTYPE_NAMES[code];
  return "a dtype kernels do not take";
}

[[noreturn]] void fail(int64_t key, const std::string& what) {
  throw std::runtime_error("attnc::attention, plan " + std::to_string(key) + ": " + what);
}

const Plan* find(int64_t key) {
  std::shared_lock<std::shared_mutex> lock(table_mutex);
  auto found = table.find(key);
  return found == table.end() ? nullptr : found->second;
}

const Plan* find_or_resolve(int64_t key) {
  if (const Plan* plan = find(key)) return plan;
  char message[4096] = "no resolver is installed; import attnc.runtime.ops";
  Resolver resolve = resolver.load();
  if (resolve != nullptr && resolve(key, message, sizeof message) == 0)
    if (const Plan* plan = find(key)) return plan;
  throw std::runtime_error(message);
}

// Sizes and strides are borrowed from the tensor, which outlives the call.
attnc_tensor view(int64_t key, const char* name, const Tensor& t, int32_t dtype, int32_t rank) {
  AtenTensorHandle handle = t.get();
  int32_t actual_dtype, device;
  int64_t ndim, *sizes, *strides;
  void* data;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_dtype(handle, &actual_dtype));
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_device_type(handle, &device));
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_dim(handle, &ndim));
  if (device != aoti_torch_device_type_cpu()) fail(key, std::string(name) + " is not on the CPU; move it there");
  if (actual_dtype != torch_dtypes()[dtype] || ndim != rank) {
    std::ostringstream text;
    text << name << " is a " << ndim << "-dimensional tensor of " << dtype_name(actual_dtype)
         << ", but the plan was compiled for " << rank << " dimensions of " << DTYPE_NAMES[dtype]
         << "; compile the model again for these inputs";
    fail(key, text.str());
  }
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_sizes(handle, &sizes));
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_strides(handle, &strides));
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_data_ptr(handle, &data));
  return {data, sizes, strides, static_cast<int32_t>(ndim), dtype};
}

// A contiguous tensor with undefined contents; `strides` is filled in.
Tensor allocate(int32_t ndim, const int64_t* sizes, int64_t* strides, int32_t torch_dtype) {
  int64_t step = 1;
  for (int32_t i = ndim - 1; i >= 0; i--) {
    strides[i] = step;
    step *= std::max<int64_t>(sizes[i], 1);
  }
  AtenTensorHandle handle;
  TORCH_ERROR_CODE_CHECK(
      aoti_torch_empty_strided(ndim, sizes, strides, torch_dtype, aoti_torch_device_type_cpu(), 0, &handle));
  return Tensor(handle);
}

// Work items differ in cost (a causal mask makes later rows longer), so threads of torch's own pool take small runs
// of items from a counter instead of one fixed share each. Which thread runs an item never changes its result.
void run_parallel(int64_t n, attnc_body body, void* state) {
  uint32_t threads;
  TORCH_ERROR_CODE_CHECK(torch_get_num_threads(&threads));
  const int64_t workers = std::min<int64_t>(threads, n);
  if (workers <= 1) return body(state, 0, n);
  struct Shared {
    std::atomic<int64_t> next{0};
    int64_t n, step;
    attnc_body body;
    void* state;
  } shared;
  shared.n = n;
  shared.step = std::max<int64_t>(1, n / (workers * ITEMS_PER_THREAD));
  shared.body = body;
  shared.state = state;
  auto work = [](int64_t, int64_t, void* context) {
    Shared& s = *static_cast<Shared*>(context);
    for (int64_t begin; (begin = s.next.fetch_add(s.step)) < s.n;)
      s.body(s.state, begin, std::min(begin + s.step, s.n));
  };
  TORCH_ERROR_CODE_CHECK(torch_parallel_for(0, workers, 1, work, &shared));
}

std::string shapes(const attnc_args& args) {
  std::ostringstream text;
  const attnc_tensor* tensors[] = {&args.q, &args.k, &args.v};
  for (int i = 0; i < 3; i++) {
    text << (i ? ", " : "") << "qkv"[i] << " [";
    for (int d = 0; d < tensors[i]->ndim; d++) text << (d ? ", " : "") << tensors[i]->sizes[d];
    text << "]";
  }
  return text.str();
}

void check(int64_t key, const PlanRecord& record, int32_t status, const attnc_args& args) {
  if (status != 0) fail(key, std::string(record.status(status)) + " (status " + std::to_string(status) + "; " + shapes(args) + ")");
}

std::tuple<Tensor, Tensor> by_python(
    const Tensor& q, const Tensor& k, const Tensor& v, const Sides& side, int64_t key, const Sizes& sizes) {
  using torch::stable::detail::from;
  using torch::stable::detail::to;
  StableIValue stack[6] = {from(q), from(k), from(v), from(side), from(key), from(sizes)};
  TORCH_ERROR_CODE_CHECK(torch_call_dispatcher("attnc::attention_python", "", stack, TORCH_ABI_VERSION));
  Tensor out = to<Tensor>(stack[0]);
  return {std::move(out), to<Tensor>(stack[1])};
}

std::tuple<Tensor, Tensor> attention(
    const Tensor& q, const Tensor& k, const Tensor& v, const Sides& side, int64_t key, const Sizes& sizes) {
  const Plan* plan = find_or_resolve(key);
  const PlanRecord& record = plan->record;
  if (record.run == nullptr) return by_python(q, k, v, side, key, sizes);
  if (static_cast<int64_t>(side.size()) != record.num_side || static_cast<int64_t>(sizes.size()) != record.num_sizes)
    fail(key, "expects " + std::to_string(record.num_side) + " side tensors and " + std::to_string(record.num_sizes) +
                  " sizes, got " + std::to_string(side.size()) + " and " + std::to_string(sizes.size()));
  attnc_args args{};
  args.q = view(key, "q", q, record.dtypes[0], record.ranks[0]);
  args.k = view(key, "k", k, record.dtypes[1], record.ranks[1]);
  args.v = view(key, "v", v, record.dtypes[2], record.ranks[2]);
  std::vector<attnc_tensor> sides;
  sides.reserve(side.size());
  for (size_t i = 0; i < side.size(); i++) {
    const std::string name = "side tensor " + std::to_string(i);
    if (!side[i].has_value()) fail(key, name + " is missing");
    sides.push_back(view(key, name.c_str(), *side[i], plan->side_dtypes[i], plan->side_ranks[i]));
  }
  args.side = sides.data();
  args.num_side = record.num_side;
  args.sizes = sizes.data();
  args.num_sizes = record.num_sizes;
  args.parallel = run_parallel;

  const int32_t rank = record.ranks[3];
  int64_t out_sizes[MAX_RANK], out_strides[MAX_RANK], lse_sizes[MAX_RANK] = {0}, lse_strides[MAX_RANK];
  check(key, record, record.shape(&args, out_sizes, lse_sizes), args);
  Tensor out = allocate(rank, out_sizes, out_strides, torch_dtypes()[record.dtypes[3]]);
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_data_ptr(out.get(), &args.out.data));
  args.out = {args.out.data, out_sizes, out_strides, rank, record.dtypes[3]};
  const int32_t lse_rank = record.returns_lse ? rank - 1 : 1;
  if (!record.returns_lse) lse_sizes[0] = 0;
  Tensor lse = allocate(lse_rank, lse_sizes, lse_strides, aoti_torch_dtype_float32());
  if (record.returns_lse) {
    TORCH_ERROR_CODE_CHECK(aoti_torch_get_data_ptr(lse.get(), &args.lse.data));
    args.lse = {args.lse.data, lse_sizes, lse_strides, lse_rank, /* f32 */ 1};
  }
  check(key, record, record.run(&args), args);
  return {std::move(out), std::move(lse)};
}

}  // namespace

extern "C" {

// Makes `key` callable. The record's arrays are copied. 0, or 1 when a rank is beyond what the launcher takes.
__attribute__((visibility("default"))) int32_t attnc_register(int64_t key, const PlanRecord* record) {
  if (*std::max_element(record->ranks, record->ranks + 4) > MAX_RANK) return 1;
  Plan* plan = new Plan{*record, {}, {}};
  plan->side_dtypes.assign(record->side_dtypes, record->side_dtypes + record->num_side);
  plan->side_ranks.assign(record->side_ranks, record->side_ranks + record->num_side);
  std::unique_lock<std::shared_mutex> lock(table_mutex);
  table[key] = plan;
  return 0;
}

__attribute__((visibility("default"))) void attnc_set_resolver(Resolver callback) { resolver.store(callback); }

}

STABLE_TORCH_LIBRARY_IMPL(attnc, CPU, library) { library.impl("attention", TORCH_BOX(&attention)); }
