// The memory of a session's device: scratch for collectives, and how much of it was used.
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

  // Memory in the order of the node's stream: given back as soon as all that uses it is enqueued.
  void* take(OrtKernelContext* context, std::size_t bytes) const;
  void give_back(void* memory) const;

  // The most bytes in use at a time, -1 where ONNX Runtime does not say (before 1.23).
  long long most_used() const;

 private:
  Api api_;
  OrtAllocator* allocator_;
  const OrtMemoryInfo* memory_;
};

// The arena from which the node of `info` gets its tensors. All nodes of a session share it.
std::shared_ptr<Arena> arena_of(const Api& api, const OrtKernelInfo* info);

// The largest sum, at any time, of `most_used` of the arenas that were there then; -1 if unknown.
long long most_used_in_arenas();

}  // namespace tensoropt
