#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace strata {

/// Merges two adjacent tokens into one. Its index in the list of merges is its rank: the lowest applies
/// first.
struct Merge {
  std::int32_t left;
  std::int32_t right;
  std::int32_t result;
};

/// How text is pre-tokenized, named after the first tokenizer that used the rule.
enum class SplitRule : std::uint8_t {
  gpt2,    ///< GPT-2 and GPT-3: words with the space before them, numbers of any length
  digits,  ///< StarCoder and Granite: every digit by itself, and what is between digits as in GPT-2
  cl100k,  ///< also LLaMA-3 and GLM-4: caseless contractions, at most three digits, newlines separate
  qwen2,   ///< Qwen2 and Qwen3: as cl100k, but every digit by itself
  none,    ///< SentencePiece: no pre-tokenization; tokens consist of characters, not of bytes
};

/// Where a tokenizer without pre-tokenization adds a space to the text.
enum class PrefixSpace : std::uint8_t {
  none,
  always,     ///< before the text and after each added token
  if_absent,  ///< before the text and after each added token, unless a space is there
  first,      ///< only before the text, unless a space is there
};

/// Position of a text that is encoded by itself in the whole text, for tokenizers that add a prefix space.
enum class TextPosition : std::uint8_t {
  begin,        ///< at the beginning
  after_token,  ///< after an added token
  inside,       ///< after other text
};

/// A token that is searched in the text before pre-tokenization, as Hugging Face defines it.
struct AddedToken {
  std::int32_t id = -1;
  std::string content;
  bool special = true;       ///< recognized only with SpecialTokens::recognised
  bool lstrip = false;       ///< includes the white space before it
  bool rstrip = false;       ///< includes the white space after it
  bool single_word = false;  ///< only if no word character is adjacent to it
  bool normalized = false;   ///< searched in the normalized text, not in the original
  bool in_vocab = false;     ///< also in the model's vocabulary
  friend bool operator==(const AddedToken&, const AddedToken&) = default;
};

/// The definition of a tokenizer.
struct TokenizerSpec {
  static constexpr std::int32_t kMaxVocab = 1 << 20;
  std::vector<std::string> tokens;  ///< bytes of each token by id; the content of an added token
  std::vector<Merge> merges;        ///< create() fills in `result`
  std::vector<AddedToken> added;
  SplitRule split = SplitRule::gpt2;
  bool nfc = false;                  ///< text is normalized to NFC first
  bool ignore_merges = false;        ///< a pre-token that is a token becomes that token without merges
  std::vector<std::int32_t> prefix;  ///< tokens that a template adds before a text, such as BOS
  std::vector<std::int32_t> suffix;  ///< tokens that a template adds after a text
  std::string post_processor;        ///< JSON as read, written back by to_json(); empty: the default
  PrefixSpace prefix_space = PrefixSpace::none;
  std::vector<std::int32_t> byte_tokens;  ///< SplitRule::none: 256 ids, for characters without a token
  std::string normalizer, pre_tokenizer, decoder;  ///< SplitRule::none: JSON as read
  std::string unk_token;             ///< unused, since every byte has a token; kept to be written back
  bool byte_fallback = false;        ///< likewise
  bool fuse_unk = false;             ///< likewise
  std::vector<std::string> ignored;  ///< keys of the file that change nothing here: truncation, padding
};

}  // namespace strata
