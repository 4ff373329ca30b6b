#include "relaxation.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>
#include <tuple>

#include "clones.hpp"
#include "kernels.hpp"
#include "model.hpp"

namespace tensoropt::search {
namespace {

// Replaces an infinite cost. Any number is valid in a lower bound; this one is far above the
// weighted sums of plans of interest, which are about 1, and small enough for sums to be exact.
constexpr double kForbidden = 1e4;
// Relative and absolute error of the sums of a sweep.
constexpr double kSlack = 1e-9;
// Least weight of a moment; smaller ones are left out until they grow.
constexpr double kLeastWeight = 1e-6;
// Largest change of the logarithm of a weight in one step.
constexpr double kLongest = 2;
// Bound to strive for, in the bound that is enough, and the least distance to it.
constexpr double kBeyond = 1.01, kLeastStep = 1e-4;
// Largest number of rounds in which an assignment improves, node by node.
constexpr int kRounds = 10;

TENSOROPT_CLONES double least_sum(const double* a, const double* b, std::size_t n) {
  double lane[8] = {kInfinity, kInfinity, kInfinity, kInfinity,
                    kInfinity, kInfinity, kInfinity, kInfinity};
  std::size_t x = 0;
  for (; x + 8 <= n; x += 8)
    for (std::size_t l = 0; l < 8; ++l) {
      const double sum = a[x + l] + b[x + l];
      lane[l] = sum < lane[l] ? sum : lane[l];
    }
  for (; x < n; ++x) lane[0] = std::min(lane[0], a[x] + b[x]);
  return *std::min_element(lane, lane + 8);
}

TENSOROPT_CLONES void add_weighted(double* into, const double* values, double weight,
                                   std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) into[i] += weight * values[i];
}

}  // namespace

Relaxation::Relaxation(std::vector<int> sizes) : sizes_(std::move(sizes)), first_(1, 0) {
  for (const int size : sizes_) first_.push_back(first_.back() + size);
}

void Relaxation::connect(const std::vector<double>& ranks) {
  order(ranks);
  place_pieces();
  add_up_nodes();
  share_bases();
  const std::size_t nodes = sizes_.size();
  before_.resize(nodes);
  after_.resize(nodes);
  for (std::size_t p = 0; p < pairs_.size(); ++p) {
    Pair& pair = pairs_[p];
    pair.down = message_count_;
    pair.up = message_count_ + sizes_[pair.b];
    message_count_ += sizes_[pair.a] + sizes_[pair.b];
    after_[pair.a].push_back(int(p));
    before_[pair.b].push_back(int(p));
  }
  for (std::size_t n = 0; n < nodes; ++n)
    share_.push_back(1.0 / double(std::max({before_[n].size(), after_[n].size(), std::size_t(1)})));
  own_costs_.resize(pairs_.size());
  costs_.resize(pairs_.size());
  const int widest = *std::max_element(sizes_.begin(), sizes_.end());
  row_.resize(widest);
  rest_.resize(widest);
  given_moments_.clear();
}

void Relaxation::order(const std::vector<double>& ranks) {
  order_.resize(sizes_.size());
  std::iota(order_.begin(), order_.end(), 0);
  std::stable_sort(order_.begin(), order_.end(), [&](int a, int b) { return ranks[a] < ranks[b]; });
  place_.resize(order_.size());
  for (std::size_t i = 0; i < order_.size(); ++i) place_[order_[i]] = int(i);
}

int Relaxation::pair_of(int a, int b) {
  if (place_[a] > place_[b]) std::swap(a, b);
  const auto [it, is_new] = pair_numbers_.try_emplace({a, b}, int(pairs_.size()));
  if (is_new) pairs_.push_back({a, b});
  return it->second;
}

// Returns the values with the earlier node first.
std::vector<double> Relaxation::turned(const Factor& factor) const {
  std::vector<double> values(factor.values.begin(), factor.values.end());
  if (factor.b < 0 || !is_flipped(factor)) return values;
  const std::size_t rows = sizes_[factor.a], columns = sizes_[factor.b];
  for (std::size_t r = 0; r < rows; ++r)
    for (std::size_t c = 0; c < columns; ++c) values[c * rows + r] = factor.values[r * columns + c];
  return values;
}

void Relaxation::place_pieces() {
  std::map<Turned, std::size_t> tables;
  std::map<std::tuple<int, int, std::size_t>, int> numbers;
  for (const auto& factors : given_moments_) {
    auto& moment = moments_.emplace_back();
    for (const Factor& factor : factors) {
      const bool flipped = factor.b >= 0 && is_flipped(factor);
      const auto [table, is_new] =
          tables.try_emplace({factor.values.data(), flipped}, tables_.size());
      if (is_new) tables_.push_back(turned(factor));
      const int pair = factor.b < 0 ? -1 : pair_of(factor.a, factor.b);
      const auto [number, is_first] =
          numbers.try_emplace({factor.a, pair, table->second}, int(pieces_.size()));
      if (is_first) pieces_.push_back({factor.a, pair, table->second});
      moment.push_back(number->second);
    }
  }
}

void Relaxation::add_up_nodes() {
  node_time_.assign(options(), 0);
  node_fixed_.assign(options(), 0);
  auto add = [&](std::vector<double>& into, const std::vector<Factor>& factors) {
    for (const Factor& factor : factors)
      if (factor.b < 0)
        add_row(&into[first_[factor.a]], factor.values.data(), factor.values.size());
  };
  add(node_time_, time_);
  add(node_fixed_, fixed_);
}

// Adds up the factors of each pair, once for all pairs of equal factors.
void Relaxation::share_bases() {
  using Factors = std::vector<const Factor*>;
  std::vector<std::pair<Factors, Factors>> of_pair;
  auto collect = [&](const std::vector<Factor>& factors,
                     Factors std::pair<Factors, Factors>::* in) {
    for (const Factor& factor : factors)
      if (factor.b >= 0) {
        const std::size_t pair = pair_of(factor.a, factor.b);
        of_pair.resize(std::max(of_pair.size(), pair + 1));
        (of_pair[pair].*in).push_back(&factor);
      }
  };
  collect(time_, &std::pair<Factors, Factors>::first);
  collect(fixed_, &std::pair<Factors, Factors>::second);
  of_pair.resize(pairs_.size());
  std::map<std::tuple<int, int, std::vector<Turned>, std::vector<Turned>>, std::size_t> known;
  auto keys = [&](const Factors& factors) {
    std::vector<Turned> keys;
    for (const Factor* factor : factors)
      keys.push_back({factor->values.data(), is_flipped(*factor)});
    return keys;
  };
  for (std::size_t p = 0; p < pairs_.size(); ++p) {
    const auto& [time, fixed] = of_pair[p];
    const int rows = sizes_[pairs_[p].a], columns = sizes_[pairs_[p].b];
    const auto [it, is_new] =
        known.try_emplace({rows, columns, keys(time), keys(fixed)}, bases_.size());
    pairs_[p].base = it->second;
    if (!is_new) continue;
    const std::size_t cells = std::size_t(rows) * columns;
    auto total = [&](const Factors& factors) {
      std::vector<double> sum(factors.empty() ? 0 : cells, 0);
      for (const Factor* factor : factors) add_row(sum.data(), turned(*factor).data(), cells);
      return sum;
    };
    bases_.push_back({total(time), total(fixed)});
    bases_.back().time.resize(cells, 0);
  }
}

Multipliers Relaxation::start(double time_weight) const {
  const double each = (1 - time_weight) / double(std::max(moments_.size(), std::size_t(1)));
  return {{time_weight, std::vector<double>(moments_.size(), each)},
          std::vector<double>(message_count_, 0.0)};
}

void Relaxation::weigh(const LineWeights& weights, Unit unit) {
  const double time = weights.time / unit.time, memory = (1 - weights.time) / unit.memory;
  auto set = [&](std::vector<double>& into, const std::vector<double>& seconds,
                 const std::vector<double>& bytes) {
    into.resize(seconds.size());
    for (std::size_t i = 0; i < seconds.size(); ++i)
      into[i] = seconds[i] < kInfinity ? time * seconds[i] : kForbidden;
    if (!bytes.empty()) add_weighted(into.data(), bytes.data(), memory, bytes.size());
  };
  set(unary_, node_time_, node_fixed_);
  shared_costs_.resize(bases_.size());
  for (std::size_t b = 0; b < bases_.size(); ++b)
    set(shared_costs_[b], bases_[b].time, bases_[b].fixed);
  for (std::size_t p = 0; p < pairs_.size(); ++p) costs_[p] = shared_costs_[pairs_[p].base].data();
  std::vector<double> of_piece(pieces_.size(), 0);
  for (std::size_t m = 0; m < moments_.size(); ++m)
    if (weights.moments[m] > 0)
      for (const int piece : moments_[m]) of_piece[piece] += weights.moments[m] / unit.memory;
  for (std::size_t p = 0; p < pieces_.size(); ++p) {
    if (of_piece[p] == 0) continue;
    const Piece& piece = pieces_[p];
    const auto& values = tables_[piece.table];
    double* into = &unary_[first_[piece.node]];
    if (piece.pair >= 0) {
      auto& own = own_costs_[piece.pair];
      const auto& shared = shared_costs_[pairs_[piece.pair].base];
      if (costs_[piece.pair] == shared.data()) own = shared;
      costs_[piece.pair] = into = own.data();
    }
    add_weighted(into, values.data(), of_piece[p], values.size());
  }
}

// Sets `row_` to the costs of the options of a node with all messages to it.
void Relaxation::gather(int node, const std::vector<double>& messages) {
  const std::size_t size = sizes_[node];
  std::copy_n(&unary_[first_[node]], size, row_.data());
  for (const int pair : before_[node]) add_row(row_.data(), &messages[pairs_[pair].down], size);
  for (const int pair : after_[node]) add_row(row_.data(), &messages[pairs_[pair].up], size);
}

void Relaxation::forward(std::vector<double>& messages) {
  for (const int node : order_) {
    const std::size_t size = sizes_[node];
    gather(node, messages);
    const double low = least(row_.data(), size);
    for (const int number : after_[node]) {
      const Pair& pair = pairs_[number];
      const std::size_t others = sizes_[pair.b];
      double* out = &messages[pair.down];
      for (std::size_t x = 0; x < size; ++x)
        rest_[x] = share_[node] * (row_[x] - low) - messages[pair.up + x];
      min_one(out, costs_[number], others, rest_.data(), size, others);
      const double top = least(out, others);
      for (std::size_t y = 0; y < others; ++y) out[y] -= top;
    }
  }
}

// Returns the bound.
double Relaxation::backward(std::vector<double>& messages) {
  double bound = 0;
  for (auto it = order_.rbegin(); it != order_.rend(); ++it) {
    const int node = *it;
    const std::size_t size = sizes_[node];
    gather(node, messages);
    const double low = least(row_.data(), size);
    bound += low;
    for (const int number : before_[node]) {
      const Pair& pair = pairs_[number];
      const std::size_t others = sizes_[pair.a];
      double* out = &messages[pair.up];
      for (std::size_t x = 0; x < size; ++x)
        rest_[x] = share_[node] * (row_[x] - low) - messages[pair.down + x];
      for (std::size_t y = 0; y < others; ++y)
        out[y] = least_sum(costs_[number] + y * size, rest_.data(), size);
      const double top = least(out, others);
      for (std::size_t y = 0; y < others; ++y) out[y] -= top;
      bound += top;
    }
  }
  return bound - kSlack * (1 + std::abs(bound));
}

// Sets `row_` to the costs of the options of a node with the choices of earlier nodes.
void Relaxation::gather_chosen(int node, const std::vector<int>& choice) {
  const std::size_t size = sizes_[node];
  std::copy_n(&unary_[first_[node]], size, row_.data());
  for (const int number : before_[node])
    add_row(row_.data(), costs_[number] + choice[pairs_[number].a] * size, size);
}

// Chooses the options greedily in order, then improves one node at a time.
std::vector<int> Relaxation::decode(const std::vector<double>& messages) {
  std::vector<int> choice(sizes_.size(), 0);
  for (const int node : order_) {
    const std::size_t size = sizes_[node];
    gather_chosen(node, choice);
    for (const int number : after_[node]) add_row(row_.data(), &messages[pairs_[number].up], size);
    choice[node] = int(std::min_element(row_.begin(), row_.begin() + size) - row_.begin());
  }
  improve(choice);
  return choice;
}

void Relaxation::improve(std::vector<int>& choice) {
  bool changed = true;
  for (int round = 0; changed && round < kRounds; ++round) {
    changed = false;
    for (const int node : order_) {
      const std::size_t size = sizes_[node];
      gather_chosen(node, choice);
      for (const int number : after_[node]) {
        const std::size_t others = sizes_[pairs_[number].b];
        add_strided(row_.data(), costs_[number] + choice[pairs_[number].b], others, size);
      }
      const auto best = std::min_element(row_.begin(), row_.begin() + size) - row_.begin();
      if (!(row_[best] < row_[choice[node]] - kSlack)) continue;
      choice[node] = int(best);
      changed = true;
    }
  }
}

double Relaxation::value(const Piece& piece, const std::vector<int>& choice) const {
  const auto& values = tables_[piece.table];
  return values[piece.pair < 0 ? choice[piece.node] : cell(pairs_[piece.pair], choice)];
}

std::vector<double> Relaxation::levels(const std::vector<int>& choice) const {
  std::vector<double> of_piece(pieces_.size()), bytes(moments_.size(), 0);
  for (std::size_t p = 0; p < pieces_.size(); ++p) of_piece[p] = value(pieces_[p], choice);
  for (std::size_t m = 0; m < moments_.size(); ++m)
    for (const int piece : moments_[m]) bytes[m] += of_piece[piece];
  return bytes;
}

Sums Relaxation::static_sums(const std::vector<int>& choice) const {
  Sums sums;
  for (std::size_t n = 0; n < sizes_.size(); ++n) {
    sums.time += node_time_[first_[n] + choice[n]];
    sums.fixed += node_fixed_[first_[n] + choice[n]];
  }
  for (const Pair& pair : pairs_) {
    const Base& base = bases_[pair.base];
    sums.time += base.time[cell(pair, choice)];
    if (!base.fixed.empty()) sums.fixed += base.fixed[cell(pair, choice)];
  }
  return sums;
}

Sums Relaxation::sums(const std::vector<int>& choice) const {
  Sums sums = static_sums(choice);
  for (const double bytes : levels(choice)) sums.transient = std::max(sums.transient, bytes);
  return sums;
}

// Moves the weights towards the largest terms of an assignment, by an entropic mirror step of
// Polyak's length for `missing`; false if that changes nothing.
bool Relaxation::move(LineWeights& weights, const std::vector<int>& choice, Unit unit,
                      double missing, bool turns) const {
  std::vector<double> terms = levels(choice);
  const Sums sums = static_sums(choice);
  const double of_memory = 1 - weights.time, time = sums.time / unit.time;
  if (!(sums.time < kInfinity) || terms.empty() || of_memory <= 0) return false;
  double mean = 0;
  for (std::size_t m = 0; m < terms.size(); ++m) {
    terms[m] = (sums.fixed + terms[m]) / unit.memory;
    mean += weights.moments[m] * terms[m];
  }
  mean = turns ? mean + weights.time * time : mean / of_memory;
  double variance = 0, most = 0;
  auto look = [&](double weight, double term) {
    variance += weight * (term - mean) * (term - mean);
    most = std::max(most, std::abs(term - mean));
  };
  for (std::size_t m = 0; m < terms.size(); ++m) look(weights.moments[m], terms[m]);
  if (turns) look(weights.time, time);
  if (!(most > 0)) return false;
  variance = std::max(variance, kLeastWeight * most * most);
  const double step = std::min(missing / variance, kLongest / most);
  double total = 0;
  for (std::size_t m = 0; m < terms.size(); ++m) {
    double& weight = weights.moments[m];
    weight = std::max(weight, kLeastWeight) * std::exp(step * (terms[m] - mean));
    if (weight < kLeastWeight) weight = 0;
    total += weight;
  }
  if (turns) {
    weights.time *= std::exp(step * (time - mean));
    weights.time /= weights.time + total;
  }
  for (double& weight : weights.moments) weight *= (1 - weights.time) / total;
  return true;
}

Ascent Relaxation::ascend(Multipliers& at, Unit unit, double enough, bool turns, int steps,
                          int sweeps, const Token& token) {
  Ascent result{-kInfinity, at.weights, {}};
  std::set<std::vector<int>> seen;
  for (int step = 0; step < steps && !token.expired(); ++step) {
    weigh(at.weights, unit);
    double bound = -kInfinity;
    for (int sweep = 0; sweep < sweeps; ++sweep) {
      forward(at.messages);
      bound = backward(at.messages);
    }
    if (bound > result.bound) {
      result.bound = bound;
      result.weights = at.weights;
    }
    std::vector<int> choice = decode(at.messages);
    if (seen.insert(choice).second) result.choices.push_back(choice);
    const double missing = std::max(kBeyond * enough - bound, kLeastStep);
    if (bound >= enough || !move(at.weights, choice, unit, missing, turns)) break;
  }
  return result;
}

}  // namespace tensoropt::search
