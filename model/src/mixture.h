#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <strata/runtime/status.h>

namespace strata::detail {

/// An endless sequence of sources in which, of any first k, source s has less than one more or less than
/// weight[s] k. Periodic, since weights are taken as the decimal fractions they are written as: so neither
/// drifts, and place k needs no other.
class Mixture {
 public:
  static constexpr std::size_t kMaxSources = 64;
  static constexpr std::uint64_t kMaxPeriod = std::uint64_t{1} << 20;

  /// Errors: `invalid` for no or too many sources, a weight that is not above 0, more than 6 decimals, or
  /// weights whose ratio in whole numbers needs a longer period, naming both numbers.
  static Result<Mixture> create(std::span<const double> weights, std::uint64_t seed);

  struct Pick {
    std::size_t source;
    std::uint64_t index;  ///< how many before it are of the same source
  };
  Pick pick(std::uint64_t k) const noexcept {
    const std::uint64_t place = k % source_.size(), period = k / source_.size();
    const std::size_t source = source_[place];
    return {source, period * share_[source] + before_[place]};
  }
  std::uint64_t period() const noexcept { return source_.size(); }

 private:
  void arrange(std::uint64_t seed);

  std::vector<std::uint64_t> share_;   // of each source in a period
  std::vector<std::uint8_t> source_;   // of each place of a period
  std::vector<std::uint32_t> before_;  // places of the same source before it in the period
};

}  // namespace strata::detail
