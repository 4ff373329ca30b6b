// Transfers that continue after a kernel has returned: in sequence, on a separate thread.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

namespace tensoropt {

class Transfer {
 public:
  explicit Transfer(std::function<void()> body) : body_(std::move(body)) {}

 private:
  friend class Transfers;

  std::function<void()> body_;
  std::exception_ptr failure_{};
  bool is_done_ = false;
};

// A queue of transfers, callable from any thread. They run one at a time, in the order of start.
class Transfers {
 public:
  Transfers() = default;
  ~Transfers();
  Transfers(const Transfers&) = delete;

  // Runs `body` after all earlier transfers. After a failure nothing runs until `settle`: the ranks
  // no longer agree on the next transfer.
  std::shared_ptr<Transfer> start(std::function<void()> body);

  // Returns when the transfer is done. Rethrows its exception, or the exception of an earlier one.
  void wait(const Transfer& transfer);

  // Returns when the transfer no longer writes, even if it has failed.
  void wait_for_end(const Transfer& transfer);

  // Returns when no transfer is in flight, without locking if none was. Rethrows a transfer's
  // exception.
  void wait_for_all();

  // Returns when no transfer is in flight, and clears a failure.
  void settle();

 private:
  void work();
  void run(Transfer& transfer, std::unique_lock<std::mutex>& lock);

  std::atomic<bool> is_idle_ = true;  // no transfer is in flight, and none has failed
  std::mutex mutex_;                  // guards the members below
  std::condition_variable changed_;
  std::deque<std::shared_ptr<Transfer>> queue_;  // the first transfer is running
  std::exception_ptr failure_;
  bool is_over_ = false;
  std::thread thread_;  // starts with the first transfer
};

// The queue of this process; never destroyed.
Transfers& transfers();

}  // namespace tensoropt
