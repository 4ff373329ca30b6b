// Jobs with threads as ranks, which connect to a hub over the network.
#include "start/hub.hpp"

#include <gtest/gtest.h>

#include <random>
#include <thread>
#include <tuple>

#include "error.hpp"
#include "start/control.hpp"

namespace tensoropt {
namespace {

const Identity kIdentity{.key = "sixteen characters", .job = "plan=1", .source = "here"};

// A hub, served by a thread until the job ends.
class Meeting {
 public:
  explicit Meeting(int size, double timeout_s = 10)
      : Meeting(size, timeout_s, listen_on("::1", 0)) {}

  Visit visit(int rank, const Identity& identity = kIdentity) const {
    return {.connect = [port = port_] { return connect_to("::1", port, after(10)); },
            .where = "there",
            .rank = rank,
            .size = size_,
            .with_pmi = true,
            .timeout_s = 10,
            .identity = identity};
  }

  // Connects all ranks, each in a separate thread.
  std::vector<Joined> all() const {
    std::vector<Joined> joined;
    joined.resize(std::size_t(size_));
    {
      std::vector<std::jthread> ranks;
      for (int rank = 0; rank < size_; ++rank)
        ranks.emplace_back([&, rank] { joined[std::size_t(rank)] = join(visit(rank)); });
    }
    return joined;
  }

  // Waits for the hub's thread to end.
  void end() { thread_.join(); }

 private:
  Meeting(int size, double timeout_s, Socket listener)
      : size_(size), port_(port_of(listener)),
        hub_(std::move(listener), {size, true, timeout_s, kIdentity, "job-7"}),
        thread_([this] { hub_.run(); }) {}

  int size_;
  int port_;
  Hub hub_;
  std::jthread thread_;
};

void say(const Joined& joined, const std::string& line) {
  EXPECT_TRUE(send_all(joined.control, line + "\n", after(5)));
}

std::string hear(Joined& joined) { return receive_line(joined.control, joined.read, after(10)); }

std::string error_of(const Visit& visit) {
  try {
    join(visit);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

void leave(Joined& joined) {
  EXPECT_TRUE(send_all(joined.pmi, "cmd=finalize\n", after(5)));
  std::string read;
  EXPECT_EQ(receive_line(joined.pmi, read, after(10)), "cmd=finalize_ack");
  say(joined, "bye");
}

TEST(Hub, RanksMeetAndLeave) {
  Meeting meeting(3);
  auto ranks = meeting.all();
  for (const auto& rank : ranks) EXPECT_EQ(rank.job, "job-7");
  for (std::size_t rank = 3; rank-- > 0;) leave(ranks[rank]);  // rank 0 last
  EXPECT_EQ(hear(ranks[1]), "over");
  meeting.end();
}

TEST(Hub, AFailureEndsAllOthers) {
  Meeting meeting(3);
  auto ranks = meeting.all();
  say(ranks[1], "fail it burns");
  for (const std::size_t rank : {0, 2}) {
    EXPECT_EQ(hear(ranks[rank]), "call");
    say(ranks[rank], "here");
  }
  EXPECT_EQ(hear(ranks[2]), "end rank 1 of 3: it burns");
  EXPECT_EQ(hear(ranks[0]), "end rank 1 of 3: it burns");
  meeting.end();
}

// A rank that is lost during the probe is reported as the cause.
TEST(Hub, ADeadRankExplainsTheFailureOfAnother) {
  Meeting meeting(3);
  auto ranks = meeting.all();
  say(ranks[1], "fail MPI_Send failed");
  EXPECT_EQ(hear(ranks[0]), "call");
  ranks[2] = Joined();
  EXPECT_EQ(hear(ranks[0]), "end rank 2 of 3 ended");
  meeting.end();
}

TEST(Hub, WhatRanksAreDoing) {
  Meeting meeting(2);
  auto ranks = meeting.all();
  say(ranks[0], "ask");
  EXPECT_EQ(hear(ranks[1]), "where");
  say(ranks[1], "at 3 in AllReduce node 'a'");
  EXPECT_EQ(hear(ranks[0]), "where");
  EXPECT_EQ(hear(ranks[0]), "at 1 3 in AllReduce node 'a'");
  for (std::size_t rank = 2; rank-- > 0;) leave(ranks[rank]);
  meeting.end();
}

TEST(Hub, WhoHasAnotherSecretIsRefused) {
  Meeting meeting(1, 0.5);
  EXPECT_EQ(error_of(meeting.visit(0, {"another secret than that", "plan=1", "a file"})),
            "the secret of rank 0 at there is another one, expected the same TENSOROPT_SECRET, or "
            "the same ~/.config/tensoropt/secret, on every machine, got: that of a file");
  meeting.end();
}

TEST(Hub, WhoIsOfAnotherJobIsRefused) {
  Meeting meeting(2, 0.5);
  EXPECT_EQ(error_of(meeting.visit(1, {kIdentity.key, "plan=2", "here"})),
            "refused by rank 0 at there: rank 1 has another plan than rank 0, expected one job on "
            "one port");
  EXPECT_EQ(error_of(meeting.visit(7)),
            "refused by rank 0 at there: rank 7 does not exist, expected below 2");
  meeting.end();
}

TEST(Hub, SaysWhoDidNotCome) {
  Meeting meeting(3, 0.3);
  const auto error = error_of(meeting.visit(1));
  EXPECT_TRUE(error.starts_with("ranks 0, 2 of 3 did not come within 0.3 s")) << error;
  meeting.end();
}

// Strangers receive one line, and the job continues.
TEST(Hub, StrangersDoNoHarm) {
  Meeting meeting(1);
  const auto visit = meeting.visit(0);
  for (const std::string sent : {"GET / HTTP/1.1\n", "tensoropt 1 control\n", "\n"}) {
    const Socket stranger = visit.connect();
    std::string read;
    EXPECT_TRUE(send_all(stranger, sent, after(1)));
    EXPECT_TRUE(receive_line(stranger, read, after(5)).starts_with("refused "));
  }
  const Socket endless = visit.connect();
  send_all(endless, std::string(5000, 'x'), after(1));
  auto ranks = meeting.all();
  leave(ranks[0]);
  meeting.end();
}

// Lines of the handshake, whole or cut, with arbitrary or no words.
std::string nonsense(std::mt19937& draw) {
  static const std::vector<std::string> words = {"tensoropt",
                                                 "3",
                                                 "control",
                                                 "pmi",
                                                 "0",
                                                 "1",
                                                 "-",
                                                 "99999999999",
                                                 "proof",
                                                 "ready",
                                                 std::string(64, '0'),
                                                 "plan=1,run=2",
                                                 "\n",
                                                 " ",
                                                 "end x",
                                                 "accepted"};
  std::string text;
  for (auto count = draw() % 12; count-- > 0;) {
    text += draw() % 4 ? words[draw() % words.size()] : std::string(draw() % 9, char(draw()));
    if (draw() % 2) text += ' ';
  }
  return text + (draw() % 2 ? "\n" : "");
}

TEST(Hub, NonsenseDoesNoHarm) {
  Meeting meeting(1);
  const auto visit = meeting.visit(0);
  std::mt19937 draw(7);
  for (int i = 0; i < 300; ++i) {
    const Socket stranger = visit.connect();
    for (auto lines = draw() % 4; lines-- > 0;) send_all(stranger, nonsense(draw), after(1));
  }
  auto ranks = meeting.all();
  leave(ranks[0]);
  meeting.end();
}

// A stranger in the hub's place: the test's end of a socket pair.
class Squatter {
 public:
  Squatter() { std::tie(rank_, mine_) = socket_pair(); }

  // The error of a rank that reads the replies of `answer` to its own lines.
  template <class Answer>
  std::string error(Answer answer, double timeout_s = 5) {
    const Visit visit{.connect = [this] { return once(); },
                      .where = "there",
                      .rank = 1,
                      .size = 2,
                      .with_pmi = true,
                      .timeout_s = timeout_s,
                      .identity = kIdentity};
    const std::jthread other([&] { serve(answer); });
    return error_of(visit);
  }

 private:
  Socket once() {
    if (!rank_) throw Error("nobody else there");
    return std::move(rank_);
  }

  template <class Answer>
  void serve(Answer answer) {
    std::string read;
    try {
      for (;;) send_all(mine_, answer(receive_line(mine_, read, after(5))), after(1));
    } catch (const Error&) {
      mine_ = Socket();  // the rank has closed the connection
    }
  }

  Socket rank_, mine_;
};

const std::string kNoHub = "there is no rank 0 of this job: it does not know the secret";

// It answers like a hub with another secret, or repeats the rank's own proof.
TEST(Squatter, IsNotBelieved) {
  const std::string nonce(32, '0'), zeros(64, '0');
  for (const std::string verb : {"accepted ", "denied "}) {
    const auto answer = [&](const std::string& line) {
      if (line.starts_with("tensoropt ")) return "challenge " + nonce + "\n";
      return verb + zeros + " token\n";
    };
    EXPECT_EQ(Squatter().error(answer), kNoHub);
  }
  const auto mirror = [&](const std::string& line) {
    if (line.starts_with("tensoropt ")) return "challenge " + nonce + "\n";
    return "accepted " + line.substr(line.find(' ') + 1) + " token\n";
  };
  EXPECT_EQ(Squatter().error(mirror), kNoHub);
}

// Its words are not quoted, either.
TEST(Squatter, IsNotQuoted) {
  for (const std::string said : {"end the disk is full\n", "refused \x1b[2J pay here\n", "ready\n",
                                 "accepted \n", "denied\n", "\n", "challenge\nend of it\n"}) {
    const auto error = Squatter().error([&](const std::string&) { return said; });
    EXPECT_TRUE(error.starts_with("there is no rank 0 of t")) << error;
  }
  const auto endless = [](const std::string&) { return std::string(20000, 'x'); };
  EXPECT_EQ(Squatter().error(endless), "nobody else there");
}

TEST(Squatter, MaySayNothing) {
  const auto error = Squatter().error([](const std::string&) { return ""; }, 0.3);
  EXPECT_EQ(error, "rank 0 at there does not answer in time");
}

}  // namespace
}  // namespace tensoropt
