// Configurations of DeepSpeed through the C interface: rows, statuses, and what a callback may do.
#include <gmock/gmock.h>

#include <string>
#include <vector>

#include <strata.h>

namespace strata {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

struct Row {
  std::string key, value;
  strata_ds_verdict verdict;
  bool is_default;
  std::string strata_key, strata_value;
  friend bool operator==(const Row&, const Row&) = default;
};

struct Rows {
  std::vector<Row> rows;
  std::size_t stop_at = 1000;
};

std::int32_t collect(void* context, const strata_ds_row* row) {
  auto& into = *static_cast<Rows*>(context);
  EXPECT_EQ(row->struct_size, sizeof *row);
  EXPECT_STRNE(row->reason, "");
  into.rows.push_back(
      {row->key, row->value, row->verdict, row->is_default != 0, row->strata_key, row->strata_value});
  return into.rows.size() >= into.stop_at ? 1 : 0;
}

TEST(CapiDsConfigTest, EveryKeyHasARow) {
  Rows found;
  ASSERT_EQ(strata_ds_config_convert(R"({"fp16": {"enabled": "auto"}, "zero_optimization": {"stage": 1},
                                         "wall_clock_breakdown": true, "optimizer": {"type": "Lion"}})",
                                     &collect, &found),
            STRATA_OK)
      << strata_last_error();
  EXPECT_THAT(
      found.rows,
      ElementsAre(
          Row{"fp16.enabled", "\"auto\"", STRATA_DS_AUTO, false, "train.dtype", ""},
          Row{"zero_optimization.stage", "1", STRATA_DS_TAKEN, false, "parallel.zero", "1"},
          Row{"zero_optimization.stage", "1", STRATA_DS_TAKEN, false, "parallel.reduce", "\"once\""},
          Row{"wall_clock_breakdown", "true", STRATA_DS_MEANINGLESS, false, "log.trace", ""},
          Row{"optimizer.type", "\"Lion\"", STRATA_DS_TAKEN, false, "optim.name", "\"lion\""},
          Row{"optimizer.params.lr", "0.001", STRATA_DS_TAKEN, true, "optim.lr", "0.001"},
          Row{"optimizer.params.betas", "[0.9,0.999]", STRATA_DS_TAKEN, true, "optim.beta1", "0.9"},
          Row{"optimizer.params.betas", "[0.9,0.999]", STRATA_DS_TAKEN, true, "optim.beta2", "0.999"},
          Row{"optimizer.params.weight_decay", "0.0", STRATA_DS_TAKEN, true, "optim.weight_decay", "0.0"}));
}

TEST(CapiDsConfigTest, RefusedAndUnknownKeysAreNamedAfterAllRows) {
  Rows found;
  EXPECT_EQ(strata_ds_config_convert(R"({"ampp": {}, "amp": {"enabled": true}, "bf16": {"enabled": true}})",
                                     &collect, &found),
            STRATA_UNSUPPORTED);
  EXPECT_THAT(strata_last_error(), testing::AllOf(HasSubstr("ampp = {}: no key of DeepSpeed"),
                                                  HasSubstr("amp.enabled = true: strata has no Apex")));
  ASSERT_EQ(found.rows.size(), 3u);
  EXPECT_EQ(found.rows[0].verdict, STRATA_DS_UNKNOWN);
  EXPECT_EQ(found.rows[1].verdict, STRATA_DS_REFUSED);
  EXPECT_EQ(found.rows[2].verdict, STRATA_DS_TAKEN);
}

TEST(CapiDsConfigTest, WrongArgumentsAreRefusedWithoutARow) {
  Rows found;
  EXPECT_EQ(strata_ds_config_convert("[]", &collect, &found), STRATA_INVALID);
  EXPECT_THAT(strata_last_error(), HasSubstr("one JSON object"));
  EXPECT_EQ(strata_ds_config_convert(nullptr, &collect, &found), STRATA_INVALID);
  EXPECT_THAT(strata_last_error(), HasSubstr("json is null"));
  EXPECT_EQ(strata_ds_config_convert("{}", nullptr, &found), STRATA_INVALID);
  EXPECT_THAT(strata_last_error(), HasSubstr("row is null"));
  EXPECT_TRUE(found.rows.empty());
}

TEST(CapiDsConfigTest, ACallbackCanEndTheCall) {
  Rows found;
  found.stop_at = 2;
  EXPECT_EQ(strata_ds_config_convert(R"({"dump_state": 1, "log_level": "info", "memory_breakdown": 1})",
                                     &collect, &found),
            STRATA_CANCELLED);
  EXPECT_EQ(found.rows.size(), 2u);
  EXPECT_THAT(strata_last_error(), HasSubstr("log_level"));
}

}  // namespace
}  // namespace strata
