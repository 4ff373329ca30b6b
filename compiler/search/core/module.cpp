// The Python face of the engine: tensoropt.compiler.search._core.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <condition_variable>
#include <mutex>
#include <thread>

#include "sweep.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace topt::search {

namespace {

using Array = nb::ndarray<const double, nb::c_contig, nb::device::cpu>;

std::vector<double> copy(const Array& array) { return {array.data(), array.data() + array.size()}; }

// Runs f on another thread, so that Ctrl-C is seen meanwhile; its exception comes back.
template <class F>
void interruptible(Token& token, F f) {
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
        if (!finished && !token.cancelled() && PyErr_CheckSignals() != 0) {
            token.cancel();
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

class Engine {
  public:
    // Tables are numbered from 0; memory left out is zero.
    std::size_t add_table(const Array& time, const std::optional<Array>& fixed,
                          const std::optional<Array>& transient) {
        auto values = [](const std::optional<Array>& from) {
            return from ? copy(*from) : std::vector<double>{};
        };
        tables_.push_back(std::make_shared<const Table>(copy(time), values(fixed), values(transient)));
        return tables_.size() - 1;
    }

    void add_node(std::size_t table) {
        const int id = static_cast<int>(model_.nodes.size());
        model_.nodes.push_back(tables_.at(table));
        model_.source.push_back(id);
        model_.choice.push_back(-1);
        auto& configs = model_.configs.emplace_back(tables_[table]->size());
        for (std::size_t i = 0; i < configs.size(); ++i) configs[i] = static_cast<int>(i);
    }

    void add_edge(int a, int b, std::size_t table) { model_.edges.push_back({a, b, tables_.at(table)}); }

    // Rounds the costs to whole units and absorbs nodes without a choice; false if none is allowed.
    bool prepare() {
        quantise(model_);
        tables_.clear();
        merge_parallel(model_);
        width_ = model_.nodes.size();
        const Keep all = keep_all(model_);
        auto reduced = reduce(std::move(model_), all);
        if (!reduced) return false;
        whole_.model = std::move(*reduced);
        make_plans();
        return true;
    }

    // The choice (int32 per node) of least time, None if there is none.
    nb::object min_time() {
        std::vector<int> choice;
        bool allowed = false;
        Token token(INF);
        interruptible(token, [&] {
            const Values values = eliminate(whole_.numbers, {1, 0, INF});
            allowed = values.total() != INF;
            if (allowed) choice = expand(whole_.model, decode(whole_.numbers, values));
        });
        if (!allowed) return nb::none();
        const std::size_t size = choice.size();
        return to_numpy(std::vector<std::int32_t>(choice.begin(), choice.end()), {size});
    }

    nb::dict frontier(double epsilon, double time_limit_s, int threads, double direct_sums,
                      double box_sums, bool hull_only) {
        Token token(time_limit_s);
        Result result;
        interruptible(token, [&] {
            screen();
            if (eliminate(whole_.numbers, {1, 0, INF}).total() == INF) return;
            result = solve_frontier(whole_, {epsilon, threads, direct_sums, box_sums, hull_only}, token);
        });
        return to_dict(result);
    }

  private:
    void screen() {
        const Keep keep = undominated(whole_.model);
        if (count(keep) == count(keep_all(whole_.model))) return;
        if (auto reduced = reduce(whole_.model, keep)) {
            whole_.model = std::move(*reduced);
            make_plans();
        }
    }

    void make_plans() {
        whole_.plan = make_plan(whole_.model);
        check_size(whole_.plan);
        whole_.numbers = make_shared_plan(whole_.model, whole_.plan);
    }

    nb::dict to_dict(const Result& result) const {
        std::vector<std::int32_t> choices;
        for (const Solution& point : result.points)
            choices.insert(choices.end(), point.choice.begin(), point.choice.end());
        nb::dict out;
        out["choices"] = to_numpy(std::move(choices), {result.points.size(), width_});
        out["epsilon"] = result.epsilon;
        out["supported"] = result.supported;
        out["hull_epsilon"] = result.hull_epsilon;
        out["gaps"] = result.gaps;
        out["open_gaps"] = result.open_gaps;
        return out;
    }

    std::vector<TableRef> tables_;  // until they are prepared
    Model model_;                   // likewise
    std::size_t width_ = 0;  // variables of the user's problem
    Prepared whole_;
};

}  // namespace

}  // namespace topt::search

NB_MODULE(_core, m) {
    using namespace topt::search;
    m.doc() = "Exact variable elimination over pairwise cost tables.";
    nb::exception<TooLarge>(m, "TooLargeError");
    nb::class_<Engine>(m, "Engine")
        .def(nb::init<>())
        .def("add_table", &Engine::add_table, "time"_a, "static"_a.none(), "transient"_a.none())
        .def("add_node", &Engine::add_node, "table"_a)
        .def("add_edge", &Engine::add_edge, "a"_a, "b"_a, "table"_a)
        .def("prepare", &Engine::prepare)
        .def("min_time", &Engine::min_time)
        .def("frontier", &Engine::frontier, "epsilon"_a, "time_limit_s"_a, "threads"_a,
             "direct_sums"_a, "box_sums"_a, "hull_only"_a);
}
