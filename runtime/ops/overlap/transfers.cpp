#include "overlap/transfers.hpp"

#include "overlap/prompt.hpp"

namespace tensoropt {

Transfers::~Transfers() {
  {
    const std::lock_guard lock(mutex_);
    is_over_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

std::shared_ptr<Transfer> Transfers::start(std::function<void()> body) {
  auto transfer = std::make_shared<Transfer>(std::move(body));
  {
    const std::lock_guard lock(mutex_);
    if (!thread_.joinable()) thread_ = std::thread([this] { work(); });
    is_idle_ = false;
    queue_.push_back(transfer);
  }
  changed_.notify_all();
  return transfer;
}

void Transfers::wait(const Transfer& transfer) {
  wait_for_end(transfer);
  if (transfer.failure_) std::rethrow_exception(transfer.failure_);
}

void Transfers::wait_for_end(const Transfer& transfer) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return transfer.is_done_; });
}

void Transfers::wait_for_all() {
  if (is_idle_) return;
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return queue_.empty(); });
  if (failure_) std::rethrow_exception(failure_);
}

void Transfers::settle() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return queue_.empty(); });
  failure_ = nullptr;
  is_idle_ = true;
}

void Transfers::work() {
  wake_promptly();
  sleep_exactly();
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return !queue_.empty() || is_over_; });
    if (queue_.empty()) return;
    run(*queue_.front(), lock);
    queue_.pop_front();
    is_idle_ = queue_.empty() && !failure_;
    changed_.notify_all();
  }
}

void Transfers::run(Transfer& transfer, std::unique_lock<std::mutex>& lock) {
  if (!failure_) {
    std::exception_ptr failure;
    lock.unlock();
    try {
      transfer.body_();
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    failure_ = failure;
  }
  transfer.failure_ = failure_;
  transfer.body_ = nullptr;
  transfer.is_done_ = true;
}

Transfers& transfers() {
  static auto& all = *new Transfers;
  return all;
}

}  // namespace tensoropt
