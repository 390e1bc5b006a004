#include <strata/text/text_markers.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <strata/text/tokenizer.h>

#include "support/memory_io.h"

namespace strata {
namespace {

using testing::ElementsAre;

/// Ids 0-255 are the bytes, and 256, 257 ... the special tokens.
Tokenizer with_special(const std::vector<std::string>& special, std::vector<std::int32_t> prefix = {}) {
  TokenizerSpec spec;
  for (int b = 0; b < 256; ++b) spec.tokens.emplace_back(1, static_cast<char>(b));
  for (const std::string& token : special) {
    spec.added.push_back({.id = static_cast<std::int32_t>(spec.tokens.size()), .content = token});
    spec.tokens.push_back(token);
  }
  spec.prefix = std::move(prefix);
  return must(Tokenizer::create(spec));
}

struct TextMarkersTest : testing::Test {
  Tokenizer loaded() { return must(Tokenizer::load(io, "hf")); }
  void put(const std::string& name, const std::string& text) { io.put("hf/" + name, text); }
  MemoryIo io;
};

TEST_F(TextMarkersTest, ABareTokenizerEndsTextsWithATokenThatFamiliesCallSo) {
  for (const char* end : {"<|endoftext|>", "</s>", "<|end_of_text|>", "<eos>", "<|im_end|>"}) {
    put("tokenizer.json", with_special({"<pad>", end}).to_json());
    EXPECT_EQ(loaded().markers().end, 257) << end;
    EXPECT_THAT(loaded().markers().ends, ElementsAre(257));
  }
  EXPECT_EQ(with_special({"<pad>"}).markers().end, -1);
}

TEST_F(TextMarkersTest, ADocumentEndsWithTheEosTokenAndGenerationWithAnyEnd) {
  put("tokenizer.json", with_special({"<|endoftext|>", "<|im_end|>", "<|eot|>"}).to_json());
  put("tokenizer_config.json", R"({"eos_token": "<|im_end|>", "pad_token": {"content": "<|endoftext|>"}})");
  put("generation_config.json", R"({"eos_token_id": [258, 256], "bos_token_id": 256})");
  put("config.json", R"({"eos_token_id": 65})");
  const TextMarkers markers = loaded().markers();
  EXPECT_EQ(markers.end, 257);
  EXPECT_THAT(markers.ends, ElementsAre(257, 258, 256));
  EXPECT_EQ(markers.bos, 256);
  EXPECT_EQ(markers.pad, 256);
}

TEST_F(TextMarkersTest, ASpecialTokensMapTakesPrecedenceUnlessTheConfigListsTheAddedTokens) {
  put("tokenizer.json", with_special({"<|endoftext|>", "<|end|>"}).to_json());
  put("special_tokens_map.json", R"({"eos_token": {"content": "<|end|>"}})");
  EXPECT_EQ(loaded().markers().end, 257);
  put("tokenizer_config.json", R"({"eos_token": "<|endoftext|>"})");
  EXPECT_EQ(loaded().markers().end, 257);
  put("tokenizer_config.json", R"({"eos_token": "<|endoftext|>",
      "added_tokens_decoder": {"256": {"content": "<|endoftext|>"}, "257": {"content": "<|end|>"}}})");
  EXPECT_EQ(loaded().markers().end, 256);
}

TEST_F(TextMarkersTest, WithoutAGenerationConfigTheModelsOwnHasTheEnds) {
  put("tokenizer.json", with_special({"<unk>", "<x>"}).to_json());
  put("config.json", R"({"eos_token_id": 257, "bos_token_id": 256})");
  EXPECT_EQ(loaded().markers().end, 257);
  EXPECT_EQ(loaded().markers().before_nothing(), 256);
  const SpecialWords words = {{"bos_token", "<unk>"}, {"eos_token", "<x>"}};
  EXPECT_EQ(loaded().markers().words, words);
}

TEST_F(TextMarkersTest, AnEndThatTheTokenizerLacksEndsGenerationAlone) {
  put("tokenizer.json", with_special({"</s>"}).to_json());
  put("generation_config.json", R"({"eos_token_id": 300})");
  EXPECT_EQ(loaded().markers().end, 256);
  EXPECT_THAT(loaded().markers().ends, ElementsAre(256, 300));
}

TEST_F(TextMarkersTest, ARunKeepsItsMarkers) {
  put("tokenizer.json", with_special({"<s>", "</s>"}, {256}).to_json());
  put("config.resolved.toml", "");
  TextMarkers kept = loaded().markers();
  EXPECT_FALSE(kept.encloses);  // so was a run trained that kept none
  EXPECT_EQ(kept.end, -1);
  kept.encloses = true;
  kept.bos = 256;
  kept.end = kept.turn_end = kept.pad = 257;
  kept.ends = {257, 65};
  kept.words = {{"eos_token", "</s>"}};
  put("text_markers.json", text_markers_json(kept));
  EXPECT_EQ(loaded().markers(), kept);
}

TEST_F(TextMarkersTest, MarkersThatTheTokenizerLacksAreRefusedWithBothNumbers) {
  put("tokenizer.json", with_special({"</s>"}).to_json());
  put("text_markers.json", R"({"end": 900000})");
  EXPECT_THAT(std::string(Tokenizer::load(io, "hf").status().message()),
              testing::HasSubstr("token 900000 is not one of the 257 of the tokenizer"));
}

TEST_F(TextMarkersTest, DamagedMarkersAreRefusedWithTheKey) {
  EXPECT_THAT(std::string(parse_text_markers(R"({"end": "x"})").status().message()),
              testing::HasSubstr("end is"));
  EXPECT_THAT(std::string(parse_text_markers(R"({"ends": [-1]})").status().message()),
              testing::HasSubstr("-1"));
  EXPECT_EQ(parse_text_markers("[]").status().code(), Code::corrupt);
}

TEST_F(TextMarkersTest, OnlyATokenizerThatEnclosesTextsWritesItsPrefix) {
  const Tokenizer tokenizer = with_special({"<s>", "</s>"}, {256});
  EXPECT_THAT(tokenizer.encode("A", SpecialTokens::as_text, AddSpecialTokens::yes), ElementsAre(256, 65));
  TextMarkers bare = tokenizer.markers();
  bare.encloses = false;
  EXPECT_THAT(tokenizer.with_markers(bare).encode("A", SpecialTokens::as_text, AddSpecialTokens::yes),
              ElementsAre(65));
}

TEST_F(TextMarkersTest, DocumentsOfOtherMarkersHaveAnotherDigest) {
  const Tokenizer gpt2 = with_special({"<|endoftext|>"}), llama = with_special({"<s>", "</s>"}, {256});
  EXPECT_EQ(gpt2.document_digest(), gpt2.digest());
  EXPECT_NE(llama.document_digest(), llama.digest());
  TextMarkers other = llama.markers();
  other.end = 256;
  EXPECT_NE(llama.with_markers(other).document_digest(), llama.document_digest());
}

TEST_F(TextMarkersTest, TheyAreDescribedInWords) {
  const Tokenizer llama = with_special({"<s>", "</s>"}, {256});
  EXPECT_EQ(describe(llama.markers(), llama), "each document begins with <s> and ends with </s>");
  const Tokenizer gpt2 = with_special({"<|endoftext|>"});
  EXPECT_EQ(describe(gpt2.markers(), gpt2), "each document ends with <|endoftext|>");
  const Tokenizer none = with_special({});
  EXPECT_EQ(describe(none.markers(), none), "each document has no token before it, and none ends it");
}

}  // namespace
}  // namespace strata
