// What rows of the schema say about their keys agrees with itself: a flag that is forgotten or wrong is
// found.
#include <strata/config/key_facts.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <strata/config/decide.h>
#include <strata/config/load_config.h>
#include <strata/runtime/str.h>

#include "schema/sections.h"

namespace strata {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

template <class Holds>
std::vector<std::string> keys_where(const Holds& holds) {
  std::vector<std::string> names;
  for (const TrainKey& key : train_keys())
    if (holds(key)) names.push_back(key.name());
  return names;
}

bool changes_no_bit(const TrainKey& key) { return key.facts.identity.kind == KeyIdentity::Kind::no_bits; }

TEST(KeyFactsTest, APlanDecidesOnlyAutosThatChangeNoBit) {
  EXPECT_THAT(keys_where([](const TrainKey& key) {
                return key.facts.planned && !(changes_no_bit(key) && key.spec.allows_auto);
              }),
              IsEmpty());
}

TEST(KeyFactsTest, AutosOfAStepThatChangeNoBitArePlannedUnlessTheyAreKnownBefore) {
  EXPECT_THAT(
      keys_where([](const TrainKey& key) {
        const bool of_step =
            key.spec.section == "train" || key.spec.section == "offload" || key.spec.section == "parallel";
        return of_step && key.spec.allows_auto && changes_no_bit(key) && !key.facts.planned;
      }),
      ElementsAre("offload.expert_block", "offload.auto_keys", "parallel.ranks", "parallel.transport"));
}

TEST(KeyFactsTest, NothingIsOffloadedWithTheValuesOfOnDevice) {
  const auto loaded = load_config({.items = device_only_overrides()});
  ASSERT_TRUE(loaded.has_value()) << loaded.status().message();
  EXPECT_EQ(loaded->config.memory.device_bytes, kUnlimitedBytes);
  EXPECT_EQ(loaded->config.memory.nvme_bytes, 0u);
  EXPECT_EQ(loaded->config.offload.policy, "device");
  EXPECT_EQ(loaded->config.offload.activations, "none");
}

TEST(KeyFactsTest, KeysOfTiersAndTheirNeighboursSayWhenTheyOffloadNothing) {
  EXPECT_THAT(keys_where([](const TrainKey& key) {
                const bool of_tiers = (key.spec.section == "memory" && key.spec.type == KeyType::bytes) ||
                                      (key.spec.section == "offload" && key.facts.planned);
                return of_tiers && key.facts.on_device.empty();
              }),
              ElementsAre("offload.chunk", "offload.prefetch", "offload.step_mode", "offload.undo_log"));
}

TEST(KeyFactsTest, BudgetsAndRanksDecidePlannedKeysAgain) {
  EXPECT_THAT(keys_where([](const TrainKey& key) {
                const bool of_inputs = (key.spec.section == "memory" && key.spec.type == KeyType::bytes) ||
                                       key.spec.section == "parallel";
                return of_inputs && !key.facts.replans;
              }),
              ElementsAre("parallel.transport", "parallel.stage_layers", "parallel.reduce",
                          "parallel.gather_ahead", "parallel.patience"));
}

TEST(KeyFactsTest, EveryEntryOfTheIdentityHasAText) {
  EXPECT_THAT(keys_where([](const TrainKey& key) {
                const KeyIdentity& identity = key.facts.identity;
                return identity.kind == KeyIdentity::Kind::entry && identity.text == nullptr &&
                       key.field.text == nullptr;
              }),
              IsEmpty());
}

TEST(KeyFactsTest, SizesOfAFolderAreKeysOfSectionModelApartFromTheLengthOfSequences) {
  EXPECT_THAT(keys_where([](const TrainKey& key) { return key.facts.from_folder != nullptr; }),
              ElementsAre("model.family", "model.layers", "model.hidden", "model.heads", "model.kv_heads",
                          "model.head_dim", "model.ffn", "model.experts", "model.experts_per_token",
                          "model.expert_ffn", "model.shared_ffn", "model.vocab"));
}

TEST(DecideTest, ADecisionReachesTheTreeAndTheField) {
  LoadedConfig loaded = must(load_config({}));
  decide(loaded, "memory.device", std::uint64_t{1} << 20, "the device of a test");
  decide(loaded, "parallel.zero", std::int64_t{3}, "the ranks of a test");
  decide(loaded, "train.dtype", std::string("bf16"), "the dtype of a test");
  EXPECT_EQ(loaded.config.memory.device_bytes, 1u << 20);
  EXPECT_EQ(loaded.config.parallel.zero, 3);
  EXPECT_EQ(loaded.config.train.dtype, "bf16");
  EXPECT_EQ(loaded.tree.text("train.dtype"), "bf16");
  EXPECT_EQ(loaded.tree.entry("train.dtype").why, "the dtype of a test");
}

}  // namespace
}  // namespace strata
