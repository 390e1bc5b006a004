#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <strata/text/text_markers.h>
#include <strata/text/tokenizer_spec.h>
#include <strata/runtime/io/digest.h>
#include <strata/runtime/io/io.h>
#include <strata/runtime/status.h>

namespace strata {

namespace detail {
struct TokenizerModel;
}

/// A half-open range of bytes of a text.
struct TextRange {
  std::size_t begin = 0;
  std::size_t end = 0;
  friend bool operator==(const TextRange&, const TextRange&) = default;
};
/// A special token in a text, with the white space that it takes in.
struct FoundToken {
  TextRange at;
  std::int32_t id = -1;
};

/// How encode() treats special tokens in a text: as plain characters, or as the tokens. Untrusted
/// text must not be able to end a document, so plain characters are the default. Added tokens that are not
/// special are recognized either way. (Hugging Face: `recognised` is its default, `as_text` its
/// encode_special_tokens.)
enum class SpecialTokens : std::uint8_t { as_text, recognised };

/// Whether encode() adds the tokens of the file's template around a text, such as BOS.
enum class AddSpecialTokens : std::uint8_t { no, yes };

/// Byte-level byte-pair encoding (Sennrich et al. 2016, Alg. 1; Radford et al. 2019, section 2.2) with the
/// pre-tokenization rules of GPT-2, LLaMA-3, GLM-4 and Qwen, or byte-pair encoding of characters without
/// pre-tokenization, as in SentencePiece (Kudo and Richardson 2018; LLaMA-2, Mistral, Phi-3, Gemma). The ids
/// equal those of Hugging Face's tokenizers. A value type that is cheap to copy; const calls from any thread.
///
/// Any bytes can be encoded. Each byte that is not UTF-8 counts as one character that is neither letter,
/// digit nor space; NFC leaves it alone, and decode() returns it unchanged.
class Tokenizer {
 public:
  static constexpr std::string_view kEndOfText = "<|endoftext|>";
  static constexpr std::size_t kMaxTokenBytes = 1024;

  /// Trains merges on the texts: ids 0-255 are the bytes, then come the merges in order, and the last id is
  /// kEndOfText. Merges the most frequent pair, on a tie the one with the lower ids, until there are
  /// `vocab_size` tokens or no pair occurs twice (then vocab_size() is smaller). With Qwen2's rule texts are
  /// normalized to NFC, as its tokenizers do. A pure function of its arguments. Errors: `invalid` size,
  /// `unsupported` for SplitRule::none.
  static Result<Tokenizer> train(std::span<const std::string_view> texts, std::int32_t vocab_size,
                                 SplitRule split = SplitRule::gpt2);
  /// Errors: `invalid`, `corrupt` or `unsupported`, with the token or the merge.
  static Result<Tokenizer> create(TokenizerSpec spec);
  /// A tokenizer with GPT-2's pre-tokenization and the given special tokens.
  static Result<Tokenizer> create(std::vector<std::string> tokens, std::vector<Merge> merges,
                                  std::vector<std::int32_t> special);

  /// Loads a tokenizer.json, a folder that has one, or a folder with vocab.json and merges.txt, and the
  /// markers that the files beside it name (load_text_markers()). Errors: `corrupt` or `invalid` for a
  /// damaged file, `unsupported` for another kind of tokenizer, with the reason.
  static Result<Tokenizer> load(Io& io, const std::string& path);
  static Result<Tokenizer> from_json(const std::string& text);
  /// From GPT-2's two files. `config` has the family (GPT-2 if it names none) and the added tokens.
  static Result<Tokenizer> from_vocab_and_merges(const std::string& vocab_json, const std::string& merges_txt,
                                                 const TokenizerConfig& config = {});
  /// Writes Hugging Face's tokenizer.json. Loading it returns a tokenizer with the same ids. Settings that do
  /// not change ids (offsets, truncation) get their usual values.
  Status save(Io& io, const std::string& path) const;
  std::string to_json() const;
  /// Writes `folder`/vocab.json and merges.txt. Errors: `unsupported` for a tokenizer that these files cannot
  /// express: another rule than GPT-2's, NFC, added tokens besides kEndOfText.
  Status save_vocab_and_merges(Io& io, const std::string& folder) const;

  const TokenizerSpec& spec() const noexcept;
  std::int32_t vocab_size() const noexcept;
  /// A sentence about what of its file is ignored; empty if nothing is.
  std::string note() const;
  /// Which tokens begin and end a text: those of the files that the tokenizer was loaded with.
  const TextMarkers& markers() const noexcept { return *markers_; }
  /// The same tokenizer with other markers.
  Tokenizer with_markers(TextMarkers markers) const;
  const std::vector<Merge>& merges() const noexcept { return spec().merges; }
  bool is_special(std::int32_t id) const noexcept;
  /// The id of an added token by its text, or -1.
  std::int32_t added_id(std::string_view content) const noexcept;
  /// The bytes of a token; `id` must be below vocab_size().
  const std::string& token(std::int32_t id) const noexcept {
    return spec().tokens[static_cast<std::size_t>(id)];
  }
  /// Number of bytes of source text that the token represents; 0 for a special token. Summed over the result
  /// of encode() it is the size of the text or, with a normalizer, of the normalized text.
  std::size_t token_bytes(std::int32_t id) const noexcept { return is_special(id) ? 0 : token(id).size(); }
  /// Digest of everything that encode() and decode() depend on: equal digests encode equally.
  const Digest& digest() const noexcept;
  /// Digest of everything that the tokens of a document depend on: digest() and what begins and ends a text.
  Digest document_digest() const;

  /// O(n log n) in the length n of the longest run of one character class, linear in the number of runs.
  std::vector<std::int32_t> encode(std::string_view text, SpecialTokens special = SpecialTokens::as_text,
                                   AddSpecialTokens add_special = AddSpecialTokens::no,
                                   TextPosition place = TextPosition::begin) const;
  /// The special tokens in a text whose characters lie in one of the `allowed` ranges, which are in order.
  std::vector<FoundToken> special_tokens_in(std::string_view text, std::span<const TextRange> allowed) const;
  /// Returns the exact bytes, which may be invalid UTF-8. An added token decodes to its text, and an added
  /// prefix space is included: decoding the ids of a text returns normalized(text). Errors: `invalid` for an
  /// id outside the vocabulary, with both numbers.
  Result<std::string> decode(std::span<const std::int32_t> ids) const;
  /// The text that encode() pre-tokenizes: in NFC if the tokenizer requires it, with the prefix space. For a
  /// text without added tokens.
  std::string normalized(std::string_view text, TextPosition place = TextPosition::begin) const;
  /// The largest n such that encoding the first n bytes and the rest separately gives the tokens of the whole
  /// text, whatever follows it; 0 if none is known.
  std::size_t last_safe_cut(std::string_view text) const noexcept;
  /// Whether any text has one: not if an added token has white space, or takes what is beside it.
  bool has_safe_cuts() const noexcept;

 private:
  explicit Tokenizer(std::shared_ptr<const detail::TokenizerModel> model) noexcept
      : model_(std::move(model)), markers_(std::make_shared<const TextMarkers>()) {}

  std::shared_ptr<const detail::TokenizerModel> model_;  // immutable, so copies share it
  std::shared_ptr<const TextMarkers> markers_;           // likewise
};

}  // namespace strata
