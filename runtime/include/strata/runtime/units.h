#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include <strata/runtime/status.h>

namespace strata {

inline constexpr std::size_t kKiB = 1024;
inline constexpr std::size_t kMiB = 1024 * kKiB;
inline constexpr std::size_t kGiB = 1024 * kMiB;
/// Memory and objects on disk are sized in whole pages: it is the granularity of the host's memory and the
/// alignment that direct I/O needs on common disks.
inline constexpr std::size_t kPageBytes = 4 * kKiB;

constexpr std::size_t round_up(std::size_t value, std::size_t multiple) noexcept {
  return (value + multiple - 1) / multiple * multiple;
}
constexpr std::int64_t round_up(std::int64_t value, std::int64_t multiple) noexcept {
  return (value + multiple - 1) / multiple * multiple;
}

/// Parses "32MiB", "1.5GiB", "4096", "64 KB" (decimal) or "2g" (binary) into exact bytes. Errors: `invalid`.
Result<std::uint64_t> parse_bytes(std::string_view text);
/// Formats as "31.5 MiB", or as an exact byte count below 1 KiB.
std::string format_bytes(std::uint64_t bytes);
/// Parses "90s", "5min", "1.5h", "250ms" or plain seconds into seconds. Errors: `invalid`.
Result<double> parse_seconds(std::string_view text);

}  // namespace strata
