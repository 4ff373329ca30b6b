// Lower bounds of all assignments, by messages along edges and weights of moments.
#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "token.hpp"

namespace tensoropt::search {

// Costs that depend on one node (`b` is -1) or on two. An infinite cost forbids an entry.
struct Factor {
  int a, b;
  std::span<const double> values;  // [K_a] or [K_a][K_b], row-major
};

// The seconds and the bytes that have the same weight.
struct Unit {
  double time = 1, memory = 1;
};

// LineWeights of the time and of the memory at each moment; their sum is 1.
struct LineWeights {
  double time = 1;
  std::vector<double> moments;
};

// The weights and the messages that the next ascent starts from.
struct Multipliers {
  LineWeights weights;
  std::vector<double> messages;
};

// The least weighted sum of any assignment is at least `bound`, with the `weights` that gave it.
// `choices` has the distinct assignments on the way.
struct Ascent {
  double bound = 0;
  LineWeights weights;
  std::vector<std::vector<int>> choices;
};

struct Sums {
  double time = 0, fixed = 0, transient = 0;
};

// A problem in which the memory is the fixed bytes and the largest moment: times, fixed bytes and
// the bytes of each moment are sums of factors. The weighted sum of an assignment is
// w T / unit.time + sum over m of w_m (S + l_m) / unit.memory, and at most its largest term.
class Relaxation {
 public:
  explicit Relaxation(std::vector<int> sizes);

  void add_time(const Factor& factor) { time_.push_back(factor); }
  void add_fixed(const Factor& factor) { fixed_.push_back(factor); }
  // The bytes of a moment are finite.
  void add_moment(std::vector<Factor> factors) { given_moments_.push_back(std::move(factors)); }
  // Connects all that was added; sweeps follow the `ranks` of the nodes. Equal values are equal
  // addresses. Linear in the cells of the distinct tables.
  void connect(const std::vector<double>& ranks);

  // Returns the start of an ascent, in which all moments have the same weight.
  Multipliers start(double time_weight) const;

  // Takes `steps` steps along supergradients of the weights, with `sweeps` of messages for each. It
  // ends when the bound reaches `enough`. With `turns` the weight of the time changes too.
  Ascent ascend(Multipliers& at, Unit unit, double enough, bool turns, int steps, int sweeps,
                const Token& token);

  // Returns assignments that take every option from one of `choices`, below a corner in time and in
  // the memory by the weights, and within `epsilon` of all of these. At the token's end some may be
  // missing.
  std::vector<std::vector<int>> mixtures(const Multipliers& at,
                                         const std::vector<std::vector<int>>& choices, Unit corner,
                                         double epsilon, const Token& token) const;

  Sums sums(const std::vector<int>& choice) const;

  std::size_t options() const { return first_.back(); }

 private:
  // A table of a node, or of a pair of nodes if `pair` is not negative: place in `tables_`.
  struct Piece {
    int node, pair;
    std::size_t table;
  };
  // The costs of a pair, earlier node first; fixed bytes that are zero are not stored.
  struct Base {
    std::vector<double> time, fixed;
  };
  struct Pair {
    int a, b;                                // in the order of the sweep
    std::size_t base = 0, down = 0, up = 0;  // messages to b, to a
  };
  struct Turned {
    const double* values;
    bool is_flipped;
    auto operator<=>(const Turned&) const = default;
  };

  int pair_of(int a, int b);
  bool is_flipped(const Factor& factor) const { return place_[factor.a] > place_[factor.b]; }
  std::vector<double> turned(const Factor& factor) const;
  void order(const std::vector<double>& ranks);
  void place_pieces();
  void add_up_nodes();
  void share_bases();
  double value(const Piece& piece, const std::vector<int>& choice) const;
  std::size_t cell(const Pair& pair, const std::vector<int>& choice) const {
    return std::size_t(choice[pair.a]) * sizes_[pair.b] + choice[pair.b];
  }

  void weigh(const LineWeights& weights, Unit unit);
  void gather(int node, const std::vector<double>& messages);
  void forward(std::vector<double>& messages);
  double backward(std::vector<double>& messages);
  void gather_chosen(int node, const std::vector<int>& choice);
  std::vector<int> decode(const std::vector<double>& messages);
  void improve(std::vector<int>& choice);
  std::vector<double> levels(const std::vector<int>& choice) const;
  Sums static_sums(const std::vector<int>& choice) const;
  bool move(LineWeights& weights, const std::vector<int>& choice, Unit unit, double missing,
            bool turns) const;

  std::vector<int> sizes_;
  std::vector<std::size_t> first_;                  // node -> its first option, and the end
  std::vector<Factor> time_, fixed_;                // until they are connected
  std::vector<std::vector<Factor>> given_moments_;  // the same
  std::vector<std::vector<int>> moments_;           // their pieces
  std::vector<Piece> pieces_;
  std::vector<std::vector<double>> tables_;

  std::map<std::pair<int, int>, int> pair_numbers_;
  std::vector<Pair> pairs_;
  std::vector<Base> bases_;
  std::size_t message_count_ = 0;
  std::vector<int> order_, place_;
  std::vector<std::vector<int>> before_, after_;  // node -> pairs with earlier, later nodes
  std::vector<double> share_;                     // of a node's costs in each of its messages
  std::vector<double> node_time_, node_fixed_;

  // Of the current weights: costs of the options, of each base, and of pairs with pieces.
  std::vector<double> unary_;
  std::vector<std::vector<double>> shared_costs_, own_costs_;
  std::vector<const double*> costs_;
  std::vector<double> row_, rest_;  // scratch
};

}  // namespace tensoropt::search
