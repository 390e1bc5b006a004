#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <strata/model/chat.h>
#include <strata/model/tokenizer.h>
#include <strata/runtime/io.h>
#include <strata/runtime/status.h>

namespace strata {
namespace detail {
struct CacheHeader;
}

/// Documents as tokens in one file on disk, mapped read-only: 2 bytes a token where the vocabulary fits, else
/// 4. Each is followed by the tokenizer's end of text, where it has one, and of each token it is known
/// whether it is learnt. Sources are read as documents.h says. Immutable; any thread may read. Format and
/// what makes a cache stale: model/README.md, "Token cache".
class TokenCache {
 public:
  /// Takes `cache_path` when it was made from these bytes by this tokenizer and is undamaged, else builds it
  /// and replaces it in one step. Sources are read in blocks, in order; conversations as `chat` says, or they
  /// are its error. One process at a time should build a path. Errors: `invalid` for no source, sources with
  /// no bytes, records that are none (all of them, a line a kind), or a chat template with markers that the
  /// tokenizer lacks; `unsupported` for other formats; `not_found`, `io_error`, `no_space`, with the file.
  static Result<std::unique_ptr<TokenCache>> open_or_build(Io& io, const Tokenizer& tokenizer,
                                                           const std::vector<std::string>& sources,
                                                           const std::string& cache_path,
                                                           const Result<ChatTemplate>& chat = ChatTemplate{});
  /// Takes an existing cache without its sources. Errors: `corrupt` for a damaged one, `invalid` for another
  /// tokenizer's, `not_found`, `io_error`.
  static Result<std::unique_ptr<TokenCache>> open(Io& io, const Tokenizer& tokenizer,
                                                  const std::string& cache_path);

  /// Whether the file begins as a cache does. Errors: those of reading.
  static Result<bool> is_cache(Io& io, const std::string& path);

  ~TokenCache();
  TokenCache(const TokenCache&) = delete;
  TokenCache& operator=(const TokenCache&) = delete;

  std::uint64_t n_tokens() const noexcept { return n_tokens_; }
  std::int32_t vocab_size() const noexcept { return static_cast<std::int32_t>(token_bytes_.size()); }
  /// The token at `i` < n_tokens().
  std::int32_t token(std::uint64_t i) const noexcept {
    return bytes_per_token_ == 2
               ? reinterpret_cast<const std::uint16_t*>(tokens_)[i]
               : static_cast<std::int32_t>(reinterpret_cast<const std::uint32_t*>(tokens_)[i]);
  }
  /// Whether the loss counts token `i` where it is a target.
  bool loss_mask(std::uint64_t i) const noexcept {
    return loss_mask_ == nullptr || ((loss_mask_[i / 64] >> (i % 64)) & 1) != 0;
  }
  std::uint64_t n_loss_tokens() const noexcept { return n_loss_tokens_; }

  std::uint64_t n_documents() const noexcept { return n_documents_; }
  /// The first token of document `d` < n_documents(), and the one after its last.
  std::uint64_t document_begin(std::uint64_t d) const noexcept { return documents_[d]; }
  std::uint64_t document_end(std::uint64_t d) const noexcept {
    return d + 1 < n_documents_ ? documents_[d + 1] : n_tokens_;
  }

  /// Bytes of source text that tokens [begin, end) stand for, for bits per byte. O(end - begin).
  std::uint64_t source_bytes(std::uint64_t begin, std::uint64_t end) const noexcept;
  /// Of all source files together.
  std::uint64_t source_bytes() const noexcept { return source_bytes_; }
  /// Why open_or_build() built the file: "no cache yet", "made from other text", ...; empty where it was
  /// taken.
  const std::string& rebuild_reason() const noexcept { return rebuild_reason_; }
  /// What was read when it was built, a sentence a .jsonl file; none where it was taken.
  const std::vector<std::string>& notes() const noexcept { return notes_; }
  /// Of the file that are mapped.
  std::uint64_t mapped_bytes() const noexcept { return payload_bytes_; }

 private:
  TokenCache() = default;
  Status load(File& file, const Tokenizer& tokenizer);
  Status map(File& file, std::uint64_t bytes);
  void point_into(const detail::CacheHeader& header) noexcept;
  Status check_payload() const;

  const std::byte* payload_ = nullptr;
  const std::byte* tokens_ = nullptr;
  const std::uint64_t* loss_mask_ = nullptr;  // bits; null where all tokens are learnt
  const std::uint64_t* documents_ = nullptr;
  std::uint64_t payload_bytes_ = 0;
  std::uint64_t n_tokens_ = 0, n_documents_ = 0, n_loss_tokens_ = 0;
  std::uint64_t source_bytes_ = 0;
  std::size_t bytes_per_token_ = 2;
  Digest source_digest_{};
  std::array<std::byte, 8> chat_mark_{};
  std::vector<std::uint16_t> token_bytes_;  // by id
  std::string rebuild_reason_;
  std::vector<std::string> notes_;
  void* mapping_ = nullptr;  // null where the Io has no descriptors; then heap_ holds the file
  std::size_t mapping_bytes_ = 0;
  std::vector<std::byte> heap_;
};

}  // namespace strata
