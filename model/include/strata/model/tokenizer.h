#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <strata/runtime/digest.h>
#include <strata/runtime/io.h>
#include <strata/runtime/status.h>

namespace strata {

/// What "<|endoftext|>" in a text means to encode(): its characters, or the one token. Text from outside
/// should not be able to end a document, so the characters are the default.
enum class SpecialTokens : std::uint8_t { as_text, recognised };

/// Two tokens side by side become one. Its index in the list of merges is its rank: the lowest applies first.
struct Merge {
  std::int32_t left;
  std::int32_t right;
  std::int32_t result;
};

/// Byte-level byte-pair encoding with GPT-2's splitting rule (Sennrich et al. 2016, Alg. 1; Radford et al.
/// 2019, section 2.2). Encodes any bytes and gives the same bytes back. A value; const calls from any thread.
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
  /// From tokens by id, merges whose `result` is not yet filled in, and the ids that are special. What load()
  /// ends in. Errors: `invalid` or `corrupt`, naming the token or the merge.
  static Result<Tokenizer> create(std::vector<std::string> tokens, std::vector<Merge> merges,
                                  std::vector<std::int32_t> special);

  /// Reads and writes Hugging Face's tokenizer.json (model BPE, pre-tokenizer ByteLevel).
  /// Errors: `corrupt` or `invalid` for a damaged file, `unsupported` for a kind of tokenizer this is not.
  static Result<Tokenizer> load(Io& io, const std::string& path);
  static Result<Tokenizer> from_json(const std::string& text);
  Status save(Io& io, const std::string& path) const;
  std::string to_json() const;

  std::int32_t vocab_size() const noexcept { return static_cast<std::int32_t>(tokens_.size()); }
  /// The id of kEndOfText, or -1 where a loaded tokenizer has none.
  std::int32_t end_of_text() const noexcept { return end_of_text_; }
  const std::vector<Merge>& merges() const noexcept { return merges_; }
  bool is_special(std::int32_t id) const noexcept;
  /// The bytes of a token; `id` must be below vocab_size().
  const std::string& token(std::int32_t id) const noexcept { return tokens_[static_cast<std::size_t>(id)]; }
  /// How many bytes of source text the token stands for: 0 for a special one. Sums to the text's size over
  /// encode().
  std::size_t token_bytes(std::int32_t id) const noexcept { return is_special(id) ? 0 : token(id).size(); }
  /// Of to_json(): equal digests encode equally.
  const Digest& digest() const noexcept { return digest_; }

  /// O(n log n) in the longest run of one class of characters, linear in the number of runs.
  std::vector<std::int32_t> encode(std::string_view text,
                                   SpecialTokens special = SpecialTokens::as_text) const;
  /// The exact bytes, not made valid UTF-8. Errors: `invalid` for an id outside the vocabulary, naming both.
  Result<std::string> decode(std::span<const std::int32_t> ids) const;

 private:
  class Encoder;
  Tokenizer() = default;

  std::vector<std::string> tokens_;
  std::vector<Merge> merges_;
  std::vector<std::int32_t> special_;  // ascending
  std::int32_t end_of_text_ = -1;
  std::array<std::int32_t, 256> byte_ids_{};
  std::unordered_map<std::uint64_t, std::uint32_t> ranks_;  // (left, right) packed -> index in merges_
  Digest digest_{};
};

}  // namespace strata
