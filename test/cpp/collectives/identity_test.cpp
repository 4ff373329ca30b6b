#include "start/identity.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <set>

namespace tensoropt {
namespace {

// Python: hmac.new(b"a key of a job", b"rank\nhello\n0011", "sha256").hexdigest()
TEST(Identity, ProofIsAnHmac) {
  EXPECT_EQ(proof_of("a key of a job", "rank", "hello", "0011"),
            "6a2d709ac3805d661fab373f35a0392f9f1a17f583309e270ccda18c48bf22c9");
}

TEST(Identity, ProofsDiffer) {
  const auto proof = proof_of("key", "rank", "hello", "00");
  EXPECT_TRUE(is_same_proof(proof, proof_of("key", "rank", "hello", "00")));
  EXPECT_FALSE(is_same_proof(proof, proof_of("other", "rank", "hello", "00")));
  EXPECT_FALSE(is_same_proof(proof, proof_of("key", "hub", "hello", "00")));
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
  setenv("TENSOROPT_JOB_KEY", "sixteen characters", 1);
  const auto first = identity_of("plan=1");
  setenv("TORCHELASTIC_RESTART_COUNT", "1", 1);
  const auto again = identity_of("plan=1");
  for (const char* name :
       {"TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "TENSOROPT_JOB_KEY"})
    unsetenv(name);
  EXPECT_EQ(first.key, "sixteen characters");
  EXPECT_EQ(difference(first.job, again.job), "run") << "started anew";
  EXPECT_EQ(identity_of("").job, "-");
}

}  // namespace
}  // namespace tensoropt
