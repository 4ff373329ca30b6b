#include "ort/arena.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <set>

#include "cuda/cuda_api.hpp"
#include "ort/custom_op.hpp"

namespace tensoropt {
namespace {

std::mutex mutex;
// ONNX Runtime creates an allocator object per node; the memory info is unique per arena. Never
// destroyed: sessions may end after this library's statics.
auto& by_memory = *new std::map<const OrtMemoryInfo*, std::weak_ptr<Arena>>;
auto& alive = *new std::set<const Arena*>;
long long most_so_far = -1;

// Updates the peak; the mutex must be locked.
void look() {
  long long sum = 0;
  for (const auto* arena : alive) sum += std::max(0LL, arena->most_used());
  if (sum > 0) most_so_far = std::max(most_so_far, sum);
}

// Releases ONNX Runtime's allocator unless an Arena has taken it.
struct Wrapper {
  Wrapper(const Api& api, const OrtKernelInfo* info) : api(api) {
    api.call(Slot::KernelInfoGetAllocator, info, kDefaultMemory, &allocator);
  }
  ~Wrapper() {
    if (allocator) api.raw<void>(Slot::ReleaseAllocator, allocator);
  }

  const Api& api;
  OrtAllocator* allocator = nullptr;
};

}  // namespace

Arena::Arena(const Api& api, OrtAllocator* allocator, const OrtMemoryInfo* memory)
    : api_(api), allocator_(allocator), memory_(memory) {
  alive.insert(this);  // arena_of has locked the mutex
}

Arena::~Arena() {
  {
    const std::lock_guard lock(mutex);
    look();
    alive.erase(this);
    const auto found = by_memory.find(memory_);
    if (found != by_memory.end() && found->second.expired()) by_memory.erase(found);
  }
  api_.raw<void>(Slot::ReleaseAllocator, allocator_);
}

int Arena::device() const {
  int id = 0;
  const char* name = nullptr;
  api_.call(Slot::MemoryInfoGetName, memory_, &name);
  // Stand-in kernels run on CPU memory, which has no device number: the host has selected a device.
  if (std::strcmp(name, "Cpu") == 0) check_cuda("cudaGetDevice", cuda().cudaGetDevice(&id));
  else api_.call(Slot::MemoryInfoGetId, memory_, &id);
  return id;
}

void* Arena::take(OrtKernelContext* context, std::size_t bytes) const {
  void* memory = nullptr;
  api_.call(Slot::KernelContext_GetScratchBuffer, static_cast<const OrtKernelContext*>(context),
            memory_, bytes, &memory);
  if (!memory)
    throw Error("no memory left for " + std::to_string(bytes) + " bytes of scratch on the device");
  return memory;
}

void Arena::give_back(void* memory) const { api_.tries(Slot::AllocatorFree, allocator_, memory); }

long long Arena::most_used() const {
  if (!newer_api) return -1;
  const Api api(newer_api);
  OrtKeyValuePairs* pairs = nullptr;
  if (!api.tries(Slot::AllocatorGetStats, static_cast<const OrtAllocator*>(allocator_), &pairs))
    return -1;
  const OrtKeyValuePairs* found = pairs;
  const auto* text = api.raw<const char*>(Slot::GetKeyValue, found, "MaxInUse");
  const long long most = text ? std::strtoll(text, nullptr, 10) : -1;
  api.raw<void>(Slot::ReleaseKeyValuePairs, pairs);
  return most;
}

std::shared_ptr<Arena> arena_of(const Api& api, const OrtKernelInfo* info) {
  Wrapper wrapper(api, info);
  const OrtMemoryInfo* memory = nullptr;
  api.call(Slot::AllocatorGetInfo, static_cast<const OrtAllocator*>(wrapper.allocator), &memory);
  const std::lock_guard lock(mutex);
  auto& entry = by_memory[memory];
  if (auto known = entry.lock()) return known;
  auto made = std::make_shared<Arena>(api, std::exchange(wrapper.allocator, nullptr), memory);
  entry = made;
  return made;
}

long long most_used_in_arenas() {
  const std::lock_guard lock(mutex);
  look();
  return most_so_far;
}

}  // namespace tensoropt
