#include "start/launch_environment.hpp"

#include <charconv>
#include <cmath>
#include <cstdlib>
#include <initializer_list>
#include <sstream>

#include "error.hpp"

namespace tensoropt {
namespace {

[[noreturn]] void refuse(const std::string& name, const std::string& wanted) {
  const auto found = variable(name.c_str());
  throw Error(name + ": expected " + wanted + ", got: " + found.value_or("nothing"));
}

int integer(const char* name, int low, int high, const std::string& wanted) {
  const auto text = variable(name).value_or("");
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < low || value > high)
    refuse(name, wanted);
  return value;
}

constexpr int kMostRanks = 1 << 20;

Place of(Place::How how, const char* rank, const char* size) {
  Place place{.how = how, .launched = true};
  place.size = integer(size, 1, kMostRanks, "a number of ranks");
  place.rank = integer(rank, 0, place.size - 1,
                       "a rank below " + std::string(size) + " = " + std::to_string(place.size));
  return place;
}

int meeting_port() {
  const std::string wanted = "a port between 1 and 65535";
  if (variable("TENSOROPT_PORT")) return integer("TENSOROPT_PORT", 1, 65535, wanted);
  if (variable("TORCHELASTIC_USE_AGENT_STORE") != "True")
    return integer("MASTER_PORT", 1, 65535, wanted);
  return integer("MASTER_PORT", 1, 65534, "a port between 1 and 65534, whose next one is used") + 1;
}

Place meeting(const char* rank, const char* size) {
  auto place = of(Place::How::Tcp, rank, size);
  if (place.size == 1) {
    place.how = Place::How::Alone;
    return place;
  }
  const auto address = variable("MASTER_ADDR");
  if (!address)
    refuse("MASTER_ADDR", "the name or address of rank 0's machine, as " + std::string(size) +
                              " is " + std::to_string(place.size));
  place.address = *address;
  place.port = meeting_port();
  return place;
}

Place pairs() {
  auto place = of(Place::How::Pairs, "RANK", "WORLD_SIZE");
  place.job = variable("TENSOROPT_JOB").value_or("");
  std::istringstream words(*variable("TENSOROPT_SOCKETS"));
  for (int fd = 0; words >> fd;) place.sockets.push_back(fd);
  const auto wanted = place.rank == 0 ? 2 * (place.size - 1) : 2;
  if (place.sockets.size() != std::size_t(wanted))
    refuse("TENSOROPT_SOCKETS", std::to_string(wanted) + " sockets");
  return place;
}

bool all(std::initializer_list<const char*> names) {
  for (const char* name : names)
    if (!variable(name)) return false;
  return true;
}

// SLURM_NTASKS is also set in the shell of a batch job, which is one process: only steps count.
bool is_slurm_step() {
  return all({"SLURM_PROCID", "SLURM_STEP_NUM_TASKS"}) && variable("SLURM_STEP_NUM_TASKS") != "1";
}

Place pmix_place() {
  for (const char* size : {"PMIX_SIZE", "SLURM_STEP_NUM_TASKS", "OMPI_COMM_WORLD_SIZE"})
    if (variable(size)) return of(Place::How::Mpi, "PMIX_RANK", size);
  return {.how = Place::How::Mpi, .launched = true, .size = 0};
}

}  // namespace

std::optional<std::string> variable(const char* name) {
  const char* text = std::getenv(name);
  return text && *text ? std::optional<std::string>(text) : std::nullopt;
}

Place place_from_environment() {
  if (all({"TENSOROPT_SOCKETS", "RANK", "WORLD_SIZE"})) return pairs();
  if (all({"PMI_RANK", "PMI_SIZE"})) return of(Place::How::Mpi, "PMI_RANK", "PMI_SIZE");
  if (all({"PMI_PORT", "PMI_ID"}))
    return {.how = Place::How::Mpi,
            .launched = true,
            .rank = integer("PMI_ID", 0, kMostRanks, "a rank"),
            .size = 0};
  const bool addressed = variable("MASTER_ADDR").has_value();
  if (all({"RANK", "WORLD_SIZE"}) || (addressed && (variable("RANK") || variable("WORLD_SIZE"))))
    return meeting("RANK", "WORLD_SIZE");
  if (addressed && is_slurm_step()) return meeting("SLURM_PROCID", "SLURM_STEP_NUM_TASKS");
  if (only_pmix()) return pmix_place();
  if (is_slurm_step())
    throw Error(
        "srun started several tasks without MPI, expected: srun --mpi=pmi2, or MASTER_ADDR "
        "and MASTER_PORT set to the first task's machine and a free port of it");
  return {};
}

double start_timeout_s() {
  const char* name = "TENSOROPT_START_TIMEOUT_S";
  const auto text = variable(name);
  if (!text) return 300;
  char* end = nullptr;
  const double value = std::strtod(text->c_str(), &end);
  if (*end || !std::isfinite(value) || value <= 0 || value > 1e6) refuse(name, "seconds above 0");
  return value;
}

std::string run_name() {
  if (const auto run = variable("TORCHELASTIC_RUN_ID"))
    return "torchrun " + *run + " " + variable("TORCHELASTIC_RESTART_COUNT").value_or("0");
  if (const auto step = variable("SLURM_STEP_ID"); step && !variable("RANK"))
    return "srun " + variable("SLURM_JOB_ID").value_or("") + "." + *step;
  return "";
}

bool is_loopback(const std::string& address) {
  return address == "localhost" || address == "::1" || address.starts_with("127.");
}

bool only_pmix() { return variable("PMIX_RANK") && !variable("PMI_RANK"); }

}  // namespace tensoropt
