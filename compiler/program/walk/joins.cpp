#include "joins.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <tuple>

namespace tensoropt::program {
namespace {

using Number = std::int32_t;
constexpr Number kEnd = std::numeric_limits<Number>::max();
// Rounds of joining. Ablation: join-rounds.
constexpr int kRounds = 4;

// Returns the seconds of a fused collective of `bytes` bytes, packing included.
double joined_s(const CollectiveTime& time, double bytes) {
  return time.at(bytes) + time.packing_s_per_byte * bytes;
}

// Collectives that are to be fused.
struct Bucket {
  std::vector<Number> members;
  Number slot;  // it runs before this task
  Number deadline;
  double bytes;
  std::int64_t waiting = 0;     // operands of members without other readers left
  std::vector<Number> pending;  // operands of members that others may read before the slot
};

class Joiner {
 public:
  Joiner(const Tasks& tasks, const std::vector<CollectiveTime>& times, double most_s)
      : tasks_(tasks), times_(times), most_s_(most_s), own_place_(tasks.count()),
        tails_(tails_of(tasks)) {
    for (std::size_t i = 0; i < own_place_.size(); ++i) own_place_[i] = Number(i);
    own_alive_ = alive_bytes(tasks, Places(own_place_));
    last_.assign(tasks.size.size(), -1);
    for (std::size_t task = 0; task < tasks.count(); ++task)
      for (const auto& row : {tasks.makes[task], tasks.reads[task]})
        for (const Number tensor : row) last_[tensor] = Number(task);
    find_ends();
  }

  Joined run() {
    const std::int64_t peak = highest(own_alive_);
    std::int64_t limit = peak;
    for (int round = 0; round < kRounds; ++round) {
      Joined found = ordered(grow(limit));
      if (!found.any || found.peak <= peak) return found;
      limit -= found.peak - peak;  // tensors after a collective count too
    }
    return ordered({});
  }

 private:
  std::size_t count() const { return tasks_.count(); }
  bool is_collective(Number task) const { return tasks_.key[task] >= 0; }

  // Finds the tasks between which each collective can run, with the others in place.
  void find_ends() {
    ready_.assign(count(), 0);
    deadline_.assign(count(), kEnd);
    for (std::size_t task = 0; task < count(); ++task) {
      for (const Number from : tasks_.after[task]) {
        const bool moves = is_collective(from) || tails_.is_tail[from];
        ready_[task] = std::max(ready_[task], moves ? Number(task) : from + 1);
        if (task + 1 == count() || !tails_.is_tail[task])
          deadline_[from] = std::min(deadline_[from], Number(task));
      }
    }
  }

  double time_s(Number key, double bytes) const { return times_[key].at(bytes); }

  // Returns the seconds saved by adding `bytes` to a bucket of `joined` bytes. The first addition
  // pays for packing both.
  double saved_s(Number key, double joined, double bytes, bool is_first) const {
    const double packed = is_first ? joined + bytes : bytes;
    return time_s(key, joined) + time_s(key, bytes) - time_s(key, joined + bytes) -
           packed * times_[key].packing_s_per_byte;
  }

  std::vector<Bucket> grow(std::int64_t limit) {
    alive_ = own_alive_;
    std::vector<Bucket> done;
    std::map<std::tuple<Number, std::uint8_t, Number>, Bucket> open;
    for (std::size_t at = 0; at < count(); ++at) {
      const auto task = Number(at);
      const Number key = tasks_.key[at];
      if (key < 0 || saved_s(key, tasks_.bytes[at], tasks_.bytes[at], true) <= 0) continue;
      const std::tuple kind{key, tasks_.part[at], tails_.is_tail[at] ? tails_.level[at] + 1 : 0};
      const auto found = open.find(kind);
      if (found == open.end()) {
        open.emplace(kind, begun(task));
      } else if (!takes(found->second, task, limit)) {
        done.push_back(std::move(found->second));
        found->second = begun(task);
      }
    }
    for (auto& [kind, bucket] : open) done.push_back(std::move(bucket));
    std::erase_if(done, [](const Bucket& bucket) { return bucket.members.size() < 2; });
    return done;
  }

  Bucket begun(Number task) const {
    const auto reads = tasks_.reads[task];
    return {{task}, task, deadline_[task], tasks_.bytes[task], 0, {reads.begin(), reads.end()}};
  }

  // Adds a collective to a bucket if that is possible, saves time and fits into memory.
  bool takes(Bucket& bucket, Number task, std::int64_t limit) {
    const Number deadline = std::min(bucket.deadline, deadline_[task]);
    const bool is_first = bucket.members.size() == 1;
    const double bytes = bucket.bytes + tasks_.bytes[task];
    if (saved_s(tasks_.key[task], bucket.bytes, tasks_.bytes[task], is_first) <= 0) return false;
    if (joined_s(times_[tasks_.key[task]], bytes) > most_s_) return false;
    Number slot = std::max(bucket.slot, ready_[task]);  // as early as possible, else in its place
    if (slot > deadline || !fits(bucket, task, slot, limit)) {
      slot = std::max(bucket.slot, task);
      if (slot > deadline || !fits(bucket, task, slot, limit)) return false;
    }
    advance(bucket, slot);
    bucket.members.push_back(task);
    bucket.deadline = deadline;
    bucket.bytes += tasks_.bytes[task];
    const auto reads = tasks_.reads[task];
    bucket.pending.insert(bucket.pending.end(), reads.begin(), reads.end());
    return true;
  }

  // Adds the bytes that live longer, unless some place would then exceed `limit`.
  bool fits(const Bucket& bucket, Number task, Number slot, std::int64_t limit) {
    const Number from = bucket.slot;
    const Number until = std::max(slot, task) + 1;
    more_.assign(std::size_t(until - from) + 1, 0);
    const auto add = [&](Number first, Number last, std::int64_t bytes) {  // last not included
      first = std::max(first, from);
      if (first >= last) return;
      more_[first - from] += bytes;
      more_[last - from] -= bytes;
    };
    add(from + 1, slot + 1, bucket.waiting);
    for (const Number tensor : bucket.pending)
      add(std::max(last_[tensor], from) + 1, slot + 1, tasks_.size[tensor]);
    for (const Number tensor : tasks_.reads[task])
      add(last_[tensor] + 1, slot + 1, tasks_.size[tensor]);
    for (const Number tensor : tasks_.makes[task]) add(slot, task, tasks_.size[tensor]);
    for (std::size_t i = 1; i < more_.size(); ++i) more_[i] += more_[i - 1];
    for (std::size_t i = 0; i + 1 < more_.size(); ++i)
      if (more_[i] > 0 && alive_[from + i] + more_[i] > limit) return false;
    for (std::size_t i = 0; i + 1 < more_.size(); ++i) alive_[from + i] += more_[i];
    return true;
  }

  // Moves a bucket to a later slot.
  void advance(Bucket& bucket, Number slot) {
    bucket.slot = slot;
    std::erase_if(bucket.pending, [&](Number tensor) {
      const bool waits = last_[tensor] < slot;
      if (waits) bucket.waiting += tasks_.size[tensor];
      return waits;
    });
  }

  Joined ordered(std::vector<Bucket> buckets) const {
    Joined found;
    found.group.assign(count(), -1);
    for (const Bucket& bucket : buckets)
      for (const Number task : bucket.members) found.group[task] = bucket.members.front();
    std::sort(buckets.begin(), buckets.end(), [](const Bucket& a, const Bucket& b) {
      return std::pair(a.slot, a.members.front()) < std::pair(b.slot, b.members.front());
    });
    found.any = !buckets.empty() && emit(buckets, found);
    if (!found.any) {
      found.group.assign(count(), -1);
      found.order = own_place_;
    }
    found.peak = highest(found.any ? alive_bytes(tasks_, Places(places(found))) : own_alive_);
    return found;
  }

  // Lists the tasks in order: a bucket before the task of its slot, its dependents after it.
  // Returns whether all could be listed.
  bool emit(const std::vector<Bucket>& buckets, Joined& found) const {
    std::vector<std::uint8_t> listed(count(), 0);
    std::vector<std::vector<Number>> waiting;
    const auto can = [&](const std::vector<Number>& tasks) {
      return std::all_of(tasks.begin(), tasks.end(), [&](Number task) {
        const auto after = tasks_.after[task];
        return std::all_of(after.begin(), after.end(), [&](Number one) { return listed[one]; });
      });
    };
    const auto list = [&](const std::vector<Number>& tasks) {
      for (const Number task : tasks) listed[task] = 1;
      found.order.insert(found.order.end(), tasks.begin(), tasks.end());
    };
    const auto flush = [&] {
      for (bool goes_on = true; goes_on && !waiting.empty();) {
        const auto before = waiting.size();
        std::erase_if(waiting, [&](const std::vector<Number>& tasks) {
          const bool now = can(tasks);
          if (now) list(tasks);
          return now;
        });
        goes_on = waiting.size() < before;
      }
    };
    auto next = buckets.begin();
    for (std::size_t at = 0; at < count(); ++at) {
      for (; next != buckets.end() && next->slot <= Number(at); ++next)
        waiting.push_back(next->members);
      flush();
      if (found.group[at] < 0) waiting.push_back({Number(at)});
      flush();
    }
    return waiting.empty();
  }

  const Tasks& tasks_;
  const std::vector<CollectiveTime>& times_;
  const double most_s_;
  std::vector<Number> own_place_, last_, ready_, deadline_;
  const Tails tails_;
  std::vector<std::int64_t> own_alive_, alive_, more_;
};

}  // namespace

double CollectiveTime::at(double bytes) const {
  double best = greatest ? 0 : std::numeric_limits<double>::infinity();
  for (const auto& [fixed_s, s_per_byte] : lines) {
    const double own = fixed_s + s_per_byte * bytes;
    best = greatest ? std::max(best, own) : std::min(best, own);
  }
  return (lines.empty() ? 0 : best) + s_per_root_byte * std::sqrt(bytes);
}

Joined join(const Tasks& tasks, const std::vector<CollectiveTime>& times, double most_s) {
  return Joiner(tasks, times, most_s).run();
}

double group_s(const Tasks& tasks, const std::vector<CollectiveTime>& times,
               std::span<const std::int32_t> members) {
  if (members.size() == 1) return tasks.sent_s[members.front()];
  double bytes = 0;
  for (const Number task : members) bytes += tasks.bytes[task];
  return joined_s(times[tasks.key[members.front()]], bytes);
}

std::vector<std::pair<double, std::uint8_t>> saved_s(const Joined& joined, const Tasks& tasks,
                                                     const std::vector<CollectiveTime>& times) {
  std::map<Number, std::pair<double, double>> groups;  // bytes, and seconds of each alone
  for (std::size_t task = 0; task < tasks.count(); ++task)
    if (const Number first = joined.group[task]; first >= 0) {
      auto& [bytes, seconds] = groups[first];
      bytes += tasks.bytes[task];
      seconds += times[tasks.key[task]].at(tasks.bytes[task]);
    }
  std::vector<std::pair<double, std::uint8_t>> saved;
  for (const auto& [first, sums] : groups) {
    const auto [bytes, seconds] = sums;
    saved.emplace_back(seconds - joined_s(times[tasks.key[first]], bytes), tasks.part[first]);
  }
  return saved;
}

std::vector<std::span<const std::int32_t>> units_of(const Joined& joined) {
  std::vector<std::span<const std::int32_t>> units;
  const auto& order = joined.order;
  for (std::size_t at = 0, end = 0; at < order.size(); at = end) {
    const Number group = joined.group[order[at]];
    for (end = at + 1; group >= 0 && end < order.size() && joined.group[order[end]] == group;)
      ++end;
    units.emplace_back(order.data() + at, end - at);
  }
  return units;
}

std::vector<std::int32_t> places(const Joined& joined) {
  std::vector<Number> place(joined.order.size());
  Number at = 0;
  for (const auto& unit : units_of(joined)) {
    for (const Number task : unit) place[task] = at;
    ++at;
  }
  return place;
}

}  // namespace tensoropt::program
