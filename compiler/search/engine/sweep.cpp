#include "sweep.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <functional>
#include <utility>

#include "fill.hpp"
#include "parallel.hpp"

namespace tensoropt::search {
namespace {

// Above this epsilon, a few points take less work than all. Ablation: quick.
constexpr double kCoarse = 0.01;
// Effort of a second try, in first ones, once a bound is known. Ablation: again.
constexpr double kAgain = 30;
// Points on each side of a gap that supply options. Ablation: fill-reach.
constexpr std::size_t kFillReach = 15;
// Points of other meshes that are used. Ablation: few-points.
constexpr std::size_t kKnown = 32;
// Bounds that all gaps reach first. Ablation: stages.
constexpr double kStages[] = {0.05, 0.02, 0.01};
// Lines that bound a large problem before the sweep. Ablation: lines.
constexpr std::size_t kLines = 12;
// Lines that are drawn even if the time is over. Ablation: late-lines.
constexpr std::size_t kLateLines = 4;
// Levels that are bounded for the leanest assignment. Ablation: lean-bound.
constexpr std::size_t kLevels = 10;
// Levels that are bounded even if the time is over. Ablation: late-levels.
constexpr std::size_t kLateLevels = 4;
constexpr double kFirst = 0.15;  // of the time of a large problem, for lines and levels
// Share of the remaining time for the exact ends of a large problem. Ablation: ends-in-time.
constexpr double kEnds = 0.5;
constexpr double kEndsWork = 7;  // eliminations for the exact ends
// Gaps per batch, fixed: results do not depend on threads. Ablation: batches.
constexpr std::size_t kBatch = 4;

// Two neighbouring points found so far; the left one is faster.
struct Gap {
  std::size_t left, right;  // among the result's points
  double left_time, left_memory, right_time, right_memory;
  double slope = 0, error = kInfinity;
  bool refined = false;  // no supported point is known to be missing between them
};

class Frontier {
 public:
  Frontier(Prepared& whole, const Options& options, const Until& until, Progress& progress)
      : whole_(whole), options_(options), token_(until.enough), last_(until.last),
        progress_(progress), levels_(transient_levels(whole.model)) {}

  Result run() {
    supports_ = options_.lines;
    if (!(hurries() ? find_ends() : find_extremes())) return {};
    const bool covered = hurries() && is_covered();
    if (!covered && (hurries() || !search_directly(quick() * options_.direct_sums)))
      for (const double epsilon : stages()) search_within(epsilon);
    result_.epsilon = covered ? error_of_all() : std::max(largest_error(), leanest_error());
    result_.time_epsilon = fastest_error();
    const auto given = std::ptrdiff_t(options_.lines.size());
    result_.lines.assign(supports_.begin() + given, supports_.end());
    const auto first = result_.points.begin();
    result_.points.erase(first + known_.first, first + known_.second);
    keep_best(result_.points);
    return std::move(result_);
  }

 private:
  // Returns whether a point comes from elsewhere; such points have no assignment.
  bool is_known(std::size_t point) const {
    return std::ptrdiff_t(point) >= known_.first && std::ptrdiff_t(point) < known_.second;
  }

  // With a time limit, the bound falls everywhere before the search goes on anywhere.
  std::vector<double> stages() const {
    std::vector<double> stages;
    if (token_.limited() && !options_.hull_only)
      for (const double epsilon : kStages)
        if (epsilon > options_.epsilon) stages.push_back(epsilon);
    stages.push_back(options_.epsilon);
    return stages;
  }

  // Returns whether the problem is large and the time is limited.
  bool hurries() const {
    const bool large = whole_.numbers.distinct_work >= options_.line_sums;
    return large && token_.limited() && !options_.hull_only;
  }

  void search_within(double epsilon) {
    target_ = epsilon;
    const bool late = hurries() && token_.expired();
    if (!late) sweep();
    if (options_.hull_only) return;
    if (leanest_error() > target_) find_leanest();
    const bool first = known_.first == known_.second;
    if (first && (epsilon > 0 || token_.limited())) take_in_known();
    if (late) return;
    // An exact search without a time limit finds the same points in fewer, wider boxes.
    if (epsilon > 0 || token_.limited()) fill_gaps();
    if (epsilon > 0 || hurries() || !search_directly(kAgain * options_.direct_sums)) search_gaps();
  }

  // Finds both extremes; only the last token ends it. False if no assignment is allowed.
  bool find_extremes() {
    Supported best[2];
    parallel(2, options_.threads, [&](std::size_t i) {
      best[i] = minimise(whole_, levels_, i == 0 ? 1 : 0, i == 0 ? 0 : 1, &last_);
    });
    if (best[0].bound == kInfinity) return false;
    take_end(std::move(best[0]), 1, 0);
    take_end(std::move(best[1]), 0, 1);
    make_gaps();
    return true;
  }

  void take_end(Supported best, double time, double memory) {
    supports_.push_back({time, memory, best.bound});
    add_point(std::move(best.solution));
  }

  // Finds both ends of a large problem: first by one elimination each and lines between them, then
  // exactly, if that is not enough and there is time. The leanest assignment takes longest to find,
  // but a few eliminations may bound it well.
  bool find_ends() {
    const auto started = Token::Clock::now();
    if (!draw({{1, 0}, {0, 1}})) return false;
    const std::chrono::duration<double> each = Token::Clock::now() - started;
    const bool best = kEnds * token_.left_s() > kEndsWork * each.count();
    bound_ends_and_middle(Token(token_, (best ? kFirst : 1) * token_.left_s()));
    if (!is_covered() && !token_.expired())
      find_best_ends(Token(token_, (best ? kEnds : 1) * token_.left_s()));
    make_gaps();
    return true;
  }

  void find_best_ends(const Token& token) {
    std::optional<Supported> best[2];
    try {
      parallel(2, options_.threads, [&](std::size_t i) {
        best[i] = minimise(whole_, levels_, i == 0 ? 1 : 0, i == 0 ? 0 : 1, &token);
      });
    } catch (const Stopped&) {
    } catch (const OutOfMemory&) {
    }
    for (std::size_t i = 0; i < 2; ++i)
      if (best[i]) take_end(std::move(*best[i]), i == 0 ? 1 : 0, i == 0 ? 0 : 1);
  }

  // Draws lines on one thread, and bounds the lean end on another: lines say little about it.
  void bound_ends_and_middle(const Token& token) {
    const double fixed = supports_.back().bound - levels_[0];
    double known = memory_of(leanest());
    for (const Cost& cost : options_.known) known = std::min(known, cost.memory());
    Lean lean{0};
    parallel(2, options_.threads, [&](std::size_t i) {
      if (i == 0) lean = bounded_leanest(fixed, known, token);
      else draw_lines(token);
    });
    supports_.push_back({0, 1, lean.bound});
    for (Solution& solution : lean.found) add_point(std::move(solution));
  }

  // A lower bound for the leanest assignment, and some lean assignments.
  struct Lean {
    double bound;
    std::vector<Solution> found = {};
  };

  // Bounds the leanest assignment by ranges of levels of the transient maximum. In a range, static
  // memory is at least the least up to its higher level; transient memory is at least the lower
  // level.
  Lean bounded_leanest(double fixed, double known, const Token& token) const {
    struct Part {
      std::size_t low, high;  // levels
      double fixed;           // the least static memory up to `high`
    };
    const double enough = 1 + std::min(options_.epsilon, kStages[0]);
    std::vector<Part> parts{{0, levels_.size() - 1, fixed}};
    auto least = [&](const Part& part) { return part.fixed + levels_[part.low]; };
    auto before = [&](const Part& a, const Part& b) { return least(a) < least(b); };
    std::vector<Solution> found;
    auto worst = parts.begin();
    for (std::size_t done = 0; done < kLevels; ++done) {
      if (done >= kLateLevels && token.expired()) break;
      if (worst->low == worst->high || known <= enough * least(*worst)) break;
      const std::size_t at = middle(worst->low, worst->high, known - worst->fixed);
      const Part upper{at + 1, worst->high, worst->fixed};
      try {
        *worst = {worst->low, at, least_fixed(levels_[at], found)};
      } catch (const Stopped&) {
        break;
      } catch (const OutOfMemory&) {
        break;
      }
      parts.push_back(upper);
      if (!found.empty()) known = std::min(known, found.back().cost.memory());
      worst = std::min_element(parts.begin(), parts.end(), before);
    }
    return {least(*worst), std::move(found)};
  }

  // Returns the level in the middle of the useful levels between two, below the higher one.
  std::size_t middle(std::size_t low, std::size_t high, double most) const {
    const double half = (levels_[low] + std::min(levels_[high], most)) / 2;
    const auto first = levels_.begin();
    const auto above =
        std::upper_bound(first + std::ptrdiff_t(low), first + std::ptrdiff_t(high), half);
    return std::max(std::size_t(above - first), low + 1) - 1;
  }

  // Returns the least static memory of assignments up to a level, and adds the assignment found.
  double least_fixed(double level, std::vector<Solution>& found) const {
    const Values values = eliminate(whole_.numbers, {0, 1, level}, &last_);
    if (values.total() == kInfinity) return kInfinity;
    const auto choice = decode(whole_.numbers, values);
    found.push_back({cost_of(whole_.model, choice), expand(whole_.model, choice)});
    return values.total() + whole_.model.base.fixed;
  }

  // Searches for the leanest assignment again, in all the time that is left.
  void find_leanest() {
    if (token_.expired()) return;
    try {
      Supported best = minimise(whole_, levels_, 0, 1, &token_);
      const std::size_t before = leanest();
      take_end(std::move(best), 0, 1);
      const std::size_t point = result_.points.size() - 1;
      if (memory_of(point) < memory_of(before) && time_of(point) > time_of(before))
        gaps_.push_back(make_gap(before, point));
      for (Gap& gap : gaps_) gap.error = std::min(gap.error, error_of(gap));
    } catch (const Stopped&) {
    } catch (const OutOfMemory&) {
    }
  }

  // Returns the largest relative excess of the fastest or leanest point over any assignment.
  double fastest_error() const {
    double least = kInfinity;
    for (const Solution& point : result_.points) least = std::min(least, point.cost.time);
    return least == 0 ? 0 : error_of({0, 0, 0, 0, least, kInfinity});
  }
  double leanest_error() const {
    double least = kInfinity;
    for (const Solution& point : result_.points) least = std::min(least, point.cost.memory());
    return least == 0 ? 0 : error_of({0, 0, 0, least, kInfinity, 0});
  }

  // Runs one elimination up to the highest level along each line, for a bound and an assignment.
  // The best assignment along the line gives a better bound, but takes several eliminations. False
  // if no assignment is allowed. Throws Stopped at the last token's end.
  bool draw(const std::vector<Line>& lines) {
    std::vector<Supported> drawn(lines.size());
    parallel(lines.size(), options_.threads, [&](std::size_t i) {
      const Line& line = lines[i];
      const Values values = eliminate(whole_.numbers, {line.time, line.memory, kInfinity}, &last_);
      if (values.total() == kInfinity) return;
      const Cost& base = whole_.model.base;
      const double fixed = base.fixed + levels_[0];
      drawn[i].bound = values.total() + line.time * base.time + line.memory * fixed;
      const auto choice = decode(whole_.numbers, values);
      drawn[i].solution = {cost_of(whole_.model, choice), expand(whole_.model, choice)};
    });
    for (std::size_t i = 0; i < lines.size(); ++i) {
      if (drawn[i].bound == kInfinity) return false;
      take_end(std::move(drawn[i]), lines[i].time, lines[i].memory);
    }
    return true;
  }

  // Draws lines along the worst gaps between all known points, one at a time, unless these are
  // within the bound: lines also find points, which bound the next problem.
  void draw_lines(const Token& token) {
    if (is_covered()) return;
    std::vector<double> drawn;
    while (drawn.size() < kLines) {
      const auto slopes = slopes_of_worst(drawn);
      if (slopes.empty() || (drawn.size() >= kLateLines && token.expired())) break;
      try {
        draw({{1, slopes[0]}});
      } catch (const Stopped&) {
        break;
      } catch (const OutOfMemory&) {
        break;
      }
      drawn.push_back(slopes[0]);
    }
  }

  // Makes the gaps between the points that are not dominated.
  void make_gaps() {
    keep_best(result_.points);
    gaps_.clear();
    for (std::size_t i = 1; i < result_.points.size(); ++i) gaps_.push_back(make_gap(i - 1, i));
  }

  // Returns the best costs of this problem's points and of others, in order of time.
  std::vector<Cost> best_costs() const {
    std::vector<Cost> costs = thinned(options_.known), best;
    for (const Solution& point : result_.points) costs.push_back(point.cost);
    std::sort(costs.begin(), costs.end(), [](const Cost& a, const Cost& b) {
      return std::pair(a.time, a.memory()) < std::pair(b.time, b.memory());
    });
    for (const Cost& cost : costs)
      if (best.empty() || cost.memory() < best.back().memory()) best.push_back(cost);
    return best;
  }

  // Returns the largest relative excess of the best of all points over any assignment of this
  // problem: before, between and beyond these points.
  double error_of_all() const {
    double error = 0, memory = kInfinity;
    for (const Cost& cost : best_costs()) {
      error = std::max(error, error_of({0, 0, 0, memory, cost.time, 0}));
      memory = cost.memory();
    }
    return std::max(error, error_of({0, 0, 0, memory, kInfinity, 0}));
  }

  // Returns whether lines and levels prove the requested bound. A coarse search is for the ends,
  // which lines do not find exactly.
  bool is_covered() const {
    return options_.epsilon <= kStages[0] && error_of_all() <= options_.epsilon;
  }

  // Returns the slopes of the two worst gaps between points of this problem and others. Slopes that
  // are drawn already are left out.
  std::vector<double> slopes_of_worst(const std::vector<double>& drawn) const {
    std::vector<std::pair<double, double>> found;  // minus the error, and the slope
    const std::vector<Cost> costs = best_costs();
    for (std::size_t i = 1; i < costs.size(); ++i) {
      const Cost &left = costs[i - 1], &right = costs[i];
      const double slope = (right.time - left.time) / (left.memory() - right.memory());
      const double error = error_of({0, 0, left.time, left.memory(), right.time, right.memory()});
      const bool is_new = std::find(drawn.begin(), drawn.end(), slope) == drawn.end();
      if (error > target_ && is_new) found.emplace_back(-error, slope);
    }
    std::sort(found.begin(), found.end());
    std::vector<double> slopes;
    for (std::size_t i = 0; i < found.size() && i < 2; ++i) slopes.push_back(found[i].second);
    return slopes;
  }

  // Picks a few of many points, both ends included: each makes a gap, which takes time.
  static std::vector<Cost> thinned(const std::vector<Cost>& known) {
    if (known.size() <= kKnown) return known;
    std::vector<Cost> some;
    for (std::size_t i = 0; i < kKnown; ++i)
      some.push_back(known[i * (known.size() - 1) / (kKnown - 1)]);
    return some;
  }

  // Makes points from elsewhere ends of gaps. Not before the sweep, which is shorter between points
  // of a hull.
  void take_in_known() {
    known_.first = std::ptrdiff_t(result_.points.size());
    for (const Cost& cost : thinned(options_.known)) add_point({cost, {}});
    known_.second = std::ptrdiff_t(result_.points.size());
    std::vector<Gap> parts;
    std::optional<std::size_t> left;
    for (const std::size_t right : in_order()) {
      if (left && memory_of(right) >= memory_of(*left)) continue;
      if (left) parts.push_back(gap_between(*left, right));
      left = right;
    }
    gaps_ = std::move(parts);
  }

  // Returns the gap between two neighbours of all points, as a part of the best gap that contains
  // it. Beyond the ends of all gaps it is new.
  Gap gap_between(std::size_t left, std::size_t right) const {
    const Gap* best = nullptr;
    for (const Gap& gap : gaps_)
      if (gap.left_memory >= memory_of(left) && gap.right_time >= time_of(right) &&
          (!best || gap.error < best->error))
        best = &gap;
    return best ? part_of(*best, left, right) : make_gap(left, right);
  }

  std::size_t leanest() const {
    std::size_t best = 0;
    for (std::size_t i = 1; i < result_.points.size(); ++i)
      if (memory_of(i) < memory_of(best)) best = i;
    return best;
  }

  // Returns a part of a gap: bounds of the whole are valid for it.
  Gap part_of(const Gap& whole, std::size_t left, std::size_t right) const {
    Gap part = make_gap(left, right);
    part.error = std::min(part.error, whole.error);
    part.slope = whole.slope;
    part.refined = whole.refined;
    return part;
  }

  double time_of(std::size_t point) const { return result_.points[point].cost.time; }
  double memory_of(std::size_t point) const { return result_.points[point].cost.memory(); }

  double largest_error() const {
    double error = 0;
    for (const Gap& gap : gaps_) error = std::max(error, gap.error);
    return error;
  }

  // Returns the share of the first effort for finding all points if fewer suffice.
  double quick() const {
    return options_.epsilon > kCoarse ? std::pow(kCoarse / options_.epsilon, 3) : 1;
  }

  void report(Progress::Phase phase) {
    progress_.phase = phase;
    progress_.epsilon = largest_error();
  }

  // Computes the least sums outside every entry of every table, for time and for memory.
  void know_bounds() {
    if (!whole_.bounds.time.empty()) return;
    Outside bounds[2];
    parallel(2, options_.threads, [&](std::size_t i) {
      const Weights weights{i == 0 ? 1.0 : 0.0, i == 0 ? 0.0 : 1.0, kInfinity};
      bounds[i] =
          outside(whole_.plan, eliminate(whole_.plan, weights, &token_), Around::All, &token_);
    });
    whole_.bounds.time = std::move(bounds[0]);
    whole_.bounds.memory = std::move(bounds[1]);
  }

  std::size_t add_point(Solution point) {
    result_.points.push_back(std::move(point));
    return result_.points.size() - 1;
  }

  Gap make_gap(std::size_t left, std::size_t right) const {
    const Cost& a = result_.points[left].cost;
    const Cost& b = result_.points[right].cost;
    Gap gap{left, right, a.time, a.memory(), b.time, b.memory()};
    gap.slope = (b.time - a.time) / (a.memory() - b.memory());
    gap.error = error_of(gap);
    return gap;
  }

  // An assignment not within e of either point is below the corner (right_time, left_memory) / (1 +
  // e). It is above every support. So the largest e that leaves room is the least over the
  // supports.
  double error_of(const Gap& gap) const {
    double error = kInfinity;
    for (const Support& line : supports_) error = std::min(error, error_under(gap, line));
    return std::max(0.0, error);
  }

  static double error_under(const Gap& gap, const Support& line) {
    if (line.bound <= 0) return kInfinity;
    double corner = line.time == 0 ? 0 : line.time * gap.right_time;
    if (line.memory != 0) corner += line.memory * gap.left_memory;
    return corner / line.bound - 1;
  }

  // Returns the open gaps with the largest errors.
  std::vector<std::size_t> worst(std::size_t most,
                                 const std::function<bool(const Gap&)>& open) const {
    std::vector<std::size_t> picked;
    for (std::size_t g = 0; g < gaps_.size(); ++g)
      if (open(gaps_[g]) && gaps_[g].error > target_) picked.push_back(g);
    std::stable_sort(picked.begin(), picked.end(),
                     [&](std::size_t a, std::size_t b) { return gaps_[a].error > gaps_[b].error; });
    if (picked.size() > most) picked.resize(most);
    return picked;
  }

  // Minimises along the line through both ends of the worst gaps. Ends when each gap is small
  // enough or has no supported point inside.
  void sweep() {
    auto open = [](const Gap& gap) { return !gap.refined; };
    for (;;) {
      report(Progress::Phase::Supported);
      const auto batch = worst(kBatch, open);
      if (batch.empty() || token_.expired()) break;
      std::vector<Supported> best(batch.size());
      try {
        parallel(batch.size(), options_.threads, [&](std::size_t i) {
          best[i] = minimise(whole_, levels_, 1, gaps_[batch[i]].slope, &token_);
        });
      } catch (const Stopped&) {
        break;
      } catch (const OutOfMemory&) {
        result_.short_of_memory = true;
        break;
      }
      for (std::size_t i = 0; i < batch.size(); ++i) settle(batch[i], std::move(best[i]));
      for (Gap& gap : gaps_) gap.error = std::min(gap.error, error_of(gap));
    }
    result_.supported = int(result_.points.size());
    result_.hull_epsilon = largest_error();
  }

  static bool splits(const Gap& gap, const Supported& best) {
    const double time = best.solution.cost.time, memory = best.solution.cost.memory();
    const double line = gap.left_time + gap.slope * gap.left_memory;
    return best.bound < line - kRounding * line && time > gap.left_time && time < gap.right_time &&
           memory < gap.left_memory && memory > gap.right_memory;
  }

  // Applies the result of a gap's line: a new point that splits the gap, or a certificate.
  void settle(std::size_t at, Supported best) {
    const Gap gap = gaps_[at];
    supports_.push_back({1, gap.slope, best.bound});
    if (splits(gap, best)) {
      const std::size_t middle = add_point(std::move(best.solution));
      gaps_.push_back(make_gap(middle, gap.right));
      gaps_[at] = make_gap(gap.left, middle);
    } else {
      gaps_[at].refined = true;
      gaps_[at].error = std::min(gap.error, error_of(gap));
    }
  }

  // Returns the part of a gap that neither of its ends covers within epsilon.
  Box box_of(const Gap& gap) const {
    const double shrink = 1 + target_ * (1 - kRounding);
    Box box;
    box.shrink = shrink;
    box.time = std::min(gap.right_time - 1, std::floor(gap.right_time / shrink));
    box.memory = std::min(gap.left_memory - 1, std::floor(gap.left_memory / shrink));
    box.mixed = {1, gap.slope, box.time + gap.slope * box.memory};
    return box;
  }

  // If a line supports many assignments, the sweep finds only their ends: for example, each of
  // several equal layers may switch or not. So this searches the assignments made of options of
  // both ends.
  void fill_gaps() {
    const std::size_t most = target_ > 0 ? kFillReach : 0;  // with 0, a few points save no work
    for (std::size_t reach = 0; reach <= most; reach = 2 * reach + 1) fill_gaps(reach);
  }

  void fill_gaps(std::size_t reach) {
    report(Progress::Phase::Filling);
    const auto order = in_order();
    const auto todo = worst(gaps_.size(), [](const Gap&) { return true; });
    std::vector<std::vector<Solution>> found(todo.size());
    parallel(todo.size(), options_.threads, [&](std::size_t i) {
      const Gap& gap = gaps_[todo[i]];
      found[i] = search_mixed(whole_.model, around(order, gap, reach), box_of(gap), token_);
    });
    for (std::size_t i = 0; i < todo.size(); ++i) divide(todo[i], found[i]);
  }

  // Returns the points in order of time; of equally fast points the leaner is first.
  std::vector<std::size_t> in_order() const {
    std::vector<std::size_t> order(result_.points.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      const Cost &first = result_.points[a].cost, &second = result_.points[b].cost;
      return std::pair(first.time, first.memory()) < std::pair(second.time, second.memory());
    });
    return order;
  }

  // Returns both ends of a gap and up to `reach` points beyond either that have an assignment.
  std::vector<const Solution*> around(const std::vector<std::size_t>& order, const Gap& gap,
                                      std::size_t reach) const {
    std::vector<const Solution*> points;
    auto add = [&](auto from, const auto& end) {
      for (std::size_t most = reach + 1; from != end && most > 0; ++from)
        if (!is_known(*from)) points.push_back(&result_.points[*from]), --most;
    };
    add(std::find(order.begin(), order.end(), gap.right), order.end());
    add(std::find(order.rbegin(), order.rend(), gap.left), order.rend());
    return points;
  }

  // Replaces a gap by the gaps between points found in it; none misses more than `proven`.
  void divide(std::size_t at, std::vector<Solution>& found, double proven = kInfinity) {
    keep_best(found);
    gaps_[at].error = std::min(gaps_[at].error, proven);
    const Gap gap = gaps_[at];
    std::size_t left = gap.left;
    auto add_gap = [&](std::size_t right) {
      gaps_.push_back(part_of(gap, std::exchange(left, right), right));
    };
    if (found.empty()) return;
    for (Solution& point : found) add_gap(add_point(std::move(point)));
    add_gap(gap.right);
    gaps_[at] = gaps_.back();
    gaps_.pop_back();
  }

  void search_gaps() {
    const auto todo = worst(gaps_.size(), [](const Gap&) { return true; });
    result_.gaps = int(todo.size());
    if (todo.empty()) return;
    progress_.gaps = result_.gaps;
    report(Progress::Phase::Searching);
    try {
      know_bounds();
    } catch (const Stopped&) {
      result_.open_gaps = result_.gaps;
      return;
    } catch (const OutOfMemory&) {
      result_.open_gaps = result_.gaps;
      result_.short_of_memory = true;
      return;
    }
    std::vector<std::vector<Solution>> found(todo.size());
    std::vector<char> done(todo.size(), 0);
    const Effort effort{std::uint64_t(options_.box_sums), SIZE_MAX,
                        todo.size() == 1 ? options_.threads : 1};
    std::atomic<bool> full{false};
    parallel(todo.size(), options_.threads, [&](std::size_t i) {
      if (token_.expired()) return;
      try {
        search_box(whole_, box_of(gaps_[todo[i]]), effort, token_, found[i]);
        done[i] = 1;
        ++progress_.done;
      } catch (const Stopped&) {
      } catch (const OutOfMemory&) {
        full = true;
      }
    });
    result_.short_of_memory |= full;
    result_.open_gaps = 0;
    for (std::size_t i = 0; i < todo.size(); ++i) {
      result_.open_gaps += !done[i];
      divide(todo[i], found[i], done[i] ? target_ : kInfinity);
    }
  }

  // Eliminates a small problem once, over the whole plane; false if that takes too long.
  bool search_directly(double most) {
    if (gaps_.empty()) return true;
    if (options_.hull_only || most <= 0) return false;
    const Box box{result_.points[1].cost.time - 1, result_.points[0].cost.memory() - 1, {}};
    const auto sums = std::uint64_t(most);
    try {
      know_bounds();
      std::vector<Solution> found;
      search_box(whole_, box, {sums, SIZE_MAX, options_.threads}, token_, found);
      for (Solution& point : found) add_point(std::move(point));
      gaps_.clear();
      return true;
    } catch (const OverBudget&) {
    } catch (const OutOfMemory&) {
    } catch (const Stopped&) {
    }
    return false;
  }

  Prepared& whole_;
  const Options& options_;
  const Token& token_;
  const Token& last_;
  Progress& progress_;
  const std::vector<double> levels_;
  double target_ = 0;  // the bound to reach
  std::vector<Support> supports_;
  std::vector<Gap> gaps_;
  Result result_;
  std::pair<std::ptrdiff_t, std::ptrdiff_t> known_{};  // range of known points in the result
};

}  // namespace

Result solve_frontier(Prepared& whole, const Options& options, const Until& until,
                      Progress& progress) {
  return Frontier(whole, options, until, progress).run();
}

}  // namespace tensoropt::search
