#include "start/control.hpp"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <fstream>
#include <functional>
#include <mutex>
#include <sstream>
#include <thread>

#include "cuda/nccl_group.hpp"
#include "error.hpp"
#include "progress.hpp"
#include "start/shared_memory.hpp"

namespace tensoropt {
namespace {

constexpr double kEndTimeout = 2;
constexpr double kVerdictTimeout = 2 * kEndTimeout;  // the hub calls all ranks in this time
constexpr double kBetweenTries = 0.1;
constexpr double kIntroduction = 30;  // seconds; a hub answers immediately
constexpr std::size_t kMostText = 2000;

// The connection was lost; a retry may succeed.
struct Lost : Error {
  using Error::Error;
};

std::string first_line_of(const char* path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// Equal for two processes that share memory: they run on the same boot of the same kernel, and
// neither has a container of its own.
std::string machine() {
  char host[256] = "", ipc[64] = "";
  gethostname(host, sizeof host - 1);
  if (readlink("/proc/self/ns/ipc", ipc, sizeof ipc - 1) < 0) *ipc = 0;
  const auto text = first_line_of("/proc/sys/kernel/random/boot_id") + host + ipc;
  return std::to_string(std::hash<std::string>()(text));
}

struct Line {
  std::string verb, rest;
};

Line split(const std::string& line) {
  const auto space = std::min(line.find(' '), line.size());
  return {line.substr(0, space), line.substr(std::min(space + 1, line.size()))};
}

// The next line from rank 0, or from a process that has taken its address.
Line hear(const Visit& visit, const Socket& socket, std::string& read, Moment until) try {
  return split(receive_line(socket, read, until));
} catch (const Error& error) {
  throw Lost("rank 0 at " + visit.where + " " + error.what());
}

// The error for "refused WHAT", or for any other word without proof; such words are not repeated.
Error unproved(const Visit& visit, const Line& line) {
  if (line.verb != "refused") return Error(visit.where + " is no rank 0 of tensoropt");
  const auto rank_0 = "rank 0 at " + visit.where;
  if (line.rest == "version")
    return Error(rank_0 + " is of another release, expected one release of tensoropt on all ranks");
  if (line.rest != "secret") return Error(visit.where + " is no rank 0 of tensoropt");
  return Error("the secret of " + rank_0 + " is another one, expected the same TENSOROPT_SECRET, " +
               "or the same ~/.config/tensoropt/secret, on every machine, got: that of " +
               visit.identity.source);
}

// Returns the token of the hub's "accepted PROOF TOKEN"; "denied PROOF WHY" is an error.
std::string proved(const Visit& visit, const Talk& talk, const Line& line) {
  const auto [proof, rest] = split(line.rest);
  if (line.verb != "accepted" && line.verb != "denied") throw unproved(visit, line);
  if (!is_same_proof(proof, proof_of(visit.identity.key, "hub", talk, line.verb + " " + rest)))
    throw Error(visit.where + " is no rank 0 of this job: it does not know the secret");
  if (line.verb == "denied") throw Error("refused by rank 0 at " + visit.where + ": " + rest);
  return rest;
}

std::string hello_of(const Visit& visit, const std::string& role, const std::string& token) {
  std::ostringstream hello;
  hello << "tensoropt " << kProtocol << " " << role << " " << visit.rank << " " << visit.size << " "
        << machine() << " " << visit.identity.job << " " << token << " " << new_nonce();
  return hello.str();
}

// Sends and proves this rank's identity on a new connection; returns the token, after the hub has
// proved itself, too.
std::string greet(const Visit& visit, const std::string& role, const std::string& token,
                  const Socket& socket, std::string& read, Moment until) {
  Talk talk{.hello = hello_of(visit, role, token)};
  send_all(socket, talk.hello + "\n", until);
  const auto challenge = hear(visit, socket, read, until);
  if (challenge.verb != "challenge") throw unproved(visit, challenge);
  talk.nonce = challenge.rest;
  send_all(socket, "proof " + proof_of(visit.identity.key, "rank", talk, "") + "\n", until);
  return proved(visit, talk, hear(visit, socket, read, until));
}

// Opens both connections. Gives up early if a connection is accepted but not answered.
Joined introduce_once(const Visit& visit, Moment until) {
  Joined joined{visit.connect(), {}};
  const auto token = greet(visit, "control", "-", joined.control, joined.read,
                           std::min(until, after(kIntroduction)));
  std::string read;  // later bytes of this connection are for MPICH
  if (visit.with_pmi) joined.pmi = visit.connect();
  if (visit.with_pmi)
    greet(visit, "pmi", token, joined.pmi, read, std::min(until, after(kIntroduction)));
  return joined;
}

// Retries until a hub answers: the first connections may reach a rank 0 of an earlier job that is
// just ending.
Joined introduce(const Visit& visit, Moment until) {
  for (;;) try {
      return introduce_once(visit, until);
    } catch (const Lost&) {
      if (Clock::now() >= until) throw;
      std::this_thread::sleep_for(seconds(kBetweenTries));
    }
}

// Returns JOB of the hub's "ready JOB". The hub has proved itself, so its "end WHY" is trusted.
std::string wait_for_others(const Visit& visit, Joined& joined, Moment until) {
  const auto line = hear(visit, joined.control, joined.read, until);
  if (line.verb == "ready") return line.rest;
  throw Error(line.verb == "end" ? line.rest : visit.where + " is no rank 0 of tensoropt");
}

std::string one_line(std::string text) {
  text.resize(std::min(text.size(), kMostText));
  std::replace_if(text.begin(), text.end(), [](char c) { return c >= 0 && c < ' '; }, ' ');
  return text;
}

struct State {
  Socket socket;
  int rank = 0, size = 0;
  std::string job{};
  std::mutex mutex{};  // guards the members below
  std::condition_variable changed{};
  std::map<int, std::string> answers{};
  std::string last_line{};  // final line that a thread has sent to the hub before the process ends
  std::string why{};        // reason of the job's failure, from the hub
  bool is_over = false;     // the job has ended
};

State* state = nullptr;  // never freed: the thread reads it until the process ends

std::string own_name() {
  return "rank " + std::to_string(state->rank) + " of " + std::to_string(state->size);
}

void send_line(const std::string& line) {
  static std::mutex mutex;  // lines of two threads must not mix
  const std::lock_guard lock(mutex);
  send_all(state->socket, line + "\n", after(kEndTimeout));
}

// Aborting may itself block on a device that does not respond.
void abort_communicators() {
  static std::atomic<bool> is_done = false;
  std::thread([] { abort_nccl_groups(), is_done = true; }).detach();
  const auto until = after(kEndTimeout);
  while (!is_done && Clock::now() < until)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
}

void print(const std::string& error) {
  const auto text = "error: " + error + "\n";
  [[maybe_unused]] const auto written = write(STDERR_FILENO, text.data(), text.size());
}

// Prints the reason first: after aborting, other threads return with errors of their own.
[[noreturn]] void end_process(const std::string& why) {
  print(why);
  abort_communicators();
  forget_shared_memory(state->job);
  _exit(1);
}

// Ends the job, with a failure `why` unless it is empty. A process that is already leaving
// continues to do so.
void be_over(const std::string& why) {
  {
    const std::lock_guard lock(state->mutex);
    state->is_over = true;
    state->why = why;
    if (!state->last_line.empty() || why.empty()) return state->changed.notify_all();
  }
  end_process(why);
}

void keep_answer(std::istringstream& words) {
  int rank = -1;
  std::string text;
  words >> rank >> std::ws;
  std::getline(words, text);
  const std::lock_guard lock(state->mutex);
  if (rank >= 0 && rank < state->size) state->answers[rank] = text;
  state->changed.notify_all();
}

// Handles one line of the hub; returns false after the last.
bool take(const std::string& line) {
  std::istringstream words(line);
  std::string verb;
  words >> verb;
  if (verb == "call") send_line("here");
  if (verb == "where") send_line("at " + std::to_string(moves()) + " " + one_line(where()));
  if (verb == "at") keep_answer(words);
  if (verb == "end") be_over(line.substr(std::min<std::size_t>(4, line.size())));
  if (verb == "over") be_over("");
  return verb != "end" && verb != "over";
}

void read_lines(std::string read) {
  for (;;) {
    std::string line;
    try {
      line = receive_line(state->socket, read, after(3600));
    } catch (const Error& error) {
      if (!strcmp(error.what(), kTimedOut)) continue;
      return be_over("rank 0 of " + std::to_string(state->size) + " ended");
    }
    if (!take(line)) return;
  }
}

// True if the job ended by a message of this rank.
bool is_own(const std::string& why) { return why.empty() || why.starts_with(own_name()); }

// Waits for the hub to report the cause of the job's end.
void wait_for_verdict(std::unique_lock<std::mutex>& lock) {
  state->changed.wait_for(lock, seconds(kVerdictTimeout), [] { return state->is_over; });
  if (is_own(state->why)) return;
  const auto why = state->why;
  lock.unlock();
  end_process(why);
}

// Sends a final line; only the first counts. If the process already ends because the job has
// failed, waits for that.
void leave(const std::string& line) {
  std::unique_lock lock(state->mutex);
  const bool is_first = state->last_line.empty();
  if (line == "bye" ? !is_first || state->is_over : state->last_line == "bye") return;
  if (is_first && state->is_over) {
    lock.unlock();
    std::this_thread::sleep_for(seconds(kVerdictTimeout));
    return;
  }
  if (is_first) send_line(state->last_line = line);
  if (line != "bye") wait_for_verdict(lock);
}

}  // namespace

Joined join(const Visit& visit) {
  auto joined = introduce(visit, after(visit.timeout_s));
  // Rank 0 names the missing ranks when its time is up; it may have started later than this rank.
  joined.job = wait_for_others(visit, joined, after(2 * visit.timeout_s));
  return joined;
}

void watch(Joined joined, int rank, int size) {
  state = new State{.socket = std::move(joined.control),
                    .rank = rank,
                    .size = size,
                    .job = std::move(joined.job)};
  std::thread(read_lines, std::move(joined.read)).detach();
}

bool is_watched() { return state; }

void say_bye() {
  if (state) leave("bye");
}

void say_fail(const std::string& why) {
  if (state) leave("fail " + one_line(why));
}

void wait_for_the_end() {
  if (state) std::this_thread::sleep_for(seconds(kVerdictTimeout));
}

void say_left(int status) {
  if (state) leave("left " + std::to_string(status));
}

std::map<int, std::string> ask_all(double seconds) {
  if (!state) return {};
  std::unique_lock lock(state->mutex);
  state->answers.clear();
  send_line("ask");
  state->changed.wait_for(lock, std::chrono::duration<double>(seconds),
                          [] { return int(state->answers.size()) == state->size; });
  return state->answers;
}

}  // namespace tensoropt
