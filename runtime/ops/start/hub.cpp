#include "start/hub.hpp"

#include <poll.h>

#include <algorithm>
#include <future>
#include <random>
#include <sstream>
#include <thread>

#include "ort/ort_api.hpp"

namespace tensoropt {
namespace {

constexpr const char *kVersion = "1";
constexpr std::size_t kMostHello = 512, kMostLine = 8192, kMostWaiting = 1 << 20;
constexpr std::size_t kMostUnknown = 64;  // connections that have not said who they are
constexpr const char *kNoLine = " sends what is no line, or reads nothing";
constexpr double kHelloTimeout = 10, kFlushTimeout = 1;
constexpr double kLastWords = 5;  // seconds that rank 0 waits for the others' at its exit

std::future<void> hub_is_over;

// What a stranger sent, fit to be shown.
std::string shown(std::string text) {
  text.resize(std::min<std::size_t>(text.size(), 40));
  for (char &c : text)
    if (c < ' ' || c > '~') c = '?';
  return text;
}

std::string new_token() {
  std::random_device random;
  return std::to_string(random()) + std::to_string(random());
}

std::string listed(const std::vector<int> &ranks) {
  constexpr std::size_t kMost = 8;
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < std::min(ranks.size(), kMost); ++i)
    text += (i ? ", " : "") + std::to_string(ranks[i]);
  return text + (ranks.size() > kMost ? ", ..." : "");
}

}  // namespace

Hub::Hub(Socket listener, int size, bool with_pmi, double timeout_s)
    : listener_(std::move(listener)), size_(std::size_t(size)), with_pmi_(with_pmi),
      timeout_s_(timeout_s), until_(after(timeout_s)), tokens_(size_), machines_(size_),
      pmi_(machines_, new_token()) {}

void Hub::adopt(Socket socket) { guests_.push_back({std::move(socket), after(kHelloTimeout)}); }

void Hub::run() {
  while (!is_over()) {
    wait();
    if (listener_) accept_all();
    for (auto &guest : guests_)
      if (guest.is_due) serve(guest);
    sweep();
    check_time();
  }
  flush(after(kFlushTimeout));
}

void Hub::wait() {
  std::vector<pollfd> waited;
  if (listener_) waited.push_back({listener_.fd(), POLLIN, 0});
  auto until = is_ready_ ? after(3600) : until_;
  for (const auto &guest : guests_) {
    waited.push_back({guest.socket.fd(), short(POLLIN | (guest.out.empty() ? 0 : POLLOUT)), 0});
    if (guest.role == Role::Unknown) until = std::min(until, guest.until);
  }
  poll(waited.data(), waited.size(), milliseconds_until(until));
  auto each = waited.begin() + (listener_ ? 1 : 0);
  for (auto &guest : guests_) guest.is_due = (each++)->revents != 0;
}

void Hub::accept_all() {
  auto unknown = std::count_if(guests_.begin(), guests_.end(),
                               [](auto &guest) { return guest.role == Role::Unknown; });
  for (; std::size_t(unknown) < kMostUnknown; ++unknown) {
    auto socket = accept_from(listener_);
    if (!socket) return;
    adopt(std::move(socket));
  }
}

void Hub::serve(Guest &guest) {
  const bool is_open = receive_some(guest.socket, guest.in) && send_some(guest.socket, guest.out);
  std::string line;
  while (!guest.is_leaving && take_line(guest.in, line)) take(guest, line);
  const auto most = guest.role == Role::Unknown ? kMostHello : kMostLine;
  if (guest.is_leaving)
    guest.in.clear();
  else if (guest.in.size() > most || guest.out.size() > kMostWaiting)
    is_ready_ ? end(name(guest.rank) + kNoLine) : refuse(guest, "a first line that does not end");
  if (!is_open) lost(guest);
}

void Hub::take(Guest &guest, const std::string &line) {
  if (guest.role == Role::Unknown)
    greet(guest, line);
  else if (guest.role == Role::Control)
    take_control(guest, line);
  else
    take_pmi(guest, line);
}

void Hub::greet(Guest &guest, const std::string &line) {
  std::string machine;
  const auto why = why_not(line, guest, machine);
  if (why.empty())
    admit(guest, machine);
  else
    refuse(guest, why);
}

// What is wrong with a rank's first line, empty if nothing; sets its rank and role.
std::string Hub::why_not(const std::string &line, Guest &guest, std::string &machine) {
  std::istringstream words(line);
  std::string name, version, role, token;
  int rank = -1, size = 0;
  words >> name >> version;
  if (name != "tensoropt") return "not a rank of tensoropt";
  if (version != kVersion)
    return "protocol version " + shown(version) + ", expected " + kVersion +
           ": all ranks need one release of tensoropt";
  if (!(words >> role >> rank >> size >> machine) || (role != "control" && role != "pmi"))
    return "a first line that cannot be read";
  words >> token;
  const auto who = "rank " + std::to_string(rank);
  if (size != int(size_))
    return who + " has " + std::to_string(size) + " ranks, expected " + std::to_string(size_) +
           " as on rank 0";
  if (rank < 0 || rank >= size) return who + " does not exist, expected below " + std::to_string(size);
  guest.role = role == "pmi" ? Role::Pmi : Role::Control;
  const bool is_known = guest.role == Role::Control || token == tokens_[std::size_t(rank)];
  const bool is_first = !guest_of(guest.role, rank);
  if (is_known && is_first && !is_ready_) return guest.rank = rank, "";
  guest.role = Role::Unknown;
  return who + " is there already, expected every rank once";
}

void Hub::refuse(Guest &guest, const std::string &why) {
  last_refusal_ = why;
  guest.out += "refused " + why + "\n";
  guest.is_leaving = true;
}

void Hub::admit(Guest &guest, const std::string &machine) {
  const auto rank = std::size_t(guest.rank);
  if (guest.role == Role::Control) {
    machines_[rank] = machine;
    tokens_[rank] = new_token();
    guest.out += "accepted " + tokens_[rank] + "\n";
  }
  start_if_complete();
}

void Hub::start_if_complete() {
  const auto here = std::count_if(guests_.begin(), guests_.end(),
                                  [](auto &guest) { return guest.rank >= 0; });
  if (std::size_t(here) < size_ * (with_pmi_ ? 2 : 1)) return;
  is_ready_ = true;
  listener_ = Socket();
  pmi_ = PmiServer(machines_, new_token());
  send_to_all("ready", -1);
}

void Hub::take_control(Guest &guest, const std::string &line) {
  const auto space = std::min(line.find(' '), line.size());
  const auto verb = line.substr(0, space), rest = line.substr(std::min(space + 1, line.size()));
  if (verb == "fail") return end(name(guest.rank) + ": " + rest);
  if (verb == "left") return end(name(guest.rank) + " ended with exit status " + rest);
  if (verb == "bye") guest.said_bye = true;
  if (verb == "bye" && guest.rank == 0) is_leaving_ = true, send_to_all("over", 0);
  if (verb == "ask" && guest.rank == 0) send_to_all("where", -1);
  if (verb != "at") return;
  if (auto *asker = guest_of(Role::Control, 0))
    asker->out += "at " + std::to_string(guest.rank) + " " + rest + "\n";
}

void Hub::take_pmi(Guest &guest, const std::string &line) try {
  if (!is_ready_) throw Error("speaks before all ranks are there");
  for (const auto &answer : pmi_.take(guest.rank, line)) {
    auto *to = answer.rank == guest.rank ? &guest : guest_of(Role::Pmi, answer.rank);
    if (to) to->out += answer.line + "\n";
  }
} catch (const Error &error) {
  end(name(guest.rank) + " " + error.what());
}

void Hub::lost(Guest &guest) {
  if (guest.role == Role::Control && is_ready_ && !guest.said_bye)
    end(name(guest.rank) + " ended");
  guest.is_leaving = true;
  guest.out.clear();
}

// Lets go of those who leave; a rank that goes before the start may come again.
void Hub::sweep() {
  std::vector<int> gone;
  for (const auto &guest : guests_)
    if (guest.is_leaving && guest.out.empty() && guest.role == Role::Control)
      gone.push_back(guest.rank);
  guests_.remove_if([&](auto &guest) {
    const bool goes_along = !is_ready_ && std::count(gone.begin(), gone.end(), guest.rank);
    return (guest.is_leaving && guest.out.empty()) || (guest.rank >= 0 && goes_along);
  });
}

void Hub::check_time() {
  const auto now = Clock::now();
  for (auto &guest : guests_) {
    if (guest.role != Role::Unknown || guest.until > now) continue;
    guest.is_leaving = true;
    guest.out.clear();
  }
  if (is_ready_ || now < until_) return;
  std::ostringstream seconds;
  seconds << timeout_s_;
  end(missing() + " of " + std::to_string(size_) + " did not come within " + seconds.str() + " s" +
      (last_refusal_.empty() ? "" : " (refused: " + last_refusal_ + ")"));
}

std::string Hub::missing() const {
  std::vector<int> ranks;
  for (int rank = 0; rank < int(size_); ++rank) {
    const auto here = std::count_if(guests_.begin(), guests_.end(),
                                    [&](auto &guest) { return guest.rank == rank; });
    if (here < (with_pmi_ ? 2 : 1)) ranks.push_back(rank);
  }
  return listed(ranks);
}

// Rank 0 hears it last: its process, which this thread is part of, ends then.
void Hub::end(const std::string &why) {
  if (has_ended_ || is_leaving_) return;
  has_ended_ = true;
  listener_ = Socket();
  send_to_all("end " + why, 0);
  flush(after(kFlushTimeout));
  if (auto *mine = guest_of(Role::Control, 0)) mine->out += "end " + why + "\n";
}

void Hub::send_to_all(const std::string &line, int except) {
  for (auto &guest : guests_)
    if (guest.role == Role::Control && guest.rank != except) guest.out += line + "\n";
}

void Hub::flush(Moment until) {
  for (auto &guest : guests_) {
    if (!guest.out.empty() && !guest.is_leaving) send_all(guest.socket, guest.out, until);
    guest.out.clear();
  }
}

bool Hub::is_over() const {
  if (has_ended_) return true;
  return is_leaving_ && std::none_of(guests_.begin(), guests_.end(), [&](auto &guest) {
           return guest.role == Role::Pmi && !pmi_.has_finished(guest.rank);
         });
}

std::string Hub::name(int rank) const {
  return "rank " + std::to_string(rank) + " of " + std::to_string(size_);
}

Hub::Guest *Hub::guest_of(Role role, int rank) {
  for (auto &guest : guests_)
    if (guest.role == role && guest.rank == rank && !guest.is_leaving) return &guest;
  return nullptr;
}

void run_aside(Hub *hub) {
  std::promise<void> over;
  hub_is_over = over.get_future();
  std::thread([hub, over = std::move(over)]() mutable { hub->run(), over.set_value(); }).detach();
}

void wait_for_hub() {
  if (hub_is_over.valid()) hub_is_over.wait_for(std::chrono::duration<double>(kLastWords));
}

}  // namespace tensoropt
