// The prefetch changes the time of a step and none of its bits.
#include <strata/cpuopt/prefetch.h>

#include <cstring>
#include <vector>

#include <gtest/gtest.h>

#include <strata/cpuopt/update.h>

#include "optimizer_cases.h"
#include "support/isas.h"

namespace strata::cpuopt::test {
namespace {

class PrefetchScope {
 public:
  explicit PrefetchScope(Prefetch prefetch) { use_prefetch(prefetch); }
  ~PrefetchScope() { use_prefetch(std::nullopt); }
  PrefetchScope(const PrefetchScope&) = delete;
  PrefetchScope& operator=(const PrefetchScope&) = delete;
};

/// Returns parameters, moments and gradients of `n` elements after two steps. The spans are contiguous, so
/// prefetches past the end of one are in the next one, or outside the allocation.
std::vector<float> after_steps(const OptimizerParams& params, std::int64_t n) {
  const auto size = static_cast<std::size_t>(n);
  std::vector<float> spans(4 * size);
  Values values(7);
  for (std::size_t i = 0; i < spans.size(); ++i)
    spans[i] =
        static_cast<float>(values.next()) * (i / size == 2 ? 0.0f : 1.0f);  // no second moment below zero
  const MomentSet moments = moments_of(params);
  float* const p = spans.data();
  const UpdateBlock block{.param = p,
                          .m = {moments.first ? p + n : nullptr, nullptr},
                          .v = {moments.second ? p + 2 * n : nullptr, nullptr},
                          .g = p + 3 * n};
  OptimizerParams step = params;
  for (step.step = 1; step.step <= 2; ++step.step) update_block(make_update_step(step), block, n, {});
  return spans;
}

TEST(PrefetchTest, EveryOptimizerHasTheSameBitsWhateverIsPrefetched) {
  constexpr std::int64_t kLongElems = 3 * 16384 + 77;
  for (const CpuIsa isa : strata::test::supported_isas())
    for (const OptimizerParams& params : every_optimizer()) {
      const strata::test::IsaScope isa_scope(isa);
      std::vector<std::vector<float>> results;
      for (const Prefetch prefetch : {Prefetch::none, Prefetch::moments, Prefetch::all}) {
        const PrefetchScope scope(prefetch);
        results.push_back(after_steps(params, kLongElems));
        EXPECT_EQ(std::memcmp(results.front().data(), results.back().data(), 4 * kLongElems * sizeof(float)),
                  0)
            << to_string(isa) << ", " << to_string(params.optimizer) << ", " << to_string(prefetch);
      }
    }
}

TEST(PrefetchTest, TheActivePrefetchIsTheLastOneSetOrElseTheMeasuredOne) {
  for (const Prefetch prefetch : {Prefetch::all, Prefetch::none, Prefetch::moments}) {
    const PrefetchScope scope(prefetch);
    EXPECT_EQ(active_prefetch(), prefetch);
  }
  const Prefetch measured = active_prefetch();
  EXPECT_LT(static_cast<std::size_t>(measured), kPrefetches);
  EXPECT_EQ(active_prefetch(), measured) << "it is measured once";
}

TEST(PrefetchTest, EveryPrefetchIsMeasured) {
  const auto ns = measure_prefetch();
  if (!ns) GTEST_SKIP() << "no way to empty caches";
  for (const double each : *ns) EXPECT_GT(each, 0);
}

}  // namespace
}  // namespace strata::cpuopt::test
