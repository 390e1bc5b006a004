#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include <strata/model/chat.h>
#include <strata/runtime/digest.h>

// The file of a TokenCache: model/README.md, "Token cache".
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
  Digest payload{};  // of all that follows the header
  std::uint64_t n_documents = 0;
  std::uint64_t n_loss_tokens = 0;  // n_tokens: there are no bits
  std::array<std::byte, 8> chat{};  // of the chat template's digest; zero where no source has messages
  Digest header{};                  // of the bytes before it

  Digest digest_of_rest() const noexcept {
    return digest_of(std::as_bytes(std::span(this, 1)).first(offsetof(CacheHeader, header)));
  }
};
static_assert(sizeof(CacheHeader) == 128 && std::is_trivially_copyable_v<CacheHeader>);

/// Zeros for an error, which no conversation was written with.
inline std::array<std::byte, 8> chat_mark(const Result<ChatTemplate>& chat) {
  std::array<std::byte, 8> mark{};
  if (!chat.has_value()) return mark;
  const Digest digest = chat->digest();
  std::copy_n(digest.begin(), mark.size(), mark.begin());
  return mark;
}

/// Where the parts lie, from the end of the header on. Right only for a header whose counts were bounded.
struct CacheLayout {
  explicit CacheLayout(const CacheHeader& header) noexcept
      : loss_mask((header.n_tokens * header.bytes_per_token + 7) / 8 * 8),
        documents(loss_mask + (header.n_loss_tokens < header.n_tokens ? (header.n_tokens + 63) / 64 * 8 : 0)),
        end(documents + header.n_documents * 8) {}
  std::uint64_t loss_mask, documents, end;
};

/// One digest for a list of files: their sizes, digests and whether they are records, in order; not their
/// paths, so that a corpus may move.
class SourceDigester {
 public:
  void add(const FileDigest& file, bool jsonl) noexcept {
    digester_.update(std::as_bytes(std::span(&file.bytes, 1)));
    digester_.update(file.digest);
    digester_.update(std::string_view(jsonl ? "records" : "text"));
  }
  Digest digest() const noexcept { return digester_.digest(); }

 private:
  Digester digester_;
};

}  // namespace strata::detail
