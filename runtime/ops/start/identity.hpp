// What ranks of one job have in common, and how they prove to each other that they do.
#pragma once

#include <string>

namespace tensoropt {

struct Identity {
  std::string key{};  // shared secret, empty where the job has none
  std::string job{};  // "NAME=HASH,NAME=HASH": what is to be the same on all ranks, or "-"
};

// The key of TENSOROPT_JOB_KEY; `job`, and what the launcher says tells this run from others: the
// run of torchrun with how often it was started anew, or Slurm's job and step. Throws `Error`.
Identity identity_of(const std::string& job);

// 16 random bytes that nobody has seen, in hexadecimal.
std::string new_nonce();

// What only those can say who know `key`: the HMAC of who says it ("rank", "hub") and of what both
// sides said before, one random number of each among it, so that it is worth nothing again.
std::string proof_of(const std::string& key, const std::string& who, const std::string& hello,
                     const std::string& nonce);

// Compares in a time that does not depend on where they differ.
bool is_same_proof(const std::string& a, const std::string& b);

// The first NAME that two jobs have another HASH for, empty where there is none.
std::string difference(const std::string& job, const std::string& other);

}  // namespace tensoropt
