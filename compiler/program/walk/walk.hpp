// The cost of one assignment: a walk over the program in the order of the emitted graphs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "images.hpp"
#include "joins.hpp"
#include "overlap.hpp"

namespace tensoropt::program {

// The program independent of its strategies: operands and results of the nodes that choose. Nodes
// are numbered in program order. State that is read in a later part of a training step counts as
// another value, a view: view v shows value v % values. The lists of all nodes are concatenated:
// node n begins at `operands_begin[n]` and `results_begin[n]`.
struct Program {
  // Properties of a node.
  enum Flag : std::uint8_t {
    Runs = 1,       // it is a step
    Passes = 2,     // an op that does not run
    Alias = 4,      // it makes nothing: its result is its first operand
    Writes = 8,     // its first operand overwrites the old state
    Update = 16,    // it belongs to the update of a training step
    Constant = 32,  // it is folded at load
  };
  std::vector<std::uint8_t> flags;
  std::vector<std::int32_t> operands_begin, results_begin;
  std::vector<std::int32_t> operands;  // views; private parameters left out
  std::vector<std::int32_t> constant;  // per operand, the number of its constant, -1 for none
  std::vector<std::int32_t> results;   // values
  std::vector<std::uint8_t> stays;     // per result, whether it is folded or counted as static
  std::vector<std::int32_t> alike;     // per value, the first of the same shape and type
  std::vector<std::uint8_t> folded;    // per value, whether it is folded at load
  std::vector<std::int32_t> awaits;    // per node a value that it awaits but does not read, or -1
  std::int32_t last = -1;              // the last node before the update of a training step
  std::vector<std::int32_t> handed;    // results; their operands are resharded before `last`
  std::size_t views = 0;
  double batches = 1;  // how often a step runs everything except its update

  std::size_t nodes() const { return flags.size(); }
  std::int32_t whole(std::int32_t view) const { return view % std::int32_t(alike.size()); }
};

// The cost of one strategy, the same for all nodes of a kind. Layouts are numbers. Bytes are per
// rank; operands have bytes only if they are constants. Before the node runs, operands are filled:
// copied in sequence with another padding. The masks for this are constants too.
struct Strategy {
  double compute_s = 0, inner_s = 0;
  std::int64_t static_bytes = 0, inner_bytes = 0;  // inner: while the node runs
  std::vector<std::int32_t> wanted, made;
  std::vector<std::int64_t> wanted_bytes, made_bytes;
  using Sized = std::pair<std::int32_t, std::int64_t>;
  std::vector<Sized> fills;  // places of operands, and the bytes of their copies
  std::vector<Sized> masks;  // numbers and bytes
  // Places of operands that the node updates in place, and its additional seconds if that operand
  // is resharded first: the whole result is then written to a tensor of its own.
  std::vector<std::pair<std::int32_t, double>> apart;
};

// A reshard: its time and its steps. A step has the layout and bytes after it, and the key of its
// collective (-1: never fused). It also has the bytes of one rank's part, its time, and its effect
// on operands under overlap.
struct Path {
  struct Step {
    std::int32_t layout;
    std::int64_t bytes;
    std::int32_t key;
    double sent;
    double time_s;
    Beside beside;
  };
  double time_s = 0;
  std::vector<Step> steps;
};

// Supplies costs on demand. `value` is the first of all values of the same shape and type.
class Costing {
 public:
  virtual ~Costing() = default;
  virtual Strategy strategy(std::size_t node, std::int32_t picked) = 0;
  virtual Path path(std::int32_t value, std::int32_t source, std::int32_t target) = 0;
  // Pairs of layouts: one of `targets` or an intermediate layout, and the layout it is made from.
  using Tree = std::vector<std::pair<std::int32_t, std::int32_t>>;
  virtual Tree tree(std::int32_t value, std::int32_t source,
                    const std::vector<std::int32_t>& targets) = 0;
  virtual CollectiveTime collective(std::int32_t key) = 0;
};

// The details of a walk, on request.
struct Record {
  // The run of a node or, with a `value`, a reshard between two layouts for that node.
  struct Event {
    std::int32_t node, value, source, target, moment;
    std::int32_t life = -1;  // read by a reshard, an index into `lives`, -1 for none
  };
  // A transient tensor: without layout between steps of a reshard, without value inside bodies.
  struct Life {
    std::int32_t value, layout;
    std::int64_t first, last, bytes;
  };
  std::vector<Event> events;
  std::vector<Life> lives;
  std::vector<std::int32_t> group;  // per step the first of its fused collectives, -1 for none
  std::vector<std::int32_t> place;  // per step its place in the order of `lives`, if that differs
  // If collectives overlap: per step its begin, and the place of its wait in the order of `lives`.
  std::vector<double> begin_s;
  std::vector<std::int32_t> until;
};

// Seconds of a whole training step.
struct Walked {
  double compute_s = 0, communication_s = 0, update_s = 0;
  double hidden_s = 0;  // communication hidden by operators; `update_s` is without it
  std::int64_t static_bytes = 0, transient_bytes = 0;
  std::int64_t sent_bytes = 0;    // of the largest tensor that a collective reads or makes
  std::int64_t passed_bytes = 0;  // of all results of collectives
  std::int32_t moves = 0;         // collectives and slices
  bool is_limited = false;        // with more memory, overlap might hide more
};

// Costs assignments, and caches the costs that they share.
class Walk {
 public:
  // `kinds` numbers equal nodes from 0. `how` has the costs of overlap.
  Walk(const Program& program, std::vector<std::int32_t> kinds, const Overlapping& how);
  Walk(const Walk&) = delete;
  Walk& operator=(const Walk&) = delete;

  // Costs the emitted program if `joins`. Otherwise each collective runs alone and in its place, as
  // the tables charge it. Events are numbered in the order before fusion, lives in the order after
  // it. `compute_s` are the seconds before the first node, `update_s` their part for the update. A
  // record must be empty. Collectives overlap with operators if `overlaps`. Linear in the operands
  // of the program.
  Walked run(Costing& costing, std::span<const std::int32_t> assignment, double compute_s,
             double update_s, bool joins, Record* record, bool overlaps = true);

  // Returns the seconds of communication that each of the `graphs` hides in one run, if the program
  // is cut into these, and the bytes by which that raises its peak. `graph_of` has the graph of
  // each node. Collectives overlap with operators of their own graph. Linear in the operands of the
  // program.
  std::vector<std::pair<double, std::int64_t>> hidden(Costing& costing,
                                                      std::span<const std::int32_t> assignment,
                                                      std::span<const std::int32_t> graph_of,
                                                      std::size_t graphs);

  // Returns the live ranges in ONNX Runtime's arena in the last walk, copies of images included.
  // `record` is the record of that walk. Linear in the operands of the program.
  std::vector<Life> lives(const Images& images, const Record& record) const;

 private:
  // A pair of a tree, and the path between its layouts once it is known.
  struct Branch {
    std::int32_t to, from;
    const Path* path = nullptr;
  };
  // A view in a layout. The tensors of a view are a list in the order of their readers, with the
  // producer's result first. An alias shares the `memory` of another tensor.
  struct Tensor {
    std::int32_t view, layout, memory, reader, next = -1, life = -1, source = -1;
    Branch* branch = nullptr;  // with the path from its source
    bool present = false, updated = false, counted = false;
  };
  // Pending uses of one memory: the reads that are `left`, and the number of tensors still to be
  // made from it. `unmade` is the exclusive or of their numbers: the number itself, if one is left.
  struct Reads {
    std::int32_t left = 0, children = 0, unmade = 0;
  };
  // The filled copy of the operand at a place, and the task that makes it.
  struct Copy {
    std::int32_t place, life, maker;
  };
  struct TreeKey {
    std::int32_t value, source;
    std::vector<std::int32_t> targets;
    bool operator==(const TreeKey&) const = default;
  };
  struct TreeHash {
    std::size_t operator()(const TreeKey& key) const;
  };

  void walk(Costing& costing, std::span<const std::int32_t> assignment, bool joins, Record* record);
  const Strategy& strategy_of(std::size_t node, std::int32_t picked);
  const Path& path_of(std::int32_t value, std::int32_t source, std::int32_t target);
  const Path& path_to(std::int32_t tensor);
  void lay_out(std::span<const std::int32_t> assignment);
  void lay_out_node(std::size_t node);
  std::int32_t tensor_of(std::int32_t view, std::int32_t layout);
  std::int32_t add(std::int32_t view, std::int32_t layout);
  void visit(std::size_t node);
  double times() const;
  void count_constants(std::size_t node);
  void make(std::size_t node);
  void await(std::int32_t value);
  void fill(std::size_t node);
  void use_operands(std::size_t node);
  void hand(std::int32_t result);
  void reshard(std::int32_t view, std::int32_t target);
  void plant(std::int32_t view);
  void note_readers(std::int32_t view, std::span<const Branch> tree, std::size_t wanted);
  void move(std::int32_t source, std::int32_t target);
  std::int32_t life_read(std::size_t node, std::int32_t place) const;
  void depend_on_read(std::size_t node, std::int32_t place);
  // Reshards that free memory.
  void end_reads(std::size_t node);
  void cut_inputs();
  // Makes the last pending derived tensor once its source has no other readers.
  void cut_rest(std::int32_t tensor) {
    const Reads& reads = reads_[tensors_[tensor].memory];
    if (reads.left == 1 && reads.children == 1) cut_last(reads.unmade);
  }
  void cut_last(std::int32_t target);
  bool frees(std::int32_t source, std::int32_t target);
  void use(std::int32_t life);
  std::int32_t define(std::int32_t value, std::int32_t layout, std::int64_t bytes);
  std::int64_t constant_bytes();
  std::int64_t peak_bytes() const;
  // The program as tasks, one per step of the walk.
  std::int32_t maker_of(std::int32_t tensor) const;
  void set_maker(std::int32_t tensor, std::int32_t maker);
  void note_makers(std::size_t node);
  bool runs_now(std::size_t node) const;
  bool ends(std::size_t node) const;
  double compute_s(std::size_t node) const;
  void depend(std::int32_t from) {
    if (joins_ && from >= 0) tasks_.after.values.push_back(from);
  }
  void end_task(double compute_s, double sent_s) {
    ++step_;
    if (joins_) note_task(-1, 0, compute_s, sent_s, Beside::Never);
  }
  void end_step(const Path::Step& step, std::int64_t lands) {
    ++step_;
    const bool sends = step.beside != Beside::Never;
    if (joins_)
      note_task(step.key, step.sent, sends ? 0 : step.time_s, sends ? step.time_s : 0, step.beside,
                lands);
  }
  void note_task(std::int32_t key, double bytes, double compute_s, double sent_s, Beside beside,
                 std::int64_t lands = 0);
  void end_tasks();
  void arrange_collectives(const Overlapping& how);
  void note_lives(const Places& places);
  // The lives of a node's tensors, each once; an alias makes none.
  std::vector<std::int32_t> lives_read(std::size_t node) const;
  std::vector<std::int32_t> lives_made(std::size_t node) const;

  const Program& program_;
  const std::vector<std::int32_t> kinds_;
  const Overlapping how_;
  std::vector<std::vector<const Strategy*>> known_;  // per kind and option
  std::deque<Strategy> strategies_;                  // a deque keeps their addresses
  std::unordered_map<std::uint64_t, Path> paths_;
  std::unordered_map<TreeKey, std::vector<Branch>, TreeHash> trees_;

  // The state of the current walk.
  std::vector<const Strategy*> picked_;
  std::vector<Tensor> tensors_;
  std::vector<Reads> reads_;                // per tensor that owns memory
  std::vector<std::int32_t> memory_;        // per operand, the memory of its tensor
  std::vector<std::int32_t> first_, last_;  // per view, its tensors
  std::vector<std::int32_t> read_, made_;   // per operand and result, its tensor
  std::vector<std::int32_t> inputs_;        // tensors that exist before the first step
  std::vector<Copy> filled_;                // filled operands of the current node
  std::vector<Record::Life> lives_;
  std::vector<Record::Life> landings_;  // results that overwrite old state, at their own step
  std::vector<std::pair<std::uint64_t, std::int64_t>> constants_;
  bool joins_ = false;
  bool is_there_ = false;  // no task makes the tensors that are defined
  Tasks tasks_;
  std::vector<std::int32_t> task_nodes_;
  std::vector<std::int32_t> makers_;   // per tensor the task that makes it, -1 for none
  std::vector<CollectiveTime> times_;  // per key
  std::int32_t step_ = 0, running_ = 0;
  Walked cost_;
  Costing* costing_ = nullptr;
  Record* record_ = nullptr;
};

}  // namespace tensoropt::program
