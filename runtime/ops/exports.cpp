// C functions for hosts other than ONNX Runtime (runtime/ops/library.py). The library owns returned
// texts; a text is valid until the same thread calls the same function again.
#include <string>

#include "cpu/vectors.hpp"
#include "cuda/cuda_facts.hpp"
#include "cuda/nccl_group.hpp"
#include "ort/arena.hpp"
#include "overlap/flights.hpp"
#include "progress.hpp"

#define TENSOROPT_EXPORT extern "C" __attribute__((visibility("default")))

// The current or last collective of this rank: see progress.hpp. From any thread.
TENSOROPT_EXPORT const char* tensoropt_where() {
  thread_local std::string text;
  text = tensoropt::where();
  return text.c_str();
}

// Counts progress outside of collectives, and sets or (empty) ends a wait: see progress.hpp.
TENSOROPT_EXPORT void tensoropt_move(const char* wait) { tensoropt::move(wait); }

// The progress of this rank so far: see progress.hpp. From any thread.
TENSOROPT_EXPORT long long tensoropt_moves() { return static_cast<long long>(tensoropt::moves()); }

// Seconds that collectives have blocked nodes of this rank: see progress.hpp. From any thread.
TENSOROPT_EXPORT double tensoropt_collectives_s() { return tensoropt::collectives_s(); }

// Starts or stops recording the time of each collective: see progress.hpp.
TENSOROPT_EXPORT void tensoropt_record(int is_on) { tensoropt::record_collectives(is_on); }

// The recorded times: see progress.hpp.
TENSOROPT_EXPORT const char* tensoropt_recorded() {
  thread_local std::string text;
  text = tensoropt::recorded_collectives();
  return text.c_str();
}

// Ends the transfers of a run that failed between a start and its wait. To be called after such a
// run, before anything else uses the memory of its session.
TENSOROPT_EXPORT void tensoropt_settle() { tensoropt::settle_transfers(); }

// Aborts NCCL's communicators, so that threads waiting for their operations return.
TENSOROPT_EXPORT void tensoropt_abort() { tensoropt::abort_nccl_groups(); }

// Facts of CUDA as JSON: see cuda_facts.hpp.
TENSOROPT_EXPORT const char* tensoropt_cuda() {
  thread_local std::string text;
  text = tensoropt::cuda_facts();
  return text.c_str();
}

// Bytes of a device's memory in use by all processes; -1 if unknown.
TENSOROPT_EXPORT long long tensoropt_device_used_bytes(int device) {
  return tensoropt::device_used_bytes(device);
}

// Peak bytes in use by this process's sessions with collectives on a device, as counted by ONNX
// Runtime's arenas; -1 if unknown.
TENSOROPT_EXPORT long long tensoropt_arena_peak_bytes() {
  try {
    return tensoropt::most_used_in_arenas();
  } catch (const std::exception&) {
    return -1;
  }
}

// Floats of the vectors that kernels use on this processor.
TENSOROPT_EXPORT int tensoropt_vector_lanes() {
  std::size_t lanes = 0;
  tensoropt::run_on_vectors(tensoropt::LanesJob{lanes});
  return int(lanes);
}
