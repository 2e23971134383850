/* A driver that does nothing and writes down every call, one line each, as a name and its arguments in decimal or, for
 * memory, hexadecimal. It includes the vendor's own header, so the compiler checks each signature against it.
 * Built twice: as it is for CUDA, with -DHIP for HIP. */
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#ifdef HIP
#include <hip/hip_runtime_api.h>
#else
#include <cuda.h>
#endif

static char written[1 << 16];
static pthread_mutex_t writing = PTHREAD_MUTEX_INITIALIZER;
static _Thread_local char line[1 << 13];
static _Thread_local size_t length;
static char failing[64];
static int failure;
static size_t sizes[64];
static size_t image;
static void *current = (void *)0xC0;

const char *fake_log(void) { return written; }

/* `call` returns `code` from now on; all logs are forgotten. */
void fake_reset(const char *call, int code) {
    written[0] = 0, failure = code;
    snprintf(failing, sizeof failing, "%s", call);
}

/* Bytes of the code to write down when it is loaded; sizes of a kernel's parameters, 0 after the last. */
void fake_expect(size_t bytes, const size_t *parameters) {
    image = bytes;
    memset(sizes, 0, sizeof sizes);
    for (int i = 0; i < 63 && parameters[i]; ++i) sizes[i] = parameters[i];
}

void fake_context(void *context) { current = context; }

static void say(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    length += vsnprintf(line + length, sizeof line - length, format, arguments);
    va_end(arguments);
}

static void hex(const void *memory, size_t bytes) {
    say(" ");
    for (size_t i = 0; i < bytes; ++i) say("%02x", ((const unsigned char *)memory)[i]);
}

static int done(const char *call) {
    say("\n");
    pthread_mutex_lock(&writing);
    strncat(written, line, sizeof written - strlen(written) - 1);
    pthread_mutex_unlock(&writing);
    length = 0;
    return strcmp(call, failing) ? 0 : failure;
}

static int loaded(const char *call, void **module, const void *code) {
    usleep(1000); /* so that threads that load at once are seen to */
    say("%s", call), hex(code, image);
    *module = (void *)0x1111222233334444;
    return done(call);
}

static int got(const char *call, void **function, void *module, const char *name) {
    say("%s %zu %s", call, (size_t)module, name);
    *function = (void *)0x5555666677778888;
    return done(call);
}

static int launched(const char *call, void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                    unsigned bz, unsigned shared, void *stream, void **parameters, void **extra) {
    say("%s %zu %u %u %u %u %u %u %u %zu %zu", call, (size_t)f, gx, gy, gz, bx, by, bz, shared, (size_t)stream,
        (size_t)extra);
    for (int i = 0; sizes[i]; ++i) {
        if (sizes[i] >= 128 && (size_t)parameters[i] % 64) say(" misaligned");
        hex(parameters[i], sizes[i]);
    }
    return done(call);
}

static int text(int code, const char *said, const char **out) {
    *out = code == 999 ? NULL : said;
    return code == 999;
}

#ifdef HIP

hipError_t hipModuleLoadData(hipModule_t *module, const void *code) {
    return loaded("hipModuleLoadData", (void **)module, code);
}
hipError_t hipModuleGetFunction(hipFunction_t *function, hipModule_t module, const char *name) {
    return got("hipModuleGetFunction", (void **)function, module, name);
}
hipError_t hipModuleLaunchKernel(hipFunction_t f, unsigned int gx, unsigned int gy, unsigned int gz, unsigned int bx,
                                 unsigned int by, unsigned int bz, unsigned int shared, hipStream_t stream,
                                 void **parameters, void **extra) {
    return launched("hipModuleLaunchKernel", f, gx, gy, gz, bx, by, bz, shared, stream, parameters, extra);
}
hipError_t hipDrvGetErrorName(hipError_t code, const char **out) { return text(code, "hipErrorFake", out); }
hipError_t hipDrvGetErrorString(hipError_t code, const char **out) { return text(code, "a fake error", out); }

#else

CUresult cuModuleLoadData(CUmodule *module, const void *code) {
    return loaded("cuModuleLoadData", (void **)module, code);
}
CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name) {
    return got("cuModuleGetFunction", (void **)function, module, name);
}
CUresult cuLaunchKernel(CUfunction f, unsigned int gx, unsigned int gy, unsigned int gz, unsigned int bx,
                        unsigned int by, unsigned int bz, unsigned int shared, CUstream stream, void **parameters,
                        void **extra) {
    return launched("cuLaunchKernel", f, gx, gy, gz, bx, by, bz, shared, stream, parameters, extra);
}
CUresult cuGetErrorName(CUresult code, const char **out) { return text(code, "CUDA_ERROR_FAKE", out); }
CUresult cuGetErrorString(CUresult code, const char **out) { return text(code, "a fake error", out); }

CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value) {
    const char *known = attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES ? "max_dynamic_shared" : "other";
    say("cuFuncSetAttribute %zu %s %d", (size_t)function, known, value);
    return done("cuFuncSetAttribute");
}
CUresult cuCtxGetCurrent(CUcontext *context) {
    *context = current;
    return 0;
}
CUresult cuCtxSetCurrent(CUcontext context) {
    say("cuCtxSetCurrent %zu", (size_t)(current = context));
    return done("cuCtxSetCurrent");
}
CUresult cuDeviceGet(CUdevice *device, int ordinal) {
    say("cuDeviceGet %d", ordinal);
    *device = ordinal + 40;
    return done("cuDeviceGet");
}
CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
    say("cuDevicePrimaryCtxRetain %d", device);
    *context = (void *)(0x7777888800000000 + device);
    return done("cuDevicePrimaryCtxRetain");
}
#ifndef OLD
CUresult cuTensorMapEncodeTiled(CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank, void *address,
                                const cuuint64_t *dims, const cuuint64_t *strides, const cuuint32_t *box,
                                const cuuint32_t *steps, CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                                CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill) {
    say("cuTensorMapEncodeTiled%s %d %u %zu", (size_t)map % 64 ? " misaligned" : "", type, rank, (size_t)address);
    hex(dims, 8 * rank), hex(strides, 8 * (rank - 1)), hex(box, 4 * rank), hex(steps, 4 * rank);
    say(" %d %d %d %d", interleave, swizzle, promotion, fill);
    for (int i = 0; i < 128; ++i) ((unsigned char *)map)[i] = (unsigned char)(type + 3 * i);
    return done("cuTensorMapEncodeTiled");
}
#endif

/* The numbers of the header, for the tests to compare. */
int fake_type(int which) {
    const int types[] = {CU_TENSOR_MAP_DATA_TYPE_UINT8,   CU_TENSOR_MAP_DATA_TYPE_INT32,
                         CU_TENSOR_MAP_DATA_TYPE_FLOAT16, CU_TENSOR_MAP_DATA_TYPE_FLOAT32,
                         CU_TENSOR_MAP_DATA_TYPE_FLOAT64, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
                         CU_TENSOR_MAP_DATA_TYPE_INT64};
    return types[which];
}
int fake_enumeration(int which) {
    const int values[] = {CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
                          CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA};
    return values[which];
}

#endif
