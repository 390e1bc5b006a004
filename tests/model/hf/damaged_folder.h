#pragma once

#include <functional>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <strata/model/hf/folder.h>
#include <strata/runtime/rng.h>
#include <strata/runtime/str.h>

#include "support/temp_dir.h"
#include "support/experts/tiny_experts.h"

namespace strata::test {

inline DecoderConfig config_in(std::string_view family) {
  DecoderConfig c = decoder_for_family(family).value();
  c.layers = 2;
  c.hidden = 24;
  c.heads = 4;
  const FamilyLimits limits = family_limits(family);
  c.kv_heads = limits.grouped_queries ? 2 : 4;
  c.head_dim = c.norm == DecoderConfig::Norm::rms ? 8 : 6;
  c.ffn = limits.ffn_factor > 0 ? limits.ffn_factor * c.hidden : 40;
  c.vocab = 31;
  c.positions = c.position == DecoderConfig::Position::alibi ? 0 : 64;
  set_tiny_experts(c);
  return c;
}

/// Fills a parameter with values that depend on its name, so that no two rows are equal.
inline Status values_named(std::string_view param, std::span<float> into) {
  const Rng rng(std::hash<std::string_view>{}(param), 1);
  for (std::size_t i = 0; i < into.size(); ++i) into[i] = rng.normal(i);
  return {};
}
/// A small exported folder in which one thing is changed.
class DamagedFolder : public ::testing::Test {
 protected:
  explicit DamagedFolder(std::string_view family = "llama") : config(config_in(family)) {
    must(export_hf(posix_io(), path, config, values_named, {}));
  }
  void edit_config(const std::function<void(nlohmann::json&)>& edit) {
    nlohmann::json j = nlohmann::json::parse(must(read_text(posix_io(), path + "/config.json", 1 << 20)));
    edit(j);
    must(write_text_atomically(posix_io(), path + "/config.json", j.dump()));
  }
  /// Rewrites the tensors for which `keep` returns true, with its changes, and adds `more`.
  void edit_tensors(const std::function<bool(TensorSpec&)>& keep, std::vector<TensorSpec> more = {}) {
    std::vector<TensorSpec> specs;
    for (const HfTensor& tensor : hf_tensors(config)) {
      TensorSpec spec{tensor.name, "F32", tensor.shape};
      if (keep(spec)) specs.push_back(spec);
    }
    specs.insert(specs.end(), more.begin(), more.end());
    must(posix_io().remove_all(path + "/model.safetensors"));
    const auto writer = must(SafetensorsWriter::create(posix_io(), path + "/model.safetensors", specs));
    for (const TensorSpec& spec : specs) {
      std::size_t bytes = spec.dtype == "F32" || spec.dtype == "I32" ? 4 : 2;
      for (const std::uint64_t extent : spec.shape) bytes *= extent;
      must(writer->append(std::vector<std::byte>(bytes)));
    }
    must(writer->finish());
  }
  void expect_refused(Code code, std::initializer_list<std::string_view> parts) const {
    const Status status = HfFolder::open(posix_io(), path).status();
    EXPECT_EQ(status.code(), code) << status.message();
    for (const std::string_view part : parts)
      EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr(std::string(part)));
  }
  const TempDir dir;
  const DecoderConfig config;
  const std::string path = dir.file("model");
};

}  // namespace strata::test
