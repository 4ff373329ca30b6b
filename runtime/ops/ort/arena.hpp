// Memory of a session's device: scratch buffers for collectives, and usage statistics.
#pragma once

#include <memory>

#include "ort/ort_api.hpp"

namespace tensoropt {

class Arena {
 public:
  Arena(const Api& api, OrtAllocator* allocator, const OrtMemoryInfo* memory);
  ~Arena();
  Arena(const Arena&) = delete;

  int device() const;

  // Scratch memory in stream order: may be given back once all work that uses it is enqueued.
  void* take(OrtKernelContext* context, std::size_t bytes) const;
  void give_back(void* memory) const;

  // Peak bytes in use, -1 if ONNX Runtime does not report it (before 1.23).
  long long most_used() const;

 private:
  Api api_;
  OrtAllocator* allocator_;
  const OrtMemoryInfo* memory_;
};

// The arena of the node of `info`. All nodes of a session share it.
std::shared_ptr<Arena> arena_of(const Api& api, const OrtKernelInfo* info);

// The peak of the sum of `most_used` over all live arenas; -1 if unknown.
long long most_used_in_arenas();

}  // namespace tensoropt
