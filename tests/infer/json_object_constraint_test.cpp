// Texts that must become a JSON object.
#include <strata/infer/json_object_constraint.h>

#include <algorithm>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <strata/runtime/str.h>

#include "infer/cached_model.h"

namespace strata {
namespace {

using test::CachedModel;
using test::RecordingReceiver;
using ::testing::HasSubstr;

Tokenizer json_tokenizer() {
  const std::string_view text =
      "{\"name\": \"a cat\", \"age\": 12, \"list\": [1, 2.5, true, null], \"more\": {\"x\": \"y\"}}\n{\"a\": "
      "\"b\"}";
  return must(Tokenizer::train(std::span(&text, 1), 300));
}

/// Whether each token may follow, by trying all of its bytes alone.
std::vector<bool> allowed_one_by_one(const Tokenizer& tokenizer, const JsonObjectText& text) {
  std::vector<bool> allowed;
  for (std::int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    JsonObjectText next = text;
    bool may = !tokenizer.is_special(id);
    for (const char byte : tokenizer.token(id)) may = may && next.push(static_cast<unsigned char>(byte));
    allowed.push_back(may);
  }
  return allowed;
}

TEST(JsonObjectConstraintTest, TheMaskLeavesWhatMayFollowEachBeginning) {
  const Tokenizer tokenizer = json_tokenizer();
  const auto tokens = std::make_shared<const SortedTokens>(tokenizer);
  for (const std::string_view text :
       {"", "{", "{\"", "{\"name\"", "{\"a\": ", "{\"a\": 1", "{\"a\": [", "{\"a\": [1, ", "{\"a\": \"\\",
        "{\"a\": \"\xE2", "{\"a\": tr", "{\"a\": {\"x\": \"y\"", "{\"a\": -"}) {
    JsonObjectConstraint constraint(tokens, tokenizer);
    JsonObjectText state;
    for (const char byte : text) {
      const std::int32_t id = tokenizer.encode(std::string_view(&byte, 1)).front();
      EXPECT_FALSE(constraint.accept(id));
      EXPECT_TRUE(state.push(static_cast<unsigned char>(byte)));
    }
    std::vector<float> logits(static_cast<std::size_t>(tokenizer.vocab_size()), 1.5F);
    must(constraint.mask(logits));
    const std::vector<bool> allowed = allowed_one_by_one(tokenizer, state);
    for (std::size_t id = 0; id < logits.size(); ++id)
      EXPECT_EQ(logits[id], allowed[id] ? 1.5F : -std::numeric_limits<float>::infinity())
          << "after " << text << ": token " << tokenizer.token(static_cast<std::int32_t>(id));
  }
}

TEST(JsonObjectConstraintTest, ItIsAnErrorIfNothingMayFollow) {
  const Tokenizer tokenizer = json_tokenizer();
  JsonObjectConstraint constraint(std::make_shared<const SortedTokens>(tokenizer), tokenizer);
  std::vector<float> logits(9, 1.0F);  // control characters before the first that is white space
  const Status status = constraint.mask(logits);
  EXPECT_EQ(status.code(), Code::invalid);
  EXPECT_THAT(std::string(status.message()), HasSubstr("can continue a JSON object"));
}

TEST(JsonObjectConstraintTest, TextsOfABatchBecomeObjectsAndEndThere) {
  const Tokenizer tokenizer = json_tokenizer();
  const auto tokens = std::make_shared<const SortedTokens>(tokenizer);
  DecoderConfig config = test::tiny_of_family("llama");
  config.vocab = 304;
  config.seq = 512;
  CachedModel model(config, {.sequences = 2, .prefill_rows = 8, .context = 512});
  Batcher batcher(*model.run.engine, {.context = 512, .vocab = tokenizer.vocab_size()});
  const std::int32_t quote = tokenizer.encode("\"").front(), close = tokenizer.encode("}").front();
  int n_complete = 0;
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    const auto receiver = std::make_shared<RecordingReceiver>();
    BatchSequence sequence;
    sequence.prompt = {1, 2, 3};
    sequence.stop_ids = {tokenizer.markers().end, quote + 1};
    sequence.max_tokens = 400;
    sequence.seed = seed;
    // A model with random weights would seldom close what it opens.
    sequence.sampling.logit_bias = {
        {quote, 4}, {close, 6}, {tokenizer.encode("{").front(), -4}, {tokenizer.encode("[").front(), -4}};
    sequence.constraint = std::make_shared<JsonObjectConstraint>(tokens, tokenizer);
    must(batcher.add(sequence, receiver));
    while (batcher.n_active() > 0) must(batcher.step());
    const std::string text = must(tokenizer.decode(receiver->ids));
    if (receiver->reason != FinishReason::end_of_text) continue;
    ++n_complete;
    EXPECT_TRUE(nlohmann::json::accept(text)) << text;
    EXPECT_TRUE(nlohmann::json::parse(text).is_object());
    EXPECT_EQ(std::count(receiver->ids.begin(), receiver->ids.end(), quote + 1), 0);
  }
  EXPECT_GE(n_complete, 4);
}

}  // namespace
}  // namespace strata
