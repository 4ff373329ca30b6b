#include "tasks.hpp"

#include <algorithm>
#include <limits>

namespace tensoropt::program {
namespace {

using Number = std::int32_t;

}  // namespace

Tails tails_of(const Tasks& tasks) {
  const std::size_t count = tasks.count();
  const auto is_collective = [&](Number task) { return tasks.key[task] >= 0; };
  std::vector<Number> maker(tasks.size.size(), -1);
  std::vector<std::uint8_t> follows(count, 0), stays(count, 0);
  Tails found{std::vector<std::uint8_t>(count, 1), std::vector<Number>(count, 0)};
  for (std::size_t task = 0; task < count; ++task) {
    for (const Number tensor : tasks.makes[task]) maker[tensor] = Number(task);
    bool only = true, any = false;
    stays[task] = !is_collective(Number(task));
    for (const Number tensor : tasks.reads[task]) {
      const Number from = maker[tensor];
      stays[task] = stays[task] && from >= 0 && stays[from];
      only = only && from >= 0 && (is_collective(from) || follows[from] || stays[from]);
    }
    for (const Number from : tasks.after[task]) {
      if (!is_collective(from) && !follows[from]) continue;
      any = true;
      found.level[task] = std::max(found.level[task], found.level[from] + is_collective(from));
    }
    follows[task] = !is_collective(Number(task)) && only && any;
  }
  for (std::size_t task = count; task-- > 0;) {
    if (!is_collective(Number(task)) && !follows[task]) found.is_tail[task] = 0;
    for (const Number from : tasks.after[task])
      if (tasks.part[from] == tasks.part[task] && task + 1 < count && !found.is_tail[task])
        found.is_tail[from] = 0;
  }
  return found;
}

std::vector<Span> spans_of(const Tasks& tasks, const Places& places) {
  std::vector<Span> spans(tasks.size.size(), {std::numeric_limits<Number>::max(), -1});
  const auto include = [&](Number tensor, Number first, Number last) {
    Span& span = spans[tensor];
    span = {std::min(span.first, first), std::max(span.last, last)};
  };
  for (const Number tensor : tasks.given) include(tensor, 0, 0);
  for (std::size_t task = 0; task < tasks.count(); ++task) {
    const Number place = places.place[task], until = places.until[task];
    for (const Number tensor : tasks.makes[task]) include(tensor, place, until);
    for (const Number tensor : tasks.reads[task])
      include(tensor, place, places.holds[task] ? until : place);
  }
  return spans;
}

std::vector<std::int64_t> alive_bytes(const Tasks& tasks, const Places& places) {
  // Given tensors are live at the first place, even if nothing runs.
  const auto& until = places.until;
  const Number count = until.empty() ? 1 : *std::max_element(until.begin(), until.end()) + 1;
  std::vector<std::int64_t> bytes(std::size_t(count) + 1, 0);
  const std::vector<Span> spans = spans_of(tasks, places);
  for (std::size_t tensor = 0; tensor < spans.size(); ++tensor)
    if (spans[tensor].last >= 0) {
      bytes[spans[tensor].first] += tasks.size[tensor];
      bytes[spans[tensor].last + 1] -= tasks.size[tensor];
    }
  for (std::size_t task = 0; task < tasks.count(); ++task)
    if (until[task] > places.place[task]) {
      bytes[places.place[task]] += tasks.lands[task];
      bytes[until[task] + 1] -= tasks.lands[task];
    }
  for (std::size_t at = 1; at < bytes.size(); ++at) bytes[at] += bytes[at - 1];
  return bytes;
}

std::int64_t highest(const std::vector<std::int64_t>& bytes) {
  return bytes.empty() ? 0 : *std::max_element(bytes.begin(), bytes.end());
}

}  // namespace tensoropt::program
