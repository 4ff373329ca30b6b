// What a host other than ONNX Runtime calls (runtime/ops/library.py). Texts belong to the library
// and hold until the same thread calls the same function again.
#include <string>

#include "cuda/cuda_facts.hpp"
#include "cuda/nccl_group.hpp"
#include "ort/arena.hpp"
#include "overlap/flights.hpp"
#include "progress.hpp"

#define TENSOROPT_EXPORT extern "C" __attribute__((visibility("default")))

// What this rank is doing: see progress.hpp. From any thread.
TENSOROPT_EXPORT const char* tensoropt_where() {
  thread_local std::string text;
  text = tensoropt::where();
  return text.c_str();
}

// Seconds that nodes of this rank were held by collectives: see progress.hpp. From any thread.
TENSOROPT_EXPORT double tensoropt_collectives_s() { return tensoropt::collectives_s(); }

// Writes down each collective's time, or no more: see progress.hpp.
TENSOROPT_EXPORT void tensoropt_record(int is_on) { tensoropt::record_collectives(is_on); }

// What was written down: see progress.hpp.
TENSOROPT_EXPORT const char* tensoropt_recorded() {
  thread_local std::string text;
  text = tensoropt::recorded_collectives();
  return text.c_str();
}

// Ends the transfers that a run has left under way which failed between a start and its wait. To be
// called after such a run, before anything else uses the memory of its session.
TENSOROPT_EXPORT void tensoropt_settle() { tensoropt::settle_transfers(); }

// Aborts NCCL's communicators, so that a thread that waits for one of their operations comes back.
TENSOROPT_EXPORT void tensoropt_abort() { tensoropt::abort_nccl_groups(); }

// JSON: see cuda_facts.hpp.
TENSOROPT_EXPORT const char* tensoropt_cuda() {
  thread_local std::string text;
  text = tensoropt::cuda_facts();
  return text.c_str();
}

// Bytes of a device's memory that are in use, by all processes; -1 if unknown.
TENSOROPT_EXPORT long long tensoropt_device_used_bytes(int device) {
  return tensoropt::device_used_bytes(device);
}

// The most bytes that this process's sessions with collectives on a device had in use at a time, as
// ONNX Runtime's arenas count them; -1 if unknown.
TENSOROPT_EXPORT long long tensoropt_arena_peak_bytes() {
  try {
    return tensoropt::most_used_in_arenas();
  } catch (const std::exception&) {
    return -1;
  }
}
