#include "start/sockets.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <thread>

#include "error.hpp"

namespace tensoropt {
namespace {

std::string line_of(const Socket& socket, std::string& buffer) {
  return receive_line(socket, buffer, after(10));
}

template <class Body>
std::string error_of(Body body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Sockets, LinesBothWays) {
  auto [here, there] = socket_pair();
  std::string read;
  EXPECT_TRUE(send_all(here, "one\ntwo\nthr", after(1)));
  EXPECT_EQ(line_of(there, read), "one");
  EXPECT_EQ(line_of(there, read), "two");
  EXPECT_TRUE(send_all(here, "ee\n", after(1)));
  EXPECT_EQ(line_of(there, read), "three");
  EXPECT_TRUE(send_all(there, "\n", after(1)));
  EXPECT_EQ(line_of(here, read), "");
}

TEST(Sockets, OverTheNetwork) {
  const Socket listener = listen_on("127.0.0.1", 0);
  EXPECT_FALSE(accept_from(listener)) << "nobody waits";
  const Socket mine = connect_to("localhost", port_of(listener), after(10));
  Socket its;
  while (!its) its = accept_from(listener);
  std::string read;
  EXPECT_TRUE(send_all(mine, "hello\n", after(1)));
  EXPECT_EQ(line_of(its, read), "hello");
  EXPECT_TRUE(fcntl(its.fd(), F_GETFD) & FD_CLOEXEC);
}

TEST(Sockets, WhoIsLateIsWaitedFor) {
  const int port = port_of(listen_on("127.0.0.1", 0));  // free again
  Socket listener;
  std::jthread late([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    listener = listen_on("127.0.0.1", port);
  });
  EXPECT_TRUE(connect_to("127.0.0.1", port, after(10)));
}

TEST(Sockets, Deadlines) {
  const int port = port_of(listen_on("127.0.0.1", 0));
  EXPECT_EQ(error_of([&] { connect_to("127.0.0.1", port, after(0)); }),
            "does not answer: Connection refused");
  auto [here, there] = socket_pair();
  std::string read;
  EXPECT_EQ(error_of([&] { receive_line(here, read, after(0.01)); }), kTimedOut);
  EXPECT_FALSE(send_all(here, std::string(10'000'000, 'x'), after(0.01))) << "nobody reads";
  EXPECT_EQ(milliseconds_until(after(-5)), 0);
}

TEST(Sockets, TheOtherSideIsGone) {
  auto [here, there] = socket_pair();
  there = Socket();
  std::string read;
  EXPECT_EQ(error_of([&] { receive_line(here, read, after(1)); }), "closed the connection");
  EXPECT_FALSE(send_all(here, "anyone?", after(1)));
}

TEST(Sockets, ALineEndsSomewhere) {
  auto [here, there] = socket_pair();
  EXPECT_TRUE(send_all(here, std::string(20'000, 'x'), after(1)));
  std::string read;
  EXPECT_EQ(error_of([&, &from = there] { receive_line(from, read, after(1)); }),
            "sends what is no line");
}

TEST(Sockets, PortsThatAreTaken) {
  const Socket listener = listen_on("", 0);
  const auto port = std::to_string(port_of(listener));
  EXPECT_EQ(error_of([&] { listen_on("", port_of(listener)); }),
            "port " + port + " cannot be listened on: Address already in use");
}

TEST(Sockets, NoSuchDescriptor) {
  EXPECT_EQ(error_of([] { inherited(987); }), "socket 987: Bad file descriptor");
}

}  // namespace
}  // namespace tensoropt
