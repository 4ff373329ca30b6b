// The end of a search: a deadline or a cancellation.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <stdexcept>

namespace tensoropt::search {

struct Stopped : std::exception {
  const char* what() const noexcept override { return "stopped before the search was complete"; }
};

// The problem needs more memory than available; `what` has the figures.
struct TooLarge : std::runtime_error {
  using std::runtime_error::runtime_error;
};

class Token {
 public:
  using Clock = std::chrono::steady_clock;

  explicit Token(double limit_s) { end_within(limit_s); }
  // Ends with the other token, or before it.
  Token(const Token& whole, double limit_s) : whole_(&whole) { end_within(limit_s); }

  // Brings the end forward, never back.
  void end_within(double limit_s) {
    if (limit_s < 1e9)
      end_ = std::min(end_.load(), Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                                      std::chrono::duration<double>(limit_s)));
  }
  void cancel() { cancelled_ = true; }
  bool cancelled() const { return cancelled_; }
  bool limited() const { return end_.load() != Clock::time_point::max(); }
  bool expired() const {
    return cancelled_ || Clock::now() >= end_.load() || (whole_ && whole_->expired());
  }
  double left_s() const {
    if (!limited()) return 1e9;
    return std::max(0.0, std::chrono::duration<double>(end_.load() - Clock::now()).count());
  }
  void check() const {
    if (expired()) throw Stopped();
  }

 private:
  std::atomic<Clock::time_point> end_{Clock::time_point::max()};
  std::atomic<bool> cancelled_{false};
  const Token* const whole_ = nullptr;
};

// Sums between two checks of a token: some milliseconds if each takes as long as a point of a list.
inline constexpr double kLook = 1e5;

// Checks a token now and then.
class Lookout {
 public:
  Lookout(const Token* token, double sums_each) : token_(token), each_(sums_each) {}
  // Checks before the work begins: thousands of steps may each be too short for `done`.
  void look() const {
    if (token_) token_->check();
  }
  void done() {
    if (!token_ || (sums_ += each_) < kLook) return;
    sums_ = 0;
    look();
  }

 private:
  const Token* const token_;
  const double each_;
  double sums_ = 0;
};

}  // namespace tensoropt::search
