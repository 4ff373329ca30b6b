// TCP sockets that send and take lines of text, with deadlines. All are closed on exec.
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

// Listens on `port` (0: any free one) for those who connect to `address`: from this machine only
// where that is localhost, 127.x.y.z or ::1, else on all interfaces, since a name that means
// another address elsewhere may be looked up here as a loopback address. Throws `Error`.
Socket listen_on(const std::string& address, int port);
int port_of(const Socket& socket);

// The next connection of a listening socket, not blocking; none where nobody waits.
Socket accept_from(const Socket& listener);

// Connects, again and again until `until`: the other side may not be up yet, nor known by name.
// Throws `Error` with the last cause.
Socket connect_to(const std::string& address, int port, Moment until);

// Two sockets connected with each other.
std::pair<Socket, Socket> socket_pair();

// A connected socket that this process was started with: from now on its own. Throws `Error`.
Socket inherited(int fd);

// Sends all of `text`, blocking until `until`; false where the other side is gone or does not read.
bool send_all(const Socket& socket, const std::string& text, Moment until);

// Sends what the socket takes now and removes that from `text`; false where the other side is gone.
bool send_some(const Socket& socket, std::string& text);

// Appends what has come, not blocking; false at the end of the stream.
bool receive_some(const Socket& socket, std::string& text);

// Removes the first whole line from `text` into `line`, without its end; false where there is none.
bool take_line(std::string& text, std::string& line);

// Waits for a line, of at most 8 KiB. Throws `Error` when the stream ends, and `kTimedOut` when
// `until` has passed.
inline constexpr const char* kTimedOut = "does not answer in time";
std::string receive_line(const Socket& socket, std::string& buffer, Moment until);

}  // namespace tensoropt
