// Tests that the offload overhead is measured and reported, not its value.
#include <sys/resource.h>

#include "cli/e2e/e2e_fixture.h"

namespace strata::test {
namespace {

using ::testing::HasSubstr;

class CliOffloadOverheadE2e : public CliE2e {
 protected:
  ProgramResult offload_overhead(const Words& words) const {
    Words all = {"--offload-overhead"};
    all.insert(all.end(), words.begin(), words.end());
    return strata(tiny("verify", all));
  }
};

TEST_F(CliOffloadOverheadE2e, BothRunsAreMeasuredOverTheRequestedSteps) {
  const ProgramResult measured = offload_overhead({"--steps", "4", "--json", "train.freeze=tokens.weight"});
  ASSERT_EQ(measured.exit_code, 0) << measured.err;
  const auto figures = nlohmann::json::parse(measured.out);
  EXPECT_TRUE(figures["measured"]) << figures["not_measured_reason"];
  EXPECT_EQ(figures["steps"], 4);
  const double with = figures["step_offloaded_s"]["median"], without = figures["step_on_device_s"]["median"];
  EXPECT_GT(with, 0);
  EXPECT_NEAR(figures["offload_efficiency"].get<double>(), without / with, 1e-4 * without / with);
  double shares = figures["compute_share"];
  for (const auto& [cause, share] : figures["exposed_share"].items()) shares += share.get<double>();
  EXPECT_NEAR(shares, 1, 1e-4);
}

TEST_F(CliOffloadOverheadE2e, TheTableEndsInASentence) {
  const ProgramResult measured = offload_overhead({"--steps", "1"});
  ASSERT_EQ(measured.exit_code, 0) << measured.err;
  EXPECT_THAT(measured.out, HasSubstr("\noffload efficiency "));
  EXPECT_THAT(measured.out, HasSubstr("a step without offloading takes"));
}

TEST_F(CliOffloadOverheadE2e, IfBothRunsDoNotFitComputeTimeReplacesTheOnDeviceRun) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer reserves terabytes of addresses";
#endif
  options_.before_exec = [] {  // address space for one run and its threads, not for two
    const rlimit limit{std::size_t{1100} << 20, std::size_t{1100} << 20};
    return ::setrlimit(RLIMIT_AS, &limit) == 0;
  };
  const ProgramResult bounded = offload_overhead({"--steps", "2", "--json", "cpu.threads=2"});
  ASSERT_EQ(bounded.exit_code, 0) << bounded.err;
  const auto figures = nlohmann::json::parse(bounded.out);
  EXPECT_FALSE(figures["measured"]);
  EXPECT_THAT(figures["not_measured_reason"].get<std::string>(), HasSubstr("ulimit -v"));
  EXPECT_TRUE(figures["step_on_device_s"].is_null());
  EXPECT_NEAR(figures["offload_efficiency"].get<double>(), figures["compute_share"].get<double>(), 1e-4);
}

TEST_F(CliOffloadOverheadE2e, WhatCannotRunIsRefused) {
  EXPECT_EQ(offload_overhead({"memory.device=64KiB"}).exit_code, 3);
  const ProgramResult none = offload_overhead({"--steps", "0"});
  EXPECT_EQ(none.exit_code, 2);
  EXPECT_THAT(none.err, HasSubstr("--steps is 0; it must be at least 1"));
  EXPECT_EQ(offload_overhead({"data.train=nowhere.txt"}).exit_code, 2);
}

}  // namespace
}  // namespace strata::test
