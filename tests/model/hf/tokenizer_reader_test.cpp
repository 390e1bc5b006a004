#include <strata/text/tokenizer_reader.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <strata/model/decoder.h>

namespace strata {
namespace {

using ::testing::HasSubstr;

constexpr std::string_view kText = "In 2024 there were 1999, and in 1999 there were 2024.";

Tokenizer trained(SplitRule split) {
  const std::string_view texts[] = {kText};
  return must(Tokenizer::train(texts, 280, split));
}

TEST(TokenizerReaderTest, TheTokenizerOfANewModelIsReadAsItIsInEveryFamily) {
  for (const std::string_view family : decoder_families())
    EXPECT_TRUE(check_tokenizer_reader(trained(own_split(family)), family, "PreTrainedTokenizerFast").is_ok())
        << family;
}

TEST(TokenizerReaderTest, BesideQwen2AnyOtherSplitsAreReplaced) {
  const std::string why(
      check_tokenizer_reader(trained(SplitRule::gpt2), "qwen2", "PreTrainedTokenizerFast").message());
  EXPECT_THAT(
      why, HasSubstr("reads the tokenizer of a qwen2 model as Qwen2Tokenizer, with the splits of Qwen2 after "
                     "NFC; the model was trained with the splits of GPT-2"));
  EXPECT_FALSE(check_tokenizer_reader(trained(SplitRule::cl100k), "qwen2", "LlamaTokenizerFast").is_ok());
}

// Seen with transformers 5.24.0 for each of these.
TEST(TokenizerReaderTest, ANamedClassReplacesSplitsWhereItsFamilyIsNotKnownToBeWrong) {
  const Tokenizer gpt2 = trained(SplitRule::gpt2), qwen2 = trained(SplitRule::qwen2);
  EXPECT_FALSE(check_tokenizer_reader(qwen2, "llama", "GPT2Tokenizer").is_ok());
  EXPECT_FALSE(check_tokenizer_reader(qwen2, "gpt2", "").is_ok());
  EXPECT_FALSE(check_tokenizer_reader(gpt2, "llama", "Qwen2TokenizerFast").is_ok());
  EXPECT_FALSE(check_tokenizer_reader(gpt2, "qwen3", "").is_ok());
  EXPECT_FALSE(check_tokenizer_reader(gpt2, "gemma3_text", "GemmaTokenizer").is_ok());
  EXPECT_TRUE(check_tokenizer_reader(gpt2, "phi3", "Qwen2Tokenizer").is_ok());
  EXPECT_TRUE(check_tokenizer_reader(qwen2, "olmo2", "GPT2Tokenizer").is_ok());
  EXPECT_TRUE(check_tokenizer_reader(qwen2, "llama", "LlamaTokenizer").is_ok());
}

TEST(TokenizerReaderTest, ATokenizerOfQwen2LearnsItsOwnSplitsOfNormalizedText) {
  const std::string_view texts[] = {"caf\xC3\xA9 cafe\xCC\x81 1999 1999 1999 1999"};  // composed, and not
  const Tokenizer tokenizer = must(Tokenizer::train(texts, 300, SplitRule::qwen2));
  EXPECT_TRUE(tokenizer.spec().nfc);
  EXPECT_EQ(tokenizer.encode("cafe\xCC\x81").size(), 1u);
  EXPECT_EQ(tokenizer.encode("1999").size(), 4u);  // each digit is a word
  EXPECT_EQ(must(Tokenizer::from_json(tokenizer.to_json())).digest(), tokenizer.digest());
  EXPECT_EQ(Tokenizer::train(texts, 300, SplitRule::none).status().code(), Code::unsupported);
}

}  // namespace
}  // namespace strata
