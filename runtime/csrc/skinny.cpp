// The CPU kernel of attnc::skinny_linear: checks the operands, turns x into rows of floats, hands panels to torch's
// threads. Written against torch's stable ABI alone, as the launcher is.
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "skinny.h"

using torch::headeronly::ScalarType;
using torch::stable::Tensor;

namespace {

constexpr int64_t GRAIN = 1 << 16;                  // multiply-adds that are worth a thread
constexpr int64_t RUNS_PER_THREAD = 16;             // of panels, so that a slow thread delays the others little
constexpr int64_t CACHE_LINE = 64 / sizeof(float);  // in floats

struct Problem {
  int64_t rows, depth, features;
  const float* x;  // (rows, x_stride)
  int64_t x_stride;
  const void* weights;
  const float* bias;  // whole panels
  void* out;          // (rows, features)
};

[[noreturn]] void fail(const std::string& what) { throw std::runtime_error("attnc::skinny_linear: " + what); }

void check_operand(const char* name, const Tensor& t) {
  if (!t.is_cpu()) fail(std::string(name) + " is not on the CPU; move it there");
  if (t.scalar_type() != ScalarType::Float && t.scalar_type() != ScalarType::BFloat16)
    fail(std::string(name) + " is neither float32 nor bfloat16; convert it");
}

void check(const Tensor& x, const Tensor& packed, const std::optional<Tensor>& bias, int64_t features) {
  check_operand("x", x);
  check_operand("packed", packed);
  if (packed.dim() != 3 || packed.size(2) != attnc::PANEL || !packed.is_contiguous())
    fail("packed is not what pack() returns, a contiguous tensor [panels, K, 16]");
  if (features < 0 || packed.size(0) != (features + attnc::PANEL - 1) / attnc::PANEL)
    fail("packed has " + std::to_string(packed.size(0)) + " panels of 16 features, which is not what " +
         std::to_string(features) + " features need");
  if (x.dim() < 1 || x.size(x.dim() - 1) != packed.size(1))
    fail("x has " + (x.dim() < 1 ? "no dimension" : std::to_string(x.size(x.dim() - 1)) + " features") +
         ", packed was made for " + std::to_string(packed.size(1)));
  if (!bias.has_value()) return;
  check_operand("bias", *bias);
  if (bias->dim() != 1 || bias->size(0) != features) fail("bias is not of shape [" + std::to_string(features) + "]");
}

template <class T>
void widen(const void* from, int64_t stride, int64_t n, float* to) {
  const T* at = static_cast<const T*>(from);
  int64_t i = 0;
  if (stride == 1)
    for (; i + attnc::W <= n; i += attnc::W) attnc::store(to + i, attnc::load_vector(at + i));
  for (; i < n; i++) to[i] = attnc::value_of(at[i * stride]);
}

// `n` elements of t from `offset`, `stride` apart, as floats.
void read(const Tensor& t, int64_t offset, int64_t stride, int64_t n, float* to) {
  const char* at = static_cast<const char*>(t.data_ptr()) + offset * int64_t(t.element_size());
  (t.scalar_type() == ScalarType::Float ? widen<float> : widen<attnc::bf16>)(at, stride, n, to);
}

// Where row number `row` of x begins, in elements: the leading dimensions counted as one.
int64_t row_offset(const Tensor& x, int64_t row) {
  int64_t offset = 0;
  for (int64_t d = x.dim() - 2; d >= 0; d--) {
    offset += row % x.size(d) * x.stride(d);
    row /= x.size(d);
  }
  return offset;
}

template <class T, class Out>
void run_panels(const Problem& p, int64_t begin, int64_t end) {
  using namespace attnc;
  for (int64_t panel = begin; panel < end; panel++) {
    const T* weights = static_cast<const T*>(p.weights) + panel * p.depth * PANEL;
    const int64_t feature = panel * PANEL;
    for (int64_t row = 0; row < p.rows; row += BLOCK) {
      const int64_t rows = min_of(BLOCK, p.rows - row);
      float sums[BLOCK][PANEL] = {};
      linear_panel(rows, p.x + row * p.x_stride, p.x_stride, weights, p.depth, sums);
      store_sums(rows, sums, p.bias + feature, p.features - feature,
                 static_cast<Out*>(p.out) + row * p.features + feature, p.features);
    }
  }
}

using Body = void (*)(const Problem&, int64_t, int64_t);

void run_parallel(const Problem& p, Body body) {
  const int64_t panels = (p.features + attnc::PANEL - 1) / attnc::PANEL;
  const int64_t useful = p.rows * p.depth * p.features / GRAIN;
  const int64_t workers = std::min({int64_t(torch::stable::get_num_threads()), panels, useful});
  if (workers <= 1) return body(p, 0, panels);
  std::atomic<int64_t> next{0};
  const int64_t step = std::max<int64_t>(1, panels / (workers * RUNS_PER_THREAD));
  torch::stable::parallel_for(0, workers, 1, [&](int64_t, int64_t) {
    for (int64_t begin; (begin = next.fetch_add(step)) < panels;) body(p, begin, std::min(begin + step, panels));
  });
}

Tensor skinny_linear(const Tensor& x, const Tensor& packed, const std::optional<Tensor>& bias, int64_t features) {
  check(x, packed, bias, features);
  const int64_t depth = packed.size(1), panels = packed.size(0);
  std::vector<int64_t> sizes(x.sizes().begin(), x.sizes().end());
  sizes.back() = features;
  Tensor out = torch::stable::new_empty(x, sizes);
  int64_t rows = 1;
  for (size_t d = 0; d + 1 < sizes.size(); d++) rows *= sizes[d];
  if (rows == 0 || features == 0) return out;

  // Rows begin on lines of different cache sets, for any power of two in K.
  const int64_t stride = attnc::round_up(depth, CACHE_LINE) + CACHE_LINE;
  std::unique_ptr<float[]> floats(new float[rows * stride]);
  for (int64_t row = 0; row < rows; row++)
    read(x, row_offset(x, row), x.stride(x.dim() - 1), depth, floats.get() + row * stride);
  std::vector<float> biases(panels * attnc::PANEL);
  if (bias.has_value()) read(*bias, 0, bias->stride(0), features, biases.data());

  const Problem problem{rows, depth, features, floats.get(), stride, packed.data_ptr(), biases.data(),
                        out.data_ptr()};
  const bool wide = x.scalar_type() == ScalarType::Float;
  if (packed.scalar_type() == ScalarType::Float)
    run_parallel(problem, wide ? run_panels<float, float> : run_panels<float, attnc::bf16>);
  else
    run_parallel(problem, wide ? run_panels<attnc::bf16, float> : run_panels<attnc::bf16, attnc::bf16>);
  return out;
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(attnc, CPU, library) { library.impl("skinny_linear", TORCH_BOX(&skinny_linear)); }
