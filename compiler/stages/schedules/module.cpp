// The Python module _schedules.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/vector.h>

#include "schedule.hpp"

// nanobind's binding interface passes its casters by value.
// NOLINTBEGIN(bugprone-*, performance-*)
namespace nb = nanobind;
using namespace nb::literals;

namespace tensoropt::stages {
namespace {

using Times = nb::ndarray<const double, nb::shape<-1, 4>, nb::c_contig, nb::device::cpu>;
using Sizes = nb::ndarray<const std::int64_t, nb::shape<-1, 4>, nb::c_contig, nb::device::cpu>;

// Orders that stay here: Python reads few of them.
struct Numbers {
  Orders by_stage;
};

Step step_of(const Times& times, const Sizes& sizes, const std::vector<std::int32_t>& places,
             const Lists& reads, std::int32_t stages, std::int32_t micro_batches,
             bool splits_weights) {
  Step step{{}, places, reads, Lists(reads.size()), stages, micro_batches, splits_weights};
  for (std::size_t chunk = 0; chunk < reads.size(); ++chunk)
    for (const std::int32_t source : reads[chunk]) step.readers[source].push_back(chunk);
  for (std::size_t i = 0; i < places.size(); ++i) {
    const double* time = times.data() + 4 * i;
    const std::int64_t* size = sizes.data() + 4 * i;
    step.chunks.push_back(
        {{time[0], time[1], time[2]}, time[3], size[0], size[1], size[2], size[3]});
  }
  return step;
}

}  // namespace
}  // namespace tensoropt::stages

NB_MODULE(_schedules, m) {
  using namespace tensoropt::stages;
  nb::class_<Step>(m, "Step").def(
      "__init__",
      [](Step* self, const Times& times, const Sizes& sizes,
         const std::vector<std::int32_t>& places, const Lists& reads, std::int32_t stages,
         std::int32_t micro_batches, bool splits_weights) {
        new (self)
            Step(step_of(times, sizes, places, reads, stages, micro_batches, splits_weights));
      },
      "times_s"_a, "sizes"_a, "places"_a, "reads"_a, "stages"_a, "micro_batches"_a,
      "splits_weights"_a);
  nb::class_<Numbers>(m, "Numbers")
      .def(
          "__init__", [](Numbers* self, const Orders& by_stage) { new (self) Numbers{by_stage}; },
          "by_stage"_a)
      .def_prop_ro("by_stage", [](const Numbers& self) { return self.by_stage; });
  m.def(
      "generate",
      [](const Step& step, bool in_turns, const std::vector<std::int64_t>& passes,
         const std::vector<std::int64_t>& lead, const std::vector<double>& room,
         const std::vector<std::int64_t>& counts, const std::vector<double>& early,
         const std::vector<double>& late) {
        return Numbers{generate(step, {in_turns, passes, lead, room, counts, early, late})};
      },
      "step"_a, "in_turns"_a, "passes"_a, "lead"_a, "room"_a, "counts"_a, "early"_a, "late"_a);
  m.def(
      "run",
      [](const Step& step, const Numbers& numbers) {
        Run found = run(step, numbers.by_stage);
        return nb::make_tuple(found.end_s, found.peak);
      },
      "step"_a, "numbers"_a);
}
// NOLINTEND(bugprone-*, performance-*)
