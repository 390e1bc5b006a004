#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <strata/model/tokenizer_config.h>
#include <strata/model/tokenizer_spec.h>
#include <strata/runtime/digest.h>
#include <strata/runtime/io.h>
#include <strata/runtime/status.h>

namespace strata {

namespace detail {
struct TokenizerModel;
}

/// What "<|endoftext|>" in a text means to encode(): its characters, or the one token. Text from outside
/// should not be able to end a document, so the characters are the default. Added tokens that are not special
/// are found either way. (Hugging Face: `recognised` is its default, `as_text` its encode_special_tokens.)
enum class SpecialTokens : std::uint8_t { as_text, recognised };

/// Whether encode() puts around a text what the file's template says, BOS for one.
enum class AddSpecialTokens : std::uint8_t { no, yes };

/// Where a text that is encoded by itself stands in the whole, for tokenizers that put a space in front.
enum class TextPosition : std::uint8_t {
  begin,        ///< it begins the whole
  after_token,  ///< an added token is before it
  inside,       ///< it goes on from text, cut at last_safe_cut()
};

/// Byte-level byte-pair encoding (Sennrich et al. 2016, Alg. 1; Radford et al. 2019, section 2.2) with the
/// splitting rules of GPT-2, LLaMA-3, GLM-4 and Qwen; or byte-pair encoding of characters, without any, as
/// SentencePiece has it (Kudo and Richardson 2018; LLaMA-2, Mistral, Phi-3, Gemma). The ids are those that
/// Hugging Face's tokenizers give. A value that is cheap to copy; const calls from any thread.
///
/// Any bytes can be encoded. Those that are not UTF-8 count as one character each that is neither letter,
/// digit nor space, are left alone by NFC, and come back from decode() as they were.
class Tokenizer {
 public:
  static constexpr std::string_view kEndOfText = "<|endoftext|>";
  static constexpr std::int32_t kMaxVocab = 1 << 20;
  static constexpr std::size_t kMaxTokenBytes = 1024;

  /// Learns merges from the texts: ids 0-255 are the bytes, then the merges in order, the last id is
  /// kEndOfText. The most frequent pair is merged, of equals the one with the lower ids, until there are
  /// `vocab_size` tokens or no pair occurs twice (then vocab_size() is less). A pure function of its
  /// arguments. Errors: `invalid` size.
  static Result<Tokenizer> train(std::span<const std::string_view> texts, std::int32_t vocab_size);
  /// Errors: `invalid`, `corrupt` or `unsupported`, naming the token or the merge.
  static Result<Tokenizer> create(TokenizerSpec spec);
  /// The same for tokens that are split as GPT-2 does, some of them special.
  static Result<Tokenizer> create(std::vector<std::string> tokens, std::vector<Merge> merges,
                                  std::vector<std::int32_t> special);

  /// A tokenizer.json, or a folder that has one, or a folder with vocab.json and merges.txt. Errors:
  /// `corrupt` or `invalid` for a damaged file, `unsupported` for a kind of tokenizer this is not, with the
  /// reason.
  static Result<Tokenizer> load(Io& io, const std::string& path);
  static Result<Tokenizer> from_json(const std::string& text);
  /// GPT-2's two files. `config` tells the family (GPT-2 where it names none) and the added tokens.
  static Result<Tokenizer> from_vocab_and_merges(const std::string& vocab_json, const std::string& merges_txt,
                                                 const TokenizerConfig& config = {});
  /// Writes Hugging Face's tokenizer.json. What is read again encodes the same; of what does not change ids
  /// (offsets, truncation) the usual values are written.
  Status save(Io& io, const std::string& path) const;
  std::string to_json() const;
  /// Writes `folder`/vocab.json and merges.txt. Errors: `unsupported` where they cannot say what this is:
  /// another rule than GPT-2's, NFC, added tokens besides kEndOfText.
  Status save_vocab_and_merges(Io& io, const std::string& folder) const;

  const TokenizerSpec& spec() const noexcept;
  std::int32_t vocab_size() const noexcept;
  /// The id of kEndOfText, or -1 where a loaded tokenizer has none.
  std::int32_t end_of_text() const noexcept;
  const std::vector<Merge>& merges() const noexcept { return spec().merges; }
  bool is_special(std::int32_t id) const noexcept;
  /// The id of an added token by its text, -1 where there is none.
  std::int32_t added_id(std::string_view content) const noexcept;
  /// The bytes of a token; `id` must be below vocab_size().
  const std::string& token(std::int32_t id) const noexcept {
    return spec().tokens[static_cast<std::size_t>(id)];
  }
  /// How many bytes of source text the token stands for: 0 for a special one. Sums to the text's size over
  /// encode(), or where there is a normalizer to that of the normalized text.
  std::size_t token_bytes(std::int32_t id) const noexcept { return is_special(id) ? 0 : token(id).size(); }
  /// Of all that encode() and decode() depend on: equal digests encode equally.
  const Digest& digest() const noexcept;

  /// O(n log n) in the longest run of one class of characters, linear in the number of runs.
  std::vector<std::int32_t> encode(std::string_view text, SpecialTokens special = SpecialTokens::as_text,
                                   AddSpecialTokens add_special = AddSpecialTokens::no,
                                   TextPosition place = TextPosition::begin) const;
  /// The exact bytes, not made valid UTF-8. An added token is its text, and a space that was put in front is
  /// there: what encode() cut it from is normalized(). Errors: `invalid` for an id outside the vocabulary,
  /// naming both.
  Result<std::string> decode(std::span<const std::int32_t> ids) const;
  /// The text as encode() cuts it into pieces: in NFC where the tokenizer asks for that, with the space in
  /// front. Of a text without added tokens.
  std::string normalized(std::string_view text, TextPosition place = TextPosition::begin) const;
  /// The largest n such that encoding the text before byte n and the rest by themselves gives the tokens of
  /// the whole, whatever follows; 0 where none is known.
  std::size_t last_safe_cut(std::string_view text) const noexcept;

 private:
  explicit Tokenizer(std::shared_ptr<const detail::TokenizerModel> model) noexcept
      : model_(std::move(model)) {}

  std::shared_ptr<const detail::TokenizerModel> model_;  // immutable, so copies share it
};

}  // namespace strata
