#include "start/sockets.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <thread>

#include "error.hpp"
#include "start/launch_environment.hpp"

namespace tensoropt {
namespace {

constexpr std::size_t kMostLine = 8192;
constexpr double kOneTry = 10;  // seconds per address
constexpr double kBetweenTries = 0.1;

void set(int fd, int level, int option, int value) {
  setsockopt(fd, level, option, &value, sizeof value);
}

// A dead machine is detected after about half a minute of silence.
void tune(int fd) {
  set(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  set(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  set(fd, IPPROTO_TCP, TCP_KEEPIDLE, 15);
  set(fd, IPPROTO_TCP, TCP_KEEPINTVL, 5);
  set(fd, IPPROTO_TCP, TCP_KEEPCNT, 3);
}

using Addresses = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

Addresses resolve(const char* name, int port, int flags) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  const int code = getaddrinfo(name, std::to_string(port).c_str(), &hints, &found);
  if (code) throw Error("cannot be resolved: " + std::string(gai_strerror(code)));
  return Addresses(found, freeaddrinfo);
}

// The socket's pending error number, or 0.
int error_of(int fd) {
  int error = 0;
  socklen_t size = sizeof error;
  getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size);
  return error;
}

// Connects, waiting until `until` at most; returns none and sets errno on failure.
Socket try_one(const addrinfo& address, Moment until) {
  Socket socket(::socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) return {};
  if (connect(socket.fd(), address.ai_addr, address.ai_addrlen) == 0) return socket;
  if (errno != EINPROGRESS) return {};
  pollfd waited{socket.fd(), POLLOUT, 0};
  if (poll(&waited, 1, milliseconds_until(until)) <= 0) return errno = ETIMEDOUT, Socket();
  errno = error_of(socket.fd());
  return errno ? Socket() : std::move(socket);
}

// Tries every address of the name once; `why` is set to the last error.
Socket try_all(const std::string& name, int port, Moment until, std::string& why) {
  try {
    const auto addresses = resolve(name.c_str(), port, 0);
    for (auto* each = addresses.get(); each; each = each->ai_next) {
      if (auto socket = try_one(*each, std::min(until, after(kOneTry)))) return socket;
      why = "does not answer: " + std::string(strerror(errno));
    }
  } catch (const Error& error) {
    why = error.what();
  }
  return {};
}

Socket bound(int family, const sockaddr* address, socklen_t size) {
  Socket socket(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) return {};
  set(socket.fd(), SOL_SOCKET, SO_REUSEADDR, 1);
  if (family == AF_INET6) set(socket.fd(), IPPROTO_IPV6, IPV6_V6ONLY, 0);
  if (bind(socket.fd(), address, size) || listen(socket.fd(), SOMAXCONN)) return {};
  return socket;
}

Socket bound_4(int port, std::uint32_t interface) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(std::uint16_t(port));
  address.sin_addr.s_addr = htonl(interface);
  return bound(AF_INET, reinterpret_cast<sockaddr*>(&address), sizeof address);
}

// Also accepts IPv4 if `interface` is "any".
Socket bound_6(int port, const in6_addr& interface) {
  sockaddr_in6 address{};
  address.sin6_family = AF_INET6;
  address.sin6_port = htons(std::uint16_t(port));
  address.sin6_addr = interface;
  return bound(AF_INET6, reinterpret_cast<sockaddr*>(&address), sizeof address);
}

}  // namespace

int milliseconds_until(Moment moment) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(moment - Clock::now()).count();
  return int(std::clamp<long long>(left, 0, 1000000));
}

Socket& Socket::operator=(Socket&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

Socket::~Socket() {
  if (fd_ >= 0) close(fd_);
}

Socket listen_on(const std::string& address, int port) {
  Socket socket;
  if (address == "::1") socket = bound_6(port, in6addr_loopback);
  else if (is_loopback(address)) socket = bound_4(port, INADDR_LOOPBACK);
  else if (socket = bound_6(port, in6addr_any); !socket && errno != EADDRINUSE)
    socket = bound_4(port, INADDR_ANY);  // no IPv6 here
  if (!socket)
    throw Error("port " + std::to_string(port) + " cannot be listened on: " + strerror(errno));
  return socket;
}

int port_of(const Socket& socket) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  getsockname(socket.fd(), reinterpret_cast<sockaddr*>(&address), &size);
  return ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(address).sin6_port
                                             : reinterpret_cast<sockaddr_in&>(address).sin_port);
}

Socket accept_from(const Socket& listener) {
  Socket socket(accept4(listener.fd(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (socket) tune(socket.fd());
  return socket;
}

Socket connect_to(const std::string& address, int port, Moment until) {
  std::string why = "does not answer";
  do {
    if (auto socket = try_all(address, port, until, why)) {
      tune(socket.fd());
      return socket;
    }
    std::this_thread::sleep_for(std::chrono::duration<double>(kBetweenTries));
  } while (Clock::now() < until);
  throw Error(why);
}

std::pair<Socket, Socket> socket_pair() {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends))
    throw Error(std::string("socketpair failed: ") + strerror(errno));
  return {Socket(ends[0]), Socket(ends[1])};
}

Socket inherited(int fd) {
  const int flags = fcntl(fd, F_GETFL);
  if (flags < 0) throw Error("socket " + std::to_string(fd) + ": " + strerror(errno));
  fcntl(fd, F_SETFL, flags | O_NONBLOCK);
  fcntl(fd, F_SETFD, FD_CLOEXEC);
  return Socket(fd);
}

bool send_all(const Socket& socket, const std::string& text, Moment until) {
  std::string rest = text;
  while (send_some(socket, rest)) {
    if (rest.empty()) return true;
    pollfd waited{socket.fd(), POLLOUT, 0};
    if (poll(&waited, 1, milliseconds_until(until)) == 0) return false;
  }
  return false;
}

bool send_some(const Socket& socket, std::string& text) {
  while (!text.empty()) {
    const auto sent = send(socket.fd(), text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0) return errno == EAGAIN || errno == EINTR;
    text.erase(0, std::size_t(sent));
  }
  return true;
}

bool receive_some(const Socket& socket, std::string& text) {
  char bytes[4096];
  const auto count = recv(socket.fd(), bytes, sizeof bytes, MSG_DONTWAIT);
  if (count < 0) return errno == EAGAIN || errno == EINTR;
  text.append(bytes, std::size_t(count));
  return count > 0;
}

bool take_line(std::string& text, std::string& line) {
  const auto end = text.find('\n');
  if (end == std::string::npos) return false;
  line = text.substr(0, end);
  text.erase(0, end + 1);
  return true;
}

std::string receive_line(const Socket& socket, std::string& buffer, Moment until) {
  std::string line;
  while (!take_line(buffer, line)) {
    pollfd waited{socket.fd(), POLLIN, 0};
    if (poll(&waited, 1, milliseconds_until(until)) == 0) throw Error(kTimedOut);
    if (!receive_some(socket, buffer)) throw Error("closed the connection");
    if (buffer.size() > kMostLine) throw Error("sends what is no line");
  }
  return line;
}

}  // namespace tensoropt
