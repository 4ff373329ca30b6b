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
#include "ort/ort_api.hpp"
#include "progress.hpp"

namespace tensoropt {
namespace {

constexpr double kEndTimeout = 2;
constexpr double kBetweenTries = 0.1;
constexpr std::size_t kMostText = 2000;

std::string first_line_of(const char *path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// The same for two processes that share memory: the same start of the same kernel, and no container
// of its own around either.
std::string machine() {
  char host[256] = "", ipc[64] = "";
  gethostname(host, sizeof host - 1);
  if (readlink("/proc/self/ns/ipc", ipc, sizeof ipc - 1) < 0) *ipc = 0;
  const auto text = first_line_of("/proc/sys/kernel/random/boot_id") + host + ipc;
  return std::to_string(std::hash<std::string>()(text));
}

std::string hello(const char *role, int rank, int size) {
  return std::string("tensoropt 1 ") + role + " " + std::to_string(rank) + " " +
         std::to_string(size) + " " + machine();
}

// Waits for a line "`verb` REST" and returns REST; "refused WHY" and "end WHY" are errors.
std::string expect(const std::string &verb, const Socket &socket, std::string &read,
                   const std::string &where, Moment until) {
  std::string line;
  try {
    line = receive_line(socket, read, until);
  } catch (const Error &error) {
    throw Error("rank 0 at " + where + " " + error.what());
  }
  const auto space = std::min(line.find(' '), line.size());
  const auto found = line.substr(0, space), rest = line.substr(std::min(space + 1, line.size()));
  if (found == verb) return rest;
  if (found == "refused") throw Error("refused by rank 0 at " + where + ": " + rest);
  throw Error(found == "end" ? rest : where + " is no rank 0 of tensoropt");
}

// Connects and says who this is, until somebody answers: who accepted the first connections may be
// a rank 0 that is just ending.
Joined introduce(const std::function<Socket()> &connect, const std::string &text, Moment until) {
  for (;;) {
    Joined joined{connect(), {}};
    send_all(joined.control, text + "\n", until);
    try {
      joined.read = receive_line(joined.control, joined.read, until) + "\n" + joined.read;
      return joined;
    } catch (const Error &) {
      if (Clock::now() >= until) return joined;
      std::this_thread::sleep_for(std::chrono::duration<double>(kBetweenTries));
    }
  }
}

std::string one_line(std::string text) {
  text.resize(std::min(text.size(), kMostText));
  std::replace_if(text.begin(), text.end(), [](char c) { return c >= 0 && c < ' '; }, ' ');
  return text;
}

struct State {
  Socket socket;
  int size = 0;
  std::mutex mutex{};  // of what follows
  std::condition_variable changed{};
  std::map<int, std::string> answers{};
  bool is_leaving = false;  // a thread has said so to the hub
  bool is_over = false;     // the job is
};

State *state = nullptr;  // never freed: the thread reads it until the process ends

void send_line(const std::string &line) {
  static std::mutex mutex;  // lines of two threads must not mix
  const std::lock_guard lock(mutex);
  send_all(state->socket, line + "\n", after(kEndTimeout));
}

// Aborting may itself wait for a device that no longer answers.
void abort_communicators() {
  static std::atomic<bool> is_done = false;
  std::thread([] { abort_nccl_groups(), is_done = true; }).detach();
  const auto until = after(kEndTimeout);
  while (!is_done && Clock::now() < until) std::this_thread::sleep_for(std::chrono::milliseconds(5));
}

// Says why first: aborting brings threads back that then have errors of their own to tell.
[[noreturn]] void end_process(const std::string &why) {
  const auto text = "error: " + why + "\n";
  [[maybe_unused]] const auto written = write(STDERR_FILENO, text.data(), text.size());
  abort_communicators();
  _exit(1);
}

// The job is over, by `why` unless that is empty; a process that is leaving already goes on to.
void be_over(const std::string &why) {
  {
    const std::lock_guard lock(state->mutex);
    state->is_over = true;
    if (state->is_leaving || why.empty()) return state->changed.notify_all();
  }
  end_process(why);
}

void keep_answer(std::istringstream &words) {
  int rank = -1;
  std::string text;
  words >> rank >> std::ws;
  std::getline(words, text);
  const std::lock_guard lock(state->mutex);
  if (rank >= 0 && rank < state->size) state->answers[rank] = text;
  state->changed.notify_all();
}

// Returns false when there is nothing more to read.
bool take(const std::string &line) {
  std::istringstream words(line);
  std::string verb;
  words >> verb;
  if (verb == "where") send_line("at " + one_line(where()));
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
    } catch (const Error &error) {
      if (!strcmp(error.what(), kTimedOut)) continue;
      return be_over("rank 0 of " + std::to_string(state->size) + " ended");
    }
    if (!take(line)) return;
  }
}

// Where another thread is ending the process because the job has failed, that one goes on.
void leave(const std::string &line) {
  std::unique_lock lock(state->mutex);
  const bool is_first = !state->is_leaving && !state->is_over;
  if (!is_first && line != "bye") {
    lock.unlock();
    std::this_thread::sleep_for(std::chrono::duration<double>(2 * kEndTimeout));
    return;
  }
  if (!is_first) return;
  state->is_leaving = true;
  send_line(line);
  if (line == "bye") return;
  state->changed.wait_for(lock, std::chrono::duration<double>(kEndTimeout),
                          [] { return state->is_over; });
}

}  // namespace

Joined join(const std::function<Socket()> &connect, const std::string &where, int rank, int size,
            bool with_pmi, double timeout_s) {
  const auto until = after(timeout_s);
  auto joined = introduce(connect, hello("control", rank, size), until);
  const auto token = expect("accepted", joined.control, joined.read, where, until);
  if (with_pmi) {
    joined.pmi = connect();
    send_all(joined.pmi, hello("pmi", rank, size) + " " + token + "\n", until);
  }
  // Rank 0 says who is missing when its time is up, which may have begun later.
  expect("ready", joined.control, joined.read, where, after(2 * timeout_s));
  return joined;
}

void watch(Joined joined, int size) {
  state = new State{.socket = std::move(joined.control), .size = size};
  std::thread(read_lines, std::move(joined.read)).detach();
}

bool is_watched() { return state; }

void say_bye() {
  if (state) leave("bye");
}

void say_fail(const std::string &why) {
  if (state) leave("fail " + one_line(why));
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
