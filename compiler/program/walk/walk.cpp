#include "walk.hpp"

#include <algorithm>
#include <limits>
#include <stdexcept>

namespace tensoropt::program {
namespace {

std::uint64_t packed(std::int32_t value, std::int32_t source, std::int32_t target) {
  return std::uint64_t(value) << 40 | std::uint64_t(source) << 20 | std::uint64_t(target);
}

}  // namespace

std::size_t Walk::TreeHash::operator()(const TreeKey& key) const {
  std::uint64_t hash = packed(key.value, key.source, std::int32_t(key.targets.size()));
  for (const std::int32_t target : key.targets)
    hash = (hash ^ std::uint64_t(target)) * 0x9e3779b97f4a7c15u;
  return hash;
}

Walk::Walk(const Program& program, std::vector<std::int32_t> kinds, const Overlapping& how)
    : program_(program), kinds_(std::move(kinds)), how_(how) {
  const auto most = std::max_element(kinds_.begin(), kinds_.end());
  known_.resize(most == kinds_.end() ? 0 : std::size_t(*most) + 1);
}

Walked Walk::run(Costing& costing, std::span<const std::int32_t> assignment, double compute_s,
                 double update_s, bool joins, Record* record, bool overlaps) {
  cost_ = {compute_s, 0, update_s};
  walk(costing, assignment, joins, record);
  cost_.static_bytes += constant_bytes();
  cost_.transient_bytes = peak_bytes();
  if (record_) record_->group.assign(std::size_t(step_) + 1, -1);
  if (joins_) arrange_collectives(overlaps ? how_ : Overlapping{});
  if (record_) record_->lives = lives_;
  return cost_;
}

std::vector<std::pair<double, std::int64_t>> Walk::hidden(Costing& costing,
                                                          std::span<const std::int32_t> assignment,
                                                          std::span<const std::int32_t> graph_of,
                                                          std::size_t graphs) {
  cost_ = {};
  walk(costing, assignment, true, nullptr);
  end_tasks();
  std::vector<std::int32_t> graph;
  for (const std::int32_t node : task_nodes_) graph.push_back(graph_of[node]);
  std::vector<std::pair<double, std::int64_t>> found;
  for (const Tasks& own : divided(tasks_, std::move(graph), graphs)) {
    const auto [joined, overlapped] = join_beside(own, times_, how_);
    const std::int64_t more = overlapped.any ? overlapped.peak - joined.peak : 0;
    found.emplace_back(overlapped.hidden_s[0] + overlapped.hidden_s[1],
                       std::max(more, std::int64_t(0)));
  }
  return found;
}

// Walks the program, and notes its tensors and, if it `joins`, its tasks.
void Walk::walk(Costing& costing, std::span<const std::int32_t> assignment, bool joins,
                Record* record) {
  if (assignment.size() != program_.nodes())
    throw std::invalid_argument("an assignment has a number for each node that chooses");
  step_ = 0;
  lives_.clear();
  landings_.clear();
  constants_.clear();
  costing_ = &costing;
  record_ = record;
  joins_ = joins;
  if (joins_) tasks_ = {};
  task_nodes_.clear();
  makers_.clear();
  inputs_.clear();
  lay_out(assignment);
  for (std::size_t node = 0; node < program_.nodes(); ++node) visit(node);
  filled_.clear();
  for (std::size_t node = 0; node < program_.nodes(); ++node)
    if (ends(node)) use_operands(node);
}

const Strategy& Walk::strategy_of(std::size_t node, std::int32_t picked) {
  auto& known = known_[kinds_[node]];
  if (known.size() <= std::size_t(picked)) known.resize(std::size_t(picked) + 1);
  if (!known[picked]) {
    strategies_.push_back(costing_->strategy(node, picked));
    known[picked] = &strategies_.back();
  }
  return *known[picked];
}

const Path& Walk::path_of(std::int32_t value, std::int32_t source, std::int32_t target) {
  const std::uint64_t key = packed(value, source, target);
  if (const auto found = paths_.find(key); found != paths_.end()) return found->second;
  return paths_.emplace(key, costing_->path(value, source, target)).first->second;
}

// Returns the path from a tensor's source to the tensor.
const Path& Walk::path_to(std::int32_t tensor) {
  const Tensor& target = tensors_[tensor];
  Branch& branch = *target.branch;
  if (!branch.path)
    branch.path = &path_of(program_.alike[program_.whole(target.view)], branch.from, branch.to);
  return *branch.path;
}

// Creates a tensor for each layout that a node reads or makes.
void Walk::lay_out(std::span<const std::int32_t> assignment) {
  tensors_.clear();
  reads_.clear();
  first_.assign(program_.views, -1);
  last_.assign(program_.views, -1);
  picked_.resize(program_.nodes());
  read_.resize(program_.operands.size());
  memory_.resize(program_.operands.size());
  made_.resize(program_.results.size());
  for (std::size_t node = 0; node < program_.nodes(); ++node) {
    picked_[node] = &strategy_of(node, assignment[node]);
    running_ = std::int32_t(node);
    lay_out_node(node);
  }
}

void Walk::lay_out_node(std::size_t node) {
  const Strategy& strategy = *picked_[node];
  const std::int32_t reads = program_.operands_begin[node];
  for (std::size_t i = 0; i < strategy.wanted.size(); ++i) {
    const std::int32_t tensor = tensor_of(program_.operands[reads + i], strategy.wanted[i]);
    read_[reads + i] = tensor;
    ++reads_[memory_[reads + i] = tensors_[tensor].memory].left;
  }
  if (program_.flags[node] & Program::Writes) tensors_[read_[reads]].updated = true;
  const std::int32_t makes = program_.results_begin[node];
  for (std::size_t i = 0; i < strategy.made.size(); ++i) {
    made_[makes + i] = add(program_.results[makes + i], strategy.made[i]);
    if (program_.flags[node] & Program::Alias)
      tensors_[made_[makes + i]].memory = tensors_[read_[reads]].memory;
  }
}

// Returns the tensor that an operand reads, to be made from the producer's result if necessary.
std::int32_t Walk::tensor_of(std::int32_t view, std::int32_t layout) {
  if (first_[view] < 0) {  // a view: it exists from the start, in its value's layout
    const std::int32_t made = first_[program_.whole(view)];
    if (made < 0) throw std::logic_error("a value is read before it is made");
    tensors_[add(view, tensors_[made].layout)].present = true;
  }
  for (std::int32_t at = first_[view]; at >= 0; at = tensors_[at].next)
    if (tensors_[at].layout == layout) return at;
  return add(view, layout);
}

std::int32_t Walk::add(std::int32_t view, std::int32_t layout) {
  const auto at = std::int32_t(tensors_.size());
  tensors_.push_back({view, layout, at, running_});
  reads_.emplace_back();
  (first_[view] < 0 ? first_[view] : tensors_[last_[view]].next) = at;
  last_[view] = at;
  return at;
}

// Runs a node, after the reshards that it is the first to need.
void Walk::visit(std::size_t node) {
  const Strategy& strategy = *picked_[node];
  const std::uint8_t flags = program_.flags[node];
  const double before_s = cost_.compute_s + cost_.communication_s;
  const std::int32_t begin = program_.operands_begin[node], end = program_.operands_begin[node + 1];
  if (begin < end || (flags & Program::Runs)) cut_inputs();
  running_ = std::int32_t(node);
  const double own_s = compute_s(node);
  cost_.compute_s += times() * own_s;
  cost_.communication_s += times() * strategy.inner_s;
  if (!(flags & Program::Constant)) {
    cost_.static_bytes += strategy.static_bytes;
    count_constants(node);
  }
  for (std::int32_t i = begin; i < end; ++i)
    if (!tensors_[read_[i]].present) reshard(program_.operands[i], read_[i]);
  if (running_ == program_.last)
    for (const std::int32_t result : program_.handed) hand(result);
  const bool runs = runs_now(node);
  if (runs) {
    fill(node);
    use_operands(node);
  }
  if (joins_) await(program_.awaits[node]);
  make(node);
  if (joins_) note_makers(node);
  if (record_) record_->events.push_back({running_, -1, -1, -1, step_});
  if (runs) {
    if (strategy.inner_bytes) define(-1, -1, strategy.inner_bytes);
    end_task(own_s, strategy.inner_s);
  }
  end_reads(node);
  if (flags & Program::Update) cost_.update_s += cost_.compute_s + cost_.communication_s - before_s;
}

// Returns the compute seconds of a node, including the copy if a reshard prevents an update in
// place.
double Walk::compute_s(std::size_t node) const {
  const std::int32_t begin = program_.operands_begin[node];
  double total_s = picked_[node]->compute_s;
  for (const auto& [place, apart_s] : picked_[node]->apart)
    if (read_[begin + place] != first_[program_.operands[begin + place]]) total_s += apart_s;
  return total_s;
}

// Adds a dependency on the maker of a value's first layout.
void Walk::await(std::int32_t value) {
  if (value >= 0 && first_[value] >= 0) depend(maker_of(first_[value]));
}

// Returns the life that a node reads: the last filled copy of the operand, if there is one.
std::int32_t Walk::life_read(std::size_t node, std::int32_t place) const {
  for (auto own = filled_.rbegin(); own != filled_.rend(); ++own)
    if (own->place == place) return own->life;
  return tensors_[read_[program_.operands_begin[node] + place]].life;
}

void Walk::depend_on_read(std::size_t node, std::int32_t place) {
  if (!joins_) return;
  depend(maker_of(read_[program_.operands_begin[node] + place]));
  for (const Copy& own : filled_)
    if (own.place == place) depend(own.maker);
}

// Copies operands with another padding, in sequence.
void Walk::fill(std::size_t node) {
  filled_.clear();
  for (const auto& [place, bytes] : picked_[node]->fills) {
    use(life_read(node, place));
    depend_on_read(node, place);
    filled_.push_back({place, define(-1, -1, bytes), step_});
    end_task(0, 0);
  }
}

void Walk::use_operands(std::size_t node) {
  const std::int32_t begin = program_.operands_begin[node], end = program_.operands_begin[node + 1];
  for (std::int32_t i = begin; i < end; ++i) {
    use(life_read(node, i - begin));
    depend_on_read(node, i - begin);
  }
}

// Reshards the operands of a result of the program, before the current node.
void Walk::hand(std::int32_t result) {
  const std::int32_t running = std::exchange(running_, result);
  const std::int32_t end = program_.operands_begin[result + 1];
  for (std::int32_t i = program_.operands_begin[result]; i < end; ++i)
    if (!tensors_[read_[i]].present) reshard(program_.operands[i], read_[i]);
  running_ = running;
}

// Returns how often a step runs the current node.
double Walk::times() const {
  return (program_.flags[running_] & Program::Update) ? 1 : program_.batches;
}

void Walk::count_constants(std::size_t node) {
  const std::int32_t begin = program_.operands_begin[node], end = program_.operands_begin[node + 1];
  for (std::int32_t i = begin; i < end; ++i) {
    Tensor& tensor = tensors_[read_[i]];
    if (program_.constant[i] < 0 || std::exchange(tensor.counted, true)) continue;
    constants_.emplace_back(packed(program_.constant[i], 0, tensor.layout),
                            picked_[node]->wanted_bytes[i - begin]);
  }
  for (const auto& [mask, bytes] : picked_[node]->masks)
    constants_.emplace_back(packed(mask, 1, 0), bytes);
}

void Walk::make(std::size_t node) {
  const Strategy& strategy = *picked_[node];
  is_there_ = !runs_now(node);
  const std::int32_t begin = program_.results_begin[node];
  for (std::size_t i = 0; i < strategy.made.size(); ++i) {
    Tensor& tensor = tensors_[made_[begin + i]];
    tensor.present = true;
    if (program_.flags[node] & Program::Alias)
      tensor.life = tensors_[read_[program_.operands_begin[node]]].life;
    else if (!program_.stays[begin + i] && !tensor.updated)
      tensor.life = define(program_.results[begin + i], tensor.layout, strategy.made_bytes[i]);
    if (tensor.life >= 0 && tensor.next >= 0) plant(program_.results[begin + i]);
  }
  is_there_ = false;
}

std::int32_t Walk::maker_of(std::int32_t tensor) const {
  return std::size_t(tensor) < makers_.size() ? makers_[tensor] : -1;
}

void Walk::set_maker(std::int32_t tensor, std::int32_t maker) {
  if (makers_.size() < tensors_.size()) makers_.resize(tensors_.size(), -1);
  makers_[tensor] = maker;
}

// A node that does not run passes on the maker of its operand.
void Walk::note_makers(std::size_t node) {
  const std::int32_t reads = program_.operands_begin[node];
  const bool is_made = runs_now(node), reads_any = reads < program_.operands_begin[node + 1];
  const std::int32_t maker = is_made ? step_ : reads_any ? maker_of(read_[reads]) : -1;
  for (std::int32_t i = program_.results_begin[node]; i < program_.results_begin[node + 1]; ++i)
    set_maker(made_[i], maker);
}

bool Walk::runs_now(std::size_t node) const {
  return (program_.flags[node] & Program::Runs) && !(program_.flags[node] & Program::Passes);
}

// Returns whether a node is a result of the program; the last step, the return, reads it.
bool Walk::ends(std::size_t node) const {
  return !(program_.flags[node] & Program::Runs) &&
         program_.results_begin[node] == program_.results_begin[node + 1];
}

// Makes a tensor from its source, which may have to be made first.
void Walk::reshard(std::int32_t view, std::int32_t target) {
  if (tensors_[target].source < 0) plant(view);
  const std::int32_t source = tensors_[target].source;
  if (!tensors_[source].present) reshard(view, source);
  if (!tensors_[target].present) move(source, target);
}

// Finds the source of each tensor of a view; a constant is sliced directly.
void Walk::plant(std::int32_t view) {
  const std::int32_t root = first_[view], value = program_.whole(view);
  if (program_.folded[value]) {
    for (std::int32_t at = tensors_[root].next; at >= 0; at = tensors_[at].next)
      tensors_[at].source = root;
    return;
  }
  TreeKey key{program_.alike[value], tensors_[root].layout, {}};
  for (std::int32_t at = tensors_[root].next; at >= 0; at = tensors_[at].next)
    key.targets.push_back(tensors_[at].layout);
  auto found = trees_.find(key);
  if (found == trees_.end()) {
    std::vector<Branch> tree;
    for (const auto& [to, from] : costing_->tree(key.value, key.source, key.targets))
      tree.push_back({to, from});
    found = trees_.emplace(key, std::move(tree)).first;
  }
  const std::size_t wanted = tensors_.size();
  for (Branch& branch : found->second) {
    const std::int32_t source = tensor_of(view, branch.from), target = tensor_of(view, branch.to);
    tensors_[target].source = source;
    tensors_[target].branch = &branch;
    Reads& reads = reads_[tensors_[source].memory];
    ++reads.left;
    ++reads.children;
    reads.unmade ^= target;
  }
  if (record_) note_readers(view, found->second, wanted);
}

// An intermediate tensor is made for the first reader of a tensor made from it. The tensors from
// `wanted` on are intermediate, and nothing else reads them.
void Walk::note_readers(std::int32_t view, std::span<const Branch> tree, std::size_t wanted) {
  for (std::size_t between = wanted; between < tensors_.size(); ++between)
    tensors_[between].reader = std::int32_t(program_.nodes());
  for (auto pair = tree.rbegin(); pair != tree.rend(); ++pair) {
    const Tensor& target = tensors_[tensor_of(view, pair->to)];
    std::int32_t& reader = tensors_[target.source].reader;
    reader = std::min(reader, target.reader);
  }
}

// Walks the steps from one layout to another; each step holds its operand and its result.
void Walk::move(std::int32_t source, std::int32_t target) {
  const std::int32_t value = program_.whole(tensors_[target].view);
  tensors_[target].present = true;
  if (program_.folded[value]) return;  // sliced when the graph is loaded
  const std::int32_t from = tensors_[source].layout, to = tensors_[target].layout;
  const Path& path = path_to(target);
  if (record_)
    record_->events.push_back(
        {tensors_[target].reader, value, from, to, step_, tensors_[source].life});
  cost_.communication_s += times() * path.time_s;
  cost_.moves += std::int32_t(path.steps.size());
  std::int32_t life = tensors_[source].life, maker = joins_ ? maker_of(source) : -1;
  if (path.time_s > 0) {
    if (life >= 0) cost_.sent_bytes = std::max(cost_.sent_bytes, lives_[life].bytes);
    for (const auto& step : path.steps) {
      cost_.sent_bytes = std::max(cost_.sent_bytes, step.bytes);
      cost_.passed_bytes += step.bytes;
    }
  }
  for (std::size_t i = 0; i < path.steps.size(); ++i) {
    const auto& [layout, bytes, key, sent, time_s, beside] = path.steps[i];
    const bool last = i + 1 == path.steps.size();
    use(life);
    depend(maker);
    maker = step_;
    life = -1;
    if (!last) life = define(value, -1, bytes);
    else if (!tensors_[target].updated) life = tensors_[target].life = define(value, layout, bytes);
    const bool lands = last && tensors_[target].updated;
    if (joins_ && lands) landings_.push_back({value, layout, step_, step_, bytes});
    end_step(path.steps[i], lands ? bytes : 0);
  }
  if (joins_) set_maker(target, maker);
  Reads& reads = reads_[tensors_[source].memory];
  --reads.left;
  --reads.children;
  reads.unmade ^= target;
  cut_rest(source);
  cut_rest(target);
}

// Runs reshards that free memory and have the only remaining read, now that a node has run. Inputs
// of the program are resharded once all of them are known.
void Walk::end_reads(std::size_t node) {
  const std::int32_t begin = program_.operands_begin[node], end = program_.operands_begin[node + 1];
  bool any = false;
  for (std::int32_t i = begin; i < end; ++i) {
    Reads& reads = reads_[memory_[i]];
    --reads.left;
    any |= reads.children == 1;
  }
  for (std::int32_t i = begin; any && i < end; ++i) cut_rest(read_[i]);
  const bool is_input = begin == end && !(program_.flags[node] & Program::Runs);
  for (std::int32_t i = program_.results_begin[node]; i < program_.results_begin[node + 1]; ++i) {
    if (!reads_[tensors_[made_[i]].memory].children) continue;
    if (is_input) inputs_.push_back(made_[i]);
    else cut_rest(made_[i]);
  }
}

void Walk::cut_inputs() {
  if (inputs_.empty()) return;
  for (const std::int32_t tensor : std::exchange(inputs_, {})) cut_rest(tensor);
}

// Makes the last tensor that a source still needs to make, if that frees memory.
void Walk::cut_last(std::int32_t target) {
  const std::int32_t source = tensors_[target].source;
  if (frees(source, target)) move(source, target);
}

// Returns whether a transient tensor is larger than the tensor made from it.
bool Walk::frees(std::int32_t source, std::int32_t target) {
  if (tensors_[source].life < 0 || tensors_[target].updated) return false;
  const Path& path = path_to(target);
  return !path.steps.empty() && path.steps.back().bytes < lives_[tensors_[source].life].bytes;
}

// A tensor without a life takes no memory.
void Walk::use(std::int32_t life) {
  if (life < 0) return;
  lives_[life].last = step_;
  if (joins_) tasks_.reads.values.push_back(life);
}

std::int32_t Walk::define(std::int32_t value, std::int32_t layout, std::int64_t bytes) {
  lives_.push_back({value, layout, step_, step_, bytes});
  if (joins_)
    (is_there_ ? tasks_.given : tasks_.makes.values).push_back(std::int32_t(lives_.size()) - 1);
  return std::int32_t(lives_.size()) - 1;
}

void Walk::note_task(std::int32_t key, double bytes, double compute_s, double sent_s, Beside beside,
                     std::int64_t lands) {
  task_nodes_.push_back(running_);
  tasks_.key.push_back(key);
  tasks_.bytes.push_back(bytes);
  tasks_.compute_s.push_back(compute_s);
  tasks_.sent_s.push_back(sent_s);
  tasks_.beside.push_back(beside);
  tasks_.lands.push_back(lands);
  const bool any = program_.nodes() > 0;  // else only the return runs
  tasks_.part.push_back(any && (program_.flags[running_] & Program::Update) != 0);
  for (Rows* rows : {&tasks_.reads, &tasks_.makes, &tasks_.after}) rows->close();
  for (; key >= std::int32_t(times_.size());)
    times_.push_back(costing_->collective(std::int32_t(times_.size())));
}

// Adds the return, the last task.
void Walk::end_tasks() {
  end_task(0, 0);
  for (const Record::Life& life : lives_) tasks_.size.push_back(life.bytes);
}

// Costs the program with fused and overlapped collectives, in the order in which it then runs.
void Walk::arrange_collectives(const Overlapping& how) {
  end_tasks();
  const auto [joined, overlapped] = join_beside(tasks_, times_, how);
  cost_.is_limited = overlapped.is_limited;
  if (!joined.any && !overlapped.any) return;
  for (const auto& [seconds, updates] : saved_s(joined, tasks_, times_)) {
    cost_.communication_s -= (updates ? 1 : program_.batches) * seconds;
    if (updates) cost_.update_s -= seconds;
  }
  cost_.hidden_s = program_.batches * overlapped.hidden_s[0] + overlapped.hidden_s[1];
  cost_.update_s -= overlapped.hidden_s[1];
  cost_.transient_bytes = overlapped.peak;
  note_lives(overlapped.places);
  if (!record_) return;
  record_->group = joined.group;
  record_->place = overlapped.places.place;
  if (!overlapped.any) return;
  record_->begin_s = overlapped.begin_s;
  record_->until = overlapped.places.until;
}

// A started collective stores its result elsewhere until it can overwrite old state.
void Walk::note_lives(const Places& places) {
  const std::vector<Span> spans = spans_of(tasks_, places);
  for (std::size_t life = 0; life < lives_.size(); ++life) {
    lives_[life].first = spans[life].first;
    lives_[life].last = spans[life].last;
  }
  for (Record::Life landing : landings_) {
    const std::int64_t task = landing.first;
    landing.first = places.place[task];
    landing.last = places.until[task];
    if (landing.last > landing.first) lives_.push_back(landing);
  }
}

// Counts each constant once per layout in which it is read.
std::int64_t Walk::constant_bytes() {
  std::sort(constants_.begin(), constants_.end());
  std::int64_t total = 0;
  for (std::size_t i = 0; i < constants_.size(); ++i)
    if (i == 0 || constants_[i].first != constants_[i - 1].first) total += constants_[i].second;
  return total;
}

// Returns the most live bytes in any step; operands and results of a step are live in it.
std::int64_t Walk::peak_bytes() const {
  std::vector<std::int64_t> change(std::size_t(step_) + 2, 0);
  for (const Record::Life& life : lives_) {
    change[life.first] += life.bytes;
    change[life.last + 1] -= life.bytes;
  }
  std::int64_t alive = 0, peak = 0;
  for (const std::int64_t by : change) peak = std::max(peak, alive += by);
  return peak;
}

std::vector<std::int32_t> Walk::lives_read(std::size_t node) const {
  std::vector<std::int32_t> found;
  for (std::int32_t i = program_.operands_begin[node]; i < program_.operands_begin[node + 1]; ++i) {
    const std::int32_t life = tensors_[read_[i]].life;
    if (life >= 0 && std::find(found.begin(), found.end(), life) == found.end())
      found.push_back(life);
  }
  return found;
}

std::vector<std::int32_t> Walk::lives_made(std::size_t node) const {
  std::vector<std::int32_t> found;
  if (program_.flags[node] & Program::Alias) return found;
  for (std::int32_t i = program_.results_begin[node]; i < program_.results_begin[node + 1]; ++i)
    if (const std::int32_t life = tensors_[made_[i]].life; life >= 0) found.push_back(life);
  return found;
}

std::vector<Life> Walk::lives(const Images& images, const Record& record) const {
  std::vector<ReadTensor> tensors;
  for (const Record::Life& life : lives_) {
    const bool is_tensor = life.value >= 0 && life.layout >= 0;
    tensors.emplace_back(life.first, life.last, life.bytes,
                         is_tensor ? images.values[life.value] : std::uint8_t(0));
  }
  const auto moment = [&record](const Record::Event& event) {
    return record.place.empty() ? event.moment : record.place[event.moment];
  };
  std::vector<Record::Event> events = record.events;
  if (!record.place.empty())
    std::stable_sort(events.begin(), events.end(),
                     [&](const auto& a, const auto& b) { return moment(a) < moment(b); });
  std::vector<ReadTensor*> read, made;
  const auto found = [&tensors](const std::vector<std::int32_t>& lives,
                                std::vector<ReadTensor*>& into) {
    into.clear();
    for (const std::int32_t life : lives)
      if (!tensors[life].is_outside()) into.push_back(&tensors[life]);
  };
  for (const Record::Event& event : events) {
    if (event.value >= 0) {
      if (event.life >= 0) tensors[event.life].read(moment(event), false);
      continue;
    }
    found(lives_read(event.node), read);
    found(lives_made(event.node), made);
    note_run(images.nodes[event.node], moment(event), read, made);
  }
  std::vector<Life> lives;
  for (const ReadTensor& tensor : tensors) tensor.add_to(lives);
  return lives;
}

}  // namespace tensoropt::program
