// Tests that the other commands accept the configuration that `strata config convert` prints.
#include <fstream>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <strata/config/train_schema.h>
#include <strata/ds_config/ds_config.h>
#include <strata/yaml_config/yaml_config.h>

#include "cli/run_command.h"
#include "exit_code.h"

namespace strata::cli {
namespace {

using test::Outcome;
using test::strata_command;
using test::TempFile;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

std::string sample(const std::string& name) {
  return str(STRATA_SOURCE_DIR, "/tests/ds_config/data/", name, ".json");
}

TEST(ConfigConvertTest, EveryKeyOfStrataThatTheTableNamesExists) {
  const auto exists = [](std::string_view key) {
    for (const KeySpec& spec : train_schema().keys)
      if (key == str(spec.section, ".", spec.name)) return true;
    return false;
  };
  int n = 0;
  for (const DsRow& row : ds_rows()) {
    std::istringstream words{std::string(row.strata_keys)};
    for (std::string key; words >> key; ++n) EXPECT_TRUE(exists(key)) << row.key << " names " << key;
  }
  for (const std::string& key : yaml_config_strata_keys()) EXPECT_TRUE(exists(key)) << key;
  EXPECT_GT(n, 100);
}

TEST(ConfigConvertTest, WhatIsTakenOfAYamlFileIsAConfigurationAndTheRestIsAnError) {
  const TempFile yaml("axolotl.yaml",
                      "base_model: m\nlearning_rate: 2e-5\nsample_packing: true\nval_set_size: 0.1\n");
  const Outcome converted = strata_command({"config", "convert", yaml.path()});
  EXPECT_EQ(converted.code, kExitUsage);
  EXPECT_THAT(converted.err, HasSubstr("val_set_size = 0.1: strata validates on files of their own"));
  const TempFile run("_converted.toml", converted.out);
  const Outcome checked = strata_command({"config", "show", run.path(), "model.from="});
  EXPECT_THAT(checked.out, HasSubstr("\nlr = 2e-05\n")) << checked.err << converted.out;
}

TEST(ConfigConvertTest, ValuesThatTheKeysOfStrataDoNotTakeAreRefusedByName) {
  const TempFile yaml("trainer.conf", "base_model: m\nseed: 1_000\nnum_epochs: three\nmicro_batch_size: 2\n");
  const Outcome converted = strata_command({"config", "convert", yaml.path(), "--json"});
  EXPECT_EQ(converted.code, kExitUsage);
  EXPECT_THAT(converted.err, AllOf(HasSubstr("seed = \"1_000\": train.seed expects an integer"),
                                   HasSubstr("num_epochs = \"three\": train.epochs expects a number")));
  const auto found = nlohmann::json::parse(converted.out);
  EXPECT_FALSE(found["ok"]);
  EXPECT_THAT(found["toml"].get<std::string>(), HasSubstr("micro_batch = 2\n"));
}

/// `config check` of what a file becomes.
void expect_accepted(const std::string& file) {
  const Outcome converted = strata_command({"config", "convert", file});
  ASSERT_EQ(converted.code, kExitOk) << converted.err;
  const TempFile run("_converted.toml", converted.out);
  const Outcome checked = strata_command({"config", "check", run.path()});
  EXPECT_EQ(checked.code, kExitOk) << checked.err << converted.out;
}

TEST(ConfigConvertTest, TheOutputIsAConfiguration) {
  for (const char* const name : {"hf_zero3_cpu", "zero_infinity_nvme", "bf16_zero2"})
    expect_accepted(sample(name));
}

TEST(ConfigConvertTest, TheLargestAndSmallestValuesAreAcceptedByTheSchema) {
  for (
      const char* const json :
      {R"({"train_batch_size": 1, "zero_optimization": {"stage": 1, "sub_group_size": 1}})",
       R"({"train_micro_batch_size_per_gpu": 1073741824, "gradient_accumulation_steps": 1073741824})",
       R"({"zero_optimization": {"stage": 0, "sub_group_size": 999999999999, "mics_shard_size": 65536}})",
       R"({"zero_optimization": {"sub_group_size": 1, "stage3_prefetch_bucket_size": 1e15}})",
       R"({"aio": {"block_size": 1073741824, "queue_depth": 4096}, "gradient_clipping": 1e30})",
       R"({"aio": {"block_size": 4096, "queue_depth": 1}, "log_level": "critical", "steps_per_print": 1e15})",
       R"({"fp16": {"enabled": true, "initial_scale_power": 99}, "data_parallel_size": 1})",
       R"({"optimizer": {"type": "SGD", "params": {"momentum": 0.9, "nesterov": true, "lr": 0}}})",
       R"({"optimizer": {"type": "Lion"}, "bf16": {"enabled": true, "bf16_optimizer_states": true}})"}) {
    const TempFile file("_ds.json", json);
    expect_accepted(file.path());
  }
}

TEST(ConfigConvertTest, ProblemsAreReportedAtOnceAndNothingIsConverted) {
  const Outcome bad = strata_command({"config", "convert", sample("refused")});
  EXPECT_EQ(bad.code, kExitUsage);
  EXPECT_THAT(bad.err,
              AllOf(HasSubstr("strata config convert: 9 problems\n"),
                    HasSubstr("train_batch_sise = 8: no key of DeepSpeed; did you mean 'train_batch_size'?"),
                    HasSubstr("optimizer.type = \"Muon\": strata has no Muon;"),
                    HasSubstr("scheduler.params.warmup_type (not given) = \"log\": "),
                    HasSubstr("zero_optimization.zenflow.select_strategy = \"auto\": ")));
  EXPECT_THAT(bad.out, AllOf(HasSubstr("#   train_micro_batch_size_per_gpu"), Not(HasSubstr("\n["))));
}

TEST(ConfigConvertTest, JsonHasEveryFinding) {
  const auto good =
      nlohmann::json::parse(strata_command({"config", "convert", "--json", sample("bf16_zero2")}).out);
  EXPECT_TRUE(good["ok"]);
  EXPECT_EQ(good["rows"].size(), 24u);
  EXPECT_EQ(good["rows"][0]["set"], 8);
  EXPECT_THAT(good["toml"].get<std::string>(), HasSubstr("[train]\nmicro_batch = 8\n"));
  const auto bad =
      nlohmann::json::parse(strata_command({"config", "convert", "--json", sample("refused")}).out);
  EXPECT_FALSE(bad["ok"]);
  EXPECT_TRUE(bad["toml"].is_null());
}

TEST(ConfigConvertTest, TheTableIsPrintedWithoutAFile) {
  const auto rows = nlohmann::json::parse(strata_command({"config", "convert", "--rows", "--json"}).out);
  EXPECT_EQ(rows.size(), ds_rows().size());
  EXPECT_THAT(strata_command({"config", "convert", "--rows"}).out,
              HasSubstr("zero_optimization.stage\ttaken\tparallel.zero parallel.reduce\t"));
}

TEST(ConfigConvertTest, AFileMustBeNamedAndExist) {
  const Outcome none = strata_command({"config", "convert"});
  EXPECT_EQ(none.code, kExitUsage);
  EXPECT_THAT(none.err, HasSubstr("name the file to convert"));
  EXPECT_EQ(strata_command({"config", "convert", "/nowhere/ds.json"}).code, kExitUsage);
  const TempFile file("_no.json", "{\"fp16\":");
  const Outcome broken = strata_command({"config", "convert", file.path()});
  EXPECT_EQ(broken.code, kExitUsage);
  EXPECT_THAT(broken.err, AllOf(HasSubstr(file.path()), HasSubstr("not JSON")));
}

}  // namespace
}  // namespace strata::cli
