// Transfers between their start and their wait.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace tensoropt {

// A transfer that was started and is not yet waited for.
class Flight {
 public:
  // `kind` of its collective ("AllReduce"). `reads` must not change until the transfer is done.
  Flight(const void* owner, std::string kind, std::vector<const void*> reads)
      : owner(owner), kind(std::move(kind)), reads(std::move(reads)) {}
  virtual ~Flight() = default;
  Flight(const Flight&) = delete;

  // Makes the results available to later readers, on the host or on a device's `stream`. Rethrows
  // the transfer's exception.
  virtual void join(void* stream) = 0;

  // Returns when the transfer no longer reads or writes memory.
  virtual void end() = 0;

  const void* const owner;
  const std::string kind;
  const std::vector<const void*> reads;
};

// Transfers by the address of their handles, which is unique while a transfer is in flight.
class Flights {
 public:
  // Throws if an earlier run has left a transfer of this handle or owner in flight.
  void check_none(const void* handle, const void* owner);

  void add(const void* handle, std::unique_ptr<Flight> flight);

  // Throws if there is no such transfer. If `check` throws, the transfer stays.
  std::unique_ptr<Flight> take(const void* handle, const std::function<void(const Flight&)>& check);

  bool any();

  // Ends and removes the transfers of `owner`.
  void forget(const void* owner);

  void forget_all();

 private:
  template <class Chosen>
  void forget_if(const Chosen& chosen);

  std::mutex mutex_;
  std::map<const void*, std::unique_ptr<Flight>> flights_;
};

// The transfers of this process; never destroyed.
Flights& flights();

// Ends all transfers of this process, after a run that failed between a start and its wait: the
// memory that they write to is about to be freed.
void settle_transfers();

// Runs `body`, a kernel. If it throws, ends all transfers, as ONNX Runtime frees the run's memory.
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
