// A program on shards computes what the whole program does: the loss, and of every gradient each rank's part.
#include <cstdlib>
#include <mutex>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <strata/config/split_annotations.h>
#include <strata/config/train_config.h>
#include <strata/plan/split/split_model.h>

#include "sharding/gradient_run.h"

namespace strata {
namespace {

using namespace test;  // NOLINT

// The ranks have what parallel.shard says.
void run_layout(const Program& whole, const TrainConfig& config, bool tied_head, const CheckRank& check,
                std::uint64_t seed = 1) {
  std::vector<std::pair<std::int32_t, int>> axes;
  for (const MeshAxis axis : kSplitAxes)
    axes.emplace_back(static_cast<std::int32_t>(axis), model_parallel(config).size(axis));
  const auto part_of_rank = [&](int rank) -> Result<Program> {
    Program part = whole;
    TrainConfig of_rank = config;
    of_rank.parallel.rank = rank;
    STRATA_TRY(split_among_ranks({&part, 1}, of_rank, tied_head));
    return part;
  };
  run_parts(whole, axes, part_of_rank, check, seed);
}

class PartitionFamilies : public ::testing::TestWithParam<std::tuple<const char*, int>> {
 protected:
  DecoderConfig config() const { return small_config(std::get<0>(GetParam()), ranks()); }
  Program whole() const { return must(record_decoder(config(), kBatch, DecoderHead::loss)); }
  int ranks() const { return std::get<1>(GetParam()); }
};

TEST_P(PartitionFamilies, TensorParallelGradientsAreThoseOfOneRank) {
  expect_same(whole(), ranks(), annotations(kMegatron));
}
TEST_P(PartitionFamilies, SequenceParallelGradientsAreThoseOfOneRank) {
  expect_same(whole(), ranks(), annotations(with_sequence_parallelism()));
}
TEST_P(PartitionFamilies, SlicedGathersOfSequenceParallelismChangeNothing) {
  ShardAxis axis = tp_axis(ranks());
  axis.slices_gathers = true;
  expect_same(whole(), {{axis, annotations(with_sequence_parallelism())}});
}
TEST_P(PartitionFamilies, GradientsOfPartsOfTheVocabularyAreThoseOfOneRank) {
  std::vector<std::string> texts = with_sequence_parallelism();
  texts.emplace_back("tokens.weight 0:tp");
  if (!config().tied_head) texts.emplace_back("head.weight 0:tp");
  expect_same(whole(), ranks(), annotations(texts));
}
// Ranks have parts of each sequence, and in attention the keys and values of all ranks.
TEST_P(PartitionFamilies, GradientsOfPartsOfSequencesWithAllKeysAreThoseOfOneRank) {
  expect_same_in_parts(whole(), ranks(), config().seq,
                       annotations({"embed/embedding 0:tp", "layers.*/attention 0:tp"}), false);
}
TEST_P(PartitionFamilies, GradientsOfPartsOfSequencesInARingAreThoseOfOneRank) {
  expect_same_in_parts(whole(), ranks(), config().seq,
                       annotations({"embed/embedding 0:tp", "layers.*/attention 0:tp"}), true);
}
// Ranks have parts of each sequence, and all of it for some of the heads.
TEST_P(PartitionFamilies, GradientsOfPartsOfSequencesAreThoseOfOneRank) {
  expect_same_in_parts(whole(), ranks(), config().seq, annotations(kUlysses), false);
}
INSTANTIATE_TEST_SUITE_P(Ranks, PartitionFamilies,
                         ::testing::Combine(::testing::Values("gpt2", "opt", "llama", "qwen2", "qwen3",
                                                              "bloom", "glm4"),
                                            ::testing::Values(2, 3, 4, 8)));

class PartitionMeshes : public ::testing::TestWithParam<const char*> {
 protected:
  Program whole() const { return must(record_decoder(small_config(GetParam()), kBatch, DecoderHead::loss)); }
  static ShardAxis cp_axis(bool rings) {
    return {.name = "cp",
            .number = 1,
            .ranks = 2,
            .rows = Cut::of_sequences(kBatch, 8, 2, rings),
            .rings_attention = rings};
  }
};

TEST_P(PartitionMeshes, TensorAndContextParallelismTogetherHaveTheGradientsOfOneRank) {
  const Along tp{tp_axis(2), annotations(kMegatron)};
  const auto parts = [](int dim) {
    return annotations({"embed/embedding 0:cp", str("layers.*/attention ", dim, ":cp")});
  };
  expect_same(whole(), {tp, {cp_axis(false), parts(1)}});
  expect_same(whole(), {tp, {cp_axis(true), parts(0)}});
}
/// A layout of several dimensions, and in how many parts it cuts the matrices of a block.
struct Layout {
  const char* preset;
  std::int32_t tp, tp2, tp3;
  std::int64_t parts;

  TrainConfig config(std::int64_t seq) const {
    TrainConfig config;
    config.model.seq = seq;
    config.parallel.tp = tp;
    config.parallel.tp2 = tp2;
    config.parallel.tp3 = tp3;
    config.parallel.shard = {preset};
    return config;
  }
};
constexpr Layout kLayouts[] = {
    {"2d", 2, 2, 1, 4}, {"2d", 4, 2, 1, 8}, {"2.5d", 2, 2, 2, 4}, {"3d", 2, 2, 2, 8}};
constexpr std::int64_t kSequences = 8;  // so that each rank has whole ones

TEST_P(PartitionMeshes, LayoutsOfSeveralDimensionsHaveTheGradientsOfOneRank) {
  const DecoderConfig model = small_config(GetParam());
  const Program whole = must(record_decoder(model, kSequences, DecoderHead::loss));
  for (const Layout& layout : kLayouts) {
    SCOPED_TRACE(layout.preset);
    const auto same = same_as_one(whole);
    run_layout(whole, layout.config(model.seq), model.tied_head,
               [&](const Program& part, const Gradients& found, int rank) {
                 same(part, found, rank);
                 for (const char* matrix : {"qkv", "attn_out", "mlp_in", "mlp_out"})
                   for (std::size_t p = 0; p < whole.params.size(); ++p) {
                     if (whole.params[p].name != str("layers.0.", matrix, ".weight")) continue;
                     EXPECT_EQ(whole.params[p].shape.n_elems(), layout.parts * part.params[p].shape.n_elems())
                         << matrix;
                   }
               });
  }
}
INSTANTIATE_TEST_SUITE_P(Families, PartitionMeshes,
                         ::testing::Values("gpt2", "llama", "qwen3", "bloom", "glm4"));

/// For each tensor, the squares of the differences to other gradients.
using Errors = std::map<std::string, double, std::less<>>;
void add_errors(const Program& part, const Gradients& found, const Gradients& oracle, Errors& errors) {
  for (const ParamInfo& param : part.params) {
    const std::vector<float>&is = found.of.at(param.name), &all = oracle.of.at(param.name);
    if (!param.part.is_shared()) {
      for (std::size_t i = 0; i < is.size(); ++i) errors[param.name] += std::pow(double{is[i]} - all[i], 2);
      continue;
    }
    param.part.for_each_counted_run(
        0, std::ssize(is), [&](std::int64_t whole, std::int64_t own, std::int64_t n) {
          for (std::int64_t i = 0; i < n; ++i)
            errors[param.name] += std::pow(
                double{is[static_cast<std::size_t>(own + i)]} - all[static_cast<std::size_t>(whole + i)], 2);
        });
  }
}

struct Technique {
  const char* name;
  std::vector<std::string> texts;
  bool in_parts = false, zigzag = false, rings = false, slices = false;
};
std::vector<Technique> techniques(bool tied_head) {
  std::vector<std::string> vocab = with_sequence_parallelism();
  vocab.emplace_back("tokens.weight 0:tp");
  if (!tied_head) vocab.emplace_back("head.weight 0:tp");
  const std::vector<std::string> all_keys = {"embed/embedding 0:tp", "layers.*/attention 0:tp"};
  return {{"tensor", kMegatron},
          {"sequence", with_sequence_parallelism()},
          {.name = "sliced", .texts = with_sequence_parallelism(), .slices = true},
          {"vocabulary", vocab},
          {"ulysses", kUlysses, true},
          {"all-gather", all_keys, true, true},
          {"ring", all_keys, true, true, true}};
}

ShardAxis axis_of(const Technique& technique, int ranks, std::int64_t seq) {
  ShardAxis axis = tp_axis(ranks);
  if (technique.in_parts) axis.rows = Cut::of_sequences(kBatch, seq, ranks, technique.zigzag);
  axis.rings_attention = technique.rings;
  axis.slices_gathers = technique.slices;
  return axis;
}

class PartitionErrors : public ::testing::TestWithParam<std::tuple<const char*, int>> {};

// In bf16 a rank's results are rounded as often as one rank's, apart from those that ranks add.
TEST_P(PartitionErrors, Bf16IsAsExactAsOnOneRank) {
  const int ranks = std::get<1>(GetParam());
  DecoderConfig config = small_config(std::get<0>(GetParam()));
  config.hidden = 64;
  config.seq = 32;
  const auto record = [&](DType compute) {
    return must(record_decoder(config, kBatch, DecoderHead::loss, DecoderRows::whole, compute));
  };
  const Program whole = record(DType::bf16);
  const std::vector<Technique> all = techniques(config.tied_head);
  std::vector<Errors> errors(all.size());
  Errors alone;
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    const Gradients oracle = gradients_of_one(record(DType::f32), seed);
    add_errors(whole, gradients_of_one(whole, seed), oracle, alone);
    for (std::size_t i = 0; i < all.size(); ++i) {
      std::mutex mutex;
      run_mesh(
          whole, {{axis_of(all[i], ranks, config.seq), annotations(all[i].texts)}},
          [&](const Program& part, const Gradients& found, int) {
            const std::lock_guard lock(mutex);
            add_errors(part, found, oracle, errors[i]);
          },
          seed);
    }
  }
  for (std::size_t i = 0; i < all.size(); ++i)
    for (const auto& [name, error] : alone)
      EXPECT_LE(std::sqrt(errors[i].at(name)), 1.5 * std::sqrt(error)) << all[i].name << " " << name;
}
class LayoutErrors : public ::testing::TestWithParam<const char*> {};

TEST_P(LayoutErrors, LayoutsOfSeveralDimensionsAreAsExactInBf16) {
  DecoderConfig model = small_config(GetParam());
  model.hidden = 64;
  const auto record = [&](DType compute) {
    return must(record_decoder(model, kSequences, DecoderHead::loss, DecoderRows::whole, compute));
  };
  const Program whole = record(DType::bf16), exact = record(DType::f32);
  const std::uint64_t seeds = std::getenv("SPLIT_ALL") == nullptr ? 12 : 32;  // q_norm has few elements
  for (const Layout& layout : kLayouts) {
    Errors alone, split;
    for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
      const Gradients oracle = gradients_of_one(exact, seed);
      add_errors(whole, gradients_of_one(whole, seed), oracle, alone);
      std::mutex mutex;
      run_layout(
          whole, layout.config(model.seq), model.tied_head,
          [&](const Program& part, const Gradients& found, int) {
            const std::lock_guard lock(mutex);
            add_errors(part, found, oracle, split);
          },
          seed);
    }
    for (const auto& [name, error] : alone)
      EXPECT_LE(std::sqrt(split.at(name)), 1.5 * std::sqrt(error)) << layout.preset << " " << name;
  }
}

/// Two families, or all if SPLIT_ALL is set.
std::vector<const char*> families_of_errors() {
  if (std::getenv("SPLIT_ALL") == nullptr) return {"gpt2", "llama"};
  return {"gpt2", "llama", "qwen3", "bloom", "glm4"};
}
INSTANTIATE_TEST_SUITE_P(Families, LayoutErrors, ::testing::ValuesIn(families_of_errors()));

/// Four ranks, or more counts if SPLIT_ALL is set.
std::vector<int> ranks_of_errors() {
  return std::getenv("SPLIT_ALL") == nullptr ? std::vector{4} : std::vector{2, 4, 8};
}
INSTANTIATE_TEST_SUITE_P(Families, PartitionErrors,
                         ::testing::Combine(::testing::Values("gpt2", "llama", "qwen3", "bloom", "glm4"),
                                            ::testing::ValuesIn(ranks_of_errors())));

}  // namespace
}  // namespace strata
