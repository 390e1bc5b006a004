// A run's configuration can carry commands of the shell.
#include <unistd.h>

#include "cli/e2e/e2e_fixture.h"

namespace strata::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class CliCommandTrustE2e : public CliE2e {
 protected:
  ProgramResult start() const {
    return strata(tiny("train", {"--out", "run", "train.steps=2", "train.max_time=0s", "train.eval_every=0",
                                 "log.command=cat > seen.jsonl"}));
  }
};

TEST_F(CliCommandTrustE2e, ACommandIsNamedBeforeItStarts) {
  const ProgramResult run = start();
  ASSERT_EQ(run.exit_code, 0) << run.output();
  EXPECT_THAT(run.out, HasSubstr("log.command starts \"cat > seen.jsonl\""));
}

TEST_F(CliCommandTrustE2e, TheCommandOfAnotherUsersRunIsStartedOnlyIfItIsGivenAgain) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give a file to another user";
  ASSERT_EQ(start().exit_code, 0);
  for (const char* name : {"run", "run/config.resolved.toml"}) {
    ASSERT_EQ(::chown(file(name).c_str(), 65534, 65534), 0);
    must(posix_io().remove_all(file("seen.jsonl")));
    const ProgramResult refused = strata({"train", "--resume", "run", "train.max_time=none"});
    EXPECT_EQ(refused.exit_code, 2) << refused.output();
    EXPECT_THAT(refused.err, AllOf(HasSubstr("log.command would start the command \"cat > seen.jsonl\""),
                                   HasSubstr("belongs to user 65534")));
    EXPECT_FALSE(exists("seen.jsonl"));
    ASSERT_EQ(::chown(file(name).c_str(), 0, 0), 0);
  }
  ASSERT_EQ(::chown(file("run").c_str(), 65534, 65534), 0);
  EXPECT_EQ(
      strata({"train", "--resume", "run", "train.max_time=none", "log.command=cat > seen.jsonl"}).exit_code,
      0);
  EXPECT_TRUE(exists("seen.jsonl"));
}

}  // namespace
}  // namespace strata::test
