#include <algorithm>
#include <stdexcept>

#include "schedule.hpp"

namespace tensoropt::stages {
namespace {

constexpr double kNever = -1;

class Execution {
 public:
  Execution(const Step& step, const Orders& orders)
      : step_(step), orders_(orders), codes_(step.codes()), done_(codes_.count(), kNever),
        waiting_(codes_.count(), -1), next_(step.stages), end_s_(step.stages) {}

  // A task starts when its stage is free and its input has arrived.
  std::vector<double> end_s() {
    std::vector<std::int32_t> ready;
    for (std::int32_t stage = step_.stages - 1; stage >= 0; --stage) ready.push_back(stage);
    while (!ready.empty()) {
      const std::int32_t stage = ready.back();
      ready.pop_back();
      const auto& order = orders_[stage];
      for (std::size_t& at = next_[stage]; at < order.size(); ++at) {
        const Task task = codes_.task(order[at]);
        double start_s = end_s_[stage];
        if (Task source{}; reads(task, source)) {
          const std::int32_t code = codes_.of(source);
          if (done_[code] == kNever) {
            waiting_[code] = stage;
            break;
          }
          start_s = std::max(start_s, done_[code] + sent_s(source, task));
        }
        end_s_[stage] = done_[order[at]] = start_s + step_.time_s(task);
        const std::int32_t other = waiting_[order[at]];
        if (other >= 0 && other != stage) ready.push_back(other);
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
  // Returns whether a task reads the result of another, its source.
  bool reads(const Task& task, Task& source) const {
    const auto [work, m, chunk] = task;
    if (work == kWeights) source = {kBackward, m, chunk};
    else if (work == kForward) source = {kForward, m, chunk - 1};
    else if (chunk + 1 < codes_.chunks) source = {kBackward, m, chunk + 1};
    else source = {kForward, m, chunk};
    return work != kForward || chunk > 0;
  }

  double sent_s(const Task& source, const Task& task) const {
    if (source.chunk == task.chunk) return 0;
    return step_.chunks[std::min(source.chunk, task.chunk)].sent_s;
  }

  const Step& step_;
  const Orders& orders_;
  const Codes codes_;
  std::vector<double> done_;           // the end of each task
  std::vector<std::int32_t> waiting_;  // the stage that waits for each task
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
