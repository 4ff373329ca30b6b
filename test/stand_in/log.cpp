#include "log.hpp"

#include <fcntl.h>
#include <mpi.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>

namespace stand_in {
namespace {

int rank_of_launcher() {
  for (const char* name : {"PMI_RANK", "PMIX_RANK", "RANK", "SLURM_PROCID"})
    if (std::getenv(name)) return int(setting(name, 0));
  return 0;
}

// One write of a line to a file opened for appending: the two libraries share it.
void append(const std::string& path, const std::string& line) {
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (file < 0) return;
  if (write(file, line.data(), line.size()) < 0) perror(path.c_str());
  close(file);
}

std::string quoted(const std::string& text) {
  std::string json = "\"";
  for (char letter : text) {
    if (letter == '"' || letter == '\\') json += '\\';
    json += letter == '\n' ? ' ' : letter;
  }
  return json + "\"";
}

}  // namespace

int world_rank() {
  int is_up = 0, is_over = 0, rank = 0;
  MPI_Initialized(&is_up);
  MPI_Finalized(&is_over);
  if (!is_up || is_over) return rank_of_launcher();
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  return rank;
}

long long setting(const char* name, long long otherwise) {
  const char* value = std::getenv(name);
  return value && *value ? std::atoll(value) : otherwise;
}

std::size_t alignment(const void* address) {
  const auto bits = reinterpret_cast<std::uintptr_t>(address) | 4096;
  return address ? bits & -bits : 0;
}

std::size_t number(const void* handle) { return reinterpret_cast<std::uintptr_t>(handle); }

Line::Line(const char* call) {
  if (std::getenv("TENSOROPT_NCCL_LOG")) text_ = "{\"call\": " + quoted(call);
}

Line::~Line() {
  if (text_.empty()) return;
  add("pid", getpid());
  const std::string folder = std::getenv("TENSOROPT_NCCL_LOG");
  append(folder + "/rank" + std::to_string(world_rank()) + ".jsonl", text_ + "}\n");
}

Line& Line::add(const char* key, const std::string& value) { return put(key, quoted(value)); }

Line& Line::add(const char* key, const std::vector<int>& values) {
  std::string json = "[";
  for (int value : values) json += (json.size() > 1 ? ", " : "") + std::to_string(value);
  return put(key, json + "]");
}

Line& Line::put(const char* key, const std::string& json) {
  if (!text_.empty()) text_ += ", " + quoted(key) + ": " + json;
  return *this;
}

}  // namespace stand_in
