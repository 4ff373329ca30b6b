#include "start/identity.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <set>

namespace tensoropt {
namespace {

// Python: hmac.new(b"a key of a job", b"rank\nhello\n0011\n", "sha256").hexdigest()
TEST(Identity, ProofIsAnHmac) {
  EXPECT_EQ(proof_of("a key of a job", "rank", {"hello", "0011"}, ""),
            "a3e10b977fc1f0c2bfe61a822722bbf7df1bf92cf7a6d985c683b506d7b691c3");
}

// Proofs differ by key, role, opening and words.
TEST(Identity, ProofsDiffer) {
  const auto proof = proof_of("key", "hub", {"hello", "00"}, "accepted 1");
  EXPECT_TRUE(is_same_proof(proof, proof_of("key", "hub", {"hello", "00"}, "accepted 1")));
  EXPECT_FALSE(is_same_proof(proof, proof_of("other", "hub", {"hello", "00"}, "accepted 1")));
  EXPECT_FALSE(is_same_proof(proof, proof_of("key", "rank", {"hello", "00"}, "accepted 1")));
  EXPECT_FALSE(is_same_proof(proof, proof_of("key", "hub", {"hello again", "00"}, "accepted 1")));
  EXPECT_FALSE(is_same_proof(proof, proof_of("key", "hub", {"hello", "01"}, "accepted 1")));
  EXPECT_FALSE(is_same_proof(proof, proof_of("key", "hub", {"hello", "00"}, "accepted 2")));
  EXPECT_FALSE(is_same_proof(proof, proof_of("key", "hub", {"hello", "00"}, "denied 1")));
  EXPECT_FALSE(is_same_proof(proof, proof.substr(1)));
  EXPECT_FALSE(is_same_proof(proof, ""));
}

TEST(Identity, NoncesAreNew) {
  std::set<std::string> seen;
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(new_nonce().size(), 32u);
    seen.insert(new_nonce());
  }
  EXPECT_EQ(seen.size(), 100u);
}

TEST(Identity, FirstDifferenceOfTwoJobs) {
  EXPECT_EQ(difference("plan=1,run=2", "plan=1,run=2"), "");
  EXPECT_EQ(difference("plan=1,run=2", "run=2,plan=1"), "");
  EXPECT_EQ(difference("plan=1,run=2", "plan=1,run=3"), "run");
  EXPECT_EQ(difference("plan=1", "plan=1,run=3"), "run");
  EXPECT_EQ(difference("plan=1", "-"), "plan");
}

TEST(Identity, OfALaunchersRun) {
  setenv("TORCHELASTIC_RUN_ID", "seven", 1);
  setenv("TENSOROPT_SECRET", "sixteen characters", 1);
  const auto first = identity_of("plan=1", 4000);
  setenv("TORCHELASTIC_RESTART_COUNT", "1", 1);
  const auto again = identity_of("plan=1", 4000);
  for (const char* name : {"TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT"}) unsetenv(name);
  EXPECT_EQ(first.key, "sixteen characters");
  EXPECT_EQ(first.source, "TENSOROPT_SECRET");
  EXPECT_EQ(difference(first.job, again.job), "run") << "started anew";
  EXPECT_EQ(identity_of("", 4000).job, "port=4000");
  unsetenv("TENSOROPT_SECRET");
}

}  // namespace
}  // namespace tensoropt
