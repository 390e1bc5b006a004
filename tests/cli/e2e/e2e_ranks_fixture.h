#pragma once

#include "cli/e2e/e2e_fixture.h"

namespace strata::test {

/// Runs of several ranks, which are threads of the command.
class CliRanksE2e : public CliE2e {
 protected:
  Words run_of(const std::string& name, const Words& words = {}) const {
    Words all = {"--out", name};
    for (const std::string given :
         {"train.grad_accum=12", "train.steps=8", "checkpoint.every=4", "log.every=1"})
      if (std::none_of(words.begin(), words.end(), [&](const std::string& word) {
            return word.starts_with(given.substr(0, given.find('=') + 1));
          }))
        all.push_back(given);
    all.insert(all.end(), words.begin(), words.end());
    return tiny("train", all);
  }
  void must_train(const Words& words) const {
    const ProgramResult result = strata(words);
    ASSERT_EQ(result.exit_code, 0) << result.output();
  }
  /// No process holds more than what is planned, 64 MiB, and what the transport measures of itself.
  void expect_within_limits(const std::string& name, std::size_t processes) const {
    const nlohmann::json all = summary(name);
    EXPECT_EQ(all["processes"].size(), processes);
    for (const nlohmann::json& process : all["processes"]) {
      EXPECT_EQ(process["rss_limit_bytes"].get<std::uint64_t>(),
                process["planned_bytes"].get<std::uint64_t>() + process["data_bytes"].get<std::uint64_t>() +
                    process["transport_bytes"].get<std::uint64_t>() + (64 << 20));
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
      EXPECT_LE(process["peak_rss_bytes"], process["rss_limit_bytes"]) << process;
#endif
    }
  }
  void expect_same(const std::string& name, const std::string& want) const {
    EXPECT_EQ(loss_bits(name), loss_bits(want)) << name;
    EXPECT_EQ(digest(name), digest(want)) << name;
    for (const char* key : {"steps", "train_loss", "val_loss", "bits_per_byte"})
      EXPECT_EQ(summary(name)[key], summary(want)[key]) << key;
    for (const char* step : {"step-00000004", "step-00000008"})
      for (const std::string& data : list(str(want, "/checkpoints/", step)))
        EXPECT_EQ(read_all(file(str(name, "/checkpoints/", step, "/", data))),
                  read_all(file(str(want, "/checkpoints/", step, "/", data))))
            << data;
    EXPECT_TRUE(list("runs/nvme").empty());
  }
};

/// The same with processes that mpirun starts.
class CliMpiE2e : public CliRanksE2e {
 protected:
  void SetUp() override {
#ifndef STRATA_MPIRUN
    GTEST_SKIP() << "built without MPI";
#endif
  }
#ifdef STRATA_MPIRUN
  ProgramResult mpirun(int ranks, const Words& words) const {
    Words all = {"-np",       str(ranks),    "--oversubscribe", "--allow-run-as-root",
                 "--bind-to", "none",        "--mca",           "mpi_yield_when_idle",
                 "1",         STRATA_PROGRAM};
    all.insert(all.end(), words.begin(), words.end());
    return run_program(STRATA_MPIRUN, all, options_);
  }
#else
  ProgramResult mpirun(int, const Words&) const { return {}; }
#endif
};

}  // namespace strata::test
