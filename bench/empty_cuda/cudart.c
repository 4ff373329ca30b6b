/* The functions of the CUDA runtime that a session's making depends on; the others return 0.
   The device has the host's memory. Structures are those of CUDA 13. */
#include <stdlib.h>
#include <string.h>

enum { ALIGNMENT = 256, PROPERTIES = 1008, HANDLE = 16, DEVICE_MEMORY = 2 };
static const size_t MEMORY = (size_t)16 << 30, SHARED = 48 << 10;

static int allocate(void** p, size_t bytes) {
  *p = NULL;
  return posix_memalign(p, ALIGNMENT, bytes ? bytes : 1) ? 2 : 0;
}

static long copies = 0;

long empty_copies(void) { return copies; }

static int copy(void* to, const void* from, size_t bytes) {
  ++copies;
  memmove(to, from, bytes);
  return 0;
}

static int make(void** p) {
  *p = (void*)(size_t)HANDLE;
  return 0;
}

static int set(int* p, int value) {
  *p = value;
  return 0;
}

int cudaGetDeviceCount(int* n) { return set(n, 1); }
int cudaGetDevice(int* n) { return set(n, 0); }
int cudaRuntimeGetVersion(int* n) { return set(n, 13000); }
int cudaDriverGetVersion(int* n) { return set(n, 13000); }
int cudaMalloc(void** p, size_t n) { return allocate(p, n); }
int cudaMallocHost(void** p, size_t n) { return allocate(p, n); }
int cudaHostAlloc(void** p, size_t n, unsigned flags) { return allocate(p, n); }
int cudaFree(void* p) {
  free(p);
  return 0;
}
int cudaFreeHost(void* p) {
  free(p);
  return 0;
}
int cudaMemcpy(void* to, const void* from, size_t n, int kind) { return copy(to, from, n); }
int cudaMemcpyAsync(void* to, const void* from, size_t n, int kind, void* stream) {
  return copy(to, from, n);
}
int cudaMemset(void* p, int value, size_t n) {
  memset(p, value, n);
  return 0;
}
int cudaMemsetAsync(void* p, int value, size_t n, void* stream) {
  memset(p, value, n);
  return 0;
}
int cudaMemGetInfo(size_t* left, size_t* all) {
  *all = MEMORY;
  *left = MEMORY / 2;
  return 0;
}
int cudaStreamCreate(void** p) { return make(p); }
int cudaStreamCreateWithFlags(void** p, unsigned flags) { return make(p); }
int cudaEventCreate(void** p) { return make(p); }
int cudaEventCreateWithFlags(void** p, unsigned flags) { return make(p); }
int cudaStreamIsCapturing(void* stream, int* status) { return set(status, 0); }
int cudaStreamEndCapture(void* stream, void** graph) { return make(graph); }
int cudaGraphInstantiate(void** p, void* graph, unsigned long long flags) { return make(p); }
const char* cudaGetErrorString(int code) { return "an empty CUDA runtime"; }
const char* cudaGetErrorName(int code) { return "empty"; }

void** __cudaRegisterFatBinary(void* binary) {
  static void* handle;
  return &handle;
}

int cudaPointerGetAttributes(void* attributes, const void* p) {
  memset(attributes, 0, 64);
  return set(attributes, DEVICE_MEMORY);
}

/* Compute capability 9.0, warps of 32 threads. */
int cudaGetDeviceProperties(char* p, int device) {
  memset(p, 0, PROPERTIES);
  strcpy(p, "none");
  *(size_t*)(p + 288) = MEMORY;
  *(size_t*)(p + 296) = SHARED;
  *(int*)(p + 308) = 32;
  *(int*)(p + 320) = 1024;
  *(int*)(p + 360) = 9;
  return 0;
}

int cudaDeviceGetAttribute(int* value, int attribute, int device) {
  switch (attribute) {
    case 1: return set(value, 1024); /* threads per block */
    case 8: return set(value, (int)SHARED);
    case 10: return set(value, 32);  /* a warp */
    case 16: return set(value, 132); /* multiprocessors */
    case 75: return set(value, 9);   /* compute capability */
    case 97: return set(value, 227 << 10);
    default: return set(value, 0);
  }
}
