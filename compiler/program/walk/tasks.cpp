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

std::vector<Tasks> divided(const Tasks& tasks, std::vector<Number> graph, std::size_t graphs) {
  constexpr Number kNone = -1;
  const std::size_t end = tasks.count() - 1;  // the return
  std::vector<Tasks> found(graphs);
  std::vector<Number> maker(tasks.size.size(), kNone), seen_by(tasks.size.size(), kNone),
      number(tasks.size.size(), kNone), place(tasks.count(), kNone);
  std::vector<std::vector<std::size_t>> members(graphs);
  for (std::size_t task = end; task-- > 0;)
    for (const Number from : tasks.after[task]) graph[from] = std::min(graph[from], graph[task]);
  for (std::size_t task = 0; task < end; ++task) {
    for (const Number from : tasks.after[task]) graph[task] = std::max(graph[task], graph[from]);
    for (const Number tensor : tasks.makes[task]) maker[tensor] = graph[task];
    members[graph[task]].push_back(task);
  }
  std::vector<std::uint8_t> passes(tasks.size.size(), 0);
  for (std::size_t task = 0; task <= end; ++task)
    for (const Number tensor : tasks.reads[task])
      passes[tensor] = passes[tensor] || task == end || maker[tensor] != graph[task];
  for (std::size_t at = 0; at < graphs; ++at) {
    Tasks& own = found[at];
    const auto numbered = [&](Number tensor) {
      if (std::exchange(seen_by[tensor], Number(at)) != Number(at)) {
        number[tensor] = Number(own.size.size());
        own.size.push_back(tasks.size[tensor]);
        if (maker[tensor] != Number(at)) own.given.push_back(number[tensor]);
      }
      return number[tensor];
    };
    std::vector<Number> passed;
    for (const std::size_t task : members[at]) {
      place[task] = Number(own.count());
      own.key.push_back(tasks.key[task]);
      own.bytes.push_back(tasks.bytes[task]);
      own.part.push_back(tasks.part[task]);
      own.compute_s.push_back(tasks.compute_s[task]);
      own.sent_s.push_back(tasks.sent_s[task]);
      own.beside.push_back(tasks.beside[task]);
      own.lands.push_back(tasks.lands[task]);
      for (const Number tensor : tasks.reads[task]) own.reads.values.push_back(numbered(tensor));
      for (const Number tensor : tasks.makes[task]) {
        own.makes.values.push_back(numbered(tensor));
        if (passes[tensor]) passed.push_back(number[tensor]);
      }
      for (const Number from : tasks.after[task])
        if (graph[from] == Number(at)) own.after.values.push_back(place[from]);
      for (Rows* rows : {&own.reads, &own.makes, &own.after}) rows->close();
    }
    own.key.push_back(kNone);
    for (auto* each : {&own.bytes, &own.compute_s, &own.sent_s}) each->push_back(0);
    own.part.push_back(own.part.empty() ? 0 : own.part.back());
    own.beside.push_back(Beside::Never);
    own.lands.push_back(0);
    own.reads.values.insert(own.reads.values.end(), passed.begin(), passed.end());
    for (Rows* rows : {&own.reads, &own.makes, &own.after}) rows->close();
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
