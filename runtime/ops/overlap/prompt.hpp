// How soon a thread that has slept goes on.
#pragma once

namespace tensoropt {

// From now on the calling thread has a core within a tenth of a millisecond once it could go on,
// though operators keep all cores busy: Linux would else let them go on until its next tick, some
// milliseconds later. It gets no larger share of the core. Kernels before Linux 6.12 have no such
// wish: there nothing changes.
void wake_promptly();

// From now on what sleeps in the calling thread wakes up when its time is over, and not up to 50
// us later, as Linux does to wake several threads at once.
void sleep_exactly();

}  // namespace tensoropt
