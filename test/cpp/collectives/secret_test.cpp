// Sources of a user's secret, and invalid secrets.
#include "start/secret.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <thread>
#include <vector>

#include "error.hpp"

namespace tensoropt {
namespace {

namespace fs = std::filesystem;

// Gives each test a home folder of its own, and unsets the variables.
class SecretTest : public testing::Test {
 protected:
  SecretTest() {
    std::string folder = fs::temp_directory_path() / "secret.XXXXXX";
    home_ = mkdtemp(folder.data());
    unsetenv("TENSOROPT_SECRET");
    unsetenv("XDG_CONFIG_HOME");
    setenv("HOME", home_.c_str(), 1);
  }
  ~SecretTest() override {
    for (const char* name : {"TENSOROPT_SECRET", "XDG_CONFIG_HOME"}) unsetenv(name);
    fs::remove_all(home_);
  }

  fs::path file() const { return home_ / ".config/tensoropt/secret"; }

  // Writes the file with these contents and permissions.
  void write(const std::string& text, mode_t mode = 0600) const {
    fs::create_directories(file().parent_path());
    std::ofstream(file()) << text;
    chmod(file().c_str(), mode);
  }

  fs::path home_;
};

std::string error() {
  try {
    shared_secret();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST_F(SecretTest, TheVariableGoesFirst) {
  write("the secret of the file\n");
  setenv("TENSOROPT_SECRET", "the secret of the variable", 1);
  EXPECT_EQ(shared_secret().text, "the secret of the variable");
  EXPECT_EQ(shared_secret().source, "TENSOROPT_SECRET");
  setenv("TENSOROPT_SECRET", "", 1);
  EXPECT_EQ(shared_secret().text, "the secret of the file");
  EXPECT_EQ(shared_secret().source, file());
}

TEST_F(SecretTest, IsMadeAtFirstUse) {
  const auto first = shared_secret();
  EXPECT_EQ(first.text.size(), 64u);
  EXPECT_EQ(shared_secret().text, first.text);
  struct stat facts{};
  ASSERT_EQ(stat(file().c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 07777, 0600u);
  ASSERT_EQ(stat(file().parent_path().c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 07777, 0700u);
}

TEST_F(SecretTest, IsMadeOnceHoweverManyCome) {
  std::vector<std::string> found(8);
  {
    std::vector<std::jthread> ranks;
    for (auto& each : found) ranks.emplace_back([&] { each = shared_secret().text; });
  }
  EXPECT_EQ(std::set(found.begin(), found.end()).size(), 1u);
  EXPECT_EQ(std::distance(fs::directory_iterator(file().parent_path()), {}), 1)
      << "drafts are left";
}

TEST_F(SecretTest, FollowsXdg) {
  setenv("XDG_CONFIG_HOME", (home_ / "settings").c_str(), 1);
  EXPECT_EQ(shared_secret().source, home_ / "settings/tensoropt/secret");
  setenv("XDG_CONFIG_HOME", "relative", 1);
  EXPECT_EQ(shared_secret().source, file());
}

TEST_F(SecretTest, WhatOthersMayReadIsNone) {
  for (const mode_t mode : {0640, 0604, 0620, 0666}) {
    write("the secret of the file", mode);
    EXPECT_TRUE(error().starts_with(file().string() +
                                    ": others may read or change it, expected "
                                    "mode 600 (chmod 600 " +
                                    file().string() + "), got: 6"))
        << error();
  }
  write("the secret of the file", 0400);
  EXPECT_EQ(shared_secret().text, "the secret of the file");
}

TEST_F(SecretTest, WhatAnotherUserHasIsNone) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give a file away";
  write("the secret of the file");
  ASSERT_EQ(chown(file().c_str(), 12345, 12345), 0);
  EXPECT_EQ(error(), file().string() +
                         ": expected a file of user 0 with mode 600 (chown, chmod "
                         "600), got: one of user 12345");
}

TEST_F(SecretTest, WhatIsNoFileIsNone) {
  fs::create_directories(file());
  EXPECT_EQ(error(), file().string() + ": expected a file");
  fs::remove(file());
  mkfifo(file().c_str(), 0600);
  EXPECT_EQ(error(), file().string() + ": expected a file");
}

TEST_F(SecretTest, HasALength) {
  for (const std::size_t size : {0u, 15u, 5000u}) {
    write(std::string(size, 's') + "\n");
    EXPECT_EQ(error(),
              file().string() + ": expected 16 to 4096 characters, got: " + std::to_string(size));
  }
  setenv("TENSOROPT_SECRET", "short", 1);
  EXPECT_EQ(error(), "TENSOROPT_SECRET: expected 16 to 4096 characters, got: 5");
}

TEST_F(SecretTest, CannotBeMade) {
  setenv("HOME", "/proc", 1);
  EXPECT_EQ(error(),
            "/proc/.config/tensoropt/secret: cannot be made: No such file or directory, "
            "expected a secret that all ranks share in TENSOROPT_SECRET");
  unsetenv("HOME");
  EXPECT_EQ(error(),
            "neither XDG_CONFIG_HOME nor HOME is set, expected a secret that all ranks "
            "share in TENSOROPT_SECRET");
}

}  // namespace
}  // namespace tensoropt
