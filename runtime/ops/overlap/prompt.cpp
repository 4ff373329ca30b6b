#include "overlap/prompt.hpp"

#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>

namespace tensoropt {
namespace {

constexpr std::uint64_t kSliceNs = 100'000;  // the minimum that Linux accepts
constexpr unsigned long kSlackNs = 1'000;

// `struct sched_attr` of sched_setattr(2), in the version of Linux 3.14: later fields are optional.
struct Scheduling {
  std::uint32_t size = sizeof(Scheduling), policy = 0;
  std::uint64_t flags = 0;
  std::int32_t nice = 0;
  std::uint32_t priority = 0;
  std::uint64_t runtime_ns = 0, deadline_ns = 0, period_ns = 0;
};

}  // namespace

// Other settings are unchanged. A real-time policy has no slices. If the kernel refuses, waking up
// only takes longer.
void wake_promptly() {
  constexpr std::uint32_t kNormal = 0, kBatch = 3;
  Scheduling own;
  if (syscall(SYS_sched_getattr, 0, &own, sizeof own, 0) != 0) return;
  if (own.policy != kNormal && own.policy != kBatch) return;
  own.runtime_ns = kSliceNs;
  syscall(SYS_sched_setattr, 0, &own, 0);
}

void sleep_exactly() { prctl(PR_SET_TIMERSLACK, kSlackNs); }

}  // namespace tensoropt
