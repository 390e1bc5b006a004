#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <strata/runtime/status.h>

namespace strata::detail {

/// An endless sequence of sources. Among its first k elements, for any k, the count of source s differs from
/// weight[s] k by less than one. The sequence is periodic, since weights are read as exact decimal fractions;
/// so no rounding error accumulates, and element k can be computed by itself.
class Mixture {
 public:
  static constexpr std::size_t kMaxSources = 64;
  static constexpr std::uint64_t kMaxPeriod = std::uint64_t{1} << 20;

  /// Errors: `invalid` for no or too many sources, a weight that is not positive, more than 6 decimals, or
  /// weights whose ratio in integers needs a longer period, with both numbers.
  static Result<Mixture> create(std::span<const double> weights, std::uint64_t seed);

  struct Pick {
    std::size_t source;
    std::uint64_t index;  ///< number of earlier elements of the same source
  };
  Pick pick(std::uint64_t k) const noexcept {
    const std::uint64_t place = k % source_.size(), period = k / source_.size();
    const std::size_t source = source_[place];
    return {source, period * share_[source] + before_[place]};
  }
  std::uint64_t period() const noexcept { return source_.size(); }

 private:
  void arrange(std::uint64_t seed);

  std::vector<std::uint64_t> share_;   // elements of each source in a period
  std::vector<std::uint8_t> source_;   // source of each element of a period
  std::vector<std::uint32_t> before_;  // earlier elements of the same source in the period
};

}  // namespace strata::detail
