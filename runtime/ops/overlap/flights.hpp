// Which transfers are between their start and their wait.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace tensoropt {

// A transfer that was started.
class Flight {
 public:
  // `kind`: of its collective ("AllReduce"). `reads` has to stay as it is until the transfer is
  // done.
  Flight(const void* owner, std::string kind, std::vector<const void*> reads)
      : owner(owner), kind(std::move(kind)), reads(std::move(reads)) {}
  virtual ~Flight() = default;
  Flight(const Flight&) = delete;

  // Whoever reads the results next, on the host or on a device's `stream`, has them. Throws what
  // the transfer has thrown.
  virtual void join(void* stream) = 0;

  // Returns when nothing is read or written any more.
  virtual void end() = 0;

  const void* const owner;
  const std::string kind;
  const std::vector<const void*> reads;
};

// By the memory of their handles, which is each one's own as long as it is under way.
class Flights {
 public:
  // Throws where an earlier run has left one of this handle or owner behind.
  void check_none(const void* handle, const void* owner);

  void add(const void* handle, std::unique_ptr<Flight> flight);

  // Throws where there is none.
  std::unique_ptr<Flight> take(const void* handle);

  bool any();

  // Ends those of `owner`, and forgets them.
  void forget(const void* owner);

  void forget_all();

 private:
  template <class Chosen>
  void forget_if(const Chosen& chosen);

  std::mutex mutex_;
  std::map<const void*, std::unique_ptr<Flight>> flights_;
};

// Those of this process, which are never destroyed.
Flights& flights();

// Ends all transfers of this process, as after a run that failed between a start and its wait: the
// memory that they would write to is no longer theirs.
void settle_transfers();

// Runs `body`, a kernel. Where it throws, ONNX Runtime takes the memory of the run back.
template <class Body>
void settling(const Body& body) {
  try {
    body();
  } catch (...) {
    settle_transfers();
    throw;
  }
}

}  // namespace tensoropt
