#include <gtest/gtest.h>

#include "engine/execute/adapters.h"
#include "engine/execute/central_differences.h"

namespace strata {
namespace {

using test::LowRank;
using test::StateTensors;
using test::TinyRun;

ProgramSet token_programs(const DecoderConfig& config, LowRank kind = LowRank::tokens,
                          Recompute recompute = Recompute::none, DType compute = DType::f32) {
  return test::adapted_programs(config, recompute, compute, kernels::WeightFormat::full, kind);
}

class TokenRowsTest : public ::testing::TestWithParam<std::string_view> {
 protected:
  static DecoderConfig config(bool tied) {
    DecoderConfig made = test::tiny_of_family(GetParam());
    made.logit_softcap = 0;
    made.tied_head = tied;
    return made;
  }
};

// Also what tokens choose rows by is random here.
TEST_P(TokenRowsTest, GradientsAreCentralDifferencesWithAndWithoutRecomputation) {
  for (const bool tied : {false, true}) {
    const ProgramSet programs = token_programs(config(tied));
    const auto first = test::first_gradients(programs, test::random_values);
    EXPECT_TRUE(first.gradients.contains("tokens.token_rows"));
    EXPECT_EQ(first.gradients.contains("head.token_rows"), !tied);
    EXPECT_FALSE(first.gradients.contains("tokens.token_rows0"));
    test::expect_central_differences(test::forward_of_first_batch(programs[ProgramRole::eval]), first);
    for (const Recompute recompute : {Recompute::selective, Recompute::full})
      EXPECT_EQ(
          first.gradients,
          test::first_gradients(token_programs(config(tied), LowRank::tokens, recompute), test::random_values)
              .gradients);
  }
}

TEST_P(TokenRowsTest, NewRowsAreThoseOfTheTableAndChangeNothing) {
  for (const DType compute : {DType::f32, DType::bf16}) {
    const auto start = [&](LowRank kind) {
      TinyRun run(must(Engine::plan(token_programs(config(false), kind, Recompute::none, compute), {})));
      must(run.engine->initialize(5));
      return std::pair{test::states_of(*run.engine, Payload::param), run.train(1)[0]};
    };
    const auto [params, loss] = start(LowRank::tokens);
    EXPECT_NEAR(loss, start(LowRank::lora).second, compute == DType::f32 ? 1e-6 : 1e-2);
    const auto columns = static_cast<std::size_t>(config(false).hidden);
    const std::vector<float>&table = params.at("tokens.weight"), &rows = params.at("tokens.token_rows");
    EXPECT_EQ(rows, params.at("tokens.token_rows0"));
    EXPECT_TRUE(std::equal(rows.begin(), rows.begin() + static_cast<std::ptrdiff_t>(columns),
                           table.begin() + static_cast<std::ptrdiff_t>(7 * columns)));
    const std::vector<float>& chosen = params.at("tokens.token_columns");
    EXPECT_EQ(std::count(chosen.begin(), chosen.end(), 1.0f), 3);
    EXPECT_EQ(std::count(chosen.begin(), chosen.end(), 0.0f), std::ssize(chosen) - 3);
    EXPECT_EQ(chosen[7 * 3], 1);
    EXPECT_EQ(chosen[3 * 3 + 1], 1);
    EXPECT_EQ(chosen.back(), 1);
  }
}

// The bits are equal in the embedding, where rows of zeros and ones choose among exact values.
TEST_P(TokenRowsTest, OtherRowsGiveTheLossOfATableThatHasThem) {
  for (const DType compute : {DType::f32, DType::bf16}) {
    const DecoderConfig made = config(false);
    const auto record = [&](bool with_rows) {
      Program program = must(record_decoder(made, 3, DecoderHead::loss, DecoderRows::whole, compute));
      if (with_rows) program = must(add_token_rows(std::move(program), {{test::tokens_of(made).front()}}));
      ProgramSet set;
      set[ProgramRole::eval] = program;
      set[ProgramRole::train] = must(derive_backward(std::move(program), "loss"));
      return set;
    };
    TinyRun rows(must(Engine::plan(record(true), {}))), table(must(Engine::plan(record(false), {})));
    must(rows.engine->initialize(5));
    must(table.engine->initialize(5));
    const auto was = [](std::size_t row, std::size_t k) {
      return 0.3f - 0.07f * static_cast<float>(row + k);
    };
    const auto is = [](std::size_t row, std::size_t k) { return 0.01f * static_cast<float>(row * 100 + k); };
    const auto columns = static_cast<std::size_t>(made.hidden);
    StateTensors params = test::states_of(*rows.engine, Payload::param);
    const std::vector<std::int64_t> tokens = test::tokens_of(made).front().tokens;
    const auto set_table = [&](const auto& value) {
      for (std::size_t i = 0; i < tokens.size(); ++i)
        for (std::size_t k = 0; k < columns; ++k)
          params["tokens.weight"][static_cast<std::size_t>(tokens[i]) * columns + k] = value(i, k);
    };
    set_table(was);
    for (std::size_t i = 0; i < tokens.size() * columns; ++i) {
      params["tokens.token_rows0"][i] = was(i / columns, i % columns);
      params["tokens.token_rows"][i] = is(i / columns, i % columns);
    }
    const auto fill_rows = [&](const StatePiece& piece, std::span<float> values) {
      std::copy_n(params.at(std::string(piece.name)).begin() + piece.offset, values.size(), values.begin());
      return Status::ok();
    };
    must(rows.engine->fill(Payload::param, fill_rows));
    const double with_rows = rows.train(1)[0];
    set_table(is);
    must(table.engine->fill(Payload::param, fill_rows));
    EXPECT_EQ(with_rows, table.train(1)[0]);
  }
}

TEST_P(TokenRowsTest, AStepChangesTheRowsAndNoTable) {
  for (const bool tied : {false, true}) {
    TinyRun run(must(Engine::plan(token_programs(config(tied)), {})));
    must(run.engine->initialize(5));
    const StateTensors before = test::states_of(*run.engine, Payload::param);
    run.train(2);
    for (const auto& [name, values] : test::states_of(*run.engine, Payload::param))
      EXPECT_EQ(values == before.at(name),
                !name.ends_with(".token_rows") && name.find(".lora_") == std::string::npos)
          << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Families, TokenRowsTest,
                         ::testing::Values("gpt2", "llama", "gemma2", "bloom", "opt"),
                         [](const auto& test_case) { return std::string(test_case.param); });

TEST(TokenRowsStepTest, EveryModeAndPlacementGivesTheBitsOfTheSerialStepOnTheDevice) {
  test::expect_bits_of_the_serial_step(LowRank::tokens);
}

TEST(TokenRowsStepTest, AQuantizedBaseKeepsItsTableAndHasTheLossesOfWhatItStandsFor) {
  test::expect_losses_of_the_dequantized_base(test::tiny_of_family("llama"), LowRank::tokens);
}

}  // namespace
}  // namespace strata
