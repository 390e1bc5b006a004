#pragma once

#include <algorithm>
#include <string>

#include "cli/e2e/e2e_ranks_fixture.h"

namespace strata::test {

/// Joins arguments: a key that is given again replaces the one that was given first.
inline Words joined(Words first, const Words& then) {
  const auto key = [](const std::string& word) { return word.substr(0, word.find('=')); };
  std::erase_if(first, [&](const std::string& word) {
    return word.find('=') != std::string::npos &&
           std::any_of(then.begin(), then.end(),
                       [&](const std::string& other) { return key(other) == key(word); });
  });
  first.insert(first.end(), then.begin(), then.end());
  return first;
}
inline const Words kSmall = {"train.dtype=f32", "train.micro_batch=4", "train.grad_accum=2", "train.steps=4",
                             "model.heads=4",   "model.hidden=64",     "model.seq=32"};

/// Runs whose ranks share a small model.
class CliSharedE2e : public CliRanksE2e {
 protected:
  void train(const std::string& name, const Words& words) const {
    must_train(run_of(name, joined(kSmall, words)));
    for (const char* tier : {"device", "pinned", "nvme"})
      EXPECT_EQ(summary(name)["peak_bytes"][tier], summary(name)["planned_bytes"][tier]) << name << tier;
  }
  void expect_near(const std::string& name, const std::string& want, double tolerance = 1e-4) const {
    const auto got = metrics(name), one = metrics(want);
    ASSERT_EQ(got.size(), one.size());
    for (std::size_t i = 0; i < one.size(); ++i)
      EXPECT_NEAR(got[i]["loss"].get<double>(), one[i]["loss"].get<double>(), tolerance) << name << " " << i;
  }
};

}  // namespace strata::test
