#include <strata/model/tokenizer.h>

#include <ostream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <strata/runtime/str.h>
#include <support/memory_io.h>

#include "byte_alphabet.h"

namespace strata {
namespace {

Tokenizer small_tokenizer() {
  const std::vector<std::string_view> texts = {
      "the theme of the thesis, the \"theory\"\n\n\u00e9t\u00e9 \u00e9t\u00e9"};
  return must(Tokenizer::train(texts, 262));
}
std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  return at == std::string::npos ? "" : text.replace(at, from.size(), to);
}

TEST(ByteAlphabetTest, IsThatOfGpt2) {
  EXPECT_EQ(detail::bytes_to_alphabet(" the\n"), "\u0120the\u010a");
  EXPECT_EQ(detail::bytes_to_alphabet(std::string("\0!~\x7f\xa0\xa1\xad\xff", 8)),
            "\u0100!~\u0121\u0142\u00a1\u0143\u00ff");
}

TEST(ByteAlphabetTest, EveryByteComesBack) {
  std::string all;
  for (int b = 0; b < 256; ++b) all += static_cast<char>(b);
  EXPECT_EQ(detail::alphabet_to_bytes(detail::bytes_to_alphabet(all)), all);
}

TEST(ByteAlphabetTest, OtherCharactersStandForNoByte) {
  EXPECT_FALSE(detail::alphabet_to_bytes(" ").has_value());
  EXPECT_FALSE(detail::alphabet_to_bytes("\u0144").has_value());
  EXPECT_FALSE(detail::alphabet_to_bytes("\u65e5").has_value());
  EXPECT_FALSE(detail::alphabet_to_bytes("\xff").has_value());
}

TEST(TokenizerJsonTest, ASavedTokenizerLoadsAsTheSame) {
  MemoryIo io;
  const Tokenizer tokenizer = small_tokenizer();
  must(tokenizer.save(io, "tokenizer.json"));
  const Tokenizer loaded = must(Tokenizer::load(io, "tokenizer.json"));
  EXPECT_EQ(loaded.to_json(), tokenizer.to_json());
  EXPECT_EQ(loaded.digest(), tokenizer.digest());
  EXPECT_EQ(loaded.end_of_text(), tokenizer.end_of_text());
  EXPECT_EQ(loaded.encode("the \u00e9t\u00e9 theorem"), tokenizer.encode("the \u00e9t\u00e9 theorem"));
}

TEST(TokenizerJsonTest, MergesAreReadAsListsToo) {
  const std::string text = small_tokenizer().to_json();
  const Tokenizer loaded = must(Tokenizer::from_json(replaced(text, "\"h e\"", R"(["h","e"])")));
  EXPECT_EQ(loaded.digest(), small_tokenizer().digest());
}

TEST(TokenizerJsonTest, AMissingFileIsNamed) {
  MemoryIo io;
  EXPECT_EQ(Tokenizer::load(io, "absent.json").status().code(), Code::not_found);
}

TEST(TokenizerJsonTest, NoPrefixOfAFileLoads) {
  const std::string text = small_tokenizer().to_json();
  for (std::size_t n = 0; n + 2 < text.size(); n += 97)
    EXPECT_FALSE(Tokenizer::from_json(text.substr(0, n)).has_value());
}

struct Damage {
  std::string what;
  std::string from, to;
  std::string message;
  friend void PrintTo(const Damage& damage, std::ostream* out) { *out << damage.what; }
};
class TokenizerDamageTest : public testing::TestWithParam<Damage> {};
TEST_P(TokenizerDamageTest, IsRefusedByName) {
  MemoryIo io;
  const std::string damaged = replaced(small_tokenizer().to_json(), GetParam().from, GetParam().to);
  ASSERT_FALSE(damaged.empty()) << "nothing was damaged";
  io.put("bad.json", damaged);
  const Status status = Tokenizer::load(io, "bad.json").status();
  EXPECT_TRUE(status.message().starts_with("bad.json: ")) << status.to_string();
  EXPECT_NE(status.message().find(GetParam().message), std::string_view::npos) << status.to_string();
}
INSTANTIATE_TEST_SUITE_P(
    Table, TokenizerDamageTest,
    testing::Values(
        Damage{"NotJson", "{", "[", "not JSON"},
        Damage{"Nul", "{\n", std::string("{\0", 2), "a NUL at byte 1"},
        Damage{"Deep", "null", str(std::string(100, '['), std::string(100, ']')), "nested deeper than 64"},
        Damage{"BadUtf8", "null", "\"\xff\"", "not JSON"},
        Damage{"OtherModel", "\"BPE\"", "\"Unigram\"", "model.type is \"Unigram\""},
        Damage{"OtherSplitter", "\"ByteLevel\"", "\"Whitespace\"", "only ByteLevel is supported"},
        Damage{"PrefixSpace", "\"add_prefix_space\": false", "\"add_prefix_space\": true",
               "pre_tokenizer.add_prefix_space"},
        Damage{"Normalizer", "\"normalizer\": null", "\"normalizer\": {\"type\": \"NFC\"}",
               "normalizer = {\"type\":\"NFC\"}"},
        Damage{"Dropout", "\"dropout\": null", "\"dropout\": 0.1", "model.dropout = 0.1"},
        Damage{"ByteFallback", "\"byte_fallback\": false", "\"byte_fallback\": true", "model.byte_fallback"},
        Damage{"NoVocab", "\"vocab\"", "\"vocabulary\"", "no object 'model.vocab'"},
        Damage{"NoMerges", "\"merges\"", "\"mergers\"", "no list 'model.merges'"},
        Damage{"KeyTwice", "\"A\": 65", "\"A\": 65, \"A\": 65", "the key 'A' twice"},
        Damage{"SparseId", "\"A\": 65", "\"A\": 65000", "token 'A' has id 65000 among 262 tokens"},
        Damage{"IdTwice", "\"A\": 65", "\"A\": 66", "id 66 is given twice"},
        Damage{"NegativeId", "\"A\": 65", "\"A\": -65", "token 'A' has the id -65"},
        Damage{"FloatId", "\"A\": 65", "\"A\": 65.0", "token 'A' has the id 65.0"},
        Damage{"TextId", "\"A\": 65", "\"A\": \"65\"", "token 'A' has the id \"65\""},
        Damage{"MissingByte", "\"A\": 65", "\"AAA\": 65", "no token for byte 65"},
        Damage{"EmptyToken", "\"A\": 65", "\"\": 65", "token 65 is empty"},
        Damage{"NoByte", "\"A\": 65", "\"\u65e5\": 65", "stands for no byte"},
        Damage{"LongToken", "\"A\": 65", str("\"", std::string(1025, 'A'), "\": 65"),
               "has 1025 bytes, allowed are 1 to 1024"},
        Damage{"UnknownHalf", "\"h e\"", "\"h zzz\"", "refers to 'zzz'"},
        Damage{"UnknownResult", "\"h e\"", "\"Q Q\"", "makes 'QQ', which is no ordinary token"},
        Damage{"MergeTwice", "\"h e\"", "\"h e\", \"h e\"", "of 'he' is there twice"},
        Damage{"ThreeHalves", "\"h e\"", "\"h e e\"", "not two tokens"},
        Damage{"MergeNumber", "\"h e\"", "7", "is 7, not two tokens"},
        Damage{"SpecialIdDiffers", "\"<|endoftext|>\": 261", "\"<|endoftext|>\": 260",
               "is 260 in the vocabulary and 261 among the added"},
        Damage{"SpecialTaken", "{\"id\": 261", "{\"id\": 4", "among the added"},
        Damage{"NotSpecial", "\"special\": true", "\"special\": false", "one that is not special"},
        Damage{"Strip", "\"lstrip\": false", "\"lstrip\": true", "'<|endoftext|>': lstrip = true"},
        Damage{"NoContent", "\"content\"", "\"contents\"", "lacks a content or an id"}),
    [](const auto& test) { return test.param.what; });

}  // namespace
}  // namespace strata
