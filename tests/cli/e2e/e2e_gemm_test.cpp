// cpu.bf16_matmul=auto measures the bf16 GEMM implementations of the CPU, and the run keeps the choice.
#include <regex>

#include <strata/kernels/bf16_gemm.h>

#include "cli/e2e/e2e_fixture.h"

namespace strata::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

using kernels::Bf16Gemm;

class CliGemmE2e : public CliE2e {
 protected:
  static bool cpu_has_bf16() { return kernels::native_bf16_gemm() != Bf16Gemm::widened; }
  /// Trains a bf16 run of six steps; with `steps` < 6 it stops after the first.
  ProgramResult train(const std::string& run, int steps, const Words& words = {}) const {
    Words all = {"--out", run, "train.steps=6", "checkpoint.every=3", "train.dtype=bf16"};
    if (steps < 6) all.emplace_back("train.max_time=0s");
    if (words.empty()) all.emplace_back("cpu.bf16_matmul=auto");
    all.insert(all.end(), words.begin(), words.end());
    return strata(tiny("train", all));
  }
  std::string resolved(const std::string& run) const { return read_all(file(run + "/config.resolved.toml")); }
  std::string line_of(const std::string& run) const {
    std::smatch found;
    const std::string text = resolved(run);
    return std::regex_search(text, found, std::regex("bf16_matmul = .*")) ? found.str() : std::string();
  }
  Words without_time() const { return {"train", "--resume", "run", "train.max_time=none"}; }
  /// Hides the CPU's bf16 instructions from oneDNN.
  ProgramOptions lesser() const {
    ProgramOptions options = options_;
    options.environment.emplace_back("ONEDNN_MAX_CPU_ISA=AVX512_CORE");
    return options;
  }
};

TEST_F(CliGemmE2e, TheChoiceIsMeasuredPrintedWithItsReasonAndKept) {
  const ProgramResult trained = train("run", 6);
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  const std::string why = cpu_has_bf16() ? " times as long as widening to f32, measured at the start"
                                         : "this CPU has neither AVX512-BF16 nor AMX";
  EXPECT_THAT(trained.out, AllOf(HasSubstr("gemm     bf16 "), HasSubstr(why)));
  EXPECT_THAT(line_of("run"), AllOf(testing::ContainsRegex("= \"(native|widened)\""), HasSubstr(why)));
  EXPECT_THAT(strata(tiny("train", {"--out", "other", "train.steps=1", "train.dtype=f32"})).out,
              Not(HasSubstr("gemm ")))
      << "f32 has one GEMM implementation";
}

TEST_F(CliGemmE2e, ResumeKeepsTheGemmChoiceEvenIfTheConfigurationLacksIt) {
  std::vector<std::string> digests;
  for (const std::string choice : {"native", "widened"}) {
    if (choice == "native" && !cpu_has_bf16()) continue;
    must(posix_io().remove_all(file("run")));
    must(posix_io().remove_all(file("whole")));
    ASSERT_EQ(train("whole", 6, {"cpu.bf16_matmul=" + choice}).exit_code, 0);
    digests.push_back(digest("whole"));
    ASSERT_EQ(train("run", 1, {"cpu.bf16_matmul=" + choice}).exit_code, 0);
    // The configuration of a run that was made before the key existed.
    write("run/config.resolved.toml",
          std::regex_replace(resolved("run"), std::regex("bf16_matmul = .*"), ""));
    const ProgramResult resumed = strata(without_time());
    ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
    EXPECT_THAT(resumed.err, Not(HasSubstr("GEMM implementation")));
    EXPECT_THAT(line_of("run"), AllOf(HasSubstr(choice), HasSubstr("as in the run of the checkpoint")));
    EXPECT_EQ(digest("run"), digest("whole")) << choice;
  }
  if (digests.size() == 2) {
    EXPECT_NE(digests[0], digests[1]) << "else nothing was shown";
  }
}

TEST_F(CliGemmE2e, NativeBf16OnACpuWithoutItIsRefusedIfRequestedAndWidenedIfARunHasIt) {
  if (!cpu_has_bf16()) GTEST_SKIP() << "this CPU has no bf16 instructions to take away";
  const ProgramResult refused = strata(tiny("plan", {"cpu.bf16_matmul=native"}), lesser());
  EXPECT_EQ(refused.exit_code, 2) << refused.output();
  EXPECT_THAT(refused.err,
              HasSubstr("cpu.bf16_matmul = native, but this CPU has neither AVX512-BF16 nor AMX"));
  ASSERT_EQ(train("run", 1, {"cpu.bf16_matmul=native"}).exit_code, 0);
  const ProgramResult resumed = strata(without_time(), lesser());
  EXPECT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_THAT(resumed.err, HasSubstr("widened to f32 in this run"));
}

TEST_F(CliGemmE2e, AutoDtypeIsF32IfBf16WouldBeWidened) {
  const auto plan = [&](const std::string& choice, const ProgramOptions& options) {
    return strata(tiny("plan", {"train.dtype=auto", "cpu.bf16_matmul=" + choice}), options).out;
  };
  EXPECT_THAT(plan("widened", options_), HasSubstr(" in f32, adamw"));
  if (cpu_has_bf16()) {
    EXPECT_THAT(plan("native", options_), HasSubstr(" in bf16, adamw"));
    EXPECT_THAT(plan("auto", lesser()), HasSubstr(" in f32, adamw"));
  }
}

}  // namespace
}  // namespace strata::test
