#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <strata/runtime/io/io.h>
#include <strata/runtime/status.h>

namespace strata {

class ThreadPool;

/// XXH3's 128 bits in canonical (big-endian) order, so that the hex form equals the output of `xxhsum -H2`.
using Digest = std::array<std::byte, 16>;

/// "99aa06d3014798d86001c324468d497f"
std::string to_hex(const Digest& digest);

/// XXH3-128 of bytes given in pieces. It detects damage but is no defense against an adversary. Move-only;
/// one thread at a time.
class Digester {
 public:
  Digester();
  Digester(Digester&&) noexcept;
  Digester& operator=(Digester&&) noexcept;
  ~Digester();
  void update(std::span<const std::byte> bytes) noexcept;
  void update(std::string_view text) noexcept;
  /// The digest of everything given so far; more may follow.
  Digest digest() const noexcept;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

Digest digest_of(std::span<const std::byte> bytes) noexcept;

/// Digests bytes block by block, so that the blocks may be digested by several readers or writers: their
/// digest is the XXH3-128 of the blocks' XXH3-128 digests. A block has kBlockBytes bytes, the last one may
/// have fewer. Movable; one thread at a time.
class BlockDigester {
 public:
  static constexpr std::size_t kBlockBytes = 16384;
  void update(std::span<const std::byte> bytes);
  /// Does the same on the threads of a pool.
  void update(std::span<const std::byte> bytes, ThreadPool& pool);
  /// The digests of the blocks given since construction or the last take(), of which the last one ends here.
  std::vector<Digest> take();
  /// The digest of everything given since construction or the last take(), which it ends.
  Digest digest() { return digest_of_blocks(take()); }
  static Digest digest_of_blocks(std::span<const Digest> blocks) noexcept;

 private:
  std::span<const std::byte> complete(std::span<const std::byte> bytes);
  std::vector<Digest> blocks_;
  std::vector<std::byte> rest_;  // bytes of a block that is not complete
};

/// Digest and size of a whole file, read in blocks. Errors: those of Io::open and read_exact.
struct FileDigest {
  Digest digest{};
  std::uint64_t bytes = 0;
  friend bool operator==(const FileDigest&, const FileDigest&) = default;
};
Result<FileDigest> digest_file(Io& io, const std::string& path);

}  // namespace strata
