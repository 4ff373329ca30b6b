// The server side of PMI-1, the protocol that connects MPICH's processes: a key-value store and a
// barrier. (MPICH, doc/wiki/design/PMI.md; version 1.1 on the wire.)
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

  // `machines[r]` names the machine of rank r. Ranks of one machine share memory, which MPICH finds
  // by the name of the job, so the name must never have been used before.
  PmiServer(const std::vector<std::string>& machines, const std::string& job);

  // Handles a line from `rank` and returns the answers. Throws `Error` for an invalid request, and
  // if the store would exceed the size that MPICH can need.
  std::vector<Answer> take(int rank, const std::string& line);

  // True if `rank` has sent its last request.
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
