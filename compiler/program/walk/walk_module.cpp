// The Python interface of the walk: tensoropt.compiler.program._walk.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "arena.hpp"
#include "images.hpp"
#include "joins.hpp"
#include "overlap.hpp"
#include "walk.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace tensoropt::program {
namespace {

template <class T>
using Array = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

template <class T>
std::vector<T> copied(const Array<T>& array) {
  return {array.data(), array.data() + array.size()};
}

template <class T>
nb::object to_numpy(std::vector<T> values, std::size_t columns) {
  auto* kept = new std::vector<T>(std::move(values));
  nb::capsule owner(kept, [](void* p) noexcept { delete static_cast<std::vector<T>*>(p); });
  return nb::cast(
      nb::ndarray<nb::numpy, T>(kept->data(), {kept->size() / columns, columns}, owner));
}

Program program(const Array<std::uint8_t>& flags, const Array<std::int32_t>& operands_begin,
                const Array<std::int32_t>& operands, const Array<std::int32_t>& constant,
                const Array<std::int32_t>& results_begin, const Array<std::int32_t>& results,
                const Array<std::uint8_t>& stays, const Array<std::int32_t>& alike,
                const Array<std::uint8_t>& folded, const Array<std::int32_t>& awaits,
                std::int32_t last, const Array<std::int32_t>& handed, std::size_t views,
                double batches) {
  return {.flags = copied(flags),
          .operands_begin = copied(operands_begin),
          .results_begin = copied(results_begin),
          .operands = copied(operands),
          .constant = copied(constant),
          .results = copied(results),
          .stays = copied(stays),
          .alike = copied(alike),
          .folded = copied(folded),
          .awaits = copied(awaits),
          .last = last,
          .handed = copied(handed),
          .views = views,
          .batches = batches};
}

// Converts a tuple: lines of (seconds, seconds per byte) and whether the greatest of them counts;
// then seconds per root of a byte, and seconds per byte of packing.
CollectiveTime time_of(const nb::handle& given) {
  auto [lines, greatest, root, packing] =
      nb::cast<std::tuple<std::vector<std::pair<double, double>>, bool, double, double>>(given);
  return {std::move(lines), greatest, root, packing};
}

std::vector<CollectiveTime> times_of(const nb::list& given) {
  std::vector<CollectiveTime> times;
  for (const nb::handle one : given) times.push_back(time_of(one));
  return times;
}

Rows rows_of(const std::vector<std::vector<std::int32_t>>& lists) {
  Rows rows;
  for (const auto& list : lists) {
    rows.values.insert(rows.values.end(), list.begin(), list.end());
    rows.close();
  }
  return rows;
}

// Gets costs from Python.
class Asked : public Costing {
 public:
  explicit Asked(nb::object source) : source_(std::move(source)) {}

  Strategy strategy(std::size_t node, std::int32_t picked) override {
    using Numbers = std::vector<std::int32_t>;
    using Bytes = std::vector<std::int64_t>;
    using Sized = std::vector<Strategy::Sized>;
    using Timed = std::vector<std::pair<std::int32_t, double>>;
    auto [compute_s, inner_s, kept, held, wanted, wanted_bytes, made, made_bytes, fills, masks,
          apart] =
        nb::cast<std::tuple<double, double, std::int64_t, std::int64_t, Numbers, Bytes, Numbers,
                            Bytes, Sized, Sized, Timed>>(source_.attr("strategy")(node, picked));
    return {compute_s,    inner_s,    kept,  held,  wanted, made,
            wanted_bytes, made_bytes, fills, masks, apart};
  }

  Path path(std::int32_t value, std::int32_t source, std::int32_t target) override {
    using Step = std::tuple<std::int32_t, std::int64_t, std::int32_t, double, double, int>;
    const auto [time_s, steps] =
        nb::cast<std::pair<double, std::vector<Step>>>(source_.attr("path")(value, source, target));
    Path path{time_s, {}};
    for (const auto& [layout, bytes, key, sent, seconds, beside] : steps)
      path.steps.push_back({layout, bytes, key, sent, seconds, Beside(beside)});
    return path;
  }

  Tree tree(std::int32_t value, std::int32_t source,
            const std::vector<std::int32_t>& targets) override {
    return nb::cast<Tree>(source_.attr("tree")(value, source, targets));
  }

  CollectiveTime collective(std::int32_t key) override {
    return time_of(source_.attr("collective")(key));
  }

 private:
  nb::object source_;
};

class PyWalk {
 public:
  PyWalk(const Program& program, const Array<std::int32_t>& kinds, const Overlapping& how)
      : walk_(program, copied(kinds), how) {}

  nb::tuple run(const nb::object& costing, const Array<std::int32_t>& assignment, double compute_s,
                double update_s, bool joins) {
    return cost(go(costing, assignment, compute_s, update_s, joins, nullptr));
  }

  std::vector<std::pair<double, std::int64_t>> hidden(const nb::object& costing,
                                                      const Array<std::int32_t>& assignment,
                                                      const Array<std::int32_t>& graph_of,
                                                      std::size_t graphs) {
    Asked asked(costing);
    return walk_.hidden(asked, {assignment.data(), assignment.size()},
                        {graph_of.data(), graph_of.size()}, graphs);
  }

  nb::tuple record(const nb::object& costing, const Array<std::int32_t>& assignment,
                   double compute_s, double update_s, bool joins, bool overlaps) {
    Record record;
    const nb::tuple found =
        cost(go(costing, assignment, compute_s, update_s, joins, &record, overlaps));
    std::vector<std::int32_t> events;
    for (const auto& e : record.events)
      events.insert(events.end(), {e.node, e.value, e.source, e.target, e.moment});
    std::vector<std::int64_t> lives;
    for (const auto& l : record.lives)
      lives.insert(lives.end(), {l.value, l.layout, l.first, l.last, l.bytes});
    return nb::make_tuple(found, to_numpy(std::move(events), 5), to_numpy(std::move(lives), 5),
                          record.group, record.place, record.begin_s, record.until);
  }

  // Returns the bytes that the assignment touches in ONNX Runtime's arena. Then the largest tensor
  // of a collective, all bytes that collectives make, and the number of collectives and slices.
  nb::tuple arena(const nb::object& costing, const Array<std::int32_t>& assignment,
                  const Images& images) {
    Record record;
    const Walked walked = go(costing, assignment, 0, 0, true, &record);
    const auto touched = touched_bytes(walk_.lives(images, record), walked.transient_bytes);
    return nb::make_tuple(touched, walked.sent_bytes, walked.passed_bytes, walked.moves);
  }

 private:
  Walked go(const nb::object& costing, const Array<std::int32_t>& assignment, double compute_s,
            double update_s, bool joins, Record* record, bool overlaps = true) {
    Asked asked(costing);
    return walk_.run(asked, {assignment.data(), assignment.size()}, compute_s, update_s, joins,
                     record, overlaps);
  }

  static nb::tuple cost(const Walked& w) {
    return nb::make_tuple(w.compute_s, w.communication_s, w.static_bytes, w.transient_bytes,
                          w.update_s, w.hidden_s, w.is_limited);
  }

  Walk walk_;
};

// NOLINTBEGIN(bugprone-*, performance-*): nanobind's ways
void bind_tasks(nb::module_& m) {
  using Lists = std::vector<std::vector<std::int32_t>>;
  nb::class_<Overlapping>(m, "Overlapping")
      .def(
          "__init__",
          [](Overlapping* self, double start_s, double share, double copied_s_per_byte,
             bool keeps_peak) {
            new (self) Overlapping{start_s, share, copied_s_per_byte, keeps_peak};
          },
          "start_s"_a, "share"_a, "copied_s_per_byte"_a, "keeps_peak"_a);
  nb::class_<Tasks>(m, "Tasks")
      .def(
          "__init__",
          [](Tasks* self, const std::vector<std::int32_t>& key, const std::vector<double>& bytes,
             const std::vector<std::uint8_t>& part, const Lists& reads, const Lists& makes,
             const Lists& after, const std::vector<std::int64_t>& size,
             const std::vector<std::int32_t>& given, const std::vector<double>& compute_s,
             const std::vector<double>& sent_s, const std::vector<int>& beside,
             const std::vector<std::int64_t>& lands) {
            new (self) Tasks{key,
                             bytes,
                             part,
                             rows_of(reads),
                             rows_of(makes),
                             rows_of(after),
                             size,
                             given,
                             compute_s,
                             sent_s,
                             {},
                             lands};
            for (const int one : beside) self->beside.push_back(Beside(one));
          },
          "key"_a, "bytes"_a, "part"_a, "reads"_a, "makes"_a, "after"_a, "size"_a, "given"_a,
          "compute_s"_a, "sent_s"_a, "beside"_a, "lands"_a);
  m.def(
      "join",
      [](const Tasks& tasks, const nb::list& times, const Overlapping& how) {
        const auto [joined, overlapped] = join_beside(tasks, times_of(times), how);
        return nb::make_tuple(joined.order, joined.group);
      },
      "tasks"_a, "times"_a, "how"_a);
  m.def(
      "overlap",
      [](const Tasks& tasks, const std::vector<std::int32_t>& group, const nb::list& times,
         const Overlapping& how) {
        Joined joined;
        joined.group = group;
        for (std::size_t task = 0; task < group.size(); ++task)
          joined.order.push_back(std::int32_t(task));
        const Overlapped found = overlap(tasks, joined, times_of(times), how);
        std::vector<std::pair<std::int32_t, int>> events;
        if (found.any)
          for (const auto& [task, what] : found.events) events.emplace_back(task, int(what));
        return nb::make_tuple(events, found.hidden_s[0] + found.hidden_s[1]);
      },
      "tasks"_a, "group"_a, "times"_a, "how"_a);
}

}  // namespace
}  // namespace tensoropt::program

NB_MODULE(_walk, m) {
  using namespace tensoropt::program;
  nb::class_<Program>(m, "Program")
      .def(
          "__init__",
          [](Program* self, const Array<std::uint8_t>& flags,
             const Array<std::int32_t>& operands_begin, const Array<std::int32_t>& operands,
             const Array<std::int32_t>& constant, const Array<std::int32_t>& results_begin,
             const Array<std::int32_t>& results, const Array<std::uint8_t>& stays,
             const Array<std::int32_t>& alike, const Array<std::uint8_t>& folded,
             const Array<std::int32_t>& awaits, std::int32_t last,
             const Array<std::int32_t>& handed, std::size_t views, double batches) {
            new (self)
                Program(program(flags, operands_begin, operands, constant, results_begin, results,
                                stays, alike, folded, awaits, last, handed, views, batches));
          },
          "flags"_a, "operands_begin"_a, "operands"_a, "constant"_a, "results_begin"_a, "results"_a,
          "stays"_a, "alike"_a, "folded"_a, "awaits"_a, "last"_a, "handed"_a, "views"_a,
          "batches"_a);
  nb::class_<Images>(m, "Images")
      .def(
          "__init__",
          [](Images* self, const Array<std::uint16_t>& nodes, const Array<std::uint8_t>& values) {
            new (self) Images{.nodes = copied(nodes), .values = copied(values)};
          },
          "nodes"_a, "values"_a);
  m.def(
      "touched_bytes",
      [](const nb::ndarray<const std::int64_t, nb::shape<-1, 3>, nb::c_contig, nb::device::cpu>&
             lives,
         std::int64_t expected) {
        std::vector<Life> found;
        for (std::size_t i = 0; i < lives.shape(0); ++i) {
          const std::int64_t* row = lives.data() + 3 * i;
          found.push_back({row[0], row[1], row[2]});
        }
        return touched_bytes(found, expected);
      },
      "lives"_a, "expected"_a);
  nb::class_<PyWalk>(m, "Walk")
      .def(nb::init<const Program&, const Array<std::int32_t>&, const Overlapping&>(), "program"_a,
           "kinds"_a, "how"_a, nb::keep_alive<1, 2>())
      .def("run", &PyWalk::run, "costing"_a, "assignment"_a, "compute_s"_a, "update_s"_a, "joins"_a)
      .def("arena", &PyWalk::arena, "costing"_a, "assignment"_a, "images"_a)
      .def("record", &PyWalk::record, "costing"_a, "assignment"_a, "compute_s"_a, "update_s"_a,
           "joins"_a, "overlaps"_a)
      .def("hidden", &PyWalk::hidden, "costing"_a, "assignment"_a, "graph_of"_a, "graphs"_a);
  bind_tasks(m);
}
// NOLINTEND(bugprone-*, performance-*)
