#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <strata/text/chat.h>
#include <strata/text/documents.h>
#include <strata/text/tokenizer.h>
#include <strata/runtime/io/io.h>
#include <strata/runtime/status.h>

namespace strata {
namespace detail {
struct CacheHeader;
}

/// Tokenized documents in one memory-mapped, read-only file: 2 bytes per token if the vocabulary fits, else
/// 4. Each document is followed by the tokenizer's end-of-text token, if it has one, and each token has a
/// loss mask bit. Sources are read as documents.h describes. Immutable; any thread may read. model/README.md,
/// "Token cache", has the format and what makes a cache stale.
class TokenCache {
 public:
  /// Opens `cache_path` if it is undamaged and was built from these bytes with this tokenizer; otherwise
  /// builds it and replaces it atomically. Sources are read in blocks, in order. Conversations are written
  /// with `chat`; if that is an error, they fail with it. Pairs (RecordUse) are documents 2 i and 2 i + 1; a
  /// path is that of one use. Only one process at a time should build a path.
  /// Errors: `invalid` for no sources, sources without bytes, invalid records (all of them, one line per kind
  /// of problem), or a chat template with markers that the tokenizer lacks; `unsupported` for other formats;
  /// `not_found`, `io_error`, `no_space`, with the file.
  static Result<std::unique_ptr<TokenCache>> open_or_build(Io& io, const Tokenizer& tokenizer,
                                                           const std::vector<std::string>& sources,
                                                           const std::string& cache_path,
                                                           const Result<ChatTemplate>& chat = ChatTemplate{},
                                                           RecordUse use = RecordUse::texts);
  /// Opens an existing cache without its sources. Errors: `corrupt` for a damaged cache, `invalid` for a
  /// cache of another tokenizer, `not_found`, `io_error`.
  static Result<std::unique_ptr<TokenCache>> open(Io& io, const Tokenizer& tokenizer,
                                                  const std::string& cache_path);

  /// Whether the file begins like a token cache. Errors: those of reading.
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
  /// Whether the loss counts token `i` when it is a target.
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

  /// Bytes of source text of tokens [begin, end), for bits per byte. O(end - begin).
  std::uint64_t source_bytes(std::uint64_t begin, std::uint64_t end) const noexcept;
  /// Whether the chat template decides how its documents are written: most are conversations.
  bool has_conversations() const noexcept { return chat_mark_ != decltype(chat_mark_){}; }
  /// Total bytes of all source files.
  std::uint64_t source_bytes() const noexcept { return source_bytes_; }
  /// Why open_or_build() built the file: "no cache yet", "built from other text", ...; empty if it opened an
  /// existing one.
  const std::string& rebuild_reason() const noexcept { return rebuild_reason_; }
  /// One sentence per file of records: its form, and how many there were when the cache was built now.
  const std::vector<std::string>& notes() const noexcept { return notes_; }
  /// Bytes of the file that are mapped.
  std::uint64_t mapped_bytes() const noexcept { return payload_bytes_; }

 private:
  TokenCache() = default;
  Status load(File& file, const Tokenizer& tokenizer);
  Status map(File& file, std::uint64_t bytes);
  void point_into(const detail::CacheHeader& header) noexcept;
  Status check_payload() const;

  const std::byte* payload_ = nullptr;
  const std::byte* tokens_ = nullptr;
  const std::uint64_t* loss_mask_ = nullptr;  // bits; null if all tokens are in the loss
  const std::uint64_t* documents_ = nullptr;
  std::uint64_t payload_bytes_ = 0;
  std::uint64_t n_tokens_ = 0, n_documents_ = 0, n_loss_tokens_ = 0;
  std::uint64_t source_bytes_ = 0;
  std::size_t bytes_per_token_ = 2;
  Digest source_digest_{};
  std::array<std::byte, 8> chat_mark_{};
  std::vector<std::uint16_t> token_bytes_;  // indexed by id
  std::string rebuild_reason_;
  std::vector<std::string> notes_;
  void* mapping_ = nullptr;  // null if the Io has no descriptors; then heap_ holds the file
  std::size_t mapping_bytes_ = 0;
  std::vector<std::byte> heap_;
};

}  // namespace strata
