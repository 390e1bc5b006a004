#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace strata {

/// Two tokens side by side become one. Its index in the list of merges is its rank: the lowest applies first.
struct Merge {
  std::int32_t left;
  std::int32_t right;
  std::int32_t result;
};

/// How text is cut before any merge, named after who began it.
enum class SplitRule : std::uint8_t {
  gpt2,    ///< also GPT-3's: words with the space before them, numbers of any length
  cl100k,  ///< also LLaMA-3's and GLM-4's: caseless contractions, three digits at most, newlines apart
  qwen2,   ///< also Qwen3's: as cl100k, every digit alone
  none,    ///< SentencePiece's: nothing is cut, and tokens are of characters, not of bytes
};

/// Where a tokenizer without a splitting rule puts a space that the text does not have.
enum class PrefixSpace : std::uint8_t {
  none,
  always,     ///< before the text and behind each added token
  if_absent,  ///< the same where none is
  first,      ///< before the text where none is
};

/// A token that is looked for in the text before anything is cut, as Hugging Face defines it.
struct AddedToken {
  std::int32_t id = -1;
  std::string content;
  bool special = true;       ///< recognised only where SpecialTokens::recognised asks for it
  bool lstrip = false;       ///< takes the white space before it along
  bool rstrip = false;       ///< and behind it
  bool single_word = false;  ///< only where no word character touches it
  bool normalized = false;   ///< looked for in the normalized text, not in the original
  bool in_vocab = false;     ///< the model's vocabulary has it too
  friend bool operator==(const AddedToken&, const AddedToken&) = default;
};

/// What a tokenizer is made of.
struct TokenizerSpec {
  std::vector<std::string> tokens;  ///< the bytes of each token by id; of an added one its content
  std::vector<Merge> merges;        ///< create() fills in `result`
  std::vector<AddedToken> added;
  SplitRule split = SplitRule::gpt2;
  bool nfc = false;                  ///< text is brought to NFC first
  bool ignore_merges = false;        ///< a piece that is a token is that token, whatever the merges say
  std::vector<std::int32_t> prefix;  ///< what a template puts before a text: BOS
  std::vector<std::int32_t> suffix;  ///< and behind it
  std::string post_processor;        ///< JSON as it was read, to be written again; empty: the default
  PrefixSpace prefix_space = PrefixSpace::none;
  std::vector<std::int32_t> byte_tokens;  ///< of SplitRule::none: 256, for characters without a token
  std::string normalizer, pre_tokenizer, decoder;  ///< of SplitRule::none: JSON as it was read
  std::string unk_token;       ///< never needed, as every byte has a token; kept for who reads it next
  bool byte_fallback = false;  ///< likewise
  bool fuse_unk = false;       ///< likewise
};

}  // namespace strata
