// The variables that every launcher sets for a process.
#include "start/launch_environment.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <map>

#include "error.hpp"

namespace tensoropt {
namespace {

using How = Place::How;

// Sets these environment variables, and unsets all other relevant ones, during its lifetime.
class Variables {
 public:
  explicit Variables(const std::map<std::string, std::string>& values) {
    for (const char* name : kNames) unsetenv(name);
    for (const auto& [name, value] : values) setenv(name.c_str(), value.c_str(), 1);
  }
  ~Variables() {
    for (const char* name : kNames) unsetenv(name);
  }
  Variables(const Variables&) = delete;
  Variables& operator=(const Variables&) = delete;

 private:
  static constexpr const char* kNames[] = {"TENSOROPT_SOCKETS",
                                           "TENSOROPT_JOB",
                                           "TENSOROPT_PORT",
                                           "TENSOROPT_START_TIMEOUT_S",
                                           "RANK",
                                           "WORLD_SIZE",
                                           "MASTER_ADDR",
                                           "MASTER_PORT",
                                           "TORCHELASTIC_USE_AGENT_STORE",
                                           "TORCHELASTIC_RUN_ID",
                                           "TORCHELASTIC_RESTART_COUNT",
                                           "PMI_RANK",
                                           "PMI_SIZE",
                                           "PMI_PORT",
                                           "PMI_ID",
                                           "PMIX_RANK",
                                           "PMIX_SIZE",
                                           "SLURM_PROCID",
                                           "SLURM_STEP_NUM_TASKS",
                                           "SLURM_STEP_ID",
                                           "SLURM_JOB_ID",
                                           "OMPI_COMM_WORLD_SIZE"};
};

Place place_with(const std::map<std::string, std::string>& values) {
  const Variables set(values);
  return place_from_environment();
}

std::string error_with(const std::map<std::string, std::string>& values) {
  try {
    place_with(values);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(LaunchEnvironment, NobodyStartedSeveral) {
  const auto place = place_with({});
  EXPECT_EQ(place.how, How::Alone);
  EXPECT_FALSE(place.launched);
  EXPECT_EQ(place.size, 1);
}

TEST(LaunchEnvironment, Mpiexec) {
  const auto place = place_with({{"PMI_RANK", "2"}, {"PMI_SIZE", "4"}, {"RANK", "9"}});
  EXPECT_EQ(place.how, How::Mpi);
  EXPECT_EQ(place.rank, 2);
  EXPECT_EQ(place.size, 4);
}

TEST(LaunchEnvironment, Torchrun) {
  std::map<std::string, std::string> values{
      {"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "host-0"}, {"MASTER_PORT", "29500"}};
  auto place = place_with(values);
  EXPECT_EQ(place.how, How::Tcp);
  EXPECT_EQ(place.address, "host-0");
  EXPECT_EQ(place.port, 29500);
  values["TORCHELASTIC_USE_AGENT_STORE"] = "True";
  EXPECT_EQ(place_with(values).port, 29501) << "torchrun has the port itself";
  values["TENSOROPT_PORT"] = "4000";
  EXPECT_EQ(place_with(values).port, 4000);
}

TEST(LaunchEnvironment, SlurmStep) {
  const std::map<std::string, std::string> step{{"SLURM_PROCID", "3"},
                                                {"SLURM_STEP_NUM_TASKS", "4"}};
  auto addressed = step;
  addressed["MASTER_ADDR"] = "n1";
  addressed["MASTER_PORT"] = "5000";
  const auto place = place_with(addressed);
  EXPECT_EQ(place.how, How::Tcp);
  EXPECT_EQ(place.rank, 3);
  EXPECT_NE(error_with(step).find("expected: srun --mpi=pmi2"), std::string::npos);
}

TEST(LaunchEnvironment, Pairs) {
  const auto place = place_with({{"TENSOROPT_SOCKETS", "5 6"}, {"RANK", "1"}, {"WORLD_SIZE", "2"}});
  EXPECT_EQ(place.how, How::Pairs);
  EXPECT_EQ(place.sockets, (std::vector<int>{5, 6}));
}

TEST(LaunchEnvironment, Pmix) {
  const auto place = place_with({{"PMIX_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "2"}});
  EXPECT_EQ(place.how, How::Mpi);
  EXPECT_EQ(place.size, 2);
}

TEST(LaunchEnvironment, ErrorsNameTheVariable) {
  EXPECT_EQ(error_with({{"RANK", "2"}, {"WORLD_SIZE", "2"}}),
            "RANK: expected a rank below WORLD_SIZE = 2, got: 2");
  EXPECT_EQ(error_with({{"RANK", "1"}, {"WORLD_SIZE", "two"}}),
            "WORLD_SIZE: expected a number of ranks, got: two");
  EXPECT_EQ(error_with({{"RANK", "1"}, {"WORLD_SIZE", "2"}}),
            "MASTER_ADDR: expected the name or address of rank 0's machine, as WORLD_SIZE is 2, "
            "got: nothing");
  EXPECT_EQ(
      error_with(
          {{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "70000"}}),
      "MASTER_PORT: expected a port between 1 and 65535, got: 70000");
  EXPECT_EQ(error_with({{"TENSOROPT_SOCKETS", "5"}, {"RANK", "1"}, {"WORLD_SIZE", "2"}}),
            "TENSOROPT_SOCKETS: expected 2 sockets, got: 5");
}

TEST(LaunchEnvironment, Timeout) {
  {
    const Variables none({});
    EXPECT_EQ(start_timeout_s(), 300);
  }
  const std::map<std::string, std::string> values{{"TENSOROPT_START_TIMEOUT_S", "2.5"}};
  const Variables set(values);
  EXPECT_EQ(start_timeout_s(), 2.5);
}

TEST(LaunchEnvironment, Loopback) {
  for (const char* here : {"localhost", "127.0.0.1", "127.1.2.3", "::1"})
    EXPECT_TRUE(is_loopback(here));
  for (const char* away : {"host-0", "10.0.0.1", "0.0.0.0", ""}) EXPECT_FALSE(is_loopback(away));
}

}  // namespace
}  // namespace tensoropt
