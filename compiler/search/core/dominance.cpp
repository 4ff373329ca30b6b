// Configurations that can be replaced by another one at no loss.
#include <algorithm>
#include <cmath>

#include "model.hpp"

namespace topt::search {

namespace {

// An edge as seen from one of its ends.
struct Side {
    const Table* table;
    std::size_t step, stride, neighbours;  // entry of (config, x) = config * step + x * stride
};

// Upper limits of what replacing one configuration by another adds over one edge; false if it may
// break a restriction or raise the transient memory.
bool replace_over(const Side& side, int worse, int better, double transient, double& time,
                  double& fixed) {
    const Table& table = *side.table;
    double more_time = -INF, more_fixed = -INF;
    for (std::size_t x = 0; x < side.neighbours; ++x) {
        const Cost from = table.at(worse * side.step + x * side.stride);
        if (!std::isfinite(from.time)) continue;
        const Cost to = table.at(better * side.step + x * side.stride);
        if (to.transient > std::max(from.transient, transient)) return false;
        more_time = std::max(more_time, to.time - from.time);
        more_fixed = std::max(more_fixed, to.fixed - from.fixed);
        if (more_time == INF) return false;
    }
    if (more_time == -INF) return true;  // no choice of the neighbour goes with the worse one
    time += more_time;
    fixed += more_fixed;
    return true;
}

bool dominates(const Table& node, const std::vector<Side>& sides, int better, int worse) {
    const Cost to = node.at(better), from = node.at(worse);
    if (!std::isfinite(to.time) || to.transient > from.transient) return false;
    double time = to.time - from.time, fixed = to.fixed - from.fixed;
    for (const Side& side : sides)
        if (!replace_over(side, worse, better, from.transient, time, fixed)) return false;
    return time <= 0 && fixed <= 0;
}

std::vector<std::vector<Side>> sides_of(const Model& model) {
    std::vector<std::vector<Side>> sides(model.nodes.size());
    for (const Edge& edge : model.edges) {
        const std::size_t ka = model.size(edge.a), kb = model.size(edge.b);
        sides[edge.a].push_back({&edge.table, kb, 1, kb});
        sides[edge.b].push_back({&edge.table, 1, kb, ka});
    }
    return sides;
}

// Marks in `alive` the entries of one node that no other living entry replaces.
void screen(const Table& node, const std::vector<Side>& sides, std::vector<char>& alive) {
    const int size = static_cast<int>(node.size());
    for (int worse = size - 1; worse >= 0; --worse)
        for (int better = 0; better < size && alive[worse]; ++better)
            if (better != worse && alive[better] && dominates(node, sides, better, worse))
                alive[worse] = 0;
}

}  // namespace

Keep undominated(const Model& model) {
    Keep keep = keep_all(model);
    const auto sides = sides_of(model);
    for (std::size_t n = 0; n < keep.size(); ++n) screen(model.nodes[n], sides[n], keep[n]);
    return keep;
}

}  // namespace topt::search
