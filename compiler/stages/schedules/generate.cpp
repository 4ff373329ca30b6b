#include <algorithm>
#include <deque>
#include <functional>
#include <queue>
#include <stdexcept>
#include <tuple>
#include <vector>

#include "schedule.hpp"

namespace tensoropt::stages {
namespace {

using Priority = std::array<std::int32_t, 3>;

// A pass with an input that has arrived. The first of a queue has the least priority.
struct Ready {
  Priority priority;
  Task task;
  bool operator>(const Ready& other) const { return priority > other.priority; }
};

using Queue = std::priority_queue<Ready, std::vector<Ready>, std::greater<>>;

struct Stage {
  std::int64_t passes = 0;
  double free_s = 0;
  Queue forward, backward;
  std::deque<Task> weights;
  std::vector<Task> turns;  // forward passes still to come, last first
  // By micro-batch: the chunks that it has not passed forward, the room that these need, and the
  // size of its activations.
  std::vector<std::int32_t> left;
  std::vector<double> rest, kept;
  std::int32_t first = 0;  // the first micro-batch with chunks left
  double kept_all = 0, kept_later = 0, room_of_one = 0;

  // Adds activations of a micro-batch.
  void keep(std::int32_t m, double size) {
    kept[m] += size;
    kept_all += size;
    if (m > first) kept_later += size;
  }

  // Counts a pass through a chunk that needs room.
  void pass(std::int32_t m, double room) {
    --left[m];
    rest[m] -= room;
    keep(m, room);
    while (first < std::int32_t(left.size()) && left[first] == 0)
      if (++first < std::int32_t(left.size())) kept_later -= kept[first];
  }

  // Returns whether a pass leaves room for the first micro-batch to pass all chunks. So it can end,
  // and leaves its room to the next one.
  bool has_room(std::int32_t m, double needed, double room) const {
    if (m == first) return kept_all + rest[m] <= room;
    return kept_all + needed + rest[first] <= room && kept_later + needed + room_of_one <= room;
  }
};

// A stage may start a task: one has arrived, or it is free. At one time, in the order of `number`.
struct Event {
  double time_s;
  std::int64_t number;
  std::int32_t stage;
  bool arrives;
  Task task;
  bool operator>(const Event& other) const {
    return std::tie(time_s, number) > std::tie(other.time_s, other.number);
  }
};

class Generator {
 public:
  Generator(const Step& step, const Rules& rules)
      : step_(step), rules_(rules), codes_(step.codes()), stages_(step.stages),
        orders_(step.stages) {
    for (std::int32_t work = kForward; work <= kBackward; ++work)
      for (std::int32_t m = 0; m < step.micro_batches; ++m)
        for (const auto& own : work == kForward ? step.reads : step.readers)
          missing_.push_back(std::int32_t(own.size()));
    for (std::int32_t chunk = 0; chunk < codes_.chunks; ++chunk) {
      Stage& stage = stages_[step.places[chunk]];
      stage.left.resize(step.micro_batches);
      stage.rest.resize(step.micro_batches);
      stage.kept.resize(step.micro_batches);
      stage.room_of_one += rules.early[chunk];
      for (std::int32_t m = 0; m < step.micro_batches; ++m) {
        ++stage.left[m];
        stage.rest[m] += rules.early[chunk];
        if (rules.in_turns) stage.turns.push_back({kForward, m, chunk});
      }
    }
    for (Stage& stage : stages_)
      std::sort(stage.turns.begin(), stage.turns.end(),
                [&](const Task& a, const Task& b) { return priority(a) > priority(b); });
  }

  Orders run() {
    for (std::int32_t m = 0; m < step_.micro_batches; ++m)
      for (std::int32_t chunk = 0; chunk < codes_.chunks; ++chunk)
        if (step_.reads[chunk].empty()) arrive(0, {kForward, m, chunk});
    std::vector<std::int32_t> woken;
    while (!events_.empty()) {
      const double now_s = events_.top().time_s;
      woken.clear();
      for (; !events_.empty() && events_.top().time_s <= now_s; events_.pop()) {
        const Event& event = events_.top();
        woken.push_back(event.stage);
        if (!event.arrives) continue;
        Stage& stage = stages_[event.stage];
        Queue& queue = event.task.work == kForward ? stage.forward : stage.backward;
        queue.push({priority(event.task), event.task});
      }
      std::sort(woken.begin(), woken.end());
      woken.erase(std::unique(woken.begin(), woken.end()), woken.end());
      for (const std::int32_t stage : woken) start(stage, now_s);
    }
    std::size_t count = 0;
    for (const auto& order : orders_) count += order.size();
    const std::size_t works = step_.splits_weights ? 3 : 2;
    if (count < works * step_.micro_batches * step_.places.size())
      throw std::runtime_error("the limits of the schedule let a stage wait forever");
    return std::move(orders_);
  }

 private:
  // Earlier micro-batches are first, and of these the deepest chunk.
  Priority priority(const Task& task) const {
    if (!rules_.in_turns) return {task.micro_batch, -task.chunk, 0};
    const std::int32_t chunk = task.work == kForward ? task.chunk : -task.chunk;
    return {task.micro_batch / step_.stages, chunk, task.micro_batch};
  }

  void arrive(double time_s, const Task& task) {
    events_.push({time_s, count_++, step_.places[task.chunk], true, task});
  }

  // Sends a result; a task has arrived with the last of its inputs, which ends last.
  void send(double end_s, const Task& task, std::int32_t other) {
    const Task reader{task.work, task.micro_batch, other};
    double& latest_s = latest_s_[codes_.of(reader)];
    latest_s = std::max(latest_s, end_s + step_.chunks[std::min(task.chunk, other)].sent_s);
    if (--missing_[codes_.of(reader)] == 0) arrive(latest_s, reader);
  }

  // Starts the next task of a stage that is free.
  void start(std::int32_t number, double now_s) {
    Stage& stage = stages_[number];
    Task task{};
    if (stage.free_s > now_s || !take(number, task)) return;
    const double end_s = stage.free_s = now_s + step_.time_s(task);
    orders_[number].push_back(codes_.of(task));
    events_.push({end_s, count_++, number, false, task});
    const auto [work, m, chunk] = task;
    const double early = rules_.early[chunk], late = rules_.late[chunk];
    if (work == kForward) {
      stage.passes += rules_.counts[chunk];
      stage.pass(m, early);
      for (const std::int32_t reader : step_.readers[chunk]) send(end_s, task, reader);
      if (step_.readers[chunk].empty()) arrive(end_s, {kBackward, m, chunk});
    } else if (work == kBackward) {
      stage.passes -= rules_.counts[chunk];
      stage.keep(m, step_.splits_weights ? late - early : -early);
      if (step_.splits_weights) stage.weights.push_back({kWeights, m, chunk});
      for (const std::int32_t source : step_.reads[chunk]) send(end_s, task, source);
    } else {
      stage.keep(m, -late);
    }
  }

  // Takes the next task of a stage, if there is one.
  bool take(std::int32_t number, Task& task) {
    Stage& stage = stages_[number];
    const bool may_forward = can_pass(number);
    if (may_forward && (stage.backward.empty() || leads(number))) {
      task = stage.forward.top().task;
      stage.forward.pop();
      if (!stage.turns.empty()) stage.turns.pop_back();
    } else if (!stage.backward.empty()) {
      task = stage.backward.top().task;
      stage.backward.pop();
    } else if (!stage.weights.empty()) {
      task = stage.weights.front();
      stage.weights.pop_front();
    } else {
      return false;
    }
    return true;
  }

  bool leads(std::int32_t number) const {
    const Stage& stage = stages_[number];
    const std::int64_t lead =
        stage.forward.top().task.micro_batch - stage.backward.top().task.micro_batch;
    return lead < rules_.lead[number];
  }

  // Returns whether a forward pass has arrived and no limit forbids it.
  bool can_pass(std::int32_t number) const {
    const Stage& stage = stages_[number];
    if (stage.forward.empty()) return false;
    const Task& task = stage.forward.top().task;
    if (stage.passes + rules_.counts[task.chunk] > rules_.passes[number]) return false;
    if (!stage.turns.empty() && codes_.of(task) != codes_.of(stage.turns.back())) return false;
    return stage.has_room(task.micro_batch, rules_.early[task.chunk], rules_.room[number]);
  }

  const Step& step_;
  const Rules& rules_;
  const Codes codes_;
  std::vector<Stage> stages_;
  Orders orders_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::int64_t count_ = 0;
  std::vector<std::int32_t> missing_;  // inputs of each pass that have not been sent
  std::vector<double> latest_s_ = std::vector<double>(codes_.count());  // their latest arrival
};

}  // namespace

Orders generate(const Step& step, const Rules& rules) { return Generator(step, rules).run(); }

}  // namespace tensoropt::stages
