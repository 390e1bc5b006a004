#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include <strata/runtime/io/io.h>
#include <strata/runtime/status.h>

namespace strata {

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

/// Digest and size of a whole file, read in blocks. Errors: those of Io::open and read_exact.
struct FileDigest {
  Digest digest{};
  std::uint64_t bytes = 0;
  friend bool operator==(const FileDigest&, const FileDigest&) = default;
};
Result<FileDigest> digest_file(Io& io, const std::string& path);

}  // namespace strata
