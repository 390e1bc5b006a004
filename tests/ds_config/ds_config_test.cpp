// The table as a whole, and documents that are none.
#include "ds_config/findings.h"

#include <set>

#include <gmock/gmock.h>

namespace strata {
namespace {

using test::findings_of;
using test::reason_of;
using test::verdict_of;
using ::testing::HasSubstr;

TEST(DsConfigTable, EveryKeyHasOneRowAndAReason) {
  std::set<std::string_view> keys;
  for (const DsRow& row : ds_rows()) {
    EXPECT_TRUE(keys.insert(row.key).second) << row.key << " has two rows";
    EXPECT_FALSE(row.reason.empty()) << row.key;
    EXPECT_TRUE(row.verdict != DsVerdict::unknown && row.verdict != DsVerdict::automatic) << row.key;
    EXPECT_TRUE(row.verdict != DsVerdict::taken || !row.strata_keys.empty()) << row.key;
  }
  EXPECT_GT(keys.size(), 250u);
}

/// `{"a": {"b": value}}` of "a.b".
std::string document_with(std::string_view key, std::string_view value) {
  std::string open, close;
  for (;;) {
    const std::size_t dot = key.find('.');
    open += str("{\"", key.substr(0, dot), "\": ");
    close += "}";
    if (dot == key.npos) return str(open, value, close);
    key.remove_prefix(dot + 1);
  }
}

TEST(DsConfigTable, EveryKeyIsFoundWhateverItsValueIs) {
  for (const DsRow& row : ds_rows()) {
    if (row.key.ends_with(".*")) continue;
    for (const std::string_view value : {"7", "true", "\"x\"", "[1]", "-1e300", "\"auto\"", "null"}) {
      const auto findings = findings_of(document_with(row.key, value));
      ASSERT_FALSE(findings.empty() && value != "null") << row.key << " = " << value;
      for (const DsFinding& one : findings) {
        EXPECT_NE(one.verdict, DsVerdict::unknown) << row.key;
        EXPECT_FALSE(one.reason.empty()) << row.key;
        EXPECT_EQ(one.verdict == DsVerdict::taken, !one.strata_value.empty()) << row.key << " = " << value;
      }
    }
  }
}

TEST(DsConfigTable, APatternCoversAllBelowIt) {
  EXPECT_EQ(verdict_of(R"({"compression_training": {"weight_quantization": {"x": 1}}})",
                       "compression_training.weight_quantization"),
            "refused");
  EXPECT_EQ(verdict_of(R"({"amp": {"enabled": true, "opt_level": "O1"}})", "amp.opt_level"), "refused");
  EXPECT_EQ(verdict_of(R"({"amp": {"enabled": "auto", "opt_level": "O1"}})", "amp.opt_level"), "meaningless");
}

TEST(DsConfigTable, OtherNamesOfAKeyAreTheSameKey) {
  EXPECT_EQ(verdict_of(R"({"bfloat16": {"enabled": true}})", "bfloat16.enabled"),
            "taken train.dtype=\"bf16\"");
  EXPECT_EQ(verdict_of(R"({"zero_optimization": {"prefetch_bucket_size": 0}})",
                       "zero_optimization.prefetch_bucket_size"),
            "taken offload.prefetch=0");
  EXPECT_EQ(verdict_of(R"({"tensor_parallel": {"tensor_parallel": {"tp_size": 2}}})",
                       "tensor_parallel.tensor_parallel.tp_size"),
            "refused");
  EXPECT_THAT(reason_of(R"({"bf16": {"enabled": true}, "bfloat16": {"enabled": true}})", "bfloat16.enabled"),
              HasSubstr("also given as bf16.enabled"));
}

TEST(DsConfigDocument, WhatIsNoConfigurationIsRefusedWithTheReason) {
  const auto problem = [](std::string_view text) {
    return std::string(convert_ds_config(text).status().message());
  };
  EXPECT_THAT(problem("{"), HasSubstr("not JSON: parse error at line 1"));
  EXPECT_THAT(problem("[1]"), HasSubstr("one JSON object"));
  EXPECT_THAT(problem(R"({"fp16": {"enabled": true, "enabled": false}})"),
              HasSubstr("'enabled' is there twice"));
  EXPECT_THAT(problem(str("{\"x\": ", std::string(100000, '['), std::string(100000, ']'), "}")),
              HasSubstr("nested more than 64 deep"));
  EXPECT_EQ(convert_ds_config("{").status().code(), Code::invalid);
  EXPECT_TRUE(convert_ds_config("/* all is left to strata */ {}").has_value());
}

TEST(DsConfigDocument, SameNamesInDifferentSectionsAreNotTwice) {
  EXPECT_TRUE(convert_ds_config(R"({"wandb": {"enabled": true}, "comet": {"enabled": true}})").has_value());
}

TEST(DsConfigProblems, AllAreNamedWithTheNearestKey) {
  const Status status = ds_config_problems(findings_of(
      R"({"zero_optimisation": {"stage": 3}, "fp16": {"enabld": true}, "amp": {"enabled": true}})"));
  EXPECT_EQ(status.code(), Code::unsupported);
  EXPECT_THAT(
      std::string(status.message()),
      ::testing::AllOf(HasSubstr("zero_optimisation = {\"stage\":3}: no key of DeepSpeed; did you mean "
                                 "'zero_optimization'?\n"),
                       HasSubstr("fp16.enabld = true: no key of DeepSpeed; did you mean 'fp16.enabled'?\n"),
                       HasSubstr("amp.enabled = true: strata has no Apex")));
  EXPECT_TRUE(ds_config_problems(findings_of(R"({"fp16": {"enabled": false}})")).is_ok());
}

TEST(DsConfigProblems, TwoKeysMayNotSetOneKeyToDifferentValues) {
  const auto findings = findings_of(
      R"({"data_types": {}, "bf16": {"enabled": true, "bf16_optimizer_states": true},
          "optimizer": {"type": "Adam", "params": {"fp32_optimizer_states": true}}})");
  EXPECT_THAT(std::string(ds_config_problems(findings).message()),
              HasSubstr("bf16.bf16_optimizer_states sets offload.states to \"bf16\""));
}

TEST(DsConfigTable, ColumnsAreAlignedAndLongValuesCut) {
  const std::string table =
      ds_config_table(findings_of(R"({"comet": {"project": "äääääääääääääääääääää"}})"));
  EXPECT_THAT(table, HasSubstr("\ncomet.project  \"ääääääääää...  meaningless  -  "));
}

}  // namespace
}  // namespace strata
