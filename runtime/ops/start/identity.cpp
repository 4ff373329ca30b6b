#include "start/identity.hpp"

#include <map>
#include <sstream>

#include "start/launch_environment.hpp"
#include "start/random.hpp"
#include "start/secret.hpp"
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

Identity identity_of(const std::string& job, int port) {
  auto parts = job + (job.empty() ? "" : ",") + "port=" + std::to_string(port);
  if (const auto run = run_name(); !run.empty()) parts += ",run=" + hash_of(run);
  auto secret = shared_secret();
  return {.key = std::move(secret.text), .job = parts, .source = std::move(secret.source)};
}

std::string new_nonce() { return hex(random_bytes(kNonce)); }

std::string proof_of(const std::string& key, const std::string& who, const Talk& talk,
                     const std::string& said) {
  return hex(hmac_sha256(key, who + "\n" + talk.hello + "\n" + talk.nonce + "\n" + said));
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
