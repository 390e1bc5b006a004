// Exports what is no run, and checkpoints other than the newest.
#include <algorithm>
#include <filesystem>
#include <utility>
#include <vector>

#include "cli/e2e/adapters/adapter_runs.h"

namespace strata::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

using CliExportE2e = AdapterRunsE2e;

TEST_F(CliExportE2e, ABaseWithAnAdapterIsExportedWithoutARun) {
  make_base("base");
  succeeds(run_of("run"));
  succeeds({"export", "run", "--out", "lora"});
  succeeds({"export", "run", "--format", "merged", "--out", "of-run"});
  const ProgramResult done = strata({"export", "base", "--adapter", "lora", "--out", "of-folder", "--check"});
  ASSERT_EQ(done.exit_code, 0) << done.err;
  EXPECT_THAT(done.out, HasSubstr("wrote of-folder from base: gpt2, f32, with the adapter merged"));
  EXPECT_EQ(read_all(file("of-folder/model.safetensors")), read_all(file("of-run/model.safetensors")));
  EXPECT_EQ(read_all(file("of-folder/tokenizer.json")), read_all(file("base/tokenizer.json")));
  EXPECT_THAT(refused({"export", "base", "--format", "merged", "--out", "x"}),
              HasSubstr("there is no adapter; name it with --adapter DIR"));
  EXPECT_THAT(refused({"export", "base", "--checkpoint", "2", "--out", "x"}),
              HasSubstr("--checkpoint: base is a Hugging Face folder"));
  EXPECT_THAT(refused({"export", "run", "--adapter", "lora", "--out", "x"}), HasSubstr("run is a run"));
}

TEST_F(CliExportE2e, ACheckpointIsChosenByItsStepOrItsValidation) {
  succeeds(tiny("train", {"--out", "run", "train.steps=6", "train.eval_every=2", "checkpoint.every=2",
                          "checkpoint.keep=9", "optim.lr=0.02"}));
  const auto of = [&](const std::string& which) {
    const ProgramResult done = strata({"export", "run", "--checkpoint", which, "--out", "of-" + which});
    EXPECT_EQ(done.exit_code, 0) << done.err;
    return done.out;
  };
  EXPECT_THAT(of("4"), HasSubstr("from run/checkpoints/step-00000004: "));
  std::pair<double, int> best = {1e9, 0};
  for (const nlohmann::json& line : metrics("run"))
    if (line.contains("val_loss"))
      best = std::min(best, {line["val_loss"].get<double>(), line["step"].get<int>()});
  EXPECT_THAT(of("best"), HasSubstr(str("from run/checkpoints/step-0000000", best.second)));
  EXPECT_NE(read_all(file("of-4/model.safetensors")),
            (succeeds({"export", "run", "--checkpoint", "2", "--out", "of-2"}),
             read_all(file("of-2/model.safetensors"))));
  EXPECT_THAT(strata({"export", "run", "--checkpoint", "3", "--out", "x"}).err,
              HasSubstr("no checkpoint of step 3; available: 2, 4, 6"));
  EXPECT_THAT(strata({"export", "run", "--checkpoint", "last", "--out", "x"}).err,
              HasSubstr("it is a step or best, not last"));
}

TEST_F(CliExportE2e, TheLastStepOfARunCanBeTheBestAndEvalTakesTheSame) {
  succeeds(tiny("train", {"--out", "run", "train.steps=6", "train.eval_every=2", "checkpoint.every=2",
                          "checkpoint.keep=9", "optim.lr=0.02", "optim.schedule=constant"}));
  std::vector<std::pair<double, int>> losses;
  for (const nlohmann::json& line : metrics("run"))
    if (line.contains("val_loss")) losses.emplace_back(line["val_loss"], line["step"]);
  ASSERT_EQ(losses.size(), 3U);
  ASSERT_EQ(std::min_element(losses.begin(), losses.end())->second, 6) << "the loss falls";
  const ProgramResult done = strata({"export", "run", "--checkpoint", "best", "--out", "best"});
  EXPECT_THAT(done.out, HasSubstr("from run/checkpoints/step-00000006: ")) << done.err;
  EXPECT_EQ(strata({"eval", "run", "--checkpoint", "best", "--json"}).out,
            strata({"eval", "run", "--checkpoint", "6", "--json"}).out);
  EXPECT_THAT(strata({"eval", "run", "--checkpoint", "bset"}).err, HasSubstr("a step or best, not bset"));
  // A run that goes on from there has the validation once.
  succeeds({"train", "--resume", "run", "train.steps=8"});
  int n = 0;
  for (const nlohmann::json& line : metrics("run")) n += line.contains("val_loss") && line["step"] == 6;
  EXPECT_EQ(n, 1);
}

TEST_F(CliExportE2e, AnAdaptersFolderAloneIsExplained) {
  std::filesystem::create_directory(file("lora"));
  write("lora/adapter_config.json", R"({"base_model_name_or_path": "base"})");
  EXPECT_THAT(strata({"export", "lora", "--out", "x"}).err,
              AllOf(HasSubstr("lora is a PEFT adapter of base"), HasSubstr("base --adapter lora")));
}

TEST_F(CliExportE2e, TheBestCheckpointThatIsKeptIsTakenAndABetterOneIsNamed) {
  succeeds(tiny("train", {"--out", "run", "train.steps=4", "train.eval_every=2", "checkpoint.every=2"}));
  const std::string metrics_file = file("run/metrics.jsonl");
  write("run/metrics.jsonl", read_all(metrics_file) + "{\"step\": 3, \"val_loss\": 0.5}\n");
  const ProgramResult done = strata({"export", "run", "--checkpoint", "best", "--out", "best"});
  ASSERT_EQ(done.exit_code, 0) << done.err;
  EXPECT_THAT(done.err, AllOf(HasSubstr("the validation at step 3 has a loss of 0.5, below the "),
                              HasSubstr("its checkpoint is not kept")));
  write("run/metrics.jsonl", "");
  EXPECT_THAT(strata({"export", "run", "--checkpoint", "best", "--out", "x"}).err,
              AllOf(HasSubstr("no checkpoint with a validation"), HasSubstr("its validations of none")));
}

}  // namespace
}  // namespace strata::test
