#include "data/mixture.h"

#include <algorithm>
#include <cmath>
#include <new>
#include <numeric>
#include <optional>

#include <strata/runtime/rng.h>
#include <strata/runtime/str.h>

namespace strata::detail {
namespace {

constexpr int kDecimals = 6;
constexpr double kMaxWeight = 1e9;

/// The weights as integers without a common divisor; nullopt if they have more than 6 decimals.
std::optional<std::vector<std::uint64_t>> whole(std::span<const double> weights) {
  double scale = 1;
  for (int decimals = 0; decimals <= kDecimals; ++decimals, scale *= 10) {
    const auto is_whole = [&](double w) {
      return std::abs(w * scale - std::round(w * scale)) <= 1e-12 * w * scale;
    };
    if (!std::all_of(weights.begin(), weights.end(), is_whole)) continue;
    std::vector<std::uint64_t> shares;
    std::uint64_t divisor = 0;
    for (const double w : weights) {
      shares.push_back(static_cast<std::uint64_t>(std::llround(w * scale)));
      divisor = std::gcd(divisor, shares.back());
    }
    for (std::uint64_t& share : shares) share /= divisor;
    return shares;
  }
  return std::nullopt;
}

}  // namespace

Result<Mixture> Mixture::create(std::span<const double> weights, std::uint64_t seed) try {
  if (weights.empty() || weights.size() > kMaxSources)
    return Status::error(Code::invalid,
                         str("weights of ", weights.size(),
                             " sources; the number must be at least 1 and at most ", kMaxSources));
  for (const double w : weights)
    if (!(w > 0 && w <= kMaxWeight))
      return Status::error(Code::invalid,
                           str("a weight of ", w, "; it must be above 0 and at most ", kMaxWeight));
  auto shares = whole(weights);
  if (!shares) return Status::error(Code::invalid, str("a weight has more than ", kDecimals, " decimals"));
  const std::uint64_t period = std::accumulate(shares->begin(), shares->end(), std::uint64_t{0});
  if (period > kMaxPeriod)
    return Status::error(Code::invalid, str("as integers without a common divisor the weights sum to ",
                                            period, ", the maximum is ", kMaxPeriod, "; round them"));
  Mixture mixture;
  mixture.share_ = *std::move(shares);
  mixture.source_.resize(period);
  mixture.before_.resize(period);
  mixture.arrange(seed);
  return mixture;
} catch (const std::bad_alloc&) {
  return Status::error(Code::out_of_memory, str("not enough memory to mix ", weights.size(), " sources"));
}

/// Tijdeman 1980, "The chairman assignment problem": sample t is assigned, among the sources that are at
/// least 1 / (2n - 2) behind their share, to the one that would be the first to be 1 - 1 / (2n - 2) behind.
/// No source ever differs more than that from its share. All numbers are multiplied by period x (2n - 2) to
/// be integers. The seed breaks ties.
void Mixture::arrange(std::uint64_t seed) {
  using Wide = __int128;
  const std::size_t n = share_.size();
  const auto period = static_cast<std::int64_t>(source_.size());
  const auto parts = static_cast<std::int64_t>(std::max<std::size_t>(2 * n - 2, 1));
  std::vector<std::size_t> order(n);
  std::iota(order.begin(), order.end(), 0u);
  const Rng rng(seed, 0x6d69782d74696573);  // "mix-ties"
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return rng.u64(a) < rng.u64(b); });
  std::vector<std::int64_t> given(n, 0);
  for (std::int64_t t = 1; t <= period; ++t) {
    std::size_t best = n;
    std::int64_t best_slack = 0;  // distance until it would be too far behind
    for (const std::size_t s : order) {
      const auto share = static_cast<std::int64_t>(share_[s]);
      const std::int64_t behind = parts * (share * t - period * given[s]);
      if (n > 1 && behind < period) continue;
      const std::int64_t slack = (parts - 1) * period - behind;
      if (best == n || Wide{slack} * static_cast<std::int64_t>(share_[best]) < Wide{best_slack} * share) {
        best = s;
        best_slack = slack;
      }
    }
    const auto place = static_cast<std::size_t>(t - 1);
    source_[place] = static_cast<std::uint8_t>(best);
    before_[place] = static_cast<std::uint32_t>(given[best]++);
  }
}

}  // namespace strata::detail
