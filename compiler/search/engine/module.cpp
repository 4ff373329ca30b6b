// The Python interface of the engine: tensoropt.compiler.search._engine.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cmath>
#include <condition_variable>
#include <iomanip>
#include <mutex>
#include <sstream>
#include <thread>

#include "intake.hpp"
#include "memory.hpp"
#include "relaxation.hpp"
#include "sweep.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace tensoropt::search {
namespace {

using Array = nb::ndarray<const double, nb::c_contig, nb::device::cpu>;

// Memory to reserve for cost tables, in multiples of the problem's tables: these, and narrowed
// copies for the whole problem and for gaps.
constexpr double kCopies = 2;
constexpr double kLeast = 16 << 20;  // bytes that any search may take

// Share of the time limit for dropping options before the search.
constexpr double kScreening = 0.2;

// The two ends of a search, and the effect of Ctrl-C. With `forgive`, the first Ctrl-C cancels
// `enough` and leaves `last` some seconds. The second one cancels both, as does any without
// `forgive`.
struct Ends {
  Token enough, last;
  bool forgive = false;
  double grace_s = kInfinity;

  void cancel() {
    enough.cancel();
    last.cancel();
  }
  // Returns whether the search goes on after the exception that is set.
  bool survive() {
    const bool first =
        forgive && !enough.cancelled() && PyErr_ExceptionMatches(PyExc_KeyboardInterrupt);
    if (!first) return false;
    PyErr_Clear();
    enough.cancel();
    last.end_within(grace_s);
    return true;
  }
};

// Runs f on another thread, so that Ctrl-C is seen, and rethrows its exception. Calls `watch` now
// and then, which may set a Python exception as well.
template <class F, class Watch>
void interruptible(Ends& ends, F f, Watch watch) {
  std::mutex mutex;
  std::condition_variable condition;
  bool done = false;
  std::exception_ptr failed;
  std::jthread worker([&] {
    try {
      f();
    } catch (...) {
      failed = std::current_exception();
    }
    std::scoped_lock lock(mutex);
    done = true;
    condition.notify_one();
  });
  for (bool finished = false; !finished;) {
    {
      nb::gil_scoped_release released;
      std::unique_lock lock(mutex);
      finished = condition.wait_for(lock, std::chrono::milliseconds(50), [&] { return done; });
    }
    if (finished) break;
    watch(ends.enough.cancelled());
    if (!PyErr_Occurred()) PyErr_CheckSignals();
    if (PyErr_Occurred() && !ends.survive()) {
      ends.cancel();
      nb::gil_scoped_release released;
      worker.join();
      break;
    }
  }
  if (PyErr_Occurred()) throw nb::python_error();
  if (failed) std::rethrow_exception(failed);
}

template <class T>
nb::object to_numpy(std::vector<T> values, std::vector<std::size_t> shape) {
  auto* kept = new std::vector<T>(std::move(values));
  nb::capsule owner(kept, [](void* p) noexcept { delete static_cast<std::vector<T>*>(p); });
  return nb::cast(nb::ndarray<nb::numpy, T>(kept->data(), shape.size(), shape.data(), owner));
}

// Returns the memory of a search to the system at its end.
struct Dropping {
  Dropping() = default;
  Dropping(const Dropping&) = delete;
  Dropping& operator=(const Dropping&) = delete;
  ~Dropping() { Blocks::drop(); }
};

class Engine {
 public:
  // Tables are numbered from 0; memory left out is zero.
  std::size_t add_table(const Array& time, const std::optional<Array>& fixed,
                        const std::optional<Array>& transient) {
    intake_.tables.push_back({held(time), held(fixed), held(transient)});
    return intake_.tables.size() - 1;
  }

  void add_node(std::size_t table) { intake_.nodes.push_back(table); }

  void add_edge(int a, int b, std::size_t table) { intake_.edges.push_back({a, b, table}); }

  // Rounds the costs to whole units and absorbs nodes without a choice; false if no assignment is
  // allowed. With `numbers_only` it prepares for the least time only, in the given `order` of
  // elimination unless that is empty. Throws TooLarge if the tables would need more than
  // `budget_bytes` even for one thread.
  bool prepare(bool always_share, double budget_bytes, bool numbers_only,
               const std::vector<int>& order, int threads) {
    always_share_ = always_share;
    numbers_only_ = numbers_only;
    threads_ = threads;
    order_ = order;
    budget_bytes_ = budget_bytes > 0 ? budget_bytes : memory_budget();
    Model model = intake_.model(units_, threads);
    intake_ = {};
    arrays_ = {};
    merge_parallel(model);
    width_ = model.nodes.size();
    const Keep all = keep_all(model);
    auto reduced = reduce(std::move(model), all);
    if (!reduced) return false;
    whole_.model = std::move(*reduced);
    tables_bytes_ = table_bytes(whole_.model);
    try {
      make_plans();
    } catch (const TooLarge&) {
      whole_ = {};  // its parts will have tables of their own
      throw;
    }
    return true;
  }

  // Returns the user's variable in most tables of the widest step, if that is too large.
  int widest() const { return widest_; }

  // Returns the steps of an elimination over numbers, and how many of them are distinct.
  nb::tuple steps() const {
    const Plan& plan = whole_.numbers;
    const auto computed =
        std::count_if(plan.steps.begin(), plan.steps.end(),
                      [&](const Step& step) { return plan.same[step.output] == step.output; });
    return nb::make_tuple(plan.steps.size(), computed);
  }

  // Returns the sums of an elimination over numbers.
  double work() const { return whole_.numbers.distinct_work; }

  // Returns the assignment (int32 per node) of least time, or None. Throws Stopped past
  // `last_limit_s`.
  nb::object min_time(double last_limit_s) {
    std::vector<int> choice;
    bool allowed = false;
    Ends ends{Token(kInfinity), Token(last_limit_s)};
    auto solve = [&] {
      const Values values = eliminate(whole_.numbers, {1, 0, kInfinity}, &ends.last);
      allowed = values.total() != kInfinity;
      if (!allowed) return;
      const auto found = expand(whole_.model, decode(whole_.numbers, values));
      choice.assign(found.begin(), found.end());
    };
    within_budget([&] { interruptible(ends, solve, [](bool) {}); });
    if (!allowed) return nb::none();
    const std::size_t size = choice.size();
    return to_numpy(std::vector<std::int32_t>(choice.begin(), choice.end()), {size});
  }

  // Throws Stopped if the extremes are not found before `last_limit_s`, or `grace_s` after a
  // forgiven Ctrl-C. Calls `watch`, if any, as watch(phase, epsilon, gaps done, gaps, is stopping).
  // `known` has the time and memory of points found elsewhere, which count as found.
  nb::dict frontier(double epsilon, double time_limit_s, int threads, double direct_sums,
                    double box_sums, double line_sums, bool hull_only, bool forgive,
                    double last_limit_s, double grace_s, const nb::object& watch,
                    const std::optional<Array>& known, const std::optional<Array>& lines) {
    Ends ends{Token(time_limit_s), Token(last_limit_s), forgive, grace_s};
    Progress progress;
    Result result;
    const Options options{.epsilon = epsilon,
                          .threads = std::min(threads, threads_),
                          .direct_sums = direct_sums,
                          .box_sums = box_sums,
                          .line_sums = line_sums,
                          .hull_only = hull_only,
                          .known = in_units(numbers_of(known)),
                          .lines = lines_in_units(numbers_of(lines))};
    auto solve = [&] {
      const Token screening(kScreening * time_limit_s);
      screen([&] { return ends.enough.expired() || screening.expired(); });
      result = solve_frontier(whole_, options, {ends.enough, ends.last}, progress);
    };
    within_budget([&] {
      interruptible(ends, solve, [&](bool stopping) { show(watch, progress, stopping); });
    });
    nb::dict out = to_dict(result);
    out["interrupted"] = ends.enough.cancelled();
    return out;
  }

 private:
  // Converts pairs of time and memory, rounded up: dominated points stay dominated.
  std::vector<Cost> in_units(std::span<const double> pairs) const {
    std::vector<Cost> costs;
    for (std::size_t i = 0; i + 1 < pairs.size(); i += 2)
      costs.push_back(
          {std::ceil(pairs[i] / units_.time), std::ceil(pairs[i + 1] / units_.memory), 0});
    return costs;
  }

  static std::span<const double> numbers_of(const std::optional<Array>& array) {
    return array ? std::span(array->data(), array->size()) : std::span<const double>{};
  }

  // Converts triples: weights of time and memory, and the least weighted sum, rounded down.
  std::vector<Support> lines_in_units(std::span<const double> triples) const {
    std::vector<Support> lines;
    for (std::size_t i = 0; i + 2 < triples.size(); i += 3)
      lines.push_back({triples[i] * units_.time, triples[i + 1] * units_.memory,
                       triples[i + 2] * (1 - kRounding)});
    return lines;
  }

  nb::object lines_of(const Result& result) const {
    std::vector<double> triples;
    for (const Support& line : result.lines)
      if (line.bound > 0 && line.bound < kInfinity)
        triples.insert(triples.end(),
                       {line.time / units_.time, line.memory / units_.memory, line.bound});
    const std::size_t count = triples.size() / 3;
    return to_numpy(std::move(triples), {count, 3});
  }

  std::span<const double> held(const std::optional<Array>& array) {
    if (!array) return {};
    arrays_.push_back(*array);
    return {array->data(), array->size()};
  }

  static void show(const nb::object& watch, const Progress& progress, bool stopping) {
    if (watch.is_none()) return;
    try {
      watch(int(progress.phase.load()), progress.epsilon.load(), progress.done.load(),
            progress.gaps.load(), stopping);
    } catch (nb::python_error& error) {
      error.restore();
    }
  }

  // Refuses tables that turn out too large like tables that are known to be.
  template <class F>
  void within_budget(F solve) {
    const Budget::Share share(std::max(left_bytes(), kLeast));
    const Dropping dropping;
    try {
      solve();
    } catch (const OutOfMemory&) {
      std::ostringstream text;
      text << std::fixed << std::setprecision(1) << "the search needs more than the "
           << budget_bytes_ / (1 << 30) << " GiB of memory it may use";
      throw TooLarge(text.str());
    }
  }

  // Returns the budget without the problem's tables and narrowed copies of them.
  double left_bytes() const {
    return std::max(budget_bytes_ - kCopies * tables_bytes_, std::min(budget_bytes_, kLeast));
  }

  void screen(const Enough& enough) {
    const Keep keep = undominated(whole_.model, enough);
    if (count(keep) == count(keep_all(whole_.model))) return;
    if (auto reduced = reduce(whole_.model, keep)) {
      whole_.model = std::move(*reduced);
      make_plans();
    }
  }

  void make_plans() {
    if (numbers_only_) {
      whole_.numbers = order_.empty() ? make_number_plan(whole_.model, always_share_)
                                      : make_ordered_plan(whole_.model, order_of_nodes());
      return check(whole_.numbers);
    }
    whole_.plan = make_plan(whole_.model);
    check(whole_.plan);
    whole_.numbers = make_shared_plan(whole_.model, whole_.plan, always_share_);
  }

  void check(const Plan& plan) {
    widest_ = plan.busiest < 0 ? -1 : whole_.model.source[plan.busiest];
    while (threads_ > 1 && need_of(plan, threads_) >= left_bytes()) --threads_;
    check_size(plan, left_bytes(), threads_);
  }

  // Returns the user's order without the variables that are fixed.
  std::vector<int> order_of_nodes() const {
    std::vector<int> node(width_, -1), order;
    for (std::size_t n = 0; n < whole_.model.source.size(); ++n)
      node[whole_.model.source[n]] = int(n);
    for (int variable : order_)
      if (node.at(variable) >= 0) order.push_back(node[variable]);
    return order;
  }

  nb::dict to_dict(const Result& result) const {
    std::vector<std::int32_t> choices;
    for (const Solution& point : result.points)
      choices.insert(choices.end(), point.choice.begin(), point.choice.end());
    nb::dict out;
    out["choices"] = to_numpy(std::move(choices), {result.points.size(), width_});
    out["epsilon"] = result.epsilon;
    out["time_epsilon"] = result.time_epsilon;
    out["lines"] = lines_of(result);
    out["supported"] = result.supported;
    out["hull_epsilon"] = result.hull_epsilon;
    out["gaps"] = result.gaps;
    out["open_gaps"] = result.open_gaps;
    out["short_of_memory"] = result.short_of_memory;
    return out;
  }

  // The caller's input, until it is prepared.
  std::vector<Array> arrays_;  // kept alive
  Intake intake_;

  bool always_share_ = false, numbers_only_ = false;
  std::vector<int> order_;
  double budget_bytes_ = 0, tables_bytes_ = 0;
  Units units_;
  int threads_ = 1;  // the most that fit into the budget
  int widest_ = -1;
  std::size_t width_ = 0;  // variables of the user's problem
  Prepared whole_;
};

// A relaxation, and the caller's tables that it reads.
class LineBounds {
 public:
  explicit LineBounds(std::vector<int> sizes) : relaxation_(std::move(sizes)) {}

  void add_time(int a, int b, const Array& values) { relaxation_.add_time(factor(a, b, values)); }
  void add_static(int a, int b, const Array& values) {
    relaxation_.add_fixed(factor(a, b, values));
  }
  void add_moment(const std::vector<std::tuple<int, int, Array>>& factors) {
    std::vector<Factor> every;
    for (const auto& [a, b, values] : factors) every.push_back(factor(a, b, values));
    relaxation_.add_moment(std::move(every));
  }
  void connect(const std::vector<double>& ranks) { relaxation_.connect(ranks); }

  Multipliers start(double time_weight) const { return relaxation_.start(time_weight); }

  // Returns the bound, the weight of the time that gave it, and assignments [plan, node].
  nb::tuple ascend(Multipliers& at, double time, double memory, double enough, bool turns,
                   int steps, int sweeps, double limit_s) {
    Ascent ascent;
    {
      nb::gil_scoped_release released;
      ascent = relaxation_.ascend(at, {time, memory}, enough, turns, steps, sweeps, Token(limit_s));
    }
    return nb::make_tuple(ascent.bound, ascent.weights.time, rows_of(ascent.choices));
  }

  // Returns assignments [plan, node] below a corner that take their options from `choices`.
  nb::object mixtures(const Multipliers& at, const std::vector<std::vector<int>>& choices,
                      double time, double memory, double epsilon, double limit_s) const {
    std::vector<std::vector<int>> mixed;
    {
      nb::gil_scoped_release released;
      const Dropping dropping;
      mixed = relaxation_.mixtures(at, choices, {time, memory}, epsilon, Token(limit_s));
    }
    return rows_of(mixed);
  }

  nb::tuple sums(const std::vector<int>& choice) const {
    const Sums sums = relaxation_.sums(choice);
    return nb::make_tuple(sums.time, sums.fixed, sums.transient);
  }

 private:
  static nb::object rows_of(const std::vector<std::vector<int>>& choices) {
    std::vector<std::int32_t> flat;
    for (const auto& choice : choices) flat.insert(flat.end(), choice.begin(), choice.end());
    const std::size_t nodes = choices.empty() ? 0 : choices.front().size();
    return to_numpy(std::move(flat), {choices.size(), nodes});
  }

  Factor factor(int a, int b, const Array& values) {
    arrays_.push_back(values);
    return {a, b, {values.data(), values.size()}};
  }

  std::vector<Array> arrays_;
  Relaxation relaxation_;
};

}  // namespace

}  // namespace tensoropt::search

// NOLINTBEGIN(bugprone-*, performance-*): nanobind's ways
NB_MODULE(_engine, m) {
  using namespace tensoropt::search;
  m.doc() = "Exact variable elimination over pairwise cost tables.";
  nb::exception<TooLarge>(m, "TooLargeError");
  nb::exception<Stopped>(m, "StoppedError");
  nb::class_<Engine>(m, "Engine")
      .def(nb::init<>())
      .def("add_table", &Engine::add_table, "time"_a, "static"_a.none(), "transient"_a.none())
      .def("add_node", &Engine::add_node, "table"_a)
      .def("add_edge", &Engine::add_edge, "a"_a, "b"_a, "table"_a)
      .def("prepare", &Engine::prepare, "always_share"_a, "budget_bytes"_a, "numbers_only"_a,
           "order"_a, "threads"_a)
      .def("widest", &Engine::widest)
      .def("steps", &Engine::steps)
      .def("work", &Engine::work)
      .def("min_time", &Engine::min_time, "last_limit_s"_a = kInfinity)
      .def("frontier", &Engine::frontier, "epsilon"_a, "time_limit_s"_a, "threads"_a,
           "direct_sums"_a, "box_sums"_a, "line_sums"_a, "hull_only"_a, "forgive"_a,
           "last_limit_s"_a = kInfinity, "grace_s"_a = kInfinity, "watch"_a.none() = nb::none(),
           "known"_a.none() = nb::none(), "lines"_a.none() = nb::none());
  nb::class_<Multipliers>(m, "Multipliers").def("copy", [](const Multipliers& at) {
    return Multipliers(at);
  });
  nb::class_<LineBounds>(m, "LineBounds")
      .def(nb::init<std::vector<int>>(), "sizes"_a)
      .def("add_time", &LineBounds::add_time, "a"_a, "b"_a, "values"_a)
      .def("add_static", &LineBounds::add_static, "a"_a, "b"_a, "values"_a)
      .def("add_moment", &LineBounds::add_moment, "factors"_a)
      .def("connect", &LineBounds::connect, "ranks"_a)
      .def("start", &LineBounds::start, "time_weight"_a)
      .def("ascend", &LineBounds::ascend, "at"_a, "time"_a, "memory"_a, "enough"_a, "turns"_a,
           "steps"_a, "sweeps"_a, "limit_s"_a)
      .def("mixtures", &LineBounds::mixtures, "at"_a, "choices"_a, "time"_a, "memory"_a,
           "epsilon"_a, "limit_s"_a)
      .def("sums", &LineBounds::sums, "choice"_a);
}
// NOLINTEND(bugprone-*, performance-*)
