// Work of streams that runs as late as CUDA allows, so that memory that is reused or read too early
// shows in results.
//
// TENSOROPT_STAND_IN_LATE=1: work on a stream of cudaStreamCreateWithFlags runs when another
// stream, or the host, waits for it. Without it, and on other streams, work runs at once.
#pragma once

#include <functional>

namespace stand_in {

struct Event;
struct Stream;

// Lets work on this stream run late from now on, if the setting asks for it.
void watch(const Stream* stream);
void forget(const Stream* stream);

// Returns whether work on this stream runs late, and keeps the work if so.
bool later(const Stream* stream, std::function<void()> work);

// Marks the place in a stream that an event records.
void mark(const Event* event, const Stream* stream);
void forget(const Event* event);

// Runs what is in front of the place of an event.
void run_before(const Event* event);
void run_all(const Stream* stream);
void run_all();

}  // namespace stand_in
