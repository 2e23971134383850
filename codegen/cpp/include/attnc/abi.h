// The C interface of an emitted kernel. Plain C types, so that ctypes and any launcher can call it.
#pragma once
#include <stdint.h>

typedef struct {
  void* data;
  const int64_t* sizes;
  const int64_t* strides;  // in elements
  int32_t ndim;
  int32_t dtype;  // index in f64 f32 f16 bf16 i64 i32 i16 i8 u8 b1
} attnc_tensor;

// Does the work items begin <= i < end.
typedef void (*attnc_body)(void* state, int64_t begin, int64_t end);
// Calls body over 0 <= i < n from any threads, in any split, and returns when all is done.
typedef void (*attnc_parallel)(int64_t n, attnc_body body, void* state);

typedef struct {
  attnc_tensor q, k, v, out, lse;
  const attnc_tensor* side;
  int32_t num_side;
  const int64_t* sizes;
  int32_t num_sizes;
  attnc_parallel parallel;  // NULL: the kernel runs its items itself, in order
} attnc_args;

#define ATTNC_EXPORT extern "C" __attribute__((visibility("default")))

ATTNC_EXPORT int32_t attnc_run(const attnc_args* args);
ATTNC_EXPORT int32_t attnc_shape(const attnc_args* args, int64_t* out_sizes, int64_t* lse_sizes);
ATTNC_EXPORT const char* attnc_status(int32_t code);
ATTNC_EXPORT uint64_t attnc_plan_digest(void);
