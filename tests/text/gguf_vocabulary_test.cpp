// The tokenizer of a GGUF file.
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <strata/text/gguf_vocabulary.h>
#include <strata/text/tokenizer.h>
#include <strata/runtime/str.h>

#include "gguf/sentencepiece_scores.h"
#include "runtime/io/gguf_file.h"
#include "support/corpus.h"

namespace strata {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

Tokenizer fixture(const std::string& name) {
  return must(Tokenizer::load(posix_io(), str(STRATA_SOURCE_DIR, "/tests/text/tokenizers/", name, ".json")));
}

struct Vocabulary {
  json metadata;
  std::vector<std::string> notes;
};
Vocabulary vocabulary_of(const Tokenizer& tokenizer, std::int64_t vocab, const GgufTexts& texts = {}) {
  GgufMetadata metadata;
  Vocabulary out;
  must(add_vocabulary(tokenizer, vocab, texts, metadata, out.notes));
  out.metadata = test::GgufFile(gguf_header(metadata, {})).metadata;
  return out;
}

TEST(GgufVocabularyTest, AByteLevelTokenizerHasItsTokensAndMergesAndPadding) {
  const std::string text = austen("persuasion").substr(0, 20000);
  const std::string_view texts[] = {text};
  const Tokenizer tokenizer = must(Tokenizer::train(texts, 300));
  const Vocabulary found = vocabulary_of(tokenizer, 302);
  const json& m = found.metadata;
  EXPECT_EQ(m["tokenizer.ggml.model"], "gpt2");
  EXPECT_EQ(m["tokenizer.ggml.pre"], "gpt-2");
  EXPECT_EQ(m["tokenizer.ggml.tokens"].size(), 302u);
  EXPECT_EQ(m["tokenizer.ggml.tokens"][32], "\xC4\xA0");  // a space is U+0120
  EXPECT_EQ(m["tokenizer.ggml.tokens"][299], "<|endoftext|>");
  EXPECT_EQ(m["tokenizer.ggml.tokens"][301], "[PAD301]");
  EXPECT_EQ(m["tokenizer.ggml.token_type"][0], 1);
  EXPECT_EQ(m["tokenizer.ggml.token_type"][299], 3);
  EXPECT_EQ(m["tokenizer.ggml.token_type"][301], 5);
  EXPECT_EQ(m["tokenizer.ggml.merges"].size(), 43u);
  EXPECT_EQ(m["tokenizer.ggml.bos_token_id"], 299);
  EXPECT_EQ(m["tokenizer.ggml.eos_token_id"], 299);
  EXPECT_EQ(m["tokenizer.ggml.add_bos_token"], false);
  EXPECT_FALSE(m.contains("tokenizer.ggml.padding_token_id"));
  EXPECT_TRUE(found.notes.empty());
}

TEST(GgufVocabularyTest, MoreTokensThanTheModelHasAreRefused) {
  GgufMetadata metadata;
  std::vector<std::string> notes;
  const Tokenizer tokenizer = fixture("gpt2");
  const Status refused = add_vocabulary(tokenizer, 5, {}, metadata, notes);
  EXPECT_EQ(refused.code(), Code::invalid);
  EXPECT_THAT(refused.message(), HasSubstr(" tokens, but model.vocab is 5"));
}

TEST(GgufVocabularyTest, AddedTokensWithoutARowInTheModelAreLeftOut) {
  TokenizerSpec spec = must(Tokenizer::train({}, 257)).spec();
  spec.tokens.emplace_back("[PAD]");
  spec.added.push_back({.id = 257, .content = "[PAD]"});
  const Tokenizer bare = must(Tokenizer::create(spec));
  TextMarkers markers = bare.markers();
  markers.pad = 257;
  const Vocabulary found = vocabulary_of(bare.with_markers(markers), 257);
  EXPECT_EQ(found.metadata["tokenizer.ggml.tokens"].size(), 257u);
  EXPECT_FALSE(found.metadata.contains("tokenizer.ggml.padding_token_id"));
  EXPECT_THAT(found.notes, ::testing::Contains(HasSubstr("added tokens from 257 on are left out")));
}

TEST(GgufVocabularyTest, SpecialTokensComeFromTheConfigurationOfTheBase) {
  const Tokenizer bare = fixture("qwen2");
  TokenizerConfig config;
  config.eos_token = "<|im_end|>";
  GenerationConfig generation;
  generation.eos = {1};
  generation.pad = 3;
  const Tokenizer tokenizer = bare.with_markers(markers_of(bare, config, generation));
  GgufTexts texts;
  texts.chat_template = "{{ messages }}";
  const json m = vocabulary_of(tokenizer, tokenizer.vocab_size(), texts).metadata;
  EXPECT_EQ(m["tokenizer.ggml.pre"], "qwen2");
  EXPECT_EQ(m["tokenizer.ggml.eos_token_id"], tokenizer.added_id("<|im_end|>"));
  EXPECT_EQ(m["tokenizer.ggml.bos_token_id"], tokenizer.added_id("<|endoftext|>"));
  EXPECT_EQ(m["tokenizer.ggml.padding_token_id"], 3);
  EXPECT_EQ(m["tokenizer.chat_template"], "{{ messages }}");
}

TEST(GgufVocabularyTest, TokensBeforeATextAreItsBosOrReported) {
  const Tokenizer llama = fixture("llama3");
  TokenizerSpec spec = fixture("glm4").spec();
  spec.prefix = {1, 2};
  const Tokenizer glm = must(Tokenizer::create(spec));
  const Vocabulary one = vocabulary_of(llama, llama.vocab_size()), two = vocabulary_of(glm, glm.vocab_size());
  EXPECT_EQ(one.metadata["tokenizer.ggml.pre"], "llama-bpe");
  EXPECT_EQ(one.metadata["tokenizer.ggml.add_bos_token"], true);
  EXPECT_EQ(one.metadata["tokenizer.ggml.bos_token_id"], llama.spec().prefix.at(0));
  EXPECT_EQ(two.metadata["tokenizer.ggml.add_bos_token"], false);
  ASSERT_FALSE(two.notes.empty());
  EXPECT_THAT(two.notes.front(), HasSubstr("adds 2 tokens before a text"));
}

TEST(GgufVocabularyTest, ATokenizerWithoutAnEndIsReported) {
  const Tokenizer gemma = fixture("gemma").with_markers({});
  const auto says_so = ::testing::Contains(HasSubstr("llama.cpp ends it with token 2"));
  EXPECT_THAT(vocabulary_of(gemma, gemma.vocab_size()).notes, says_so);
  GgufTexts texts;
  texts.end = gemma.added_id("<eos>");
  EXPECT_THAT(vocabulary_of(gemma, gemma.vocab_size(), texts).notes, ::testing::Not(says_so));
}

/// SentencePiece's algorithm on characters: merges the pair whose result has the highest score, on a tie the
/// leftmost. A character without a token becomes its bytes.
std::vector<std::int32_t> merged_by_scores(const std::string& text, const json& metadata) {
  const json& tokens = metadata["tokenizer.ggml.tokens"];
  std::map<std::string, std::int32_t> ids;
  for (std::size_t id = 0; id < tokens.size(); ++id)
    ids[tokens[id].get<std::string>()] = static_cast<std::int32_t>(id);
  std::vector<std::string> symbols;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == ' ')
      symbols.emplace_back("\xE2\x96\x81");
    else if ((static_cast<unsigned char>(text[i]) & 0xC0) == 0x80)
      symbols.back() += text[i];
    else
      symbols.emplace_back(1, text[i]);
  }
  while (true) {
    std::size_t best = symbols.size();
    double best_score = -1e30;
    for (std::size_t i = 0; i + 1 < symbols.size(); ++i)
      if (const auto found = ids.find(symbols[i] + symbols[i + 1]); found != ids.end()) {
        const double score = metadata["tokenizer.ggml.scores"][static_cast<std::size_t>(found->second)];
        if (score > best_score) {
          best_score = score;
          best = i;
        }
      }
    if (best == symbols.size()) break;
    symbols[best] += symbols[best + 1];
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
  std::vector<std::int32_t> out;
  for (const std::string& symbol : symbols) {
    if (const auto found = ids.find(symbol); found != ids.end()) {
      out.push_back(found->second);
      continue;
    }
    for (const char byte : symbol)
      out.push_back(ids.at(fmt::format("<0x{:02X}>", static_cast<unsigned char>(byte))));
  }
  return out;
}

TEST(GgufVocabularyTest, ScoresMergeAsTheRanksOfASentencePieceTokenizerDo) {
  const std::string text = austen("persuasion").substr(1000, 1500) + " \xC3\xA4\xE2\x82\xAC";
  for (const std::string name : {"mistral", "gemma", "phi3"}) {
    SCOPED_TRACE(name);
    const Tokenizer tokenizer = fixture(name);
    const Vocabulary found = vocabulary_of(tokenizer, tokenizer.vocab_size());
    EXPECT_EQ(found.metadata["tokenizer.ggml.model"], "llama");
    EXPECT_EQ(merged_by_scores(tokenizer.normalized(text), found.metadata), tokenizer.encode(text));
  }
}

TEST(GgufVocabularyTest, MergesThatSentencePieceWouldOrderOtherwiseAreNoticed) {
  TokenizerSpec spec;
  spec.split = SplitRule::none;
  spec.tokens = {"a", "b", "c", "ab", "bc", "abc"};
  const Merge ab{0, 1, 3}, bc{1, 2, 4}, ab_c{3, 2, 5}, a_bc{0, 4, 5};
  const auto is_exact = [&](const std::vector<Merge>& merges) {
    spec.merges = merges;
    return detail::sentencepiece_scores(spec).exact;
  };
  EXPECT_TRUE(is_exact({bc, ab, ab_c, a_bc}));
  EXPECT_EQ(detail::sentencepiece_scores(spec).scores, (std::vector<float>{-3, -3, -3, -1, 0, -2}));
  EXPECT_FALSE(is_exact({bc, ab, a_bc})) << "ab and c make abc without being a merge";
  EXPECT_FALSE(is_exact({ab, ab_c, bc, a_bc})) << "abc is made before and after bc";
}

// llama.cpp strips white space behind special tokens by the name of the model.
TEST(GgufVocabularyTest, AModelIsNamedPhi3IfAndOnlyIfItHasThatTokenizer) {
  std::vector<std::string> notes;
  EXPECT_EQ(gguf_model_name(fixture("phi3"), "tuned", notes), "tuned (Phi-3)");
  EXPECT_EQ(gguf_model_name(fixture("phi3"), "Phi-3-mini", notes), "Phi-3-mini");
  EXPECT_EQ(gguf_model_name(fixture("mistral"), "tuned", notes), "tuned");
  EXPECT_TRUE(notes.empty());
  EXPECT_EQ(gguf_model_name(fixture("gpt2"), "myPhi3", notes), "");
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_THAT(notes[0], HasSubstr("in a model named myPhi3"));
}

TEST(GgufVocabularyTest, TwoTokensOfOneTextAreRefused) {
  TokenizerSpec spec = fixture("gpt2").spec();
  AddedToken added;
  added.content = "\xC4\xA0";  // a space is written as this
  added.id = static_cast<std::int32_t>(spec.tokens.size());
  spec.tokens.push_back(added.content);
  spec.added.push_back(added);
  const Tokenizer tokenizer = must(Tokenizer::create(spec));
  GgufMetadata metadata;
  std::vector<std::string> notes;
  const Status refused = add_vocabulary(tokenizer, tokenizer.vocab_size(), {}, metadata, notes);
  EXPECT_EQ(refused.code(), Code::unsupported);
  EXPECT_THAT(refused.message(), HasSubstr("llama.cpp distinguishes tokens by it"));
}

}  // namespace
}  // namespace strata
