// Jobs whose ranks are threads, which come to a hub over the network.
#include "start/hub.hpp"

#include <gtest/gtest.h>

#include <thread>

#include "error.hpp"
#include "start/control.hpp"

namespace tensoropt {
namespace {

const Identity kIdentity{.key = "sixteen characters", .job = "plan=1"};

// A hub that is served until it is over.
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

  // All ranks come, each in a thread of its own.
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

  // Until the hub's thread has ended.
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

// Who is lost while the others are called is what the job ended by.
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
  say(ranks[1], "at in AllReduce node 'a'");
  EXPECT_EQ(hear(ranks[0]), "where");
  EXPECT_EQ(hear(ranks[0]), "at 1 in AllReduce node 'a'");
  for (std::size_t rank = 2; rank-- > 0;) leave(ranks[rank]);
  meeting.end();
}

TEST(Hub, WhoDoesNotKnowTheKeyIsRefused) {
  Meeting meeting(1, 0.5);
  EXPECT_EQ(error_of(meeting.visit(0, {.key = "another key than that", .job = "plan=1"})),
            "refused by rank 0 at there: its TENSOROPT_JOB_KEY is not that of rank 0, or the job "
            "is another");
  meeting.end();
}

TEST(Hub, WhoIsOfAnotherJobIsRefused) {
  Meeting meeting(2, 0.5);
  EXPECT_EQ(error_of(meeting.visit(1, {.key = kIdentity.key, .job = "plan=2"})),
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

// Strangers get one line, and the job goes on.
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

}  // namespace
}  // namespace tensoropt
