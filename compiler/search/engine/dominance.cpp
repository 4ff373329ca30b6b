// Options that another option of the same node can replace at no loss.
#include <algorithm>
#include <map>

#include "clones.hpp"
#include "model.hpp"

namespace tensoropt::search {
namespace {

// Neighbour's options tested before all of them. Ablation: probe.
constexpr std::size_t kProbe = 8;

// An edge as seen from one of its ends: a row per option of that end.
struct Side {
  const Table* table;
  std::size_t neighbours;
  bool operator==(const Side&) const = default;
};

// A difference that is not a number (both entries infinite) is ignored.
TENSOROPT_INLINE double larger(double top, double d) { return d > top ? d : top; }

// Returns the largest increase from one row to another. An infinite entry of the first row imposes
// nothing on the second.
TENSOROPT_CLONES double most_more(const double* from, const double* to, std::size_t n) {
  double lane[8] = {-kInfinity, -kInfinity, -kInfinity, -kInfinity,
                    -kInfinity, -kInfinity, -kInfinity, -kInfinity};
  std::size_t x = 0;
  for (; x + 8 <= n; x += 8)
    for (std::size_t l = 0; l < 8; ++l) lane[l] = larger(lane[l], to[x + l] - from[x + l]);
  for (; x < n; ++x) lane[0] = larger(lane[0], to[x] - from[x]);
  return *std::max_element(lane, lane + 8);
}

// Adds upper limits of the cost of replacing an option over one edge. False if it may violate a
// restriction or raise the transient memory. Looks at the neighbour's first `n` options only.
bool replace_over(const Side& side, int worse, int better, double transient, std::size_t n,
                  double& time, double& fixed) {
  const Table& table = *side.table;
  const std::size_t from = worse * side.neighbours, to = better * side.neighbours;
  const double more_time = most_more(&table.time[from], &table.time[to], n);
  if (more_time == kInfinity) return false;
  if (more_time == -kInfinity) {                 // the worse option forbids all of these
    if (n < side.neighbours) time = -kInfinity;  // the others may gain any amount
    return true;
  }
  time += more_time;
  if (table.fixed.empty() && table.transient.empty()) return true;
  double more_fixed = -kInfinity;
  for (std::size_t x = 0; x < n; ++x) {
    const Cost old = table.at(from + x), now = table.at(to + x);
    if (old.time == kInfinity) continue;
    if (now.transient > std::max(old.transient, transient)) return false;
    more_fixed = std::max(more_fixed, now.fixed - old.fixed);
  }
  fixed += more_fixed;
  return true;
}

bool dominates(const Table& node, const std::vector<Side>& sides, int better, int worse,
               std::size_t most) {
  const Cost to = node.at(better), from = node.at(worse);
  if (to.time == kInfinity || to.transient > from.transient) return false;
  double time = to.time - from.time, fixed = to.fixed - from.fixed;
  for (const Side& side : sides)
    if (!replace_over(side, worse, better, from.transient, std::min(most, side.neighbours), time,
                      fixed))
      return false;
  return time <= 0 && fixed <= 0;
}

// The edges at every node, each table transposed so that the node's options are its rows.
class Sides {
 public:
  explicit Sides(const Model& model) : of(model.nodes.size()) {
    for (const Edge& edge : model.edges) {
      const std::size_t ka = model.size(edge.a), kb = model.size(edge.b);
      of[edge.a].push_back({edge.table.get(), kb});
      TableRef& turned = turned_[{edge.table.get(), ka}];
      if (!turned) turned = std::make_shared<const Table>(transposed(*edge.table, ka, kb));
      of[edge.b].push_back({turned.get(), ka});
    }
  }

  std::vector<std::vector<Side>> of;

 private:
  std::map<std::pair<const Table*, std::size_t>, TableRef> turned_;
};

// Marks the entries of a node that no other remaining entry replaces. Entries that are not tested
// in time stay.
std::vector<char> screen(const Table& node, const std::vector<Side>& sides, const Enough& enough) {
  const int size = int(node.size());
  std::vector<char> alive(node.size(), 1);
  auto replaces = [&](int better, int worse) {
    return dominates(node, sides, better, worse, kProbe) &&
           dominates(node, sides, better, worse, SIZE_MAX);
  };
  for (int worse = size - 1; worse >= 0 && !enough(); --worse)
    for (int better = 0; better < size && alive[worse]; ++better)
      if (better != worse && alive[better] && replaces(better, worse)) alive[worse] = 0;
  return alive;
}

}  // namespace

Keep undominated(const Model& model, const Enough& enough) {
  const Sides sides(model);
  using Key = std::pair<const Table*, std::vector<std::pair<const Table*, std::size_t>>>;
  std::map<Key, std::vector<char>> known;  // equal nodes with equal edges
  Keep keep;
  for (std::size_t n = 0; n < model.nodes.size(); ++n) {
    Key key{model.nodes[n].get(), {}};
    for (const Side& side : sides.of[n]) key.second.emplace_back(side.table, side.neighbours);
    std::sort(key.second.begin(), key.second.end());
    std::vector<char>& alive = known[key];
    if (alive.empty()) alive = screen(*model.nodes[n], sides.of[n], enough);
    keep.push_back(alive);
  }
  return keep;
}

}  // namespace tensoropt::search
