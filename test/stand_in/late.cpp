#include "late.hpp"

#include <cstddef>
#include <deque>
#include <map>
#include <mutex>
#include <utility>

#include "log.hpp"

namespace stand_in {
namespace {

struct Queue {
  std::deque<std::function<void()>> work;
  std::size_t finished = 0;  // pieces of work that have run
};

struct Mark {
  const Stream* stream = nullptr;
  std::size_t place = 0;  // pieces of work in front of it
};

// Of one thread at a time: a rank's own. Work may call back.
std::recursive_mutex mutex;
std::map<const Stream*, Queue> queues;
std::map<const Event*, Mark> marks;

void run(Queue& queue, std::size_t place) {
  while (queue.finished < place && !queue.work.empty()) {
    const auto next = std::move(queue.work.front());
    queue.work.pop_front();
    ++queue.finished;
    next();
  }
}

void run_whole(Queue& queue) { run(queue, queue.finished + queue.work.size()); }

}  // namespace

void watch(const Stream* stream) {
  const std::lock_guard lock(mutex);
  if (setting("TENSOROPT_STAND_IN_LATE", 0) == 1) queues[stream];
}

void forget(const Stream* stream) {
  const std::lock_guard lock(mutex);
  run_all(stream);
  queues.erase(stream);
}

bool later(const Stream* stream, std::function<void()> work) {
  const std::lock_guard lock(mutex);
  const auto found = queues.find(stream);
  if (found == queues.end()) return false;
  found->second.work.push_back(std::move(work));
  return true;
}

void mark(const Event* event, const Stream* stream) {
  const std::lock_guard lock(mutex);
  const auto found = queues.find(stream);
  if (found == queues.end()) marks.erase(event);
  else marks[event] = {stream, found->second.finished + found->second.work.size()};
}

void forget(const Event* event) {
  const std::lock_guard lock(mutex);
  marks.erase(event);
}

void run_before(const Event* event) {
  const std::lock_guard lock(mutex);
  const auto found = marks.find(event);
  if (found == marks.end()) return;
  const auto [stream, place] = found->second;
  if (const auto queue = queues.find(stream); queue != queues.end()) run(queue->second, place);
}

void run_all(const Stream* stream) {
  const std::lock_guard lock(mutex);
  if (const auto found = queues.find(stream); found != queues.end()) run_whole(found->second);
}

void run_all() {
  const std::lock_guard lock(mutex);
  for (auto& [stream, queue] : queues) run_whole(queue);
}

}  // namespace stand_in
