#include "intake.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <unordered_map>

#include "clones.hpp"
#include "parallel.hpp"
#include "plan.hpp"

namespace tensoropt::search {
namespace {

using Given = Intake::Given;

TENSOROPT_INLINE double larger_finite(double top, double value) {
  value = value < kInfinity ? value : 0;
  return value > top ? value : top;
}

TENSOROPT_CLONES double largest_finite(std::span<const double> values) {
  double lane[8] = {};  // eight independent maxima: a single one is bound by latency
  std::size_t i = 0;
  for (; i + 8 <= values.size(); i += 8)
    for (std::size_t l = 0; l < 8; ++l) lane[l] = larger_finite(lane[l], values[i + l]);
  for (; i < values.size(); ++i) lane[0] = larger_finite(lane[0], values[i]);
  return *std::max_element(lane, lane + 8);
}

// Returns the power of two that brings `total` just below 2^52, so that sums stay whole.
double unit_for(double total) {
  if (!(total > 0)) return 1;
  int exponent;
  std::frexp(total, &exponent);
  return std::ldexp(1.0, exponent - 52);
}

// Adding 2^52 to a number below it drops the fraction; infinity stays infinite.
TENSOROPT_CLONES void round_to(std::vector<double>& values, double unit) {
  const double factor = 1 / unit;
  for (double& value : values) value = value * factor + 0x1p52 - 0x1p52;
}

std::vector<double> rounded(std::span<const double> values, double unit) {
  std::vector<double> out(values.begin(), values.end());
  round_to(out, unit);
  return out;
}

// Memory that is zero everywhere is not stored.
std::vector<double> rounded_memory(std::span<const double> values, double unit) {
  auto out = rounded(values, unit);
  return largest_finite(out) > 0 ? out : std::vector<double>{};
}

// The properties of a table that one pass finds.
struct Seen {
  std::uint64_t hash = 0;  // of the bits: equal numbers with other bits only cost a copy
  Cost largest;
};

Seen look_at(const Given& table) {
  std::uint64_t hash = 0;
  for (const auto* part : {&table.time, &table.fixed, &table.transient})
    hash = mix(hash, part->data(), part->size());
  return {
      hash,
      {largest_finite(table.time), largest_finite(table.fixed), largest_finite(table.transient)}};
}

bool same(const Given& a, const Given& b) {
  auto equal = [](std::span<const double> x, std::span<const double> y) {
    return x.size() == y.size() &&
           (x.empty() || std::memcmp(x.data(), y.data(), x.size_bytes()) == 0);
  };
  return equal(a.time, b.time) && equal(a.fixed, b.fixed) && equal(a.transient, b.transient);
}

// Returns, for each table, the first table of equal content.
std::vector<std::size_t> distinct(const std::vector<Given>& tables, const std::vector<Seen>& seen) {
  std::unordered_multimap<std::uint64_t, std::size_t> known;
  std::vector<std::size_t> first(tables.size());
  for (std::size_t t = 0; t < tables.size(); ++t) {
    auto [it, end] = known.equal_range(seen[t].hash);
    while (it != end && !same(tables[it->second], tables[t])) ++it;
    first[t] = it == end ? t : it->second;
    if (first[t] == t) known.emplace(seen[t].hash, t);
  }
  return first;
}

Units units_of(const Intake& intake, const std::vector<Seen>& seen) {
  Cost total;
  for (std::size_t table : intake.nodes) add(total, seen.at(table).largest);
  for (const auto& edge : intake.edges) add(total, seen.at(edge.table).largest);
  return {unit_for(total.time), unit_for(total.memory())};
}

}  // namespace

Model Intake::model(Units& units, int threads) const {
  double cells = 0;
  for (const Given& table : tables) cells += double(table.time.size());
  if (cells < kWorthwhile) threads = 1;
  std::vector<Seen> seen(tables.size());
  parallel(tables.size(), threads, [&](std::size_t t) { seen[t] = look_at(tables[t]); });
  const std::vector<std::size_t> first = distinct(tables, seen);
  units = units_of(*this, seen);
  std::vector<TableRef> taken(tables.size());
  parallel(tables.size(), threads, [&](std::size_t t) {
    if (first[t] == t)
      taken[t] = std::make_shared<const Table>(
          Table{rounded(tables[t].time, units.time), rounded_memory(tables[t].fixed, units.memory),
                rounded_memory(tables[t].transient, units.memory)});
  });
  Model model;
  for (std::size_t table : nodes) {
    model.source.push_back(int(model.nodes.size()));
    model.choice.push_back(-1);
    model.nodes.push_back(taken[first[table]]);
    auto& configs = model.configs.emplace_back(tables[table].time.size());
    for (std::size_t i = 0; i < configs.size(); ++i) configs[i] = int(i);
  }
  for (const auto& edge : edges) model.edges.push_back({edge.a, edge.b, taken[first[edge.table]]});
  return model;
}

}  // namespace tensoropt::search
