#include <strata/report/compare_runs.h>

#include <algorithm>
#include <cmath>
#include <map>

namespace strata {
namespace {

constexpr std::size_t kFirstSteps = 3, kMaxBlocks = 20, kMinBlock = 2;

std::vector<double> block_means(const RunRecord& run) {
  const std::vector<double>* const steps = run.find("step_s");
  std::vector<double> all;
  if (steps != nullptr)
    for (std::size_t i = kFirstSteps; i < steps->size(); ++i)
      if (std::isfinite((*steps)[i])) all.push_back((*steps)[i]);
  const std::size_t blocks = std::min(kMaxBlocks, all.size() / kMinBlock);
  std::vector<double> means;
  for (std::size_t b = 0; b < blocks; ++b) {
    const std::size_t begin = b * all.size() / blocks, end = (b + 1) * all.size() / blocks;
    double sum = 0;
    for (std::size_t i = begin; i < end; ++i) sum += all[i];
    means.push_back(sum / static_cast<double>(end - begin));
  }
  return means;
}

struct Moments {
  double mean = 0, variance_of_mean = 0;
};
Moments moments_of(const std::vector<double>& values) {
  Moments m;
  const auto n = static_cast<double>(values.size());
  for (const double v : values) m.mean += v / n;
  for (const double v : values) m.variance_of_mean += (v - m.mean) * (v - m.mean) / (n - 1) / n;
  return m;
}

// The two-sided 95 % point of Student's t distribution (Cornish-Fisher expansion about the normal one; within
// 1 % from 3 degrees of freedom on).
double t95(double degrees) {
  if (degrees < 2) return 12.706;
  if (degrees < 3) return 4.303;
  const double z = 1.959964, z3 = z * z * z, z5 = z3 * z * z;
  return z + (z3 + z) / (4 * degrees) + (5 * z5 + 16 * z3 + 3 * z) / (96 * degrees * degrees) +
         (3 * z5 * z * z + 19 * z5 + 17 * z3 - 15 * z) / (384 * degrees * degrees * degrees);
}

}  // namespace

std::vector<SettingDifference> setting_differences(const std::vector<RunRecord>& runs) {
  std::vector<SettingDifference> found;
  std::vector<std::map<std::string, std::string>> by_key;
  std::vector<std::string> keys;
  for (const RunRecord& run : runs) {
    auto& of_run = by_key.emplace_back();
    for (const RunRecord::Setting& setting : run.settings) {
      of_run[setting.key] = setting.value;
      if (std::find(keys.begin(), keys.end(), setting.key) == keys.end()) keys.push_back(setting.key);
    }
  }
  for (const std::string& key : keys) {
    SettingDifference difference{key, {}};
    for (const auto& of_run : by_key) {
      const auto at = of_run.find(key);
      difference.values.push_back(at == of_run.end() ? "" : at->second);
    }
    if (std::any_of(difference.values.begin(), difference.values.end(),
                    [&](const std::string& value) { return value != difference.values.front(); }))
      found.push_back(std::move(difference));
  }
  return found;
}

SpeedDifference speed_difference(const RunRecord& base, const RunRecord& other) {
  const std::vector<double> a = block_means(base), b = block_means(other);
  SpeedDifference found{.blocks = std::min(a.size(), b.size())};
  if (found.blocks < 2) return found;
  const Moments of_a = moments_of(a), of_b = moments_of(b);
  found.ratio = of_b.mean / of_a.mean;
  // The ratio of means, to the first order (delta method).
  const double u = of_a.variance_of_mean / (of_a.mean * of_a.mean),
               w = of_b.variance_of_mean / (of_b.mean * of_b.mean), both = u + w;
  const double degrees =
      both > 0 ? both * both /
                     (u * u / static_cast<double>(a.size() - 1) + w * w / static_cast<double>(b.size() - 1))
               : 1e9;
  const double spread = found.ratio * t95(degrees) * std::sqrt(both);
  found.low = found.ratio - spread;
  found.high = found.ratio + spread;
  return found;
}

LossDifference loss_difference(const RunRecord& a, const RunRecord& b) {
  LossDifference found;
  const auto *loss_a = a.find("loss"), *loss_b = b.find("loss"), *bits_a = a.find("loss_bits"),
             *bits_b = b.find("loss_bits");
  if (loss_a == nullptr || loss_b == nullptr) return found;
  for (std::size_t i = 0, j = 0; i < a.steps.size() && j < b.steps.size();) {
    if (a.steps[i] != b.steps[j]) {
      a.steps[i] < b.steps[j] ? ++i : ++j;
      continue;
    }
    ++found.common_steps;
    const double difference = std::abs((*loss_a)[i] - (*loss_b)[j]);
    if (std::isfinite(difference)) found.largest = std::max(found.largest, difference);
    const bool same = bits_a != nullptr && bits_b != nullptr ? (*bits_a)[i] == (*bits_b)[j] : difference == 0;
    if (!same && found.first_step < 0) found.first_step = a.steps[i];
    ++i;
    ++j;
  }
  return found;
}

}  // namespace strata
