// The server's side of PMI-1, the protocol by which MPICH's processes find each other: a store of
// keys and values, and a barrier. (MPICH, doc/wiki/design/PMI.md; version 1.1 on the wire.)
#pragma once

#include <map>
#include <string>
#include <vector>

namespace tensoropt {

class PmiServer {
 public:
  struct Answer {
    int rank;
    std::string line;
  };

  // `machines[r]` names the machine of rank r: ranks of one machine talk through its memory, which
  // MPICH finds by the name of the job: it must be one that no other job ever had.
  PmiServer(const std::vector<std::string>& machines, const std::string& job);

  // Takes a line that `rank` sent and returns what to send, to whom. Throws `Error` for a line that
  // is no request, and where the store would grow beyond what MPICH ever needs.
  std::vector<Answer> take(int rank, const std::string& line);

  // Whether `rank` has said its last word.
  bool has_finished(int rank) const { return finished_[std::size_t(rank)]; }

 private:
  using Fields = std::map<std::string, std::string>;

  std::string put(const Fields& fields);
  std::string get(const Fields& fields) const;
  std::vector<Answer> enter_barrier(int rank);
  std::string simple(const std::string& command) const;

  std::size_t size_;
  std::string job_;
  std::map<std::string, std::string> values_;
  std::size_t bytes_ = 0;
  std::vector<bool> finished_, waiting_;
};

}  // namespace tensoropt
