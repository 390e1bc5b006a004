#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include <strata/ds_config/ds_config.h>
#include <strata/runtime/str.h>

namespace strata::test {

/// The findings of a document, which must be one.
inline std::vector<DsFinding> findings_of(std::string_view json) {
  auto findings = convert_ds_config(json);
  EXPECT_TRUE(findings.has_value()) << findings.status().message() << "\n" << json;
  return findings.has_value() ? *std::move(findings) : std::vector<DsFinding>();
}

/// "taken train.zero=3", without the reason.
inline std::string text_of(const DsFinding& one) {
  return str(to_string(one.verdict), one.strata_value.empty() ? "" : " ",
             one.strata_value.empty() ? "" : str(one.strata_key, "=", one.strata_value));
}

/// The findings of one key, separated by ", ".
inline std::string verdict_of(std::string_view json, std::string_view key) {
  std::string all;
  for (const DsFinding& one : findings_of(json))
    if (one.key == key) all += str(all.empty() ? "" : ", ", text_of(one));
  return all;
}
inline std::string reason_of(std::string_view json, std::string_view key) {
  for (const DsFinding& one : findings_of(json))
    if (one.key == key) return one.reason;
  return {};
}

}  // namespace strata::test
