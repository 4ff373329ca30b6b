#include "device_memory.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>

namespace stand_in {
namespace {

// What a handle holds: the rest of its bytes are zeros.
struct Shared {
  char magic[8];
  std::int64_t process, file, size;
};
static_assert(sizeof(Shared) <= kMemoryHandleBytes);
constexpr char kMagic[8] = "standin";

struct Block {
  int file;
  std::size_t size;
};

std::mutex lock;
std::map<void*, Block> allocated, opened;
std::map<void*, std::size_t> pinned;

void* mapped(int file, std::size_t size) {
  void* found = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  return found == MAP_FAILED ? nullptr : found;
}

// Whether there is a file of the name that an environment variable holds.
bool is_there(const char* variable) {
  const char* path = std::getenv(variable);
  return path && access(path, F_OK) == 0;
}

CudaError removed(std::map<void*, Block>& blocks, void* address) {
  const std::lock_guard guard(lock);
  const auto found = blocks.find(address);
  if (found == blocks.end()) return CudaError::InvalidValue;
  munmap(address, found->second.size);
  close(found->second.file);
  blocks.erase(found);
  return CudaError::Success;
}

CudaError kept(std::map<void*, Block>& blocks, int file, std::size_t size, void** address) {
  *address = mapped(file, size);
  if (!*address) {
    close(file);
    return CudaError::MemoryAllocation;
  }
  const std::lock_guard guard(lock);
  blocks[*address] = {file, size};
  return CudaError::Success;
}

}  // namespace

CudaError allocate(void** address, std::size_t bytes) {
  *address = nullptr;
  if (bytes == 0) return CudaError::Success;
  if (is_there("TENSOROPT_STAND_IN_FULL")) return CudaError::MemoryAllocation;
  const int file = memfd_create("stand-in-gpu", MFD_CLOEXEC);
  if (file < 0 || ftruncate(file, off_t(bytes)) != 0) return CudaError::MemoryAllocation;
  return kept(allocated, file, bytes, address);
}

CudaError release(void* address) {
  return address ? removed(allocated, address) : CudaError::Success;
}

CudaError handle_of(MemoryHandle* handle, void* address) {
  const std::lock_guard guard(lock);
  const auto found = allocated.find(address);
  if (found == allocated.end()) return CudaError::InvalidValue;
  Shared shared{{}, getpid(), found->second.file, std::int64_t(found->second.size)};
  std::memcpy(shared.magic, kMagic, sizeof kMagic);
  std::memset(handle, 0, sizeof *handle);
  std::memcpy(handle, &shared, sizeof shared);
  return CudaError::Success;
}

CudaError open_handle(void** address, const MemoryHandle& handle) {
  Shared shared;
  std::memcpy(&shared, &handle, sizeof shared);
  if (std::memcmp(shared.magic, kMagic, sizeof kMagic) != 0) return CudaError::InvalidValue;
  if (shared.process == getpid()) return CudaError::DeviceUninitialized;  // as CUDA has it
  if (is_there("TENSOROPT_STAND_IN_APART")) return CudaError::MapBufferObjectFailed;
  const auto path =
      "/proc/" + std::to_string(shared.process) + "/fd/" + std::to_string(shared.file);
  const int file = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0) return CudaError::MapBufferObjectFailed;
  return kept(opened, file, std::size_t(shared.size), address);
}

CudaError close_handle(void* address) { return removed(opened, address); }

CudaError pin(void* address, std::size_t bytes) {
  if (!address || bytes == 0) return CudaError::InvalidValue;
  const std::lock_guard guard(lock);
  const bool is_new = pinned.emplace(address, bytes).second;
  return is_new ? CudaError::Success : CudaError::HostMemoryAlreadyRegistered;
}

CudaError unpin(void* address) {
  const std::lock_guard guard(lock);
  return pinned.erase(address) ? CudaError::Success : CudaError::HostMemoryNotRegistered;
}

}  // namespace stand_in
