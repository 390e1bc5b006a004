#pragma once

#include <linux/capability.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <strata/runtime/io/io.h>
#include <strata/runtime/str.h>

#include "support/corpus.h"
#include "support/program.h"
#include "support/seccomp.h"
#include "support/temp_dir.h"

namespace strata::test {

using Words = std::vector<std::string>;

inline std::string read_all(const std::string& path) {
  return must(read_text(posix_io(), path, std::uint64_t{1} << 30));
}

/// Runs the command in a temporary folder that contains two short texts.
class CliE2e : public ::testing::Test {
 protected:
  CliE2e() {
    write("train.txt", austen("pride_and_prejudice").substr(0, 30000));
    write("val.txt", austen("persuasion").substr(0, 5000));
    options_.cwd = dir_.path();
    options_.environment = {str("XDG_CACHE_HOME=", file("cache"))};  // hides the user's machine profile
  }

  std::string file(const std::string& name) const { return dir_.file(name); }
  void write(const std::string& name, const std::string& text) {
    must(write_text_atomically(posix_io(), file(name), text));
  }

  /// The command line of `verb` with the tiny model. `words` override its keys.
  static Words tiny(const std::string& verb, const Words& words = {}) {
    Words all = {verb, "--preset", "austen-tiny"};
    // Fixed here because `auto` depends on the CPU: the dtype determines the model's bytes, and two runs that
    // measure bf16 GEMMs separately could choose differently and then differ in bits.
    for (const std::string key :
         {"data.train=train.txt", "data.val=val.txt", "train.dtype=bf16", "cpu.bf16_matmul=widened"})
      if (std::none_of(words.begin(), words.end(), [&](const std::string& word) {
            return word.starts_with(key.substr(0, key.find('=') + 1));
          }))
        all.push_back(key);
    all.insert(all.end(), words.begin(), words.end());
    return all;
  }
  ProgramResult strata(const Words& words) const { return strata(words, options_); }
  ProgramResult strata(const Words& words, const ProgramOptions& options) const {
    return run_program(STRATA_PROGRAM, words, options);
  }

  nlohmann::json summary(const std::string& run) const {
    return nlohmann::json::parse(read_all(file(run + "/summary.json")));
  }
  std::vector<nlohmann::json> metrics(const std::string& run) const {
    std::vector<nlohmann::json> lines;
    const std::string text = read_all(file(run + "/metrics.jsonl"));
    for (std::size_t at = 0, end = 0; at < text.size(); at = end + 1) {
      end = text.find('\n', at);
      EXPECT_NE(end, std::string::npos) << "the last line is cut short";
      if (end == std::string::npos) break;
      lines.push_back(nlohmann::json::parse(text.substr(at, end - at)));
    }
    return lines;
  }
  std::vector<std::string> loss_bits(const std::string& run) const {
    std::vector<std::string> bits;
    for (const nlohmann::json& line : metrics(run))
      if (line.contains("loss_bits"))
        bits.push_back(str(line["step"].get<int>(), " ", line["loss_bits"].get<std::string>()));
    return bits;
  }
  std::string digest(const std::string& run) const { return summary(run)["state_digest"]; }
  bool exists(const std::string& name) const { return posix_io().exists(file(name)); }
  std::vector<std::string> list(const std::string& name) const { return must(posix_io().list(file(name))); }

  const TempDir dir_;
  ProgramOptions options_;
};

/// For before_exec: file permissions apply to root, too, who stays the owner of what the test has made and of
/// the folder that the program is in.
inline bool obey_permissions() {
  return ::geteuid() != 0 || (::prctl(PR_CAPBSET_DROP, CAP_DAC_OVERRIDE, 0, 0, 0) == 0 &&
                              ::prctl(PR_CAPBSET_DROP, CAP_DAC_READ_SEARCH, 0, 0, 0) == 0);
}

}  // namespace strata::test
