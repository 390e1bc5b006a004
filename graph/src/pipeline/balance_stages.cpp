#include <algorithm>
#include <cmath>
#include <limits>

#include <strata/graph/ops.h>
#include <strata/graph/pipeline.h>
#include <strata/runtime/str.h>

namespace strata {

std::vector<double> region_flops(const Program& program) {
  std::vector<double> sums(program.regions.size());
  for (const Instr& instr : program.code)
    sums[static_cast<std::size_t>(instr.region)] += flops(program, instr);
  return sums;
}

namespace {

/// The least that the slowest of `stages` stages can take, and how they are cut.
class Cuts {
 public:
  Cuts(std::span<const double> costs, std::size_t stages) : n_(costs.size()), sum_(n_ + 1) {
    for (std::size_t i = 0; i < n_; ++i) sum_[i + 1] = sum_[i] + costs[i];
    // Both are indexed by a number of stages and a first item, and describe the items from there on.
    slowest_.assign(stages + 1, std::vector<double>(n_ + 1, std::numeric_limits<double>::infinity()));
    end_.assign(stages + 1, std::vector<std::size_t>(n_ + 1, 0));
    slowest_[0][n_] = 0;
    for (std::size_t s = 1; s <= stages; ++s)
      for (std::size_t first = 0; first < n_; ++first)
        for (std::size_t end = first + 1; end <= n_; ++end) {
          const double worst = std::max(sum_[end] - sum_[first], slowest_[s - 1][end]);
          if (worst >= slowest_[s][first]) continue;
          slowest_[s][first] = worst;
          end_[s][first] = end;
        }
  }
  /// The stage of each item.
  std::vector<std::int32_t> stages() const {
    std::vector<std::int32_t> stage(n_);
    std::size_t first = 0;
    const std::size_t n = slowest_.size() - 1;
    for (std::size_t s = 0; s < n; ++s) {
      const std::size_t end = end_[n - s][first];
      std::fill(stage.begin() + static_cast<std::ptrdiff_t>(first),
                stage.begin() + static_cast<std::ptrdiff_t>(end), static_cast<std::int32_t>(s));
      first = end;
    }
    return stage;
  }

 private:
  std::size_t n_;
  std::vector<double> sum_;
  std::vector<std::vector<double>> slowest_;
  std::vector<std::vector<std::size_t>> end_;
};

}  // namespace

Result<std::vector<std::int32_t>> balance_stages(std::span<const double> costs, std::int32_t stages) {
  std::vector<double> some;  // that cost something
  for (std::size_t i = 0; i < costs.size(); ++i) {
    if (!(costs[i] >= 0) || std::isinf(costs[i]))
      return Status::error(Code::invalid, str("region ", i, " costs ", costs[i]));
    if (costs[i] > 0) some.push_back(costs[i]);
  }
  if (stages < 1 || static_cast<std::size_t>(stages) > some.size())
    return Status::error(Code::invalid, str("a pipeline of ", stages, " stages for ", some.size(),
                                            " regions that compute something"));
  const std::vector<std::int32_t> of_some = Cuts(some, static_cast<std::size_t>(stages)).stages();
  std::vector<std::int32_t> stage(costs.size());
  std::size_t next = 0;
  for (std::size_t i = 0; i < costs.size(); ++i) {
    if (costs[i] > 0) ++next;
    stage[i] = of_some[std::max<std::size_t>(next, 1) - 1];
  }
  return stage;
}

}  // namespace strata
