#include "start/pmi_server.hpp"

#include <algorithm>

#include "error.hpp"

namespace tensoropt {
namespace {

constexpr std::size_t kMostKey = 64, kMostValue = 4096;
constexpr std::size_t kMostBytesPerRank = 1 << 18;

// Parses "cmd=put kvsname=kvs_0 key=a value=b": words of the form name=value; `value` extends to
// the end of the line.
std::map<std::string, std::string> parse(const std::string& line) {
  std::map<std::string, std::string> fields;
  std::size_t start = 0;
  while (start < line.size()) {
    const auto end = std::min(line.find(' ', start), line.size());
    const auto equals = line.find('=', start);
    if (equals < end) {
      const auto name = line.substr(start, equals - start);
      if (name == "value") return fields[name] = line.substr(equals + 1), fields;
      fields[name] = line.substr(equals + 1, end - equals - 1);
    }
    start = end + 1;
  }
  return fields;
}

std::string field(const std::map<std::string, std::string>& fields, const char* name) {
  const auto found = fields.find(name);
  return found == fields.end() ? "" : found->second;
}

// Blocks (first machine, machines, ranks on each), in the order of ranks. Empty if it would be too
// long; then MPICH compares host names.
std::string mapping_of(const std::vector<std::string>& machines) {
  std::map<std::string, std::size_t> numbers;
  std::string text = "(vector";
  for (std::size_t rank = 0; rank < machines.size();) {
    const auto number = numbers.try_emplace(machines[rank], numbers.size()).first->second;
    const auto first = rank;
    while (rank < machines.size() && machines[rank] == machines[first]) ++rank;
    text += ",(" + std::to_string(number) + ",1," + std::to_string(rank - first) + ")";
  }
  text += ')';
  return text.size() <= kMostValue ? text : "";
}

}  // namespace

PmiServer::PmiServer(const std::vector<std::string>& machines, const std::string& job)
    : size_(machines.size()), job_(job), finished_(size_), waiting_(size_) {
  const auto mapping = mapping_of(machines);
  if (!mapping.empty()) values_["PMI_process_mapping"] = mapping;
}

std::vector<PmiServer::Answer> PmiServer::take(int rank, const std::string& line) {
  const auto fields = parse(line);
  const auto command = field(fields, "cmd");
  if (command == "abort") throw Error("called MPI_Abort");
  if (command == "put") return {{rank, put(fields)}};
  if (command == "get") return {{rank, get(fields)}};
  if (command == "barrier_in") return enter_barrier(rank);
  if (command == "finalize") finished_[std::size_t(rank)] = true;
  const auto answer = simple(command);
  if (answer.empty()) throw Error("asks for what is not served here: " + command.substr(0, 40));
  return {{rank, answer}};
}

std::string PmiServer::simple(const std::string& command) const {
  if (command == "init") return "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0";
  if (command == "get_maxes")
    return "cmd=maxes kvsname_max=256 keylen_max=" + std::to_string(kMostKey) +
           " vallen_max=" + std::to_string(kMostValue);
  if (command == "get_appnum") return "cmd=appnum appnum=0";
  if (command == "get_my_kvsname") return "cmd=my_kvsname kvsname=" + job_;
  if (command == "get_universe_size") return "cmd=universe_size size=" + std::to_string(size_);
  if (command == "finalize") return "cmd=finalize_ack";
  return "";
}

std::string PmiServer::put(const Fields& fields) {
  const auto key = field(fields, "key"), value = field(fields, "value");
  if (key.empty() || key.size() > kMostKey || value.size() > kMostValue)
    throw Error("puts a key or value of no valid length");
  bytes_ += key.size() + value.size();
  if (bytes_ > kMostBytesPerRank * size_) throw Error("puts more than the store holds");
  values_[key] = value;
  return "cmd=put_result rc=0 msg=success";
}

std::string PmiServer::get(const Fields& fields) const {
  const auto found = values_.find(field(fields, "key"));
  if (found == values_.end()) return "cmd=get_result rc=-1 msg=key_not_found value=unknown";
  return "cmd=get_result rc=0 msg=success value=" + found->second;
}

std::vector<PmiServer::Answer> PmiServer::enter_barrier(int rank) {
  if (waiting_[std::size_t(rank)]) throw Error("enters a barrier twice");
  waiting_[std::size_t(rank)] = true;
  if (std::count(waiting_.begin(), waiting_.end(), true) < std::ptrdiff_t(size_)) return {};
  std::vector<Answer> answers;
  for (int each = 0; each < int(size_); ++each) answers.push_back({each, "cmd=barrier_out"});
  waiting_.assign(size_, false);
  return answers;
}

}  // namespace tensoropt
