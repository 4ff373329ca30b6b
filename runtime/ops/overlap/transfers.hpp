// Transfers that go on after a kernel has returned: one after another, on a thread of their own.
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

// From any thread. What is started is run in that order, and nothing of it at the same time.
class Transfers {
 public:
  Transfers() = default;
  ~Transfers();
  Transfers(const Transfers&) = delete;

  // Runs `body` once all that was started before is done. After a failure nothing is run until
  // `settle`: ranks no longer agree on what comes next.
  std::shared_ptr<Transfer> start(std::function<void()> body);

  // Returns when the transfer is done. Throws what it, or what failed before it, has thrown.
  void wait(const Transfer& transfer);

  // Returns when the transfer writes nothing any more, whether it has failed or not.
  void wait_for_end(const Transfer& transfer);

  // Returns when nothing is under way, at once where nothing was. Throws what a transfer has
  // thrown.
  void wait_for_all();

  // Returns when nothing is under way, and forgets a failure.
  void settle();

 private:
  void work();
  void run(Transfer& transfer, std::unique_lock<std::mutex>& lock);

  std::atomic<bool> is_idle_ = true;  // and nothing has failed
  std::mutex mutex_;                  // of what follows
  std::condition_variable changed_;
  std::deque<std::shared_ptr<Transfer>> queue_;  // the first one is being run
  std::exception_ptr failure_;
  bool is_over_ = false;
  std::thread thread_;  // begins with the first transfer
};

// Those of this process, which are never destroyed.
Transfers& transfers();

}  // namespace tensoropt
