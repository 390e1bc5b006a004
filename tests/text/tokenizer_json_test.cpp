#include <strata/text/tokenizer.h>

#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <strata/runtime/str.h>
#include <support/memory_io.h>

#include "text/byte_alphabet.h"
#include "tokenizer/pretokenizer.h"

namespace strata::tokenizer_json {  // its tokenizer and damages are others than those of folders
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

TEST(ByteAlphabetTest, EqualsGpt2s) {
  EXPECT_EQ(detail::bytes_to_alphabet(" the\n"), "\u0120the\u010a");
  EXPECT_EQ(detail::bytes_to_alphabet(std::string("\0!~\x7f\xa0\xa1\xad\xff", 8)),
            "\u0100!~\u0121\u0142\u00a1\u0143\u00ff");
}

TEST(ByteAlphabetTest, EveryByteRoundTrips) {
  std::string all;
  for (int b = 0; b < 256; ++b) all += static_cast<char>(b);
  EXPECT_EQ(detail::alphabet_to_bytes(detail::bytes_to_alphabet(all)), all);
}

TEST(ByteAlphabetTest, OtherCharactersRepresentNoByte) {
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
  EXPECT_EQ(loaded.markers().end, tokenizer.markers().end);
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

struct Section {
  std::string what;
  std::string key, value;
  std::string message;
};
/// The JSON of a small tokenizer in which `key` has this value.
std::string with_section(const std::string& key, const std::string& value) {
  nlohmann::json root = nlohmann::json::parse(small_tokenizer().to_json());
  root[key] = nlohmann::json::parse(value);
  return root.dump();
}
std::string pre_tokenizer_of(const std::string& split) {
  return R"({"type": "Sequence", "pretokenizers": [)" + split +
         R"(, {"type": "ByteLevel", "use_regex": false}]})";
}
std::string template_of(const std::string& single, const std::string& tokens = "{}") {
  return R"({"type": "TemplateProcessing", "single": )" + single + R"(, "special_tokens": )" + tokens + "}";
}
std::vector<Section> unusable_sections() {
  return {
      Section{"OtherRegex", "pre_tokenizer",
              pre_tokenizer_of(R"({"type": "Split", "pattern": {"Regex": "\\w+"}, "behavior": "Isolated"})"),
              "the expression '\\w+' is none of those"},
      Section{"StringPattern", "pre_tokenizer",
              pre_tokenizer_of(R"({"type": "Split", "pattern": {"String": " "}, "behavior": "Isolated"})"),
              "only a Regex is supported"},
      Section{"NoPattern", "pre_tokenizer", pre_tokenizer_of(R"({"type": "Split"})"), "pattern is null"},
      Section{"OtherBehavior", "pre_tokenizer",
              pre_tokenizer_of(str(R"({"type": "Split", "pattern": {"Regex": )",
                                   nlohmann::json(std::string(detail::regex_of(SplitRule::qwen2))).dump(),
                                   R"(}, "behavior": "MergedWithNext", "invert": false})")),
              "behavior \"MergedWithNext\" with invert = false"},
      Section{"TwoSplits", "pre_tokenizer",
              pre_tokenizer_of(R"({"type": "Digits", "individual_digits": true}, {"type": "Digits"})"),
              "pre_tokenizer is {\"type\":\"Digits\"}"},
      Section{"WholeNumbers", "pre_tokenizer", pre_tokenizer_of(R"({"type": "Digits"})"),
              "individual_digits = false"},
      Section{"SplitAlone", "pre_tokenizer", R"({"type": "Sequence", "pretokenizers": []})",
              "pre_tokenizer is {"},
      Section{"PreTokenizerText", "pre_tokenizer", R"("ByteLevel")", "pre_tokenizer is \"ByteLevel\""},
      Section{"DecoderMetaspace", "decoder", R"({"type": "Metaspace"})",
              "decoder is {\"type\":\"Metaspace\"}"},
      Section{"DecoderSequence", "decoder", R"({"type": "Sequence", "decoders": [{"type": "ByteFallback"}]})",
              "decoder is {\"type\":\"ByteFallback\"}"},
      Section{"ProcessorBert", "post_processor", R"({"type": "BertProcessing"})", "post_processor is "},
      Section{"TemplateNoSingle", "post_processor", R"({"type": "TemplateProcessing"})", "single is null"},
      Section{"TemplateNoText", "post_processor", template_of("[]"), "does not contain the text"},
      Section{"TemplateOfB", "post_processor", template_of(R"([{"Sequence": {"id": "B", "type_id": 0}}])"),
              "where the text A is expected exactly once"},
      Section{"TemplateNumber", "post_processor", template_of("[7]"),
              "has 7, which is not a piece of a template"},
      Section{"TemplateUnknownToken", "post_processor",
              template_of(R"([{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A"}}])"),
              "has no ids for '<s>'"},
      Section{"TemplateUnnamed", "post_processor", template_of(R"([{"SpecialToken": {"id": 3}}])"),
              "names no token"},
      Section{"TemplateIdOutside", "post_processor",
              template_of(R"([{"SpecialToken": {"id": "<s>"}}, {"Sequence": {"id": "A"}}])",
                          R"({"<s>": {"id": "<s>", "ids": [262], "tokens": ["<s>"]}})"),
              "'<s>' is 262 in a vocabulary of 262"},
      Section{"TemplateTwice", "post_processor",
              str(R"({"type": "Sequence", "processors": [)", template_of(R"([{"Sequence": {"id": "A"}}])"),
                  ", ", template_of(R"([{"Sequence": {"id": "A"}}])"), "]}"),
              "ByteLevel and one TemplateProcessing"},
      Section{"ModelList", "model", "[]", "no object 'model'"},
      Section{"VocabList", "model", R"({"type": "BPE", "vocab": [], "merges": []})",
              "no object 'model.vocab'"},
      Section{"MergesText", "model", R"({"type": "BPE", "vocab": {}, "merges": ""})",
              "has id 261 among 1 tokens"},
      Section{"AddedObject", "added_tokens", "{}", "added_tokens is {}, not a list"}};
}

TEST(TokenizerSectionTest, IsRefusedByName) {
  for (const Section& given : unusable_sections()) {
    SCOPED_TRACE(given.what);
    const Status status = Tokenizer::from_json(with_section(given.key, given.value)).status();
    EXPECT_NE(status.message().find(given.message), std::string_view::npos) << status.to_string();
  }
}

// transformers saves what the last call of a tokenizer set, and resets it before the next one.
TEST(TokenizerJsonTest, TruncationAndPaddingOfAnEarlierCallAreIgnoredAndNamed) {
  const Tokenizer plain = small_tokenizer();
  const std::string truncates = replaced(
      plain.to_json(), "\"truncation\": null",
      R"("truncation": {"direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 0})");
  const std::string text =
      replaced(truncates, "\"padding\": null",
               R"("padding": {"strategy": {"Fixed": 16}, "pad_id": 0, "pad_token": "!"})");
  const Tokenizer read = must(Tokenizer::from_json(text));
  EXPECT_EQ(read.digest(), plain.digest());
  EXPECT_EQ(read.encode("the theme of the thesis"), plain.encode("the theme of the thesis"));
  EXPECT_EQ(read.note(),
            "tokenizer.json keeps truncation and padding of an earlier call, which is ignored: no text "
            "is cut or padded");
  EXPECT_EQ(plain.note(), "");
}

struct Damage {
  std::string what;
  std::string from, to;
  std::string message;
};
std::vector<Damage> damages() {
  return {
      Damage{"NotJson", "{", "[", "not JSON"},
      Damage{"Nul", "{\n", std::string("{\0", 2), "a NUL at byte 1"},
      Damage{"Deep", "null", str(std::string(100, '['), std::string(100, ']')), "nested deeper than 64"},
      Damage{"BadUtf8", "null", "\"\xff\"", "not JSON"},
      Damage{"OtherModel", "\"BPE\"", "\"Unigram\"", "model.type is \"Unigram\""},
      Damage{"OtherSplitter", "\"ByteLevel\"", "\"Whitespace\"",
             "pre_tokenizer is {\"add_prefix_space\":false"},
      Damage{"PrefixSpace", "\"add_prefix_space\": false", "\"add_prefix_space\": true",
             "pre_tokenizer.add_prefix_space"},
      Damage{"Normalizer", "\"normalizer\": null", "\"normalizer\": {\"type\": \"NFD\"}",
             "normalizer is {\"type\":\"NFD\"}, only null or NFC is supported"},
      Damage{"Dropout", "\"dropout\": null", "\"dropout\": 0.1", "model.dropout = 0.1"},
      Damage{"ByteFallback", "\"byte_fallback\": false", "\"byte_fallback\": 1",
             "model.byte_fallback is 1, not"},
      Damage{"NoVocab", "\"vocab\"", "\"vocabulary\"", "model.vocabulary = "},
      Damage{"NoMerges", "\"merges\"", "\"mergers\"", "model.mergers = "},
      Damage{"KeyTwice", "\"A\": 65", "\"A\": 65, \"A\": 65", "duplicate key 'A' in an object"},
      Damage{"SparseId", "\"A\": 65", "\"A\": 65000", "token 'A' has id 65000 among 262 tokens"},
      Damage{"IdTwice", "\"A\": 65", "\"A\": 66", "id 66 is given twice"},
      Damage{"NegativeId", "\"A\": 65", "\"A\": -65", "token 'A' has the id -65"},
      Damage{"FloatId", "\"A\": 65", "\"A\": 65.0", "token 'A' has the id 65.0"},
      Damage{"TextId", "\"A\": 65", "\"A\": \"65\"", "token 'A' has the id \"65\""},
      Damage{"MissingByte", "\"A\": 65", "\"AAA\": 65", "no token for byte 65"},
      Damage{"EmptyToken", "\"A\": 65", "\"\": 65", "token 65 is empty"},
      Damage{"NoByte", "\"A\": 65", "\"\u65e5\": 65", "represents no byte"},
      Damage{"LongToken", "\"A\": 65", str("\"", std::string(1025, 'A'), "\": 65"),
             "has 1025 bytes; allowed are 1 to 1024"},
      Damage{"UnknownHalf", "\"h e\"", "\"h zzz\"", "refers to 'zzz'"},
      Damage{"UnknownResult", "\"h e\"", "\"Q Q\"", "produces 'QQ', which is not an ordinary token"},
      Damage{"MergeTwice", "\"h e\"", "\"h e\", \"h e\"", "of 'he' occurs twice"},
      Damage{"ThreeHalves", "\"h e\"", "\"h e e\"", "not two tokens"},
      Damage{"MergeNumber", "\"h e\"", "7", "is 7, not two tokens"},
      Damage{"SpecialIdDiffers", "\"<|endoftext|>\": 261", "\"<|endoftext|>\": 260",
             "is 260 in the vocabulary and 261 among the added"},
      Damage{"SpecialTaken", "{\"id\": 261", "{\"id\": 4", "among the added"},
      Damage{"OtherFlag", "\"lstrip\": false", "\"strip\": true", "'<|endoftext|>': strip = true"},
      Damage{"NoModel", "\"model\"", "\"modell\"", "modell = "},
      Damage{"ModelIsNull", "\"model\": {", "\"model\": null, \"x\": {", "x = "},
      Damage{"UnknownModelKey", "\"dropout\": null", "\"vocab_size\": 262", "model.vocab_size = 262"},
      Damage{"SubwordPrefix", "\"continuing_subword_prefix\": null", "\"continuing_subword_prefix\": \"##\"",
             "model.continuing_subword_prefix = \"##\""},
      Damage{"WordSuffix", "\"end_of_word_suffix\": null", "\"end_of_word_suffix\": \"</w>\"",
             "model.end_of_word_suffix = \"</w>\""},
      Damage{"UnkNumber", "\"unk_token\": null", "\"unk_token\": 0", "model.unk_token is 0, not a token"},
      Damage{"IgnoreMergesText", "\"ignore_merges\": false", "\"ignore_merges\": \"no\"",
             "model.ignore_merges is \"no\", not true or false"},
      Damage{"VocabIsAList", "\"vocab\": {", "\"vocab\": [], \"merges\": [], \"x\": {",
             "duplicate key 'merges' in an object"},
      Damage{"MergesIsAText", "\"merges\": [", "\"merges\": \"\", \"fuse_unk_2\": [", "model.fuse_unk_2"},
      Damage{"NormalizerList", "\"normalizer\": null", "\"normalizer\": []", "normalizer is []"},
      Damage{"NormalizerSequence", "\"normalizer\": null",
             R"("normalizer": {"type": "Sequence", "normalizers": 3})",
             "normalizer.normalizers is 3, not a list"},
      Damage{"NormalizerOfSequence", "\"normalizer\": null",
             R"("normalizer": {"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "Lowercase"}]})",
             "normalizer is {\"type\":\"Lowercase\"}"},
      Damage{"NoPreTokenizer", "\"pre_tokenizer\": {", "\"pre_tokenizer\": null, \"y\": {", "y = "},
      Damage{"EmptySequence", "{\"type\": \"ByteLevel\", \"add_prefix_space\": false",
             R"({"type": "Sequence", "pretokenizers": [], "add_prefix_space": false)",
             "pre_tokenizer.add_prefix_space = false"},
      Damage{"UseRegexFalse", "\"use_regex\": true", "\"use_regex\": false",
             "use_regex = false without a Split"},
      Damage{"UseRegexNumber", "\"use_regex\": true", "\"use_regex\": 1",
             "use_regex is 1, not true or false"},
      Damage{"Decoder", "\"decoder\": {", "\"decoder\": {\"type\": \"Metaspace\"}, \"version\": {",
             "duplicate key 'version' in an object"},
      Damage{"AddedIsAnObject", "\"added_tokens\": [", "\"added_tokens\": {}, \"z\": [", "z = "},
      Damage{"AddedIsANumber", "\"added_tokens\": [\n    {", "\"added_tokens\": [7, {",
             "an added token is 7"},
      Damage{"AddedFlagNumber", "\"special\": true", "\"special\": 1", "special is 1, not true or false"},
      Damage{"AddedEmpty", "\"content\": \"<|endoftext|>\"", "\"content\": \"\"", "an added token is empty"},
      Damage{"AddedIdHuge", "{\"id\": 261", "{\"id\": 18446744073709551615", "the largest is 1048575"},
      Damage{"AddedIdNegative", "{\"id\": 261", "{\"id\": -1", "lacks a content or an id"},
      Damage{"AddedIdSparse", "{\"id\": 261, \"content\": \"<|endoftext|>\"",
             "{\"id\": 999, \"content\": \"<s>\"", "token '<s>' has id 999 among 263 tokens"},
      Damage{"AddedTwice", "\"added_tokens\": [",
             R"("added_tokens": [{"id": 261, "content": "<|endoftext|>", "special": true},)",
             "'<|endoftext|>' twice"},
      Damage{"AddedSpellsOther", "\"added_tokens\": [",
             R"("added_tokens": [{"id": 233, "content": "\u00e9"},)", "has other bytes in the vocabulary"},
      Damage{"MergeOfSpecial", "\"h e\"", "\"<|endoftext|> e\"", "not two ordinary tokens"},
      Damage{"MergeOfOne", "\"h e\"", "\"he\"", "not two tokens"},
      Damage{"MergeOfThreeInAList", "\"h e\"", R"(["h", "e", "e"])", "not two tokens"},
      Damage{"MergeOfNumbers", "\"h e\"", "[104, 101]", "not two tokens"},
      Damage{"HugeId", "\"A\": 65", "\"A\": 4294967361", "has id 4294967361 among 262 tokens"},
      Damage{"NullId", "\"A\": 65", "\"A\": null", "token 'A' has the id null"},
      Damage{"Trailing", "{\n", "{}{", "not JSON"},
      Damage{"NoContent", "\"content\"", "\"contents\"", "lacks a content or an id"}};
}

TEST(TokenizerDamageTest, IsRefusedByName) {
  for (const Damage& given : damages()) {
    SCOPED_TRACE(given.what);
    MemoryIo io;
    const std::string damaged = replaced(small_tokenizer().to_json(), given.from, given.to);
    ASSERT_FALSE(damaged.empty()) << "nothing was damaged";
    io.put("bad.json", damaged);
    const Status status = Tokenizer::load(io, "bad.json").status();
    EXPECT_TRUE(status.message().starts_with("bad.json: ")) << status.to_string();
    EXPECT_NE(status.message().find(given.message), std::string_view::npos) << status.to_string();
  }
}

}  // namespace
}  // namespace strata::tokenizer_json
