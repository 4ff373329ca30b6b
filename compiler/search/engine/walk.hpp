// What one assignment costs: a walk over the program in the order of the emitted graphs.
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

namespace tensoropt::search {

// What the nodes that choose read and make, whatever they choose. Nodes are numbered in program
// order. State that is read in a later part of a training step counts as another value, a view:
// view v is of value v % values. Lists of all nodes lie behind each other: those of node n begin at
// `operands_begin[n]` and `results_begin[n]`.
struct Program {
  // What a node is.
  enum Flag : std::uint8_t {
    Runs = 1,       // it is a step
    Passes = 2,     // it does not run, though it is an op
    Alias = 4,      // it makes nothing: its result is its first operand
    Writes = 8,     // its first operand is written where the old state was
    Update = 16,    // it belongs to the update of a training step
    Constant = 32,  // it is folded at load
  };
  std::vector<std::uint8_t> flags;
  std::vector<std::int64_t> inner_bytes;  // what its bodies hold
  std::vector<std::int32_t> operands_begin, results_begin;
  std::vector<std::int32_t> operands;  // views; private parameters left out
  std::vector<std::int32_t> constant;  // per operand, which constant it is of, -1 for none
  std::vector<std::int32_t> results;   // values
  std::vector<std::uint8_t> stays;   // per result, whether it is folded or counted with what stays
  std::vector<std::int32_t> alike;   // per value, the first of the same shape and type
  std::vector<std::uint8_t> folded;  // per value, whether it is folded at load
  std::vector<std::int32_t> awaits;  // per node a value that it waits for, unread, -1 for none
  std::int32_t last = -1;            // the last node before the update of a training step,
  std::vector<std::int32_t> handed;  // before which what these read is moved, though they end it
  std::size_t views = 0;
  double batches = 1;  // how often a step runs what is not its update

  std::size_t nodes() const { return flags.size(); }
  std::int32_t whole(std::int32_t view) const { return view % std::int32_t(alike.size()); }
};

// What one strategy costs all nodes alike. Layouts are numbers. Bytes are of one rank's part, of
// operands those of constants alone. Before it runs, operands are filled: copied one after another,
// with masks that are constants of their own.
struct Strategy {
  double compute_s = 0, inner_s = 0;
  std::int64_t static_bytes = 0;
  std::vector<std::int32_t> wanted, made;
  std::vector<std::int64_t> wanted_bytes, made_bytes;
  using Sized = std::pair<std::int32_t, std::int64_t>;
  std::vector<Sized> fills;  // places of operands, and the bytes of their copies
  std::vector<Sized> masks;  // numbers and bytes
  // Places of operands that the node updates in place, and its additional seconds if one of them is
  // resharded first: the whole result is then written to a tensor of its own.
  std::vector<std::pair<std::int32_t, double>> apart;
};

// A reshard: its time, and of each of its steps the layout and bytes after it, the key of its
// collective (-1 for what is never one with others), the bytes that one rank puts in, its time, and
// whether it sends: what it does to its operand if operators run beside it.
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

// Who knows these, when they are first asked for. `value` stands for all values alike.
class Costing {
 public:
  virtual ~Costing() = default;
  virtual Strategy strategy(std::size_t node, std::int32_t picked) = 0;
  virtual Path path(std::int32_t value, std::int32_t source, std::int32_t target) = 0;
  // Pairs of layouts: each of `targets`, and of others in between, and what it is made from.
  using Tree = std::vector<std::pair<std::int32_t, std::int32_t>>;
  virtual Tree tree(std::int32_t value, std::int32_t source,
                    const std::vector<std::int32_t>& targets) = 0;
  virtual CollectiveTime collective(std::int32_t key) = 0;
};

// What a walk did, for who wants to see it.
struct Record {
  // A node that was run, or with a `value` its move between two layouts for that node.
  struct Event {
    std::int32_t node, value, source, target, moment;
    std::int32_t life = -1;  // what a move reads, a place in `lives`, -1 for none
  };
  // A tensor that comes and goes; no layout between the steps of a move, no value inside of bodies.
  struct Life {
    std::int32_t value, layout;
    std::int64_t first, last, bytes;
  };
  std::vector<Event> events;
  std::vector<Life> lives;
  std::vector<std::int32_t> group;  // per moment the first of the collectives that are one, -1
  std::vector<std::int32_t> place;  // per moment where it is among those of lives, if not the same
  // Where collectives run beside operators, per moment when it begins, and among those of lives
  // that at which it is waited for.
  std::vector<double> begin_s;
  std::vector<std::int32_t> until;
};

// Seconds are those of a whole step.
struct Walked {
  double compute_s = 0, communication_s = 0, update_s = 0;
  double hidden_s = 0;  // of communication, as operators run meanwhile; the update is without it
  std::int64_t static_bytes = 0, transient_bytes = 0;
  std::int64_t sent_bytes = 0;    // of the largest tensor that a collective reads or makes
  std::int64_t passed_bytes = 0;  // of all that they make
  std::int32_t moves = 0;         // collectives and slices
};

// Costs assignments; what they share is asked for once.
class Walk {
 public:
  // `kinds` numbers the nodes alike from 0. `how` is what it takes to let collectives run beside
  // operators.
  Walk(const Program& program, std::vector<std::int32_t> kinds, const Overlapping& how);
  Walk(const Walk&) = delete;
  Walk& operator=(const Walk&) = delete;

  // Costs the program as it is emitted where `joins`; else with each collective alone and in its
  // place, as the tables charge it. Moments are those of the order before collectives are joined,
  // but for those of lives. Adds to the seconds that are spent before the first node, and to those
  // of them for the update. Linear in the operands of the program. The record, if there is one, is
  // empty before.
  Walked run(Costing& costing, std::span<const std::int32_t> assignment, double compute_s,
             double update_s, bool joins, Record* record);

  // What comes and goes in ONNX Runtime's arena, copies of images included, in the last walk, of
  // which this is the record. Linear in the operands of the program.
  std::vector<Life> lives(const Images& images, const Record& record) const;

 private:
  // A pair of a tree, and how to get from one to the other once that was asked for.
  struct Branch {
    std::int32_t to, from;
    const Path* path = nullptr;
  };
  // A view in a layout. Those of a view hang together in the order in which they are wanted, the
  // one that its producer makes first. One that is only another's name lies in its `memory`.
  struct Tensor {
    std::int32_t view, layout, memory, reader, next = -1, life = -1, source = -1;
    Branch* branch = nullptr;  // by which it is made of its source
    bool present = false, updated = false, counted = false;
  };
  // Of what lies in one memory: how many reads are `left`, and how many tensors are yet to be made
  // of it; `unmade` is the exclusive or of their numbers, so of one its number.
  struct Reads {
    std::int32_t left = 0, children = 0, unmade = 0;
  };
  // The operand at a place with its padding filled, and the task that does it.
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
  // Of what frees memory.
  void end_reads(std::size_t node);
  void cut_inputs();
  // Makes what is made of a tensor last, where nothing else reads that any more.
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
  // Of the program as tasks, one for each moment.
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
  void arrange_collectives();
  void note_lives(const Places& places);
  // The lives of tensors, each once, but for one that is only another's name.
  std::vector<std::int32_t> lives_read(std::size_t node) const;
  std::vector<std::int32_t> lives_made(std::size_t node) const;

  const Program& program_;
  const std::vector<std::int32_t> kinds_;
  const Overlapping how_;
  std::vector<std::vector<const Strategy*>> known_;  // per kind and number
  std::deque<Strategy> strategies_;                  // which stay where they are
  std::unordered_map<std::uint64_t, Path> paths_;
  std::unordered_map<TreeKey, std::vector<Branch>, TreeHash> trees_;

  // Of the walk that goes on.
  std::vector<const Strategy*> picked_;
  std::vector<Tensor> tensors_;
  std::vector<Reads> reads_;                // per tensor that is a memory
  std::vector<std::int32_t> memory_;        // per operand, that of its tensor
  std::vector<std::int32_t> first_, last_;  // per view, its tensors
  std::vector<std::int32_t> read_, made_;   // per operand and result, its tensor
  std::vector<std::int32_t> inputs_;        // tensors that are there before anything runs
  std::vector<Copy> filled_;                // operands of the node that runs
  std::vector<Record::Life> lives_;
  std::vector<Record::Life> landings_;  // what is written where old state was, at its own moment
  std::vector<std::pair<std::uint64_t, std::int64_t>> constants_;
  bool joins_ = false;
  bool is_there_ = false;  // what is defined is made by no task
  Tasks tasks_;
  std::vector<std::int32_t> makers_;   // per tensor the task that makes it, -1 for none
  std::vector<CollectiveTime> times_;  // per key
  std::int32_t step_ = 0, running_ = 0;
  Walked cost_;
  Costing* costing_ = nullptr;
  Record* record_ = nullptr;
};

}  // namespace tensoropt::search
