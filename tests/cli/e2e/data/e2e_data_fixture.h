#pragma once

#include "cli/e2e/e2e_fixture.h"

namespace strata::test {

/// Records of conversations and of prompts with completions beside the texts of CliE2e.
class CliDataE2e : public CliE2e {
 protected:
  CliDataE2e() {
    const std::string novel = austen("pride_and_prejudice");
    std::string messages, completions;
    for (std::size_t i = 0; i < 200; ++i) {
      const auto words = [&](std::size_t at) {
        return nlohmann::json(novel.substr(at, 10 + at % 37)).dump();
      };
      messages += str(R"({"messages": [{"role": "user", "content": )", words(90 * i + 100),
                      R"(}, {"role": "assistant", "content": )", words(70 * i + 40), "}]}\n");
      completions += str(R"({"id": )", i, R"(, "prompt": )", words(50 * i + 300), R"(, "completion": )",
                         words(60 * i + 900), "}\n");
    }
    write("chat.jsonl", messages);
    write("ask.jsonl", completions);
  }
  /// Trains the same run without and with an interruption and compares the results.
  void expect_resumable(const Words& words) {
    const auto run_of = [&](const std::string& name, const std::string& time) {
      Words all = {"--out", name, "train.steps=14", time};
      all.insert(all.end(), words.begin(), words.end());
      return tiny("train", all);
    };
    const ProgramResult whole = strata(run_of("whole", "train.max_time=none"));
    ASSERT_EQ(whole.exit_code, 0) << whole.err;
    ASSERT_EQ(strata(run_of("run", "train.max_time=0s")).exit_code, 0);
    EXPECT_EQ(summary("run")["stop_reason"], "time limit");
    const ProgramResult resumed = strata({"train", "--resume", "run", "train.max_time=none"});
    ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
    EXPECT_EQ(loss_bits("run"), loss_bits("whole"));
    EXPECT_EQ(digest("run"), digest("whole"));
    EXPECT_EQ(summary("run")["val_loss"], summary("whole")["val_loss"]);
    EXPECT_EQ(summary("whole")["steady_state"],
              nlohmann::json({{"heap_allocations", 0}, {"resources_created", 0}}));
  }
};

}  // namespace strata::test
