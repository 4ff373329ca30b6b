#include "start/identity.hpp"

#include <sys/random.h>

#include <cerrno>
#include <cstring>
#include <map>
#include <sstream>

#include "error.hpp"
#include "start/launch_environment.hpp"
#include "start/sha256.hpp"

namespace tensoropt {
namespace {

constexpr std::size_t kNonce = 16, kHash = 16;

std::map<std::string, std::string> parts_of(const std::string& job) {
  std::map<std::string, std::string> parts;
  std::istringstream text(job);
  for (std::string part; std::getline(text, part, ',');) {
    const auto equals = std::min(part.find('='), part.size());
    parts[part.substr(0, equals)] = part.substr(std::min(equals + 1, part.size()));
  }
  return parts;
}

std::string hash_of(const std::string& text) { return hex(sha256(text)).substr(0, kHash); }

}  // namespace

Identity identity_of(const std::string& job) {
  std::string parts = job;
  if (const auto run = run_name(); !run.empty())
    parts += (parts.empty() ? "run=" : ",run=") + hash_of(run);
  return {.key = job_key(), .job = parts.empty() ? "-" : parts};
}

std::string new_nonce() {
  char bytes[kNonce];
  ssize_t count = 0;
  do count = getrandom(bytes, sizeof bytes, 0);
  while (count < 0 && errno == EINTR);
  if (count != sizeof bytes) throw Error(std::string("getrandom failed: ") + strerror(errno));
  return hex({bytes, sizeof bytes});
}

std::string proof_of(const std::string& key, const std::string& who, const std::string& hello,
                     const std::string& nonce) {
  return hex(hmac_sha256(key, who + "\n" + hello + "\n" + nonce));
}

bool is_same_proof(const std::string& a, const std::string& b) {
  unsigned differing = a.size() != b.size();
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i)
    differing |= unsigned(a[i] ^ b[i]) & 0xff;
  return !differing;
}

std::string difference(const std::string& job, const std::string& other) {
  auto theirs = parts_of(other);
  for (const auto& [name, hash] : parts_of(job))
    if (const auto found = theirs.extract(name); !found || found.mapped() != hash) return name;
  return theirs.empty() ? "" : theirs.begin()->first;
}

}  // namespace tensoropt
