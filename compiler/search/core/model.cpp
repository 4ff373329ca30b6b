#include "model.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>

#include "clones.hpp"
#include "parallel.hpp"

namespace topt::search {

void add(Cost& into, const Cost& cost) {
    into.time += cost.time;
    into.fixed += cost.fixed;
    into.transient = std::max(into.transient, cost.transient);
}

void add(Table& into, std::size_t at, const Cost& cost) {
    into.time[at] += cost.time;
    if (cost.fixed != 0) {
        into.fixed.resize(into.size(), 0);
        into.fixed[at] += cost.fixed;
    }
    if (cost.transient != 0) {
        into.transient.resize(into.size(), 0);
        into.transient[at] = std::max(into.transient[at], cost.transient);
    }
}

Table transposed(const Table& table, std::size_t rows, std::size_t columns) {
    auto turn = [&](const std::vector<double>& from) {
        std::vector<double> to(from.size());
        if (from.empty()) return to;
        for (std::size_t c = 0; c < columns; ++c)
            for (std::size_t r = 0; r < rows; ++r) to[c * rows + r] = from[r * columns + c];
        return to;
    };
    return {turn(table.time), turn(table.fixed), turn(table.transient)};
}

std::uint64_t mix(std::uint64_t hash, const double* values, std::size_t size) {
    constexpr std::uint64_t factor = 0x9E3779B97F4A7C15ull;
    std::uint64_t lane[4] = {hash, hash ^ 1, hash ^ 2, hash ^ 3}, bits[4];
    std::size_t i = 0;
    for (; i + 4 <= size; i += 4) {  // four lanes, whose multiplications overlap
        std::memcpy(bits, &values[i], sizeof bits);
        for (int l = 0; l < 4; ++l) {
            lane[l] = (lane[l] ^ bits[l]) * factor;
            lane[l] ^= lane[l] >> 29;
        }
    }
    for (; i < size; ++i) {
        std::memcpy(bits, &values[i], sizeof bits[0]);
        lane[0] = (lane[0] ^ bits[0]) * factor;
        lane[0] ^= lane[0] >> 29;
    }
    for (int l = 1; l < 4; ++l) lane[0] = (lane[0] ^ (lane[l] >> 7)) * factor + lane[l];
    return lane[0] + size;
}

std::uint64_t hash_of(const Table& table) {
    std::uint64_t hash = 0;
    for (const auto* part : {&table.time, &table.fixed, &table.transient})
        hash = mix(hash, part->data(), part->size());
    return hash;
}

TableRef Interner::of(Table&& table, std::uint64_t hash) {
    auto [first, last] = known_.equal_range(hash);
    for (; first != last; ++first)
        if (*first->second == table) return first->second;
    auto kept = std::make_shared<const Table>(std::move(table));
    known_.emplace(hash, kept);
    return kept;
}

namespace {

INLINE double larger_finite(double top, double value) {
    value = value < INF ? value : 0;
    return value > top ? value : top;
}

CLONES double largest_finite(const std::vector<double>& values) {
    double lane[8] = {};  // eight maxima at once: one would wait for itself
    std::size_t i = 0;
    for (; i + 8 <= values.size(); i += 8)
        for (std::size_t l = 0; l < 8; ++l) lane[l] = larger_finite(lane[l], values[i + l]);
    for (; i < values.size(); ++i) lane[0] = larger_finite(lane[0], values[i]);
    return *std::max_element(lane, lane + 8);
}

// The power of two that makes `total` come out just below 2^52, so that sums stay whole.
double unit_for(double total) {
    if (!(total > 0)) return 1;
    int exponent;
    std::frexp(total, &exponent);
    return std::ldexp(1.0, exponent - 52);
}

// Adding 2^52 to a number below it leaves no room for a fraction; infinity stays what it is.
CLONES void round_to(std::vector<double>& values, double unit) {
    const double factor = 1 / unit;
    for (double& value : values) value = value * factor + 0x1p52 - 0x1p52;
}

void round_memory(std::vector<double>& values, double unit) {
    round_to(values, unit);
    if (!(largest_finite(values) > 0)) values = {};
}

}  // namespace

Scale quantise(std::vector<Table>& tables, const std::vector<std::size_t>& uses, int threads) {
    std::vector<Cost> largest(tables.size());
    parallel(tables.size(), threads, [&](std::size_t t) {
        largest[t] = {largest_finite(tables[t].time), largest_finite(tables[t].fixed),
                      largest_finite(tables[t].transient)};
    });
    double time = 0, fixed = 0, transient = 0;
    for (std::size_t t = 0; t < tables.size(); ++t) {
        time += double(uses[t]) * largest[t].time;
        fixed += double(uses[t]) * largest[t].fixed;
        transient = std::max(transient, largest[t].transient);
    }
    const Scale scale{unit_for(time), unit_for(fixed + transient)};
    parallel(tables.size(), threads, [&](std::size_t t) {
        round_to(tables[t].time, scale.time);
        round_memory(tables[t].fixed, scale.memory);
        round_memory(tables[t].transient, scale.memory);
    });
    return scale;
}

std::vector<TableRef> shared(std::vector<Table>&& tables, int threads) {
    std::vector<std::uint64_t> hash(tables.size());
    parallel(tables.size(), threads, [&](std::size_t t) { hash[t] = hash_of(tables[t]); });
    Interner interner;
    std::vector<TableRef> refs;
    for (std::size_t t = 0; t < tables.size(); ++t)
        refs.push_back(interner.of(std::move(tables[t]), hash[t]));
    return refs;
}

void merge_parallel(Model& model) {
    std::map<std::pair<int, int>, std::vector<std::size_t>> groups;
    for (std::size_t e = 0; e < model.edges.size(); ++e)
        groups[std::minmax(model.edges[e].a, model.edges[e].b)].push_back(e);
    if (groups.size() == model.edges.size()) return;
    using Key = std::pair<int, std::vector<std::pair<const Table*, bool>>>;  // with the rows
    std::map<Key, TableRef> sums;
    std::vector<Edge> merged;
    for (const auto& [ends, group] : groups) {
        const Edge& first = model.edges[group[0]];
        merged.push_back(first);
        if (group.size() == 1) continue;
        const std::size_t rows = model.size(first.a), columns = model.size(first.b);
        Key whole{int(rows), {}};
        auto& key = whole.second;
        for (std::size_t e : group)
            key.emplace_back(model.edges[e].table.get(), model.edges[e].a != first.a);
        TableRef& sum = sums[whole];
        if (!sum) {
            Table total = *first.table;
            for (std::size_t k = 1; k < key.size(); ++k)
                for (std::size_t i = 0; i < total.size(); ++i)
                    add(total, i, key[k].first->at(key[k].second ? i % columns * rows + i / columns : i));
            sum = std::make_shared<const Table>(std::move(total));
        }
        merged.back().table = sum;
    }
    model.edges = std::move(merged);
}

Keep keep_all(const Model& model) {
    Keep keep;
    for (const auto& node : model.nodes) keep.emplace_back(node->size(), 1);
    return keep;
}

std::size_t count(const Keep& keep) {
    std::size_t total = 0;
    for (const auto& entries : keep) total += std::count(entries.begin(), entries.end(), 1);
    return total;
}

Cost cost_of(const Model& model, const std::vector<int>& choice) {
    Cost total = model.base;
    for (std::size_t n = 0; n < model.nodes.size(); ++n) add(total, model.nodes[n]->at(choice[n]));
    for (const Edge& edge : model.edges)
        add(total, edge.table->at(std::size_t(choice[edge.a]) * model.size(edge.b) + choice[edge.b]));
    return total;
}

std::vector<int> expand(const Model& model, const std::vector<int>& choice) {
    std::vector<int> full = model.choice;
    for (std::size_t n = 0; n < model.nodes.size(); ++n)
        full[model.source[n]] = model.configs[n][choice[n]];
    return full;
}

}  // namespace topt::search
