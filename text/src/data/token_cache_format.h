#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include <strata/text/chat.h>
#include <strata/runtime/io/digest.h>
#include <strata/runtime/io/io.h>

// The file format of TokenCache; see model/README.md, "Token cache".
namespace strata::detail {

static_assert(std::endian::native == std::endian::little, "the cache is little-endian and read in place");

inline constexpr std::array<char, 8> kCacheMagic = {'S', 'T', 'R', 'A', 'T', 'O', 'K', '\n'};
inline constexpr std::uint32_t kCacheVersion = 2;

struct CacheHeader {
  std::array<char, 8> magic = kCacheMagic;
  std::uint32_t version = kCacheVersion;
  std::uint32_t bytes_per_token = 0;
  std::uint64_t n_tokens = 0;
  std::uint64_t source_bytes = 0;
  std::uint32_t vocab_size = 0;
  std::uint32_t n_sources = 0;
  Digest tokenizer{};
  Digest sources{};
  Digest payload{};  // the digest of everything after the header
  std::uint64_t n_documents = 0;
  std::uint64_t n_loss_tokens = 0;  // equal to n_tokens: the file has no loss mask
  std::array<std::byte, 8> chat{};  // first bytes of the chat template's digest; zero without conversations
  Digest header{};                  // the digest of the bytes before it

  Digest digest_of_rest() const noexcept {
    return digest_of(std::as_bytes(std::span(this, 1)).first(offsetof(CacheHeader, header)));
  }
};
static_assert(sizeof(CacheHeader) == 128 && std::is_trivially_copyable_v<CacheHeader>);

/// Zeros for an error, since then no conversation was written.
inline std::array<std::byte, 8> chat_mark(const Result<ChatTemplate>& chat) {
  std::array<std::byte, 8> mark{};
  if (!chat.has_value()) return mark;
  const Digest digest = chat->digest();
  std::copy_n(digest.begin(), mark.size(), mark.begin());
  return mark;
}

/// Offsets of the parts after the header. Valid only for a header whose counts have been checked.
struct CacheLayout {
  explicit CacheLayout(const CacheHeader& header) noexcept
      : loss_mask((header.n_tokens * header.bytes_per_token + 7) / 8 * 8),
        documents(loss_mask + (header.n_loss_tokens < header.n_tokens ? (header.n_tokens + 63) / 64 * 8 : 0)),
        end(documents + header.n_documents * 8) {}
  std::uint64_t loss_mask, documents, end;
};

/// The form in which a file is read: as records, as text, or as text after a byte order mark; each also in
/// gzip.
Result<std::string> source_form(Io& io, const std::string& path);

/// One digest for a list of files: their sizes, digests and forms, in order. It does not cover their paths,
/// so that a corpus may be moved.
class SourceDigester {
 public:
  void add(const FileDigest& file, std::string_view form) noexcept {
    digester_.update(std::as_bytes(std::span(&file.bytes, 1)));
    digester_.update(file.digest);
    digester_.update(form);
  }
  Digest digest() const noexcept { return digester_.digest(); }

 private:
  Digester digester_;
};

}  // namespace strata::detail
