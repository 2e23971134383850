// Attention kernel flash_bf16_d64_masked, written by attnc (plan version 2, emitter 1).
//
//   q[b, h, q, d]  k[b, h, k, d]  v[b, h, k, e]  ->  out[b, h, q, e]
//   score    tanh(qk * 0.125 / 50) * 50 + t0[h, q - k + |k| - 1]
//   mask     (k <= q) & (t1[b, k] != 0)
//   sink     t0[h, 0]
//   softmax  sink; dead rows: zero
//   keys     tiles 0 .. max((tq * 24 + |k| - |q| + 1) // 32, 0), masked
//   keys     tiles max((tq * 24 + |k| - |q| + 1) // 32, 0) .. (min(tq * 24 + |k| - |q| + 24, |k|) + 31) // 32, masked
//
// plan: {"block_m":24,"block_n":32,"dead_rows":"zero","dtypes":["bf16","bf16","bf16","bf16"],"head_dim":64,"k_axes":["b","h","k","d"],"mask":[{"args":[],"dtype":"i64","op":"axis","value":"k"},{"args":[],"dtype":"i64","op":"axis","value":"q"},{"args":[0,1],"dtype":"b1","op":"le","value":null},{"args":[],"dtype":"i64","op":"axis","value":"b"},{"args":[3,0],"dtype":"i64","op":"load","value":1},{"args":[],"dtype":"i64","op":"const","value":0},{"args":[4,5],"dtype":"b1","op":"ne","value":null},{"args":[2,6],"dtype":"b1","op":"and","value":null}],"out_axes":["b","h","q","e"],"outer":["b","h"],"q_axes":["b","h","q","d"],"residual":null,"returns_lse":false,"score":[{"args":[],"dtype":"f32","op":"qk","value":null},{"args":[],"dtype":"f32","op":"const","value":0.125},{"args":[0,1],"dtype":"f32","op":"mul","value":null},{"args":[],"dtype":"f32","op":"const","value":50.0},{"args":[2,3],"dtype":"f32","op":"div","value":null},{"args":[4],"dtype":"f32","op":"tanh","value":null},{"args":[],"dtype":"f32","op":"const","value":50.0},{"args":[5,6],"dtype":"f32","op":"mul","value":null},{"args":[],"dtype":"i64","op":"axis","value":"h"},{"args":[],"dtype":"i64","op":"axis","value":"q"},{"args":[],"dtype":"i64","op":"axis","value":"k"},{"args":[9,10],"dtype":"i64","op":"sub","value":null},{"args":[],"dtype":"i64","op":"size","value":"|k|"},{"args":[11,12],"dtype":"i64","op":"add","value":null},{"args":[],"dtype":"i64","op":"const","value":1},{"args":[13,14],"dtype":"i64","op":"sub","value":null},{"args":[8,15],"dtype":"bf16","op":"load","value":0},{"args":[7,16],"dtype":"f32","op":"add","value":null}],"segments":[{"guard":null,"guard_scope":"segment","hi":[{"args":[],"dtype":"i64","op":"axis","value":"tq"},{"args":[],"dtype":"i64","op":"const","value":24},{"args":[0,1],"dtype":"i64","op":"mul","value":null},{"args":[],"dtype":"i64","op":"size","value":"|k|"},{"args":[2,3],"dtype":"i64","op":"add","value":null},{"args":[],"dtype":"i64","op":"size","value":"|q|"},{"args":[4,5],"dtype":"i64","op":"sub","value":null},{"args":[],"dtype":"i64","op":"const","value":1},{"args":[6,7],"dtype":"i64","op":"add","value":null},{"args":[],"dtype":"i64","op":"const","value":32},{"args":[8,9],"dtype":"i64","op":"floordiv","value":null},{"args":[],"dtype":"i64","op":"const","value":0},{"args":[10,11],"dtype":"i64","op":"max","value":null}],"lo":[{"args":[],"dtype":"i64","op":"const","value":0}],"needs_mask":true,"residual":false,"step":1},{"guard":null,"guard_scope":"segment","hi":[{"args":[],"dtype":"i64","op":"axis","value":"tq"},{"args":[],"dtype":"i64","op":"const","value":24},{"args":[0,1],"dtype":"i64","op":"mul","value":null},{"args":[],"dtype":"i64","op":"size","value":"|k|"},{"args":[2,3],"dtype":"i64","op":"add","value":null},{"args":[],"dtype":"i64","op":"size","value":"|q|"},{"args":[4,5],"dtype":"i64","op":"sub","value":null},{"args":[],"dtype":"i64","op":"const","value":24},{"args":[6,7],"dtype":"i64","op":"add","value":null},{"args":[8,3],"dtype":"i64","op":"min","value":null},{"args":[],"dtype":"i64","op":"const","value":31},{"args":[9,10],"dtype":"i64","op":"add","value":null},{"args":[],"dtype":"i64","op":"const","value":32},{"args":[11,12],"dtype":"i64","op":"floordiv","value":null}],"lo":[{"args":[],"dtype":"i64","op":"axis","value":"tq"},{"args":[],"dtype":"i64","op":"const","value":24},{"args":[0,1],"dtype":"i64","op":"mul","value":null},{"args":[],"dtype":"i64","op":"size","value":"|k|"},{"args":[2,3],"dtype":"i64","op":"add","value":null},{"args":[],"dtype":"i64","op":"size","value":"|q|"},{"args":[4,5],"dtype":"i64","op":"sub","value":null},{"args":[],"dtype":"i64","op":"const","value":1},{"args":[6,7],"dtype":"i64","op":"add","value":null},{"args":[],"dtype":"i64","op":"const","value":32},{"args":[8,9],"dtype":"i64","op":"floordiv","value":null},{"args":[],"dtype":"i64","op":"const","value":0},{"args":[10,11],"dtype":"i64","op":"max","value":null}],"needs_mask":true,"residual":false,"step":1}],"sides":[{"dtype":"bf16","rank":2},{"dtype":"i64","rank":2}],"sink":[{"args":[],"dtype":"i64","op":"axis","value":"h"},{"args":[],"dtype":"i64","op":"const","value":0},{"args":[0,1],"dtype":"bf16","op":"load","value":0}],"sizes":[],"softmax":"sink","target":"cpu","v_axes":["b","h","k","e"],"value_dim":64,"version":2,"visible":[{"args":[],"dtype":"f32","op":"qk","value":null},{"args":[],"dtype":"f32","op":"const","value":0.125},{"args":[0,1],"dtype":"f32","op":"mul","value":null},{"args":[],"dtype":"f32","op":"const","value":50.0},{"args":[2,3],"dtype":"f32","op":"div","value":null},{"args":[4],"dtype":"f32","op":"tanh","value":null},{"args":[],"dtype":"f32","op":"const","value":50.0},{"args":[5,6],"dtype":"f32","op":"mul","value":null},{"args":[],"dtype":"i64","op":"axis","value":"h"},{"args":[],"dtype":"i64","op":"axis","value":"q"},{"args":[],"dtype":"i64","op":"axis","value":"k"},{"args":[9,10],"dtype":"i64","op":"sub","value":null},{"args":[],"dtype":"i64","op":"size","value":"|k|"},{"args":[11,12],"dtype":"i64","op":"add","value":null},{"args":[],"dtype":"i64","op":"const","value":1},{"args":[13,14],"dtype":"i64","op":"sub","value":null},{"args":[8,15],"dtype":"bf16","op":"load","value":0},{"args":[7,16],"dtype":"f32","op":"add","value":null}],"weight":null}
#include <attnc/entry.h>

namespace attnc {
namespace {

struct Page {
  static constexpr uint64_t plan_digest = 0x760425e709121f4fu;
  typedef bf16 q_t;
  typedef bf16 k_t;
  typedef bf16 v_t;
  typedef bf16 out_t;
  static constexpr int num_outer = 2;  // b h
  static constexpr int q_axes[] = {0, 1, 2, 4};
  static constexpr int k_axes[] = {0, 1, 3, 4};
  static constexpr int v_axes[] = {0, 1, 3, 5};
  static constexpr int out_axes[] = {0, 1, 2, 5};
  static constexpr int lse_axes[] = {0, 1, 2};
  static constexpr bool kv_axis[] = {true, true};
  static constexpr bool group_axis[] = {false, false};
  static constexpr int num_sides = 2, num_sizes = 0;
  static constexpr int32_t side_dtype[] = {3, 4};
  static constexpr int32_t side_rank[] = {2, 2};
  static constexpr int num_reads = 3;
  static constexpr int32_t reads[][3] = {{0, 0, 1}, {1, 0, 0}, {1, 1, 3}};
  static constexpr int64_t head_dim = 64, value_dim = 64;
  static constexpr int64_t block_m = 24, block_n = 32;
  static constexpr bool returns_lse = false;
  static constexpr DeadRows dead_rows = DEAD_ZERO;
  static constexpr bool log2_units = false;
  static constexpr float q_factor = 0.00249999994f;

  // tanh(qk) * 50 + t0[h, q - k + |k| - 1]
  struct Visible {
    static constexpr bool identity = false;
    int64_t x3;
    int64_t x5;
    const bf16* x8;
    int64_t x9;
    Visible(const Frame& f, int64_t q) {
      const int64_t x2 = f.axis[1];
      x3 = q;
      x5 = f.k_len;
      x8 = (const bf16*)f.side[0].data + (x2) * f.side[0].strides[0] + ((((x3) - (0)) + (x5)) - (int64_t(1))) * f.side[0].strides[1];
      x9 = -1 * f.side[0].strides[1];
      (void)f, (void)q;
    }
    vf operator()(vf qk, const Keys& keys) const {
      const vf x0 = tanh(qk);
      const vf x1 = x0 * vf_of(50.0f);
      const vi x4 = vi_of(int32_t(x3)) - keys.index;
      const vi x6 = x4 + vi_of(int32_t(x5));
      const vi x7 = x6 - vi_of(int32_t(int64_t(1)));
      const vf x10 = load_keys(x8, x9, keys);
      const vf x11 = x1 + x10;
      return x11;
    }
  };

  // (k <= q) & (t1[b, k] != 0)
  struct Mask {
    static constexpr bool rows_alike = false;
    static constexpr bool identity = false;
    int64_t x0;
    const int64_t* x3;
    int64_t x4;
    Mask(const Frame& f, int64_t q) {
      x0 = q;
      const int64_t x2 = f.axis[0];
      x3 = (const int64_t*)f.side[1].data + (x2) * f.side[1].strides[0];
      x4 = f.side[1].strides[1];
      (void)f, (void)q;
    }
    vb operator()(const Keys& keys) const {
      const vb x1 = le(keys.index, vi_of(int32_t(x0)));
      const vl x5 = load_keys(x3, x4, keys);
      const vb x6 = ne(x5, vl_of(int64_t(0)));
      const vb x7 = both(x1, x6);
      return x7;
    }
  };

  typedef NoWeight Weight;

  // tiles 0 .. max((tq * 24 + |k| - |q| + 1) // 32, 0), masked
  static int64_t lo0(const Frame& f, int64_t tq) {
    (void)f, (void)tq;
    return int64_t(0);
  }
  static int64_t hi0(const Frame& f, int64_t tq) {
    (void)f, (void)tq;
    const int64_t x0 = tq;
    const int64_t x1 = x0 * int64_t(24);
    const int64_t x2 = f.k_len;
    const int64_t x3 = x1 + x2;
    const int64_t x4 = f.q_len;
    const int64_t x5 = x3 - x4;
    const int64_t x6 = x5 + int64_t(1);
    const int64_t x7 = shift_div(x6, 5);
    const int64_t x8 = max(x7, int64_t(0));
    return x8;
  }
  // tiles max((tq * 24 + |k| - |q| + 1) // 32, 0) .. (min(tq * 24 + |k| - |q| + 24, |k|) + 31) // 32, masked
  static int64_t lo1(const Frame& f, int64_t tq) {
    (void)f, (void)tq;
    const int64_t x0 = tq;
    const int64_t x1 = x0 * int64_t(24);
    const int64_t x2 = f.k_len;
    const int64_t x3 = x1 + x2;
    const int64_t x4 = f.q_len;
    const int64_t x5 = x3 - x4;
    const int64_t x6 = x5 + int64_t(1);
    const int64_t x7 = shift_div(x6, 5);
    const int64_t x8 = max(x7, int64_t(0));
    return x8;
  }
  static int64_t hi1(const Frame& f, int64_t tq) {
    (void)f, (void)tq;
    const int64_t x0 = tq;
    const int64_t x1 = x0 * int64_t(24);
    const int64_t x2 = f.k_len;
    const int64_t x3 = x1 + x2;
    const int64_t x4 = f.q_len;
    const int64_t x5 = x3 - x4;
    const int64_t x6 = x5 + int64_t(24);
    const int64_t x7 = min(x6, x2);
    const int64_t x8 = x7 + int64_t(31);
    const int64_t x9 = shift_div(x8, 5);
    return x9;
  }
  static constexpr int num_segments = 2;
  static void segments(const Frame& f, int64_t tq, Range* range) {
    range[0] = Range{lo0(f, tq), hi0(f, tq)};
    range[1] = Range{lo1(f, tq), hi1(f, tq)};
  }
  template <class F>
  static void visit(F& flash, typename F::Tile& tile, int64_t begin, int64_t end) {
    flash.template visit_blocks<Mask, 1>(tile, tile.segment[0], begin, end, [](int64_t) { return true; });
    flash.template visit_blocks<Mask, 1>(tile, tile.segment[1], begin, end, [](int64_t) { return true; });
  }

  static constexpr bool has_sink = true;
  static float sink(const Frame& f, int64_t q) {
    (void)f, (void)q;
    const int64_t x0 = f.axis[1];
    const float x1 = value_of(*((const bf16*)f.side[0].data + (x0) * f.side[0].strides[0] + (int64_t(0)) * f.side[0].strides[1]));
    return x1;
  }
};

}  // namespace
}  // namespace attnc

const char* attnc_status(int32_t code) {
  switch (code) {
    case 0: return "done";
    case 1: return "operand q: rank or dtype is not the plan's bf16[b, h, q, d]";
    case 2: return "operand k: rank or dtype is not the plan's bf16[b, h, k, d]";
    case 3: return "operand v: rank or dtype is not the plan's bf16[b, h, k, e]";
    case 4: return "operand out: rank or dtype is not the plan's bf16[b, h, q, e]";
    case 5: return "operand lse: rank or dtype is not the plan's f32[b, h, q]";
    case 6: return "side operands: expected 2: bf16 of rank 2, i64 of rank 2";
    case 7: return "sizes: expected 0: none";
    case 8: return "a length or size is 2^30 or more";
    case 9: return "out of memory";
    case 10: return "a side operand is shorter than the axis that indexes it";
    case 16: return "operands disagree on the length of axis b";
    case 17: return "operands disagree on the length of axis h";
    case 18: return "operands disagree on the length of axis q";
    case 19: return "operands disagree on the length of axis k";
    case 20: return "operands disagree on the length of axis d, or differ from the compiled 64";
    case 21: return "operands disagree on the length of axis e, or differ from the compiled 64";
    default: return "unknown status";
  }
}

ATTNC_ENTRY(attnc::Page)
