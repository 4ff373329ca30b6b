// libcuda.so.1 of a machine without a GPU: enough for cuDNN to make plans for GPUs that are
// described to it. It loads the code of its kernels, and asks for functions that it never calls.
#include <stdint.h>

enum { kSuccess = 0, kNoDevice = 100, kVersion = 13000 };

// The runtime within cuDNN asks no further.
int cuInit(unsigned flags) {
  (void)flags;
  return kNoDevice;
}

int cuDriverGetVersion(int* version) {
  *version = kVersion;
  return kSuccess;
}

int cuDeviceGetCount(int* count) {
  *count = 0;
  return kSuccess;
}

int cuGetErrorString(int error, const char** text) {
  (void)error;
  *text = "no GPU";
  return kSuccess;
}

int cuGetErrorName(int error, const char** text) { return cuGetErrorString(error, text); }

int cuGetProcAddress_v2(const char* name, void** function, int version, uint64_t flags,
                        int* status) {
  (void)name, (void)version, (void)flags;
  *function = 0;
  if (status) *status = 1;  // not found
  return kSuccess;
}

// Functions that return a handle of code, which is not null.
#define GIVES_HANDLE(name)         \
  int name(void** handle) {        \
    *handle = (void*)(intptr_t)16; \
    return kSuccess;               \
  }
GIVES_HANDLE(cuCtxGetCurrent)
GIVES_HANDLE(cuKernelGetFunction)
GIVES_HANDLE(cuLibraryGetKernel)
GIVES_HANDLE(cuLibraryLoadData)
GIVES_HANDLE(cuModuleGetFunction)
GIVES_HANDLE(cuModuleLoadData)

#define DOES_NOTHING(name) \
  int name(void) { return kSuccess; }
DOES_NOTHING(cuCtxGetLimit)
DOES_NOTHING(cuCtxPopCurrent)
DOES_NOTHING(cuCtxPushCurrent)
DOES_NOTHING(cuDeviceGet)
DOES_NOTHING(cuKernelGetAttribute)
DOES_NOTHING(cuKernelSetAttribute)
DOES_NOTHING(cuLaunchCooperativeKernel)
DOES_NOTHING(cuLaunchKernel)
DOES_NOTHING(cuLaunchKernelEx)
DOES_NOTHING(cuLibraryLoadFromFile)
DOES_NOTHING(cuLibraryUnload)
DOES_NOTHING(cuLinkAddData)
DOES_NOTHING(cuLinkComplete)
DOES_NOTHING(cuLinkCreate)
DOES_NOTHING(cuLinkDestroy)
DOES_NOTHING(cuModuleUnload)
DOES_NOTHING(cuOccupancyMaxPotentialClusterSize)
DOES_NOTHING(cuStreamGetCtx)
DOES_NOTHING(cuTensorMapEncodeIm2col)
DOES_NOTHING(cuTensorMapEncodeTiled)
