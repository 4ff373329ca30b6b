// Schedules of pipelines: the tasks of each stage in their order, and their execution.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace tensoropt::stages {

enum Work : std::uint8_t { kForward, kBackward, kWeights };

struct Task {
  Work work;
  std::int32_t micro_batch, chunk;
};

// A number for each task of a step.
struct Codes {
  std::int32_t micro_batches, chunks;

  std::int32_t of(const Task& task) const {
    return (task.work * micro_batches + task.micro_batch) * chunks + task.chunk;
  }
  Task task(std::int32_t code) const {
    const std::int32_t rest = code / chunks;
    return {Work(rest / micro_batches), rest % micro_batches, code % chunks};
  }
  std::size_t count() const { return std::size_t(3) * micro_batches * chunks; }
};

// `ChunkCost` of runtime/stages/execution.py. The time of each kind of task, the time to send a
// result to a chunk that reads it, and bytes: kept from the forward to the backward pass, from
// there to the gradients of weights, of a pass while it runs, and of the gradients.
struct Chunk {
  std::array<double, 3> time_s;
  double sent_s;
  std::int64_t kept, weights, working, gradient;
};

using Lists = std::vector<std::vector<std::int32_t>>;

// The chunks of a step, the stage of each, the chunks that it reads from and those that read it.
struct Step {
  std::vector<Chunk> chunks;
  std::vector<std::int32_t> places;
  Lists reads, readers;
  std::int32_t stages, micro_batches;
  bool splits_weights;

  Codes codes() const { return {micro_batches, std::int32_t(chunks.size())}; }
  double time_s(const Task& task) const {
    const auto& own = chunks[task.chunk].time_s;
    return own[task.work] + (task.work == kBackward && !splits_weights ? own[kWeights] : 0);
  }
};

using Orders = Lists;  // by stage, of codes

// The rules of a family (`Family` of families.py). Per stage: the most chunks that have passed
// forward but not backward, the lead of forward passes, and the room for activations. Per chunk:
// 1 if it counts as such, and the size of its activations before and after its backward pass.
struct Rules {
  bool in_turns;
  std::vector<std::int64_t> passes, lead;
  std::vector<double> room;
  std::vector<std::int64_t> counts;
  std::vector<double> early, late;
};

// Returns the orders that stages choose which start a task whenever one is ready; throws
// std::runtime_error if the limits let one wait forever.
Orders generate(const Step& step, const Rules& rules);

// The end of the last task of each stage, and the most bytes of tensors while its tasks run.
struct Run {
  std::vector<double> end_s;
  std::vector<std::int64_t> peak;
};

// Returns the execution of `orders`; throws std::runtime_error if stages wait forever.
Run run(const Step& step, const Orders& orders);

}  // namespace tensoropt::stages
