#include <algorithm>
#include <deque>
#include <functional>
#include <queue>
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
  double kept = 0, free_s = 0;
  Queue forward, backward;
  std::deque<Task> weights;
  std::vector<Task> turns;  // forward passes still to come, last first
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
    std::vector<double> needed(step.stages);
    for (std::int32_t chunk = codes_.chunks - 1; chunk >= 0; --chunk)
      needed_[chunk] = needed[step.places[chunk]] += rules.early[chunk];
    for (std::int32_t chunk = 0; chunk < codes_.chunks; ++chunk) {
      Stage& stage = stages_[step.places[chunk]];
      for (std::int32_t m = 0; rules.in_turns && m < step.micro_batches; ++m)
        stage.turns.push_back({kForward, m, chunk});
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
      stage.kept += early;
      for (const std::int32_t reader : step_.readers[chunk]) send(end_s, task, reader);
      if (step_.readers[chunk].empty()) arrive(end_s, {kBackward, m, chunk});
    } else if (work == kBackward) {
      stage.passes -= rules_.counts[chunk];
      stage.kept -= step_.splits_weights ? early - late : early;
      if (step_.splits_weights) stage.weights.push_back({kWeights, m, chunk});
      for (const std::int32_t source : step_.reads[chunk]) send(end_s, task, source);
    } else {
      stage.kept -= late;
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

  // Returns whether a forward pass has arrived and no limit forbids it. A pass leaves room for
  // passes through the later chunks of its stage, without which no backward pass would come.
  bool can_pass(std::int32_t number) const {
    const Stage& stage = stages_[number];
    if (stage.forward.empty()) return false;
    const Task& task = stage.forward.top().task;
    if (stage.passes + rules_.counts[task.chunk] > rules_.passes[number]) return false;
    if (!stage.turns.empty() && codes_.of(task) != codes_.of(stage.turns.back())) return false;
    return stage.kept + needed_[task.chunk] <= rules_.room[number];
  }

  const Step& step_;
  const Rules& rules_;
  const Codes codes_;
  std::vector<Stage> stages_;
  Orders orders_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::int64_t count_ = 0;
  std::vector<double> needed_ = std::vector<double>(codes_.chunks);  // room, by chunk
  std::vector<std::int32_t> missing_;  // inputs of each pass that have not been sent
  std::vector<double> latest_s_ = std::vector<double>(codes_.count());  // their latest arrival
};

}  // namespace

Orders generate(const Step& step, const Rules& rules) { return Generator(step, rules).run(); }

}  // namespace tensoropt::stages
