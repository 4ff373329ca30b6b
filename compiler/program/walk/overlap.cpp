#include "overlap.hpp"

#include <algorithm>
#include <limits>
#include <span>
#include <tuple>
#include <utility>

namespace tensoropt::program {
namespace {

using Number = std::int32_t;
using What = Overlapped::What;
// Rounds of fewer starts, if memory is short. Ablation: overlap-rounds.
constexpr int kRounds = 8;
// Rounds of wider windows. Ablation: overlap-sweeps.
constexpr int kSweeps = 8;
// Rounds of windows that gain nothing. Ablation: overlap-drops.
constexpr int kDrops = 3;
// Halvings of the limit on fused collectives. Ablation: overlap-halves.
constexpr int kHalves = 4;
constexpr double kExposed = 0.01;  // share of a collective's time that may stay exposed

constexpr double kEndless = std::numeric_limits<double>::infinity();
constexpr std::int64_t kNoLimit =
    std::numeric_limits<std::int64_t>::max() / 2;  // sums do not overflow

// A task, or fused collectives. It begins before the unit at `start`, and is waited for before the
// unit at `wait`. If it is not started early, these are its own place and the next.
struct Unit {
  std::span<const Number> members;
  double compute_s = 0, sent_s = 0;
  Beside beside = Beside::Never;
  std::uint8_t part = 0;
  Number ready = 0, deadline = 0;  // the first place to begin at, the last to wait at
  Number start = 0, wait = 0;
  Number read_until = 0, made_until = 0;  // last places at which these are live anyway
  Number leads_to = -1;                   // the collective that it runs right before, if it leads
  std::int64_t read_bytes = 0, made_bytes = 0;
  bool leaves = false;  // its result leaves the program
  bool lands = false;   // its result overwrites old state, but is stored elsewhere while in flight
  bool barred = false;

  bool is_started(Number own) const { return start < own || wait > own + 1; }
};

class Overlapper {
 public:
  Overlapper(const Tasks& tasks, const Joined& joined, const std::vector<CollectiveTime>& times,
             const Overlapping& how)
      : tasks_(tasks), how_(how), unit_of_(places(joined)) {
    for (const auto& members : units_of(joined)) add_unit(members, times);
    find_needs();
    find_leads();
    find_ends();
    own_alive_ = alive_bytes(tasks, Places(unit_of_));
  }

  // Finds nothing if nothing gains. With a peak to keep, windows that exceed it are given up:
  // delayed tasks keep more bytes live than was counted before.
  Overlapped run() {
    const std::int64_t peak = how_.keeps_peak ? highest(own_alive_) : kNoLimit;
    for (int round = 0; round < kRounds; ++round) {
      reset();
      widen(peak);
      begin_later();
      Overlapped found = settled();
      const std::vector<std::int64_t> alive = alive_bytes(tasks_, found.places);
      found.peak = highest(alive);
      if (found.peak <= peak) {
        found.any = found.any && found.hidden_s[0] + found.hidden_s[1] > 0;
        return found;
      }
      for (std::size_t at = 0; at < alive.size(); ++at)
        if (alive[at] > peak) bar(Number(at), found.places);
    }
    return {};
  }

 private:
  // The number of a unit's run or start; its wait has the next number.
  static Number event(Number unit, bool waits) { return 2 * unit + Number(waits); }
  Number count() const { return Number(units_.size()); }
  bool is_started(Number unit) const { return units_[unit].is_started(unit); }

  void add_unit(std::span<const Number> members, const std::vector<CollectiveTime>& times) {
    Unit unit{.members = members};
    unit.beside = tasks_.beside[members.front()];
    unit.part = tasks_.part[members.front()];
    unit.sent_s = group_s(tasks_, times, members);
    if (unit.sent_s <= 0) unit.beside = Beside::Never;
    for (const Number task : members) {
      const bool stays = tasks_.makes[task].empty() && tasks_.lands[task] == 0;
      if (stays || unit.beside == Beside::Blocks) unit.beside = Beside::Never;
      unit.compute_s += tasks_.compute_s[task];
      for (const Number tensor : tasks_.reads[task]) unit.read_bytes += tasks_.size[tensor];
      for (const Number tensor : tasks_.makes[task]) unit.made_bytes += tasks_.size[tensor];
      unit.made_bytes += tasks_.lands[task];
      unit.lands = unit.lands || tasks_.lands[task] > 0;
    }
    units_.push_back(unit);
  }

  void find_needs() {
    for (Number unit = 0; unit < count(); ++unit) {
      const std::size_t begin = needs_.values.size();
      for (const Number task : units_[unit].members)
        for (const Number from : tasks_.after[task]) needs_.values.push_back(unit_of_[from]);
      auto& values = needs_.values;
      std::sort(values.begin() + begin, values.end());
      values.erase(std::unique(values.begin() + begin, values.end()), values.end());
      needs_.close();
    }
    std::vector<std::pair<Number, Number>> pairs;
    for (Number unit = 0; unit < count(); ++unit)
      for (const Number from : needs_[unit]) pairs.emplace_back(from, unit);
    std::sort(pairs.begin(), pairs.end());
    auto next = pairs.begin();
    for (Number unit = 0; unit < count(); ++unit) {
      for (; next != pairs.end() && next->first == unit; ++next)
        readers_.values.push_back(next->second);
      readers_.close();
    }
  }

  // Finds the units that run right before the start of a collective, such as a cast of a parameter
  // that is gathered: they read no transient tensors, and only the collective waits for them.
  void find_leads() {
    for (Number unit = 0; unit < count(); ++unit) {
      std::vector<Number> found, left;
      if (units_[unit].beside != Beside::Never && !units_[unit].lands) left.push_back(unit);
      while (!left.empty()) {
        const Number reader = left.back();
        left.pop_back();
        for (const Number from : needs_[reader]) {
          Unit& own = units_[from];
          if (own.beside != Beside::Never || own.sent_s > 0 || own.read_bytes > 0) continue;
          if (own.part != units_[unit].part || readers_[from].size() > 1) continue;
          own.leads_to = unit;
          found.push_back(from);
          left.push_back(from);
        }
      }
      std::sort(found.begin(), found.end());
      leads_.values.insert(leads_.values.end(), found.begin(), found.end());
      leads_.close();
    }
  }

  // Returns whether a unit runs with the start of its collective instead of in its place.
  bool leads(Number unit) const {
    const Number to = units_[unit].leads_to;
    return to >= 0 && is_started(to) && units_[to].start <= unit;
  }

  void find_ends() {
    const Number end = count() - 1;
    std::vector<Number> part_begin(count(), 0);
    for (Number unit = 1; unit < count(); ++unit)
      part_begin[unit] = units_[unit].part == units_[unit - 1].part ? part_begin[unit - 1] : unit;
    Number part_end = end;
    for (Number unit = end; unit >= 0; --unit) {
      if (unit < end && units_[unit].part != units_[unit + 1].part) part_end = unit + 1;
      units_[unit].deadline = part_end;
      units_[unit].leaves = true;
      units_[unit].ready = part_begin[unit];
    }
    const Tails tails = tails_of(tasks_);
    for (Number unit = end; unit >= 0; --unit) {
      const Number task = units_[unit].members.front();
      const bool is_tail = unit < end && tasks_.key[task] < 0 && tails.is_tail[task] &&
                           units_[unit].beside == Beside::Never;
      for (const Number from : needs_[unit]) {
        Unit& needed = units_[from];
        needed.deadline = std::min(needed.deadline, is_tail ? units_[unit].deadline : unit);
        if (needed.part == units_[unit].part && unit < end && !is_tail) needed.leaves = false;
        make_ready(unit, from);
      }
      for (const Number lead : leads_[unit])
        for (const Number from : needs_[lead]) make_ready(unit, from);
    }
    const std::vector<Span> spans = spans_of(tasks_, Places(unit_of_));
    for (Unit& unit : units_)
      for (const Number task : unit.members) {
        for (const Number tensor : tasks_.reads[task])
          unit.read_until = std::max(unit.read_until, spans[tensor].last);
        for (const Number tensor : tasks_.makes[task])
          unit.made_until = std::max(unit.made_until, spans[tensor].last);
      }
  }

  void make_ready(Number unit, Number from) {
    if (units_[from].leads_to != unit) units_[unit].ready = std::max(units_[unit].ready, from + 1);
  }

  void reset() {
    alive_ = own_alive_;
    for (Number unit = 0; unit < count(); ++unit) {
      units_[unit].start = unit;
      units_[unit].wait = unit + 1;
    }
  }

  // Bars the collectives that are in flight at a place among the events.
  void bar(Number place, const Places& places) {
    for (Unit& unit : units_) {
      const Number first = unit.members.front();
      const bool starts = places.until[first] > places.place[first];
      if (starts && places.place[first] <= place && place <= places.until[first])
        unit.barred = true;
    }
  }

  struct Clocked {
    std::vector<Number> order;
    std::vector<double> begin_s, end_s, stall_s;  // of each unit
    std::vector<double> now_s;                    // when its place is reached
    std::array<double, 2> hidden_s{};
  };

  // Widens windows of collectives that the program waits for, and gives up windows that gain too
  // little.
  void widen(std::int64_t limit) {
    for (int drop = 0; drop <= kDrops; ++drop) {
      for (int sweep = 0; sweep < kSweeps; ++sweep) {
        const Clocked clocks = clocked();
        wait_sooner(clocks);
        const std::vector<double> late_s = lateness_s(clocks);
        bool any = false;
        for (Number unit = 0; unit < count(); ++unit)
          if (late_s[unit] > kExposed * units_[unit].sent_s)
            any = widen(unit, late_s[unit] * (1 - how_.share), limit) || any;
        if (!any) break;
      }
      const std::vector<double> stalls = clocked().stall_s;
      const bool some = give_up(stalls, false), others = give_up(stalls, true);
      if (!some && !others) break;
    }
    const std::int64_t taken = std::max(highest(own_alive_), highest(alive_));
    for (Number unit = 0; unit < count(); ++unit)
      if (is_started(unit) && !units_[unit].lands)
        wait_later(units_[unit], std::min(limit, taken), kEndless);
    wait_sooner(clocked());
  }

  // Waits for results that overwrite old state once they end: until then they take memory.
  void wait_sooner(const Clocked& clocks) {
    for (Number number = 0; number < count(); ++number) {
      Unit& unit = units_[number];
      if (!unit.lands || !is_started(number)) continue;
      Number wait = unit.wait;
      while (wait > unit.start + 1 && clocks.now_s[wait - 1] >= clocks.end_s[number]) --wait;
      for (; unit.wait > wait; --unit.wait)
        alive_[unit.wait - 1] -= landing_bytes(number, unit.wait - 1);
    }
  }

  // Returns how much earlier each collective would have to begin so that nothing waits for it. This
  // includes waits for collectives that follow it on the link without a pause.
  std::vector<double> lateness_s(const Clocked& clocks) const {
    std::vector<double> late_s(units_.size(), 0);
    std::vector<Number> row;
    double end_s = 0, row_s = 0;
    const auto close = [&] {
      double left_s = row_s;
      for (const Number unit : row) {
        if (left_s > 0) late_s[unit] = row_s;
        left_s -= clocks.stall_s[unit];
      }
      row.clear();
      row_s = 0;
    };
    for (const Number each : clocks.order) {
      const Number unit = each / 2;
      if (each % 2 || units_[unit].sent_s <= 0) continue;
      if (clocks.begin_s[unit] > end_s) close();
      row.push_back(unit);
      row_s += clocks.stall_s[unit];
      end_s = clocks.end_s[unit];
    }
    close();
    return late_s;
  }

  // Gives up windows that gain too little, of results that leave the program or of others. Results
  // that leave keep their windows if the program would end later without: an unstarted collective
  // waits in its place for all in flight, while operators could run.
  bool give_up(const std::vector<double>& stalls, bool leaves) {
    const auto before = std::pair(units_, alive_);
    const double before_s = leaves ? hidden_s() : 0;
    bool any = false;
    for (Number unit = 0; unit < count(); ++unit)
      if (is_started(unit) && units_[unit].leaves == leaves && gain_s(unit, stalls[unit]) <= 0) {
        give_up(unit);
        any = true;
      }
    if (!any || !leaves || hidden_s() >= before_s) return any;
    std::tie(units_, alive_) = before;
    return false;
  }

  double gain_s(Number unit, double stall_s) const {
    const Unit& own = units_[unit];
    return (own.sent_s - stall_s) * (1 - how_.share) - start_s(own);
  }

  double start_s(const Unit& unit) const {
    return how_.start_s + (unit.leaves ? how_.copied_s_per_byte * double(unit.made_bytes) : 0);
  }

  // Starts a collective earlier, or else waits for it later, until its window has `seconds` more of
  // operators. Returns whether it could.
  bool widen(Number number, double seconds, std::int64_t limit) {
    Unit& unit = units_[number];
    if (unit.beside == Beside::Never || unit.barred) return false;
    const auto before = std::pair(unit.start, unit.wait);
    const std::int64_t begun = unit.lands && !is_started(number) ? unit.made_bytes : 0;
    if (begun > 0 && alive_[number] + begun > limit) return false;
    while (seconds > 0 && unit.start > unit.ready &&
           alive_[unit.start - 1] + started_bytes(number, unit.start - 1) <= limit) {
      --unit.start;
      alive_[unit.start] += started_bytes(number, unit.start);
      seconds -= units_[unit.start].compute_s;
    }
    wait_later(unit, limit, seconds);
    const bool any = std::pair(unit.start, unit.wait) != before;
    if (any) alive_[number] += begun;
    return any;
  }

  void wait_later(Unit& unit, std::int64_t limit, double seconds) {
    while (seconds > 0 && unit.wait < unit.deadline) {
      const std::int64_t more = held_bytes(unit, unit.wait);
      if (more > 0 && alive_[unit.wait] + more > limit) return;
      alive_[unit.wait] += more;
      seconds -= units_[unit.wait].compute_s;
      ++unit.wait;
    }
  }

  // Returns the bytes at a place before a collective that are live only if it has started there.
  std::int64_t started_bytes(Number unit, Number place) const {
    std::int64_t bytes = units_[unit].made_bytes;
    for (const Number lead : leads_[unit])
      if (place < lead) bytes += units_[lead].made_bytes;
    return bytes;
  }

  // Returns the bytes at a place after a collective that are live only until its wait.
  static std::int64_t held_bytes(const Unit& unit, Number place) {
    std::int64_t bytes = place > unit.made_until ? unit.made_bytes : 0;
    if (unit.beside == Beside::Holds && place > unit.read_until) bytes += unit.read_bytes;
    return bytes;
  }

  // The same for results that overwrite old state, which are live in the whole window.
  std::int64_t landing_bytes(Number number, Number place) const {
    const Unit& unit = units_[number];
    return place > number ? held_bytes(unit, place) : unit.made_bytes;
  }

  void give_up(Number number) {
    Unit& unit = units_[number];
    if (unit.lands) {
      for (Number place = unit.start; place < unit.wait; ++place)
        alive_[place] -= landing_bytes(number, place);
      unit.start = number;
      unit.wait = number + 1;
    }
    for (; unit.start < number; ++unit.start)
      alive_[unit.start] -= started_bytes(number, unit.start);
    for (; unit.wait > number + 1; --unit.wait)
      alive_[unit.wait - 1] -= held_bytes(unit, unit.wait - 1);
    unit.barred = true;
  }

  // A range of places before the next unstarted collective, and the seconds of its operators during
  // which no transfer runs.
  struct Gap {
    Number begin, end;
    double left_s;
  };

  // An unstarted collective waits for all that began before it. So a started one begins after it if
  // operators hide it there, and if the program then ends earlier.
  void begin_later() {
    const std::vector<Unit> before = units_;
    std::vector<double> passed_s(units_.size() + 1, 0);
    std::vector<Gap> gaps{{0, count(), 0}};
    std::vector<Number> started, gap_of(units_.size(), 0);
    for (Number unit = 0; unit < count(); ++unit) {
      passed_s[unit + 1] = passed_s[unit] + units_[unit].compute_s;
      gap_of[unit] = Number(gaps.size()) - 1;
      if (is_started(unit)) started.push_back(unit);
      else if (units_[unit].sent_s > 0) {
        gaps.back().end = unit;
        gaps.push_back({unit + 1, count(), 0});
      }
    }
    if (started.empty() || gaps.size() == 1) return;
    for (Gap& gap : gaps) gap.left_s = passed_s[gap.end] - passed_s[gap.begin];
    std::stable_sort(started.begin(), started.end(),
                     [&](Number a, Number b) { return units_[a].start < units_[b].start; });
    const double before_s = hidden_s();
    for (const Number unit : started) move_to_gap(units_[unit], gaps, gap_of, passed_s);
    if (hidden_s() <= before_s) units_ = before;
  }

  // Starts a collective in the first gap before its wait that hides all of it, or else the most.
  static void move_to_gap(Unit& unit, std::vector<Gap>& gaps, const std::vector<Number>& gap_of,
                          const std::vector<double>& passed_s) {
    double best_s = -1;
    std::size_t best = 0;
    for (auto at = std::size_t(gap_of[unit.start]); at < gaps.size(); ++at) {
      const Gap& gap = gaps[at];
      const Number begin = std::max(gap.begin, unit.start);
      if (begin > unit.start && begin >= unit.wait) break;
      const double room_s = passed_s[std::min(gap.end, unit.wait)] - passed_s[begin];
      const double hides_s = std::min({gap.left_s, room_s, unit.sent_s});
      if (hides_s <= best_s) continue;
      best = at;
      best_s = hides_s;
      if (hides_s >= unit.sent_s) break;
    }
    gaps[best].left_s -= best_s;
    unit.start = std::max(gaps[best].begin, unit.start);
  }

  double hidden_s() const {
    const auto& [own_s, update_s] = clocked().hidden_s;
    return own_s + update_s;
  }

  // Lists of the units that begin before a place, or are waited for there.
  struct Due {
    std::vector<Number> first, next;
    explicit Due(std::size_t count) : first(count, -1), next(count, -1) {}
    void add(Number place, Number unit) { next[unit] = std::exchange(first[place], unit); }
  };

  // Returns the events in order: each when it is due, or once its inputs exist.
  std::vector<Number> listed() const {
    const auto size = std::size_t(count());
    std::vector<Number> missing(2 * size, 1), order;
    std::vector<std::uint8_t> due(2 * size, 0);
    Due starts(size), waits(size);
    for (Number unit = count(); unit-- > 0;) {
      missing[event(unit, false)] = Number(needs_[unit].size());
      if (!is_started(unit)) continue;
      starts.add(units_[unit].start, unit);
      waits.add(units_[unit].wait, unit);
    }
    const auto fulfil = [&](Number need) {
      if (--missing[need] == 0 && due[need]) order.push_back(need);
    };
    const auto list = [&](Number one) {
      due[one] = 1;
      if (missing[one]) return;
      std::size_t at = order.size();
      order.push_back(one);
      for (; at < order.size(); ++at) {
        const Number done = order[at], unit = done / 2;
        if (done % 2 == 0 && is_started(unit)) fulfil(event(unit, true));
        else
          for (const Number reader : readers_[unit]) fulfil(event(reader, false));
      }
    };
    for (Number place = 0; place < count(); ++place) {
      for (Number unit = starts.first[place]; unit >= 0; unit = starts.next[unit]) {
        for (const Number lead : leads_[unit])
          if (lead >= place) list(event(lead, false));
        list(event(unit, false));
      }
      for (Number unit = waits.first[place]; unit >= 0; unit = waits.next[unit])
        list(event(unit, true));
      if (!is_started(place) && !leads(place)) list(event(place, false));
    }
    return order;
  }

  // Runs the events on two clocks. Operators take longer during a transfer; an unstarted collective
  // waits for started ones.
  Clocked clocked() const {
    Clocked found{listed(),
                  std::vector<double>(count(), 0),
                  std::vector<double>(count(), 0),
                  std::vector<double>(count(), 0),
                  std::vector<double>(count(), 0),
                  {}};
    double now = 0, busy = 0;
    for (const Number each : found.order) {
      const Number number = each / 2;
      const Unit& unit = units_[number];
      double& stall = found.stall_s[number];
      const double before = now;
      if (each % 2) {
        stall = std::max(0.0, found.end_s[number] - now);
        now += stall;
        if (unit.leaves) now += how_.copied_s_per_byte * double(unit.made_bytes);
      } else if (is_started(number)) {
        now += how_.start_s;
        found.begin_s[number] = std::max(now, busy);
        found.end_s[number] = busy = found.begin_s[number] + unit.sent_s;
      } else {
        found.begin_s[number] = found.now_s[number] = now;
        now = computed(now, busy, unit.compute_s);
        if (unit.sent_s > 0) {
          if (unit.beside != Beside::Never) found.begin_s[number] = std::max(now, busy);
          now = busy = std::max(now, busy) + unit.sent_s;
          stall = unit.sent_s;
        }
        found.end_s[number] = now;
      }
      found.hidden_s[unit.part] -= now - before;
    }
    for (const Unit& unit : units_) found.hidden_s[unit.part] += unit.compute_s + unit.sent_s;
    for (Number unit = count() - 1; unit-- > 0;)
      if (is_started(unit)) found.now_s[unit] = found.now_s[unit + 1];
    return found;
  }

  // Returns the end of `seconds` of operators that begin now, with transfers until `busy`.
  double computed(double now, double busy, double seconds) const {
    const double beside = std::max(0.0, busy - now), done = beside * (1 - how_.share);
    return seconds <= done ? now + seconds / (1 - how_.share) : now + beside + seconds - done;
  }

  Overlapped settled() const {
    const Clocked clocks = clocked();
    Overlapped found;
    std::vector<Number> place(2 * units_.size(), 0);
    for (const Number each : clocks.order) {
      const Number unit = each / 2;
      const What what = each % 2 ? What::Waits : is_started(unit) ? What::Starts : What::Runs;
      place[each] = Number(found.events.size());
      found.events.push_back({units_[unit].members.front(), what});
      found.any = found.any || what == What::Starts;
    }
    found.places = Places(unit_of_);
    found.begin_s.resize(tasks_.count());
    for (Number unit = 0; unit < count(); ++unit)
      for (const Number task : units_[unit].members) {
        const Number own = place[event(unit, false)];
        found.places.place[task] = own;
        found.places.until[task] = is_started(unit) ? place[event(unit, true)] : own;
        found.places.holds[task] = units_[unit].beside == Beside::Holds;
        found.begin_s[task] = clocks.begin_s[unit];
      }
    found.hidden_s = clocks.hidden_s;
    return found;
  }

  const Tasks& tasks_;
  const Overlapping how_;
  const std::vector<Number> unit_of_;  // per task
  std::vector<Unit> units_;
  Rows needs_, readers_, leads_;  // units
  std::vector<std::int64_t> own_alive_, alive_;
};

// Returns the seconds of the longest fused collective.
double longest_s(const Joined& joined, const Tasks& tasks,
                 const std::vector<CollectiveTime>& times) {
  double longest = 0;
  for (const auto& members : units_of(joined))
    if (members.size() > 1) longest = std::max(longest, group_s(tasks, times, members));
  return longest;
}

// Overlaps a program once, within its peak or with ample memory.
Overlapped overlap_once(const Tasks& tasks, const Joined& joined,
                        const std::vector<CollectiveTime>& times, Overlapping how,
                        bool keeps_peak) {
  how.keeps_peak = keeps_peak;
  const bool can = std::any_of(tasks.beside.begin(), tasks.beside.end(),
                               [](Beside one) { return one != Beside::Never; });
  if (how.gains() && can)
    if (Overlapped found = Overlapper(tasks, joined, times, how).run(); found.any) return found;
  Overlapped plain;
  plain.places = Places(places(joined));
  plain.peak = highest(alive_bytes(tasks, plain.places));
  return plain;
}

// Returns the program within its peak that hides more: a search for it, or the program with ample
// memory if that fits.
Overlapped within_peak(const Tasks& tasks, const Joined& joined,
                       const std::vector<CollectiveTime>& times, const Overlapping& how,
                       Overlapped ample) {
  Overlapped found = overlap_once(tasks, joined, times, how, true);
  const std::int64_t peak = highest(alive_bytes(tasks, Places(places(joined))));
  const bool fits = ample.peak <= peak && ample.total_s() > found.total_s();
  return fits ? std::move(ample) : std::move(found);
}

}  // namespace

Overlapped overlap(const Tasks& tasks, const Joined& joined,
                   const std::vector<CollectiveTime>& times, const Overlapping& how) {
  Overlapped ample = overlap_once(tasks, joined, times, how, false);
  if (!how.keeps_peak || !ample.any) return ample;
  return within_peak(tasks, joined, times, how, std::move(ample));
}

std::pair<Joined, Overlapped> join_beside(const Tasks& tasks,
                                          const std::vector<CollectiveTime>& times,
                                          const Overlapping& how) {
  struct Trial {
    Joined joined;
    Overlapped overlapped;
    double saved_s = 0;
    double gain_s() const { return saved_s + overlapped.total_s(); }
  };
  std::vector<Trial> trials;
  const auto add = [&](double most_s) {
    Joined joined = join(tasks, times, most_s);
    Overlapped overlapped = overlap_once(tasks, joined, times, how, false);
    double saved = 0;
    for (const auto& [seconds, part] : saved_s(joined, tasks, times)) saved += seconds;
    trials.push_back({std::move(joined), std::move(overlapped), saved});
  };
  add(kEndless);
  if (how.gains() && trials.front().joined.any) {
    double most_s = longest_s(trials.front().joined, tasks, times);
    for (int half = 0; half < kHalves; ++half) add(most_s /= 2);
    add(0);
  }
  std::stable_sort(trials.begin(), trials.end(),
                   [](const Trial& a, const Trial& b) { return a.gain_s() > b.gain_s(); });
  // With a peak to keep, a trial hides at most as much: others need not be tried.
  const double most_s = trials.front().gain_s();
  Trial* best = nullptr;
  for (Trial& trial : trials) {
    if (best && trial.gain_s() <= best->gain_s()) break;
    if (how.keeps_peak && trial.overlapped.any)
      trial.overlapped = within_peak(tasks, trial.joined, times, how, std::move(trial.overlapped));
    if (!best || trial.gain_s() > best->gain_s()) best = &trial;
  }
  best->overlapped.is_limited = best->gain_s() < most_s;
  return {std::move(best->joined), std::move(best->overlapped)};
}

}  // namespace tensoropt::program
