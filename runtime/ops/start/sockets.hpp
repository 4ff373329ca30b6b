// TCP sockets that exchange lines of text, with deadlines. All are closed on exec.
#pragma once

#include <chrono>
#include <string>
#include <utility>

namespace tensoropt {

using Clock = std::chrono::steady_clock;
using Moment = Clock::time_point;

inline Clock::duration seconds(double count) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(count));
}

inline Moment after(double count) { return Clock::now() + seconds(count); }

// Milliseconds until `moment`, at least 0, for poll().
int milliseconds_until(Moment moment);

// Owns a file descriptor.
class Socket {
 public:
  Socket() = default;
  explicit Socket(int fd) : fd_(fd) {}
  Socket(Socket&& other) noexcept : fd_(other.release()) {}
  Socket& operator=(Socket&& other) noexcept;
  ~Socket();

  int fd() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_ = -1;
};

// Listens on `port` (0: any free port) for connections to `address`. Accepts connections from this
// machine only if it is localhost, 127.x.y.z or ::1, otherwise on all interfaces: this machine may
// resolve its own name to a loopback address. Throws `Error`.
Socket listen_on(const std::string& address, int port);
int port_of(const Socket& socket);

// The next connection of a listening socket, without blocking; none if there is no connection.
Socket accept_from(const Socket& listener);

// Connects, with retries until `until`: the other side may not be up yet, or have no DNS entry yet.
// Throws `Error` with the last cause.
Socket connect_to(const std::string& address, int port, Moment until);

// Two sockets connected with each other.
std::pair<Socket, Socket> socket_pair();

// Takes over a connected socket that this process has inherited. Throws `Error`.
Socket inherited(int fd);

// Sends all of `text`, blocking until `until`; false if the other side is gone or does not read.
bool send_all(const Socket& socket, const std::string& text, Moment until);

// Sends as much as the socket accepts and removes it from `text`; false if the other side is gone.
bool send_some(const Socket& socket, std::string& text);

// Appends available bytes, without blocking; false at the end of the stream.
bool receive_some(const Socket& socket, std::string& text);

// Moves the first whole line of `text` into `line`, without its newline; false if there is none.
bool take_line(std::string& text, std::string& line);

// Waits for a line of at most 8 KiB. Throws `Error` when the stream ends, with `kTimedOut` when
// `until` has passed.
inline constexpr const char* kTimedOut = "does not answer in time";
std::string receive_line(const Socket& socket, std::string& buffer, Moment until);

}  // namespace tensoropt
