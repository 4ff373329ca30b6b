// What ranks of one job have in common, and how they prove to each other that they do.
#pragma once

#include <string>

namespace tensoropt {

// The version of what ranks and hub say to each other, in every first line.
inline constexpr const char* kProtocol = "3";

struct Identity {
  std::string key{};     // shared secret; empty where only these ranks have the sockets
  std::string job{};     // "NAME=HASH,NAME=HASH": what is to be the same on all ranks, or "-"
  std::string source{};  // where the key is from, for errors
};

// The secret of this user's ranks (secret.hpp); `job`, the port that they meet at, and what the
// launcher says tells this run from others: the run of torchrun with how often it was started anew,
// or Slurm's job and step. Throws `Error`.
Identity identity_of(const std::string& job, int port);

// 16 random bytes that nobody has seen, in hexadecimal.
std::string new_nonce();

// What is said on one connection before anybody is believed: the first line of who calls, which has
// a random number of its own, and the other side's.
struct Talk {
  std::string hello{}, nonce{};
};

// What only those can say who know `key`: the HMAC of who says it ("rank", "hub"), of the talk
// until then, and of what is said with it. So it is worth nothing in another talk, said by the
// other side, or with other words.
std::string proof_of(const std::string& key, const std::string& who, const Talk& talk,
                     const std::string& said);

// Compares in a time that does not depend on where they differ.
bool is_same_proof(const std::string& a, const std::string& b);

// The first NAME that two jobs have another HASH for, empty where there is none.
std::string difference(const std::string& job, const std::string& other);

}  // namespace tensoropt
