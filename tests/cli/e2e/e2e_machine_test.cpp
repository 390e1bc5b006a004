// Machine failures: folders, disks, streams and system calls that return errors.
#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>

#include <strata/runtime/units.h>

#include "cli/e2e/e2e_fixture.h"

namespace strata::test {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;

class CliMachineE2e : public CliE2e {
 protected:
  ProgramResult train(const Words& words = {}) {
    Words all = {"--out", "run", "train.steps=4", "train.eval_every=0", "log.sample_every=0"};
    all.insert(all.end(), words.begin(), words.end());
    return strata(tiny("train", all));
  }
};

TEST_F(CliMachineE2e, TheNvmeDirectoryIsCreatedAndLeftEmpty) {
  const ProgramResult trained = train({"memory.nvme_dir=a/b/swap"});
  EXPECT_EQ(trained.exit_code, 0) << trained.err;
  EXPECT_TRUE(exists("a/b/swap"));
  EXPECT_TRUE(list("a/b/swap").empty());
}

TEST_F(CliMachineE2e, AnNvmeDirectoryThatIsAFileIsAnIoError) {
  write("swap", "");
  const ProgramResult refused = train({"memory.nvme_dir=swap"});
  EXPECT_EQ(refused.exit_code, 5);
  EXPECT_THAT(refused.err, AllOf(HasSubstr("memory.nvme_dir = swap: "), HasSubstr("Not a directory")));
  EXPECT_FALSE(exists("run"));
}

TEST_F(CliMachineE2e, AnNvmeDirectoryWithoutWritePermissionIsAnIoError) {
  must(posix_io().make_dirs(file("swap")));
  ASSERT_EQ(::chmod(file("swap").c_str(), 0555), 0);
  options_.before_exec = obey_permissions;
  const ProgramResult refused = train({"memory.nvme_dir=swap"});
  EXPECT_EQ(refused.exit_code, 5) << refused.output();
  EXPECT_THAT(refused.err, AllOf(HasSubstr("swap"), HasSubstr("Permission denied")));
  EXPECT_FALSE(exists("run"));
}

TEST_F(CliMachineE2e, ADiskTooSmallIsRefusedWithNeededAndFreeBytesBeforeTheFirstStep) {
  must(posix_io().make_dirs(file("swap")));
  options_.before_exec = [swap = file("swap")] {
    return ::unshare(CLONE_NEWNS) == 0 && ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
           ::mount("strata", swap.c_str(), "tmpfs", 0, "size=1m") == 0;
  };
  const ProgramResult refused = train({"memory.nvme_dir=swap"});
  if (refused.exit_code == kRefused) GTEST_SKIP() << "mounting a tmpfs is refused here";
  EXPECT_EQ(refused.exit_code, 5);
  EXPECT_THAT(refused.err, AllOf(HasSubstr("swap"), ContainsRegex("[0-9]+ bytes \\([0-9.]+ MiB\\) needed"),
                                 HasSubstr("1048576 (1.0 MiB) free")));
  EXPECT_FALSE(exists("run"));
}

TEST_F(CliMachineE2e, WithoutDirectIoItTrainsAndSaysSo) {
  options_.before_exec = [] { return refuse_open_flag(O_DIRECT, EINVAL); };
  const ProgramResult trained = train();
  if (trained.exit_code == kRefused) GTEST_SKIP() << "seccomp is refused here";
  EXPECT_EQ(trained.exit_code, 0) << trained.err;
  EXPECT_THAT(trained.out, HasSubstr("buffered, O_DIRECT refused"));
  EXPECT_THAT(summary("run")["nvme"].get<std::string>(), HasSubstr("O_DIRECT refused"));
}

TEST_F(CliMachineE2e, RequestedIoUringThatIsRefusedIsAClearError) {
  options_.before_exec = refuse_uring;
  const ProgramResult refused = train({"io.engine=uring"});
  if (refused.exit_code == kRefused) GTEST_SKIP() << "seccomp is refused here";
  EXPECT_EQ(refused.exit_code, 2) << refused.output();
  EXPECT_THAT(refused.err,
              AllOf(HasSubstr("io.engine = uring"), HasSubstr("setting up io_uring"), HasSubstr("EPERM")));
}

TEST_F(CliMachineE2e, IoUringRefusedGivesTheSameBitsThroughThreads) {
  ASSERT_EQ(train().exit_code, 0);
  const std::vector<std::string> want = loss_bits("run");
  const std::string want_digest = digest("run");
  options_.before_exec = refuse_uring;
  const ProgramResult trained = train({"--overwrite"});
  if (trained.exit_code == kRefused) GTEST_SKIP() << "seccomp is refused here";
  EXPECT_EQ(trained.exit_code, 0) << trained.err;
  EXPECT_THAT(trained.out, AllOf(HasSubstr("thread"), HasSubstr("EPERM")));
  EXPECT_EQ(loss_bits("run"), want);
  EXPECT_EQ(digest("run"), want_digest);
}

// The run either succeeds or is refused under every limit: it is never killed by a signal and never stops
// half-way.
TEST_F(CliMachineE2e, ASmallAddressSpaceIsRefusedAndNeverACrash) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer reserves terabytes of addresses";
#endif
  int refusals = 0;
  for (const std::size_t mib : {48, 64, 96, 112, 120, 128, 144, 160, 250, 400, 800, 4000}) {
    SCOPED_TRACE(str(mib, " MiB"));
    options_.before_exec = [mib] {
      const rlimit limit{mib * kMiB, mib * kMiB};
      return ::setrlimit(RLIMIT_AS, &limit) == 0;
    };
    const ProgramResult ended = train({"--overwrite", "cpu.threads=2"});
    if (ended.exit_code == 127) continue;  // the shared libraries could not be loaded
    // Libraries that find no memory before main() end any command.
    if (strata({"--version"}).signal != 0) continue;
    EXPECT_EQ(ended.signal, 0) << ended.output();
    if (ended.exit_code == 0) continue;
    ++refusals;
    EXPECT_EQ(ended.exit_code, 3) << ended.output();
    EXPECT_THAT(ended.err, AnyOf(HasSubstr("out of memory"), HasSubstr("ulimit -v"))) << ended.output();
    EXPECT_LT(mib, 4000u);
  }
  EXPECT_GT(refusals, 3);
}

// --- Damaged checkpoints ---

struct Damage {
  const char* name;
  void (*harm)(const std::string& folder);
};

class CliDamageE2e : public CliMachineE2e, public ::testing::WithParamInterface<Damage> {};

void overwrite(const std::string& path, const std::string& text) {
  must(write_text_atomically(posix_io(), path, text));
}

const Damage kDamages[] = {
    {"Truncated",
     [](const std::string& f) {
       overwrite(f + "/v.safetensors", read_all(f + "/v.safetensors").substr(0, 5000));
     }},
    {"ByteFlipped",
     [](const std::string& f) {
       std::string text = read_all(f + "/param.safetensors");
       text[text.size() / 2] = static_cast<char>(text[text.size() / 2] ^ 1);
       overwrite(f + "/param.safetensors", text);
     }},
    {"FileMissing", [](const std::string& f) { must(posix_io().remove_all(f + "/param.safetensors")); }},
    {"ManifestGarbage",
     [](const std::string& f) { overwrite(f + "/manifest.json", "{\"version\": 1, \"st"); }},
    {"ManifestMissing", [](const std::string& f) { must(posix_io().remove_all(f + "/manifest.json")); }},
};

TEST_P(CliDamageE2e, ThePreviousCheckpointIsUsed) {
  ASSERT_EQ(train({"checkpoint.every=2"}).exit_code, 0);
  const std::vector<std::string> bits = loss_bits("run");
  const std::string want = digest("run");
  must(posix_io().remove_all(file("run/summary.json")));
  GetParam().harm(file("run/checkpoints/step-00000004"));
  const ProgramResult generated = strata({"generate", "run", "It is", "--tokens", "3"});
  EXPECT_EQ(generated.exit_code, 0) << generated.err;
  const ProgramResult resumed = strata({"train", "--resume", "run"});
  EXPECT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_THAT(resumed.out, HasSubstr("resuming from run/checkpoints/step-00000002"));
  EXPECT_EQ(loss_bits("run"), bits);
  EXPECT_EQ(digest("run"), want);
}

TEST_P(CliDamageE2e, IfNoCheckpointIsIntactTheRunIsNotStartedOver) {
  ASSERT_EQ(train().exit_code, 0);
  must(posix_io().remove_all(file("run/summary.json")));
  GetParam().harm(file("run/checkpoints/step-00000004"));
  const std::string before = read_all(file("run/metrics.jsonl"));
  for (const Words& words : {Words{"train", "--resume", "run"}, Words{"generate", "run", "It is"}}) {
    const ProgramResult refused = strata(words);
    EXPECT_EQ(refused.exit_code, 5) << refused.output();
    EXPECT_THAT(refused.err, HasSubstr("run/checkpoints/step-00000004"));
  }
  EXPECT_EQ(read_all(file("run/metrics.jsonl")), before);
}

INSTANTIATE_TEST_SUITE_P(Damages, CliDamageE2e, ::testing::ValuesIn(kDamages),
                         [](const auto& damage) { return damage.param.name; });

// --- Standard output ---

class CliOutputE2e : public CliMachineE2e, public ::testing::WithParamInterface<ProgramOptions::Out> {};

TEST_P(CliOutputE2e, AFailedOutputDoesNotStopTrainingAndIsReported) {
  options_.out = GetParam();
  const ProgramResult trained = train();
  EXPECT_FALSE(trained.timed_out);
  EXPECT_EQ(trained.exit_code, 5) << trained.signal;
  EXPECT_THAT(trained.err, HasSubstr("the output could not be written"));
  EXPECT_EQ(metrics("run").size(), 4u) << "and nothing that was printed is among them";
  EXPECT_EQ(summary("run")["stop_reason"], "finished");
}

INSTANTIATE_TEST_SUITE_P(Outputs, CliOutputE2e,
                         ::testing::Values(ProgramOptions::Out::full, ProgramOptions::Out::closed,
                                           ProgramOptions::Out::broken_pipe));

}  // namespace
}  // namespace strata::test
