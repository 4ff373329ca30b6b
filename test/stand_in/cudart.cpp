// The functions of libcudart.so.13 that the library under test may call, on host memory.
//
// TENSOROPT_STAND_IN_GPUS: how many GPUs there are, 8 unless said. TENSOROPT_STAND_IN_MEMORY: bytes
// of each, 16 GiB unless said. TENSOROPT_STAND_IN_DRIVER: the driver's version, as CUDA counts.
// TENSOROPT_STAND_IN_CAPTURES=1: streams are captured into CUDA graphs. CUDA_VISIBLE_DEVICES shows
// some of the GPUs, by number. `device_memory.hpp` and `late.hpp` have further settings.
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <sstream>
#include <string>
#include <vector>

#include "cudart_abi.hpp"
#include "device_memory.hpp"
#include "late.hpp"
#include "log.hpp"
#include "nccl_abi.hpp"

#define EXPORT extern "C" __attribute__((visibility("default")))

using namespace stand_in;

namespace {

constexpr int kVersion = 13000;
constexpr int kMajor = 75, kMinor = 76;  // attributes: the compute capability

thread_local int current = 0;
thread_local CudaError last = CudaError::Success;

CudaError ended(CudaError error) {
  if (error != CudaError::Success) last = error;
  return error;
}

std::size_t memory() {
  constexpr long long kDefault = 16LL << 30;
  return std::size_t(setting("TENSOROPT_STAND_IN_MEMORY", kDefault));
}

// The GPUs that this process sees, by their numbers on the machine.
std::vector<int> shown() {
  const int all = int(setting("TENSOROPT_STAND_IN_GPUS", 8));
  const char* listed = std::getenv("CUDA_VISIBLE_DEVICES");
  std::vector<int> found;
  if (!listed) {
    for (int number = 0; number < all; ++number) found.push_back(number);
    return found;
  }
  std::stringstream text(listed);
  for (std::string number; std::getline(text, number, ',');) {
    if (number.empty() || std::atoi(number.c_str()) >= all) break;  // what follows is not shown
    found.push_back(std::atoi(number.c_str()));
  }
  return found;
}

int devices() { return int(shown().size()); }
int driver() { return int(setting("TENSOROPT_STAND_IN_DRIVER", kVersion)); }

CudaError no_device() {
  if (driver() < kVersion) return CudaError::InsufficientDriver;
  return devices() < 1 ? CudaError::NoDevice : CudaError::Success;
}

std::size_t resident_bytes() {
  unsigned long long total = 0, resident = 0;
  if (auto* file = std::fopen("/proc/self/statm", "r")) {
    if (std::fscanf(file, "%llu %llu", &total, &resident) != 2) resident = 0;
    std::fclose(file);
  }
  return resident * std::size_t(sysconf(_SC_PAGESIZE));
}

bool overlap(const void* a, std::size_t a_bytes, const void* b, std::size_t b_bytes) {
  const auto x = reinterpret_cast<std::uintptr_t>(a), y = reinterpret_cast<std::uintptr_t>(b);
  return x < y + b_bytes && y < x + a_bytes;
}

CudaError check(const Place& place, const Offset& at, const BoxCopy& box) {
  if (!place.start) return CudaError::InvalidValue;
  if (at.bytes + box.width > place.pitch) return CudaError::InvalidPitchValue;
  const bool fits = at.row + box.rows <= place.rows || box.slices == 1;
  return fits ? CudaError::Success : CudaError::InvalidValue;
}

char* slice_of(const Place& place, const Offset& at, std::size_t slice) {
  const auto row = (at.slice + slice) * place.rows + at.row;
  return static_cast<char*>(place.start) + row * place.pitch + at.bytes;
}

// CUDA leaves copies onto themselves undefined; here they are an error.
CudaError copy(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch,
               std::size_t width, std::size_t height, int kind) {
  if (kind < 0 || kind >= kMemcpyKinds) return CudaError::InvalidMemcpyDirection;
  if (width > to_pitch || width > from_pitch) return CudaError::InvalidPitchValue;
  if (width == 0 || height == 0) return CudaError::Success;
  const auto to_bytes = (height - 1) * to_pitch + width;
  const auto from_bytes = (height - 1) * from_pitch + width;
  if (!to || !from || (height == 1 && overlap(to, to_bytes, from, from_bytes)))
    return CudaError::InvalidValue;
  for (std::size_t row = 0; row < height; ++row)
    std::memcpy(static_cast<char*>(to) + row * to_pitch,
                static_cast<const char*>(from) + row * from_pitch, width);
  return CudaError::Success;
}

CudaError copy(const BoxCopy& box) {
  if (box.from_array || box.to_array) return CudaError::InvalidValue;
  for (const auto error :
       {check(box.from, box.from_offset, box), check(box.to, box.to_offset, box)})
    if (error != CudaError::Success) return error;
  for (std::size_t slice = 0; slice < box.slices; ++slice) {
    const auto error = copy(slice_of(box.to, box.to_offset, slice), box.to.pitch,
                            slice_of(box.from, box.from_offset, slice), box.from.pitch, box.width,
                            box.rows, box.kind);
    if (error != CudaError::Success) return error;
  }
  return CudaError::Success;
}

// An error of work that runs late is that of a later call, as on a GPU.
CudaError on_stream(const Stream* stream, const std::function<CudaError()>& work) {
  return later(stream, [work] { ended(work()); }) ? CudaError::Success : ended(work());
}

}  // namespace

EXPORT CudaError cudaRuntimeGetVersion(int* version) {
  *version = kVersion;
  return CudaError::Success;
}

EXPORT CudaError cudaDriverGetVersion(int* version) {
  *version = driver();
  return CudaError::Success;
}

EXPORT CudaError cudaGetDeviceCount(int* count) {
  const auto error = no_device();
  *count = error == CudaError::Success ? devices() : 0;
  return ended(error);
}

EXPORT CudaError cudaGetDeviceProperties(DeviceProperties* properties, int device) {
  if (device < 0 || device >= devices()) return ended(CudaError::InvalidDevice);
  std::strcpy(properties->name, "stand-in");
  std::memset(properties->uuid, 0, sizeof properties->uuid);
  properties->uuid[sizeof properties->uuid - 1] = char(shown()[std::size_t(device)]);
  properties->total_memory = memory();
  return CudaError::Success;
}

// All devices are of architecture 9.0.
EXPORT CudaError cudaDeviceGetAttribute(int* value, int attribute, int device) {
  if (device < 0 || device >= devices()) return ended(CudaError::InvalidDevice);
  if (attribute != kMajor && attribute != kMinor) return ended(CudaError::InvalidValue);
  *value = attribute == kMajor ? 9 : 0;
  return CudaError::Success;
}

EXPORT CudaError cudaSetDevice(int device) {
  Line("cudaSetDevice").add("device", device);
  if (device < 0 || device >= devices()) return ended(CudaError::InvalidDevice);
  current = device;
  return CudaError::Success;
}

EXPORT CudaError cudaGetDevice(int* device) {
  *device = current;
  return ended(no_device());
}

EXPORT CudaError cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  *total = memory();
  const auto used = resident_bytes();
  *free = used < *total ? *total - used : 0;
  return ended(no_device());
}

EXPORT CudaError cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, int kind,
                                 Stream* stream) {
  Line("cudaMemcpyAsync").add("bytes", bytes).add("kind", kind).add("stream", number(stream));
  return on_stream(stream, [=] { return copy(to, bytes, from, bytes, bytes, 1, kind); });
}

EXPORT CudaError cudaMemcpy2DAsync(void* to, std::size_t to_pitch, const void* from,
                                   std::size_t from_pitch, std::size_t width, std::size_t height,
                                   int kind, Stream* stream) {
  Line("cudaMemcpy2DAsync")
      .add("to_pitch", to_pitch)
      .add("from_pitch", from_pitch)
      .add("width", width)
      .add("height", height)
      .add("kind", kind)
      .add("stream", number(stream));
  return on_stream(stream,
                   [=] { return copy(to, to_pitch, from, from_pitch, width, height, kind); });
}

EXPORT CudaError cudaMemcpy3DAsync(const BoxCopy* box, Stream* stream) {
  Line("cudaMemcpy3DAsync")
      .add("width", box->width)
      .add("height", box->rows)
      .add("depth", box->slices)
      .add("kind", box->kind)
      .add("stream", number(stream));
  return on_stream(stream, [box = *box] { return copy(box); });
}

EXPORT CudaError cudaMalloc(void** address, std::size_t bytes) {
  Line("cudaMalloc").add("bytes", bytes);
  return ended(allocate(address, bytes));
}

EXPORT CudaError cudaFree(void* address) {
  Line("cudaFree");
  return ended(release(address));
}

EXPORT CudaError cudaIpcGetMemHandle(MemoryHandle* handle, void* address) {
  Line("cudaIpcGetMemHandle");
  return ended(handle_of(handle, address));
}

EXPORT CudaError cudaIpcOpenMemHandle(void** address, MemoryHandle handle, unsigned flags) {
  Line("cudaIpcOpenMemHandle").add("flags", flags);
  return ended(open_handle(address, handle));
}

EXPORT CudaError cudaIpcCloseMemHandle(void* address) {
  Line("cudaIpcCloseMemHandle");
  return ended(close_handle(address));
}

EXPORT CudaError cudaHostRegister(void* address, std::size_t bytes, unsigned flags) {
  Line("cudaHostRegister").add("bytes", bytes).add("flags", flags);
  return ended(pin(address, bytes));
}

EXPORT CudaError cudaHostUnregister(void* address) {
  Line("cudaHostUnregister");
  return ended(unpin(address));
}

EXPORT CudaError cudaMemsetAsync(void* to, int value, std::size_t bytes, Stream* stream) {
  Line("cudaMemsetAsync").add("bytes", bytes).add("stream", number(stream));
  if (bytes > 0 && !to) return ended(CudaError::InvalidValue);
  return on_stream(stream, [=] {
    if (bytes > 0) std::memset(to, value, bytes);
    return CudaError::Success;
  });
}

EXPORT CudaError cudaMemset2DAsync(void* to, std::size_t pitch, int value, std::size_t width,
                                   std::size_t height, Stream* stream) {
  Line("cudaMemset2DAsync")
      .add("pitch", pitch)
      .add("width", width)
      .add("height", height)
      .add("stream", number(stream));
  if (width > pitch) return ended(CudaError::InvalidPitchValue);
  if (width > 0 && height > 0 && !to) return ended(CudaError::InvalidValue);
  return on_stream(stream, [=] {
    for (std::size_t row = 0; row < height; ++row)
      std::memset(static_cast<char*>(to) + row * pitch, value, width);
    return CudaError::Success;
  });
}

EXPORT CudaError cudaMemcpy(void* to, const void* from, std::size_t bytes, int kind) {
  Line("cudaMemcpy").add("bytes", bytes).add("kind", kind);
  return ended(copy(to, bytes, from, bytes, bytes, 1, kind));
}

EXPORT CudaError cudaStreamCreateWithFlags(Stream** stream, unsigned) {
  *stream = reinterpret_cast<Stream*>(new char);
  Line("cudaStreamCreateWithFlags").add("stream", number(*stream));
  watch(*stream);
  return ended(no_device());
}

EXPORT CudaError cudaStreamDestroy(Stream* stream) {
  Line("cudaStreamDestroy").add("stream", number(stream));
  forget(stream);
  delete reinterpret_cast<char*>(stream);
  return CudaError::Success;
}

EXPORT CudaError cudaStreamIsCapturing(Stream*, int* status) {
  *status = int(setting("TENSOROPT_STAND_IN_CAPTURES", 0));
  return CudaError::Success;
}

EXPORT CudaError cudaStreamSynchronize(Stream* stream) {
  Line("cudaStreamSynchronize").add("stream", number(stream));
  run_all(stream);
  return CudaError::Success;
}

EXPORT CudaError cudaEventCreateWithFlags(Event** event, unsigned) {
  *event = reinterpret_cast<Event*>(new char);
  Line("cudaEventCreateWithFlags").add("event", number(*event));
  return ended(no_device());
}

EXPORT CudaError cudaEventDestroy(Event* event) {
  Line("cudaEventDestroy").add("event", number(event));
  forget(event);
  delete reinterpret_cast<char*>(event);
  return CudaError::Success;
}

EXPORT CudaError cudaEventRecord(Event* event, Stream* stream) {
  Line("cudaEventRecord").add("event", number(event)).add("stream", number(stream));
  mark(event, stream);
  return CudaError::Success;
}

EXPORT CudaError cudaStreamWaitEvent(Stream* stream, Event* event, unsigned) {
  Line("cudaStreamWaitEvent").add("event", number(event)).add("stream", number(stream));
  run_before(event);
  return CudaError::Success;
}

EXPORT CudaError cudaDeviceSynchronize() {
  Line("cudaDeviceSynchronize");
  run_all();
  return CudaError::Success;
}

// For the stand-in of NCCL: 1 if work on this stream runs late, which calls `work` with `what`
// then.
EXPORT int stand_in_later(const Stream* stream, void (*work)(void*), void* what) {
  return later(stream, [=] { work(what); });
}

EXPORT CudaError cudaGetLastError() {
  const auto error = last;
  last = CudaError::Success;
  return error;
}

EXPORT const char* cudaGetErrorString(CudaError error) {
  switch (error) {
    case CudaError::Success: return "no error";
    case CudaError::InvalidValue: return "invalid argument";
    case CudaError::MemoryAllocation: return "out of memory";
    case CudaError::InvalidPitchValue: return "invalid pitch argument";
    case CudaError::InvalidMemcpyDirection: return "invalid copy direction for memcpy";
    case CudaError::InsufficientDriver:
      return "CUDA driver version is insufficient for CUDA runtime version";
    case CudaError::NoDevice: return "no CUDA-capable device is detected";
    case CudaError::InvalidDevice: return "invalid device ordinal";
    case CudaError::DeviceUninitialized: return "invalid device context";
    case CudaError::MapBufferObjectFailed: return "mapping of buffer object failed";
    case CudaError::HostMemoryAlreadyRegistered:
      return "part or all of the requested memory range is already mapped";
    case CudaError::HostMemoryNotRegistered:
      return "pointer does not correspond to a registered memory region";
  }
  return "unrecognized error code";
}
