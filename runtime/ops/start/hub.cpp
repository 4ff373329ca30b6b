#include "start/hub.hpp"

#include <poll.h>

#include <algorithm>
#include <future>
#include <sstream>
#include <thread>

#include "error.hpp"

namespace tensoropt {
namespace {

constexpr std::size_t kMostHello = 512, kMostLine = 8192, kMostWaiting = 1 << 20;
constexpr std::size_t kMostUnknown = 256;  // connections that have not identified themselves
constexpr const char* kNoLine = " sends what is no line, or reads nothing";
constexpr double kHelloTimeout = 10, kFlushTimeout = 1;
constexpr double kCrowdedTimeout = 0.5;  // to identify oneself while other connections are queued
constexpr double kCallTimeout = 2;       // seconds for ranks to answer a liveness probe
constexpr double kLastWords = 5;         // seconds that rank 0 waits for other ranks at its exit

std::future<void> hub_is_over;

// Text from an unidentified peer, made printable.
std::string shown(std::string text) {
  text.resize(std::min<std::size_t>(text.size(), 40));
  for (char& c : text)
    if (c < ' ' || c > '~') c = '?';
  return text;
}

std::string listed(const std::vector<int>& ranks) {
  constexpr std::size_t kMost = 8;
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < std::min(ranks.size(), kMost); ++i)
    text += (i ? ", " : "") + std::to_string(ranks[i]);
  return text + (ranks.size() > kMost ? ", ..." : "");
}

}  // namespace

Hub::Hub(Socket listener, const Wanted& wanted)
    : listener_(std::move(listener)), wanted_(wanted), size_(std::size_t(wanted.size)),
      until_(after(wanted.timeout_s)), tokens_(size_), machines_(size_),
      name_(wanted.name.empty() ? new_nonce() : wanted.name), pmi_(machines_, name_) {}

void Hub::adopt(Socket socket) { guests_.push_back({std::move(socket), Clock::now()}); }

void Hub::run() {
  while (!is_over()) {
    wait();
    if (listener_) accept_all();
    for (auto& guest : guests_)
      if (guest.is_due) serve(guest);
    sweep();
    check_time();
  }
  flush(after(kFlushTimeout));
}

void Hub::wait() {
  std::vector<pollfd> waited;
  if (listener_) waited.push_back({listener_.fd(), short(is_crowded() ? 0 : POLLIN), 0});
  for (const auto& guest : guests_)
    waited.push_back({guest.socket.fd(), short(POLLIN | (guest.out.empty() ? 0 : POLLOUT)), 0});
  poll(waited.data(), waited.size(), milliseconds_until(next_look()));
  auto each = waited.begin() + (listener_ ? 1 : 0);
  for (auto& guest : guests_) guest.is_due = (each++)->revents != 0;
}

Moment Hub::next_look() const {
  auto until = is_ready_ ? after(3600) : until_;
  if (verdict_) until = std::min(until, verdict_->until);
  for (const auto& guest : guests_)
    if (guest.role == Role::Unknown) until = std::min(until, guest.since + patience());
  return until;
}

Clock::duration Hub::patience() const {
  return seconds(is_crowded() ? kCrowdedTimeout : kHelloTimeout);
}

bool Hub::is_crowded() const {
  return std::size_t(std::count_if(guests_.begin(), guests_.end(), [](auto& guest) {
           return guest.role == Role::Unknown;
         })) >= kMostUnknown;
}

void Hub::accept_all() {
  while (!is_crowded()) {
    auto socket = accept_from(listener_);
    if (!socket) return;
    adopt(std::move(socket));
  }
}

void Hub::serve(Guest& guest) {
  const bool is_open = receive_some(guest.socket, guest.in) && send_some(guest.socket, guest.out);
  std::string line;
  while (!guest.is_leaving && take_line(guest.in, line)) take(guest, line);
  const auto most = guest.role == Role::Unknown ? kMostHello : kMostLine;
  if (guest.is_leaving) guest.in.clear();
  else if (guest.in.size() > most || guest.out.size() > kMostWaiting)
    is_ready_ ? end(name(guest.rank) + kNoLine) : refuse(guest, Refusal::Line);
  if (!is_open) lost(guest);
}

void Hub::take(Guest& guest, const std::string& line) {
  if (guest.role == Role::Unknown) greet(guest, line);
  else if (guest.role == Role::Control) take_control(guest, line);
  else take_pmi(guest, line);
}

void Hub::greet(Guest& guest, const std::string& line) {
  if (!guest.talk.hello.empty()) return check_proof(guest, line);
  std::istringstream words(line);
  std::string name, version;
  words >> name >> version;
  if (name != "tensoropt") return refuse(guest, Refusal::Line);
  if (version != kProtocol) return refuse(guest, Refusal::Version);
  guest.talk = {line, new_nonce()};
  guest.out += "challenge " + guest.talk.nonce + "\n";
}

void Hub::check_proof(Guest& guest, const std::string& line) {
  const auto& key = wanted_.identity.key;
  if (!is_same_proof(line, "proof " + proof_of(key, "rank", guest.talk, "")))
    return refuse(guest, Refusal::Secret);
  Hello hello;
  std::istringstream words(guest.talk.hello);
  std::string name, version, role;
  words >> name >> version >> role >> hello.rank >> hello.size >> hello.machine >> hello.job >>
      hello.token;
  if (role == "control") hello.role = Role::Control;
  if (role == "pmi") hello.role = Role::Pmi;
  const auto why = words ? why_not(hello) : "a first line that cannot be read";
  if (!why.empty()) return deny(guest, why);
  admit(guest, hello);
}

// The reason to deny a rank that has the secret; empty if there is none.
std::string Hub::why_not(const Hello& hello) {
  const auto who = "rank " + std::to_string(hello.rank);
  if (hello.role == Role::Unknown) return "a first line that cannot be read";
  if (const auto what = difference(wanted_.identity.job, hello.job); !what.empty())
    return who + " has another " + shown(what) + " than rank 0, expected one job on one port";
  if (hello.size != wanted_.size)
    return who + " has " + std::to_string(hello.size) + " ranks, expected " +
           std::to_string(size_) + " as on rank 0";
  if (hello.rank < 0 || hello.rank >= hello.size)
    return who + " does not exist, expected below " + std::to_string(hello.size);
  const bool is_known =
      hello.role == Role::Control || hello.token == tokens_[std::size_t(hello.rank)];
  if (is_known && !guest_of(hello.role, hello.rank) && !is_ready_) return "";
  return who + " is there already, expected every rank once";
}

// Answers a peer without proof with one word, which reveals nothing about the job.
void Hub::refuse(Guest& guest, Refusal what) {
  const char *word = "line", *why = "who is not a rank of tensoropt";
  if (what == Refusal::Version) word = "version", why = "a rank of another release of tensoropt";
  if (what == Refusal::Secret) word = "secret", why = "a rank whose secret is not that of rank 0";
  remember(what, why);
  guest.out += "refused " + std::string(word) + "\n";
  guest.is_leaving = true;
}

// Rejects a rank that has the secret, but does not belong to this job.
void Hub::deny(Guest& guest, const std::string& why) {
  remember(Refusal::Denied, why);
  answer(guest, "denied", why);
  guest.is_leaving = true;
}

// Sends an answer with the hub's proof.
void Hub::answer(Guest& guest, const std::string& verb, const std::string& rest) {
  const auto proof = proof_of(wanted_.identity.key, "hub", guest.talk, verb + " " + rest);
  guest.out += verb + " " + proof + " " + rest + "\n";
}

// Keeps the most informative refusal, so that noise does not hide a fault that users can fix.
void Hub::remember(Refusal what, const std::string& why) {
  if (what >= refusal_) refusal_ = what, why_refused_ = why;
}

void Hub::admit(Guest& guest, const Hello& hello) {
  guest.role = hello.role;
  guest.rank = hello.rank;
  auto& token = tokens_[std::size_t(hello.rank)];
  if (hello.role == Role::Control) {
    machines_[std::size_t(hello.rank)] = hello.machine;
    token = new_nonce();
  }
  answer(guest, "accepted", token);
  start_if_complete();
}

void Hub::start_if_complete() {
  const auto here =
      std::count_if(guests_.begin(), guests_.end(), [](auto& guest) { return guest.rank >= 0; });
  if (std::size_t(here) < size_ * (wanted_.with_pmi ? 2 : 1)) return;
  is_ready_ = true;
  listener_ = Socket();
  let_go_of_strangers(Clock::now());
  pmi_ = PmiServer(machines_, name_);
  send_to_all("ready " + name_, -1);
}

void Hub::take_control(Guest& guest, const std::string& line) {
  const auto space = std::min(line.find(' '), line.size());
  const auto verb = line.substr(0, space), rest = line.substr(std::min(space + 1, line.size()));
  if (verb == "fail") return accuse(guest.rank, name(guest.rank) + ": " + rest);
  if (verb == "left")
    return accuse(guest.rank, name(guest.rank) + " ended with exit status " + rest);
  if (verb == "here") return answered(guest.rank);
  if (verb == "bye") guest.said_bye = true, answered(guest.rank);
  if (verb == "bye" && guest.rank == 0) is_leaving_ = true, send_to_all("over", 0);
  if (verb == "ask" && guest.rank == 0) send_to_all("where", -1);
  if (verb != "at") return;
  if (auto* asker = guest_of(Role::Control, 0))
    asker->out += "at " + std::to_string(guest.rank) + " " + rest + "\n";
}

void Hub::take_pmi(Guest& guest, const std::string& line) try {
  if (!is_ready_) throw Error("speaks before all ranks are there");
  for (const auto& answer : pmi_.take(guest.rank, line)) {
    auto* to = answer.rank == guest.rank ? &guest : guest_of(Role::Pmi, answer.rank);
    if (to) to->out += answer.line + "\n";
  }
} catch (const Error& error) {
  accuse(guest.rank, name(guest.rank) + " " + error.what());
}

void Hub::lost(Guest& guest) {
  const bool has_said_why = verdict_ && verdict_->rank == guest.rank;
  if (guest.role == Role::Control && is_ready_ && !guest.said_bye && !has_said_why)
    end(name(guest.rank) + " ended");
  guest.is_leaving = true;
  guest.out.clear();
}

// Accepts the first rank's failure once all other ranks have answered; its last message counts.
void Hub::accuse(int rank, const std::string& why) {
  if (has_ended_ || is_leaving_ || (verdict_ && verdict_->rank != rank)) return;
  if (verdict_) return void(verdict_->why = why);
  verdict_ = {rank, why, after(kCallTimeout), {}};
  for (const auto& guest : guests_)
    if (guest.role == Role::Control && guest.rank != rank && !guest.said_bye)
      verdict_->silent.insert(guest.rank);
  send_to_all("call", rank);
  answered(rank);
}

void Hub::answered(int rank) {
  if (!verdict_) return;
  verdict_->silent.erase(rank);
  if (verdict_->silent.empty()) believe();
}

void Hub::believe() {
  end(verdict_->why);
  verdict_.reset();
}

// Removes connections that are leaving; a rank that leaves before the start may connect again.
void Hub::sweep() {
  std::vector<int> gone;
  for (const auto& guest : guests_)
    if (guest.is_leaving && guest.out.empty() && guest.role == Role::Control)
      gone.push_back(guest.rank);
  guests_.remove_if([&](auto& guest) {
    const bool goes_along = !is_ready_ && std::count(gone.begin(), gone.end(), guest.rank);
    return (guest.is_leaving && guest.out.empty()) || (guest.rank >= 0 && goes_along);
  });
}

// Drops connections that have not identified themselves in time; all of them once the job is ready.
void Hub::let_go_of_strangers(Moment since) {
  for (auto& guest : guests_) {
    if (guest.role != Role::Unknown || guest.since > since) continue;
    guest.is_leaving = true;
    guest.out.clear();
  }
}

void Hub::check_time() {
  const auto now = Clock::now();
  let_go_of_strangers(now - patience());
  if (verdict_ && now >= verdict_->until) believe();
  if (is_ready_ || now < until_) return;
  std::ostringstream seconds;
  seconds << wanted_.timeout_s;
  end(missing() + " of " + std::to_string(size_) + " did not come within " + seconds.str() + " s" +
      (why_refused_.empty() ? "" : " (refused: " + why_refused_ + ")"));
}

std::string Hub::missing() const {
  std::vector<int> ranks;
  for (int rank = 0; rank < int(size_); ++rank) {
    const auto here = std::count_if(guests_.begin(), guests_.end(),
                                    [&](auto& guest) { return guest.rank == rank; });
    if (here < (wanted_.with_pmi ? 2 : 1)) ranks.push_back(rank);
  }
  return listed(ranks);
}

// Rank 0 is informed last: its process, which this thread is part of, then ends.
void Hub::end(const std::string& why) {
  if (has_ended_ || is_leaving_) return;
  has_ended_ = true;
  listener_ = Socket();
  send_to_all("end " + why, 0);
  flush(after(kFlushTimeout));
  if (auto* mine = guest_of(Role::Control, 0)) mine->out += "end " + why + "\n";
}

void Hub::send_to_all(const std::string& line, int except) {
  for (auto& guest : guests_)
    if (guest.role == Role::Control && guest.rank != except) guest.out += line + "\n";
}

void Hub::flush(Moment until) {
  for (auto& guest : guests_) {
    if (!guest.out.empty() && !guest.is_leaving) send_all(guest.socket, guest.out, until);
    guest.out.clear();
  }
}

bool Hub::is_over() const {
  if (has_ended_) return true;
  return is_leaving_ && std::none_of(guests_.begin(), guests_.end(), [&](auto& guest) {
           return guest.role == Role::Pmi && !pmi_.has_finished(guest.rank);
         });
}

std::string Hub::name(int rank) const {
  return "rank " + std::to_string(rank) + " of " + std::to_string(size_);
}

Hub::Guest* Hub::guest_of(Role role, int rank) {
  for (auto& guest : guests_)
    if (guest.role == role && guest.rank == rank && !guest.is_leaving) return &guest;
  return nullptr;
}

void run_aside(Hub* hub) {
  std::promise<void> over;
  hub_is_over = over.get_future();
  std::thread([hub, over = std::move(over)]() mutable { hub->run(), over.set_value(); }).detach();
}

void wait_for_hub() {
  if (hub_is_over.valid()) hub_is_over.wait_for(std::chrono::duration<double>(kLastWords));
}

}  // namespace tensoropt
