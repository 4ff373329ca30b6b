// Wake-up latency of threads.
#pragma once

namespace tensoropt {

// Lets the calling thread get a core within 0.1 ms after it wakes up, even if operators keep all
// cores busy. By default Linux lets them run until its next tick, some milliseconds later. The
// thread's share of a core does not grow. No effect before Linux 6.12.
void wake_promptly();

// Lets sleeps of the calling thread end on time. By default Linux delays them by up to 50 us, to
// wake several threads together.
void sleep_exactly();

}  // namespace tensoropt
