#include <algorithm>
#include <stdexcept>

#include "schedule.hpp"

namespace tensoropt::stages {
namespace {

constexpr double kNever = -1;
constexpr std::int32_t kNone = -1;

class Execution {
 public:
  Execution(const Step& step, const Orders& orders)
      : step_(step), orders_(orders), codes_(step.codes()), done_(codes_.count(), kNever),
        waiting_(codes_.count(), kNone), next_waiting_(step.stages, kNone), next_(step.stages),
        end_s_(step.stages) {}

  // A task starts when its stage is free and its inputs have arrived.
  std::vector<double> end_s() {
    std::vector<std::int32_t> ready;
    for (std::int32_t stage = step_.stages - 1; stage >= 0; --stage) ready.push_back(stage);
    while (!ready.empty()) {
      const std::int32_t stage = ready.back();
      ready.pop_back();
      const auto& order = orders_[stage];
      for (std::size_t& at = next_[stage]; at < order.size(); ++at) {
        const Task task = codes_.task(order[at]);
        const std::int32_t missing = arrive(task, end_s_[stage]);
        if (missing != kNone) {
          next_waiting_[stage] = waiting_[missing];
          waiting_[missing] = stage;
          break;
        }
        done_[order[at]] = end_s_[stage] += step_.time_s(task);
        for (std::int32_t other = waiting_[order[at]]; other != kNone; other = next_waiting_[other])
          ready.push_back(other);
      }
    }
    for (std::int32_t stage = 0; stage < step_.stages; ++stage)
      if (next_[stage] < orders_[stage].size())
        throw std::runtime_error("a stage of the schedule waits forever");
    return std::move(end_s_);
  }

  // Returns the most bytes of tensors of a stage while one of its tasks runs.
  std::int64_t peak(std::int32_t stage) const {
    std::int64_t now = 0, peak = 0;
    for (const std::int32_t code : orders_[stage]) {
      const Task task = codes_.task(code);
      const Chunk& chunk = step_.chunks[task.chunk];
      const std::int64_t before = now;
      if (task.work == kForward) now += chunk.kept;
      else if (task.work == kWeights) now -= chunk.weights;
      else now += (step_.splits_weights ? chunk.weights : 0) - chunk.kept;
      const std::int64_t own = task.work == kWeights ? chunk.gradient : chunk.working;
      peak = std::max(peak, std::max(before, now) + own);
    }
    return peak;
  }

 private:
  // Moves `start_s` to the arrival of all that a task reads; returns the code of a task that has
  // not run, kNone if there is none.
  std::int32_t arrive(const Task& task, double& start_s) const {
    const auto [work, m, chunk] = task;
    const auto& others = work == kForward ? step_.reads[chunk] : step_.readers[chunk];
    double latest_s = start_s;
    if (work == kWeights || (work == kBackward && others.empty())) {
      const std::int32_t code = codes_.of({work == kWeights ? kBackward : kForward, m, chunk});
      if (done_[code] == kNever) return code;
      latest_s = std::max(latest_s, done_[code]);
    } else {
      for (const std::int32_t other : others) {
        const std::int32_t code = codes_.of({work, m, other});
        if (done_[code] == kNever) return code;
        latest_s = std::max(latest_s, done_[code] + step_.chunks[std::min(chunk, other)].sent_s);
      }
    }
    start_s = latest_s;
    return kNone;
  }

  const Step& step_;
  const Orders& orders_;
  const Codes codes_;
  std::vector<double> done_;                // the end of each task
  std::vector<std::int32_t> waiting_;       // the last stage that waits for each task
  std::vector<std::int32_t> next_waiting_;  // the stage that waits for the same, by stage
  std::vector<std::size_t> next_;
  std::vector<double> end_s_;
};

}  // namespace

Run run(const Step& step, const Orders& orders) {
  Execution execution(step, orders);
  Run found{execution.end_s(), {}};
  for (std::int32_t stage = 0; stage < step.stages; ++stage)
    found.peak.push_back(execution.peak(stage));
  return found;
}

}  // namespace tensoropt::stages
