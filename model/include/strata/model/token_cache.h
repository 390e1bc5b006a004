#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <strata/model/tokenizer.h>
#include <strata/runtime/io.h>
#include <strata/runtime/status.h>

namespace strata {

/// Text files as tokens in one file on disk, mapped read-only: 2 bytes a token where the vocabulary fits,
/// else 4. Each source is followed by the tokenizer's end of text, where it has one. Immutable; any thread
/// may read. Format and what makes a cache stale: model/README.md, "Token cache".
class TokenCache {
 public:
  /// Takes `cache_path` when it was made from these bytes by this tokenizer and is undamaged, else builds it
  /// and replaces it in one step. Sources are read in blocks, in order. One process at a time should build a
  /// path. Errors: `invalid` for no source or sources with no bytes; `not_found`, `io_error`, `no_space`,
  /// with the file.
  static Result<std::unique_ptr<TokenCache>> open_or_build(Io& io, const Tokenizer& tokenizer,
                                                           const std::vector<std::string>& sources,
                                                           const std::string& cache_path);
  /// Takes an existing cache without its sources. Errors: `corrupt` for a damaged one, `invalid` for another
  /// tokenizer's, `not_found`, `io_error`.
  static Result<std::unique_ptr<TokenCache>> open(Io& io, const Tokenizer& tokenizer,
                                                  const std::string& cache_path);

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
  /// Bytes of source text that tokens [begin, end) stand for, for bits per byte. O(end - begin).
  std::uint64_t source_bytes(std::uint64_t begin, std::uint64_t end) const noexcept;
  /// Of all sources together.
  std::uint64_t source_bytes() const noexcept { return source_bytes_; }
  /// Why open_or_build() built the file: "no cache yet", "made from other text", ...; empty where it was
  /// taken.
  const std::string& rebuilt_because() const noexcept { return rebuilt_because_; }

 private:
  class Writer;
  TokenCache() = default;
  Status map(File& file, std::uint64_t bytes);

  const std::byte* tokens_ = nullptr;
  std::uint64_t n_tokens_ = 0;
  std::uint64_t source_bytes_ = 0;
  std::size_t bytes_per_token_ = 2;
  Digest source_digest_{};
  std::vector<std::uint16_t> token_bytes_;  // by id
  std::string rebuilt_because_;
  void* mapping_ = nullptr;  // null where the Io has no descriptors; then heap_ holds the file
  std::size_t mapping_bytes_ = 0;
  std::vector<std::byte> heap_;
};

}  // namespace strata
