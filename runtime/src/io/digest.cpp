#include <strata/runtime/io/digest.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>
#include <vector>

#include <xxhash.h>

#include <strata/runtime/assert.h>
#include <strata/runtime/threads/thread_pool.h>
#include <strata/runtime/units.h>

namespace strata {
namespace {

constexpr std::size_t kBlockBytes = 1 * kMiB;

Digest canonical(XXH128_hash_t hash) noexcept {
  XXH128_canonical_t bytes;
  XXH128_canonicalFromHash(&bytes, hash);
  Digest out;
  static_assert(sizeof(bytes.digest) == sizeof(out));
  std::memcpy(out.data(), bytes.digest, sizeof(out));
  return out;
}

}  // namespace

std::string to_hex(const Digest& digest) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string out;
  out.reserve(2 * digest.size());
  for (const std::byte b : digest) {
    out += kDigits[std::to_integer<std::size_t>(b) >> 4];
    out += kDigits[std::to_integer<std::size_t>(b) & 15];
  }
  return out;
}

// Allocated by libxxhash: the layout is private to it, and it requires 64-byte alignment.
struct Digester::State {
  XXH3_state_t* xxh = XXH3_createState();
  ~State() { XXH3_freeState(xxh); }
};

Digester::Digester() : state_(std::make_unique<State>()) {
  if (state_->xxh == nullptr) throw std::bad_alloc();  // as make_unique above would
  const bool reset = XXH3_128bits_reset(state_->xxh) == XXH_OK;
  STRATA_ASSERT(reset, "XXH3 state does not reset");
}
Digester::Digester(Digester&&) noexcept = default;
Digester& Digester::operator=(Digester&&) noexcept = default;
Digester::~Digester() = default;

void Digester::update(std::span<const std::byte> bytes) noexcept {
  if (!bytes.empty()) XXH3_128bits_update(state_->xxh, bytes.data(), bytes.size());
}
void Digester::update(std::string_view text) noexcept { update(std::as_bytes(std::span(text))); }
Digest Digester::digest() const noexcept { return canonical(XXH3_128bits_digest(state_->xxh)); }

Digest digest_of(std::span<const std::byte> bytes) noexcept {
  return canonical(XXH3_128bits(bytes.data(), bytes.size()));
}

// What a block that has begun takes of `bytes`. Returns the rest, which is empty if the block is not
// complete.
std::span<const std::byte> BlockDigester::complete(std::span<const std::byte> bytes) {
  if (rest_.empty()) return bytes;
  const std::size_t n = std::min(bytes.size(), kBlockBytes - rest_.size());
  rest_.insert(rest_.end(), bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(n));
  if (rest_.size() < kBlockBytes) return {};
  blocks_.push_back(digest_of(rest_));
  rest_.clear();
  return bytes.subspan(n);
}

void BlockDigester::update(std::span<const std::byte> bytes) {
  bytes = complete(bytes);
  if (!rest_.empty()) return;
  for (; bytes.size() >= kBlockBytes; bytes = bytes.subspan(kBlockBytes))
    blocks_.push_back(digest_of(bytes.first(kBlockBytes)));
  rest_.assign(bytes.begin(), bytes.end());
}

void BlockDigester::update(std::span<const std::byte> bytes, ThreadPool& pool) {
  constexpr std::size_t kBlocksAtOnce = 16;
  bytes = complete(bytes);
  if (!rest_.empty()) return;
  const std::size_t n = bytes.size() / kBlockBytes, before = blocks_.size();
  blocks_.resize(before + n);
  pool.parallel_for(static_cast<std::int64_t>((n + kBlocksAtOnce - 1) / kBlocksAtOnce),
                    [&](std::int64_t part) {
                      const std::size_t first = static_cast<std::size_t>(part) * kBlocksAtOnce;
                      for (std::size_t i = first; i < std::min(n, first + kBlocksAtOnce); ++i)
                        blocks_[before + i] = digest_of(bytes.subspan(i * kBlockBytes, kBlockBytes));
                    });
  bytes = bytes.subspan(n * kBlockBytes);
  rest_.assign(bytes.begin(), bytes.end());
}

std::vector<Digest> BlockDigester::take() {
  if (!rest_.empty()) blocks_.push_back(digest_of(rest_));
  rest_.clear();
  return std::exchange(blocks_, {});
}

Digest BlockDigester::digest_of_blocks(std::span<const Digest> blocks) noexcept {
  return digest_of(std::as_bytes(blocks));
}

Result<FileDigest> digest_file(Io& io, const std::string& path) {
  STRATA_TRY_ASSIGN(const std::unique_ptr<File> file, io.open(path, OpenMode::read));
  STRATA_TRY_ASSIGN(const std::uint64_t size, file->size());
  std::vector<std::byte> block(static_cast<std::size_t>(std::min<std::uint64_t>(size, kBlockBytes)));
  Digester digester;
  for (std::uint64_t at = 0; at < size; at += block.size()) {
    const auto piece =
        std::span(block).first(static_cast<std::size_t>(std::min<std::uint64_t>(size - at, block.size())));
    STRATA_TRY(read_exact(*file, at, piece));
    digester.update(piece);
  }
  return FileDigest{digester.digest(), size};
}

}  // namespace strata
