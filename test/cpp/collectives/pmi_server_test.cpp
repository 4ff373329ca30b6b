// The server side of PMI-1, with MPICH's requests.
#include "start/pmi_server.hpp"

#include <gtest/gtest.h>

#include "error.hpp"

namespace tensoropt {
namespace {

// The single answer, which goes to the requesting rank.
std::string ask(PmiServer& server, int rank, const std::string& line) {
  const auto answers = server.take(rank, line);
  if (answers.size() != 1 || answers[0].rank != rank) return "not one answer";
  return answers[0].line;
}

std::string error_of(PmiServer& server, const std::string& line) {
  try {
    server.take(0, line);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(PmiServer, Greets) {
  PmiServer server({"a", "a"}, "job-1");
  EXPECT_EQ(ask(server, 0, "cmd=init pmi_version=1 pmi_subversion=1"),
            "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0");
  EXPECT_EQ(ask(server, 1, "cmd=get_my_kvsname"), "cmd=my_kvsname kvsname=job-1");
  EXPECT_EQ(ask(server, 1, "cmd=get_universe_size"), "cmd=universe_size size=2");
  EXPECT_FALSE(server.has_finished(1));
  EXPECT_EQ(ask(server, 1, "cmd=finalize"), "cmd=finalize_ack");
  EXPECT_TRUE(server.has_finished(1));
  EXPECT_FALSE(server.has_finished(0));
}

TEST(PmiServer, KeepsWhatRanksPut) {
  PmiServer server({"a", "b"}, "job");
  EXPECT_EQ(ask(server, 1, "cmd=put kvsname=job key=P1 value=with = and spaces"),
            "cmd=put_result rc=0 msg=success");
  EXPECT_EQ(ask(server, 0, "cmd=get kvsname=job key=P1"),
            "cmd=get_result rc=0 msg=success value=with = and spaces");
  EXPECT_EQ(ask(server, 0, "cmd=get kvsname=job key=P2"),
            "cmd=get_result rc=-1 msg=key_not_found value=unknown");
}

// Blocks of (first machine, machines, ranks on each).
TEST(PmiServer, MapsRanksToMachines) {
  PmiServer server({"a", "a", "b", "a"}, "job");
  EXPECT_EQ(ask(server, 0, "cmd=get kvsname=job key=PMI_process_mapping"),
            "cmd=get_result rc=0 msg=success value=(vector,(0,1,2),(1,1,1),(0,1,1))");
}

TEST(PmiServer, BarrierLetsAllGoAtOnce) {
  PmiServer server({"a", "a", "a"}, "job");
  for (int round = 0; round < 2; ++round) {
    EXPECT_TRUE(server.take(2, "cmd=barrier_in").empty());
    EXPECT_TRUE(server.take(0, "cmd=barrier_in").empty());
    const auto answers = server.take(1, "cmd=barrier_in");
    ASSERT_EQ(answers.size(), 3u);
    for (const auto& answer : answers) EXPECT_EQ(answer.line, "cmd=barrier_out");
  }
}

TEST(PmiServer, RefusesWhatItDoesNotServe) {
  PmiServer server({"a"}, "job");
  EXPECT_EQ(error_of(server, "cmd=spawn"), "asks for what is not served here: spawn");
  EXPECT_EQ(error_of(server, ""), "asks for what is not served here: ");
  EXPECT_EQ(error_of(server, "cmd=abort exitcode=3"), "called MPI_Abort");
  EXPECT_EQ(error_of(server, "cmd=put key= value=1"), "puts a key or value of no valid length");
  EXPECT_EQ(error_of(server, "cmd=put key=k value=" + std::string(5000, 'v')),
            "puts a key or value of no valid length");
}

TEST(PmiServer, DoesNotGrowForEver) {
  PmiServer server({"a"}, "job");
  std::string error;
  for (int i = 0; i < 1000 && error.empty(); ++i)
    error =
        error_of(server, "cmd=put key=k" + std::to_string(i) + " value=" + std::string(4000, 'v'));
  EXPECT_EQ(error, "puts more than the store holds");
}

TEST(PmiServer, NobodyEntersABarrierTwice) {
  PmiServer server({"a", "a"}, "job");
  server.take(0, "cmd=barrier_in");
  EXPECT_EQ(error_of(server, "cmd=barrier_in"), "enters a barrier twice");
}

}  // namespace
}  // namespace tensoropt
