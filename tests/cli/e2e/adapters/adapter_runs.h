#pragma once

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <string>

#include "cli/e2e/e2e_fixture.h"

namespace strata::test {

/// Runs of adapters over a folder that the tests write.
class AdapterRunsE2e : public CliE2e {
 protected:
  /// A run over the folder `base`; `words` override its keys.
  static Words run_of(const std::string& name, const Words& words = {}) {
    Words all = {"--out", name, "--init", "base", "adapter.method=lora"};
    for (const std::string key : {"adapter.targets=all-linear", "train.steps=6", "train.grad_accum=2",
                                  "log.every=1", "optim.lr=1e-2"})
      if (std::none_of(words.begin(), words.end(), [&](const std::string& word) {
            return word.starts_with(key.substr(0, key.find('=') + 1));
          }))
        all.push_back(key);
    all.insert(all.end(), words.begin(), words.end());
    return tiny("train", all);
  }
  /// Writes a model into `folder`, which `seed` determines.
  void make_base(const std::string& folder, int seed = 1) {
    const std::string run = "run-of-" + folder;
    succeeds(tiny("train", {"--out", run, "train.steps=1", "train.dtype=f32", str("train.seed=", seed)}));
    succeeds({"export", run, "--out", folder});
  }
  void succeeds(const Words& words) {
    const ProgramResult done = strata(words);
    ASSERT_EQ(done.exit_code, 0) << done.output();
  }
  std::string refused(const Words& words) {
    const ProgramResult done = strata(words);
    EXPECT_EQ(done.exit_code, 2) << done.output();
    return done.err;
  }
  void move(const std::string& from, const std::string& to) { std::filesystem::rename(file(from), file(to)); }
  nlohmann::json manifest(const std::string& checkpoint) const {
    return nlohmann::json::parse(read_all(file(checkpoint + "/manifest.json")));
  }
  /// The elements of all tensors of a safetensors file.
  std::uint64_t elements(const std::string& name) const {
    const std::string text = read_all(file(name));
    std::uint64_t n = 0, header = 0;
    std::memcpy(&header, text.data(), sizeof header);
    const auto tensors = nlohmann::json::parse(text.substr(8, header));
    for (const auto& [key, tensor] : tensors.items()) {
      if (key == "__metadata__") continue;
      std::uint64_t elems = 1;
      for (const auto& dim : tensor["shape"]) elems *= dim.get<std::uint64_t>();
      n += elems;
    }
    return n;
  }
  /// f32 masters and two moments, and a little that depends on the number of tensors alone.
  void expect_small(const std::string& checkpoint) {
    std::uint64_t bytes = 0;
    for (const std::string& name : list(checkpoint))
      bytes += std::filesystem::file_size(file(str(checkpoint, "/", name)));
    const std::uint64_t trained = elements(checkpoint + "/param.safetensors");
    constexpr double kNames = 16384;
    EXPECT_LE(static_cast<double>(bytes), 12.1 * static_cast<double>(trained) + kNames);
    EXPECT_GT(trained, 0u);
    const auto params = manifest(checkpoint)["files"][0]["tensors"];
    for (const auto& [tensor, digest] : params.items()) EXPECT_THAT(tensor, ::testing::HasSubstr("lora_"));
  }
  /// A run over `base` with these keys has the same bits in RAM, in three tiers and by two ranks.
  void expect_tiers_and_ranks_change_no_bit(const Words& keys) {
    const auto with = [&](Words words) {
      words.insert(words.end(), keys.begin(), keys.end());
      words.emplace_back("train.grad_accum=6");
      return words;
    };
    succeeds(run_of("whole", with({})));
    succeeds(run_of("tiers", with({"memory.device=2MiB", "memory.pinned=3MiB", "memory.nvme=64MiB"})));
    succeeds(run_of("ranks", with({"parallel.ranks=2", "parallel.zero=3"})));
    for (const char* run : {"tiers", "ranks"}) {
      EXPECT_EQ(loss_bits(run), loss_bits("whole")) << run;
      EXPECT_EQ(digest(run), digest("whole")) << run;
    }
  }
  /// A run over `base` with `key` that is killed goes on from its small checkpoint, with the bits of one that
  /// was not.
  void expect_killed_run_resumes(const std::string& key) {
    succeeds(run_of("whole", {key, "--overwrite"}));
    RunningProgram program(STRATA_PROGRAM, run_of("run", {key, "checkpoint.every=1", "--overwrite"}),
                           options_);
    ASSERT_TRUE(program.wait_for("saved run/checkpoints/step-00000003"));
    program.send(SIGKILL);
    EXPECT_EQ(program.finish().signal, SIGKILL);
    expect_small("run/checkpoints/step-00000003");
    succeeds({"train", "--resume", "run"});
    EXPECT_EQ(loss_bits("run"), loss_bits("whole"));
    EXPECT_EQ(digest("run"), digest("whole"));
  }
  nlohmann::json evaluated(const Words& words) {
    Words all = {"eval", "--json", "--data", "val.txt"};
    all.insert(all.begin() + 1, words.begin(), words.end());
    const ProgramResult done = strata(all);
    EXPECT_EQ(done.exit_code, 0) << done.err;
    return done.exit_code == 0 ? nlohmann::json::parse(done.out) : nlohmann::json{{"loss", 0}};
  }
};

}  // namespace strata::test
