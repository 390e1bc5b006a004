// Runs of models that have other layers than plain attention: the same bits wherever their bytes are,
// folders, texts.
#include "cli/e2e/e2e_fixture.h"

namespace strata::test {
namespace {

using ::testing::HasSubstr;

class CliMixersE2e : public CliE2e, public ::testing::WithParamInterface<const char*> {
 protected:
  static Words run_of(const std::string& name, const Words& words = {}) {
    Words all = {"--out",         name, "log.every=1", "train.eval_every=2", str("model.family=", GetParam()),
                 "model.layers=4"};
    const std::string_view family = GetParam();
    if (family.starts_with("deepseek") || family.starts_with("gemma4")) all.push_back("model.experts=6");
    for (const char* key :
         {"memory.device=64MiB", "memory.pinned=64MiB", "train.grad_accum=2", "train.steps=4"})
      if (std::none_of(words.begin(), words.end(), [&](const std::string& word) {
            return word.starts_with(std::string(key).substr(0, 11));
          }))
        all.push_back(key);
    all.insert(all.end(), words.begin(), words.end());
    return tiny("train", all);
  }
};

TEST_P(CliMixersE2e, ARunHasTheSameBitsInAnyBudgetsOrderAndStepMode) {
  const ProgramResult first = strata(run_of("whole"));
  ASSERT_EQ(first.exit_code, 0) << first.err;
  const Words ways[] = {
      {"offload.policy=nvme", "memory.nvme=256MiB", "offload.step_mode=two_phase", "cpu.threads=1"},
      {"offload.micro_batch_order=breadth_first", "train.recompute=full", "offload.chunk=8192"},
      {"parallel.ranks=2", "parallel.zero=3", "offload.chunk=8192"},
      {"parallel.ranks=2", "parallel.pp=2"},
      {"offload.step_mode=speculative", "offload.policy=pinned", "cpu.threads=3"}};
  for (const Words& words : ways) {
    Words all = words;
    const ProgramResult run = strata(run_of("run", all));
    ASSERT_EQ(run.exit_code, 0) << run.err;
    EXPECT_EQ(loss_bits("run"), loss_bits("whole")) << words[0] << ", " << words[1];
    if (words[1] != "parallel.pp=2") {
      EXPECT_EQ(digest("run"), digest("whole")) << words[0] << ", " << words[1];
    }
    EXPECT_EQ(summary("run")["peak_bytes"], summary("run")["planned_bytes"]) << words[0];
    std::filesystem::remove_all(file("run"));
  }
}

TEST_P(CliMixersE2e, AFolderIsWrittenReadAdaptedAndContinued) {
  ASSERT_EQ(strata(run_of("run", {"train.steps=2"})).exit_code, 0);
  const ProgramResult exported = strata({"export", "run", "--out", "model", "--check"});
  ASSERT_EQ(exported.exit_code, 0) << exported.err;
  const ProgramResult evaluated = strata({"eval", "run", "--json"});
  ASSERT_EQ(evaluated.exit_code, 0) << evaluated.err;
  const Words generate = {"generate", "model", "--prompt", "She ", "--tokens", "8", "--seed", "3"};
  const ProgramResult written = strata(generate);
  ASSERT_EQ(written.exit_code, 0) << written.err;
  EXPECT_FALSE(written.out.empty());
  const ProgramResult adapted =
      strata({"train", "--init", "model", "--out", "tuned", "train.steps=2", "data.train=train.txt",
              "data.val=", "train.dtype=bf16", "adapter.method=lora", "adapter.targets=all-linear",
              "train.base=nf4"});
  ASSERT_EQ(adapted.exit_code, 0) << adapted.err;
  const ProgramResult merged =
      strata({"export", "tuned", "--out", "merged", "--format", "merged", "--check"});
  ASSERT_EQ(merged.exit_code, 0) << merged.err;
}

// States end with documents, also where the layers that carry them are on other ranks.
TEST_P(CliMixersE2e, PackedDocumentsHaveTheSameBitsOnStagesOfAPipeline) {
  const std::string text = read_all(file("train.txt"));
  std::string records;
  for (std::size_t at = 0, length = 7; at + length < text.size();
       at += length, length = 7 + length * 31 % 190)
    records += nlohmann::json{{"text", text.substr(at, length)}}.dump() + "\n";
  write("documents.jsonl", records);
  const Words packed = {"data.train=documents.jsonl", "data.packing=pack", "train.dtype=f32"};
  const auto parameters = [&](const Words& words) {
    Words all = packed;
    all.insert(all.end(), words.begin(), words.end());
    const ProgramResult run = strata(run_of("run", all));
    EXPECT_EQ(run.exit_code, 0) << run.err;
    EXPECT_EQ(strata({"export", "run", "--out", "model"}).exit_code, 0);
    const auto found = std::pair(loss_bits("run"), read_all(file("model/model.safetensors")));
    std::filesystem::remove_all(file("run"));
    std::filesystem::remove_all(file("model"));
    return found;
  };
  const auto alone = parameters({});
  EXPECT_EQ(alone.first.size(), 4u);
  // Stages add the gradient of a tied head to that of the embedding at the end of a step, which is another
  // sum.
  const std::string_view family = GetParam();
  const bool is_tied = family == "lfm2" || family == "gemma4_text";
  for (const Words& stages : {Words{"parallel.ranks=2", "parallel.pp=2"},
                              Words{"parallel.ranks=4", "parallel.pp=4", "train.recompute=full"}}) {
    const auto found = parameters(stages);
    if (is_tied) {
      EXPECT_EQ(found.first[0], alone.first[0]) << stages[0];  // before the first update
    } else {
      EXPECT_EQ(found.first, alone.first) << stages[0];
      EXPECT_TRUE(found.second == alone.second) << stages[0];
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Families, CliMixersE2e,
                         ::testing::Values("qwen3_5_text", "qwen3_next", "lfm2", "deepseek_v3",
                                           "granitemoehybrid", "falcon_h1", "nemotron_h", "gemma4_text"),
                         [](const auto& test) { return std::string(test.param); });

class CliLatentCacheE2e : public CliE2e {};

TEST_F(CliLatentCacheE2e, LatentRowsGiveTheSameTextsAndAreChosenWhereKeysAndValuesAreTooLarge) {
  const ProgramResult trained =
      strata(tiny("train", {"--out", "run", "model.family=deepseek_v3", "model.experts=6", "model.layers=4",
                            "model.seq=512", "train.micro_batch=1", "train.steps=4", "memory.device=64MiB"}));
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  const auto generated = [&](const Words& words) {
    Words all = {"generate", "run",           "--prompt", "It is a truth", "--tokens",
                 "60",       "--temperature", "0",        "--json"};
    all.insert(all.end(), words.begin(), words.end());
    return strata(all);
  };
  const ProgramResult expanded = generated({"memory.latent_cache=expanded"}),
                      latent = generated({"memory.latent_cache=latent"}), chosen = generated({});
  ASSERT_EQ(expanded.exit_code, 0) << expanded.err;
  for (const ProgramResult* other : {&latent, &chosen}) {
    ASSERT_EQ(other->exit_code, 0) << other->err;
    EXPECT_EQ(nlohmann::json::parse(other->out)["text"], nlohmann::json::parse(expanded.out)["text"]);
  }
  EXPECT_EQ(chosen.err.find("latent_cache"), std::string::npos) << "a short text takes little";
  const ProgramResult served =
      strata({"score", "run", "--in", "val.txt", "--batch", "64", "memory.device=32MiB"});
  EXPECT_THAT(served.err, HasSubstr("memory.latent_cache = latent, since keys and values of all heads take"));
}

}  // namespace
}  // namespace strata::test
