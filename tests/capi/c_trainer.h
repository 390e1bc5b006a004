#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include <strata.h>

namespace strata::test {

/// A trainer in the manner of C: parameters, gradients and the structs of the interface.
struct CTrainer {
  static constexpr std::int64_t kElems = 5003;
  struct Param {
    std::string name;
    strata_dtype dtype;
    std::vector<std::uint32_t> values, gradient;  // more than enough bytes for each dtype
  };
  std::vector<Param> params;
  strata_settings settings{sizeof(strata_settings), 0.01, 0.9, 0.999, 1e-8, 0.1, 0, 0, 0, 1};
  strata_session session = 0;

  CTrainer() {
    for (const auto dtype : {STRATA_F32, STRATA_BF16, STRATA_F16}) {
      Param& param =
          params.emplace_back("param." + std::to_string(dtype), dtype, std::vector<std::uint32_t>(kElems),
                              std::vector<std::uint32_t>(kElems));
      // Any bits of these are small numbers in each of the dtypes.
      for (std::size_t i = 0; i < param.values.size(); ++i) {
        param.values[i] = 0x3c003c00u + static_cast<std::uint32_t>(i % 97) * 0x00010001u;
        param.gradient[i] = 0x38003800u + static_cast<std::uint32_t>(i % 31) * 0x00010001u;
      }
    }
  }
  ~CTrainer() {
    if (session != 0) (void)strata_session_close(session);
  }
  CTrainer(const CTrainer&) = delete;
  CTrainer& operator=(const CTrainer&) = delete;

  static strata_session_options default_options() {
    strata_session_options options{};
    options.struct_size = sizeof options;
    options.pinned_bytes = std::uint64_t{64} << 20;
    options.threads = 2;
    return options;
  }
  std::vector<void*> addresses() {
    std::vector<void*> all;
    for (Param& param : params) all.push_back(param.values.data());
    return all;
  }
  strata_status add(const Param& param) const {
    const std::int64_t dims[2] = {kElems, 1};
    const strata_param given{sizeof(strata_param), param.name.c_str(), param.dtype, 2, dims, 0, 0};
    return strata_session_add(session, &given);
  }
  void create(const strata_session_options& options = default_options()) {
    ASSERT_EQ(strata_session_create(&options, &session), STRATA_OK) << strata_last_error();
    for (const Param& param : params) ASSERT_EQ(add(param), STRATA_OK) << strata_last_error();
  }
  strata_status seal() {
    const std::vector<void*> all = addresses();
    return strata_session_seal(session, all.data(), all.size());
  }
  void start(const strata_session_options& options = default_options()) {
    create(options);
    ASSERT_EQ(seal(), STRATA_OK) << strata_last_error();
  }
  std::vector<strata_update> updates() {
    std::vector<strata_update> all;
    for (Param& param : params)
      all.push_back({sizeof(strata_update), static_cast<std::int64_t>(all.size()), param.values.data(),
                     param.gradient.data(), param.dtype, 0, &settings});
    return all;
  }
  strata_status step() {
    const std::vector<strata_update> all = updates();
    return strata_session_step(session, all.data(), all.size());
  }
  std::vector<std::vector<std::uint32_t>> values() const {
    std::vector<std::vector<std::uint32_t>> all;
    for (const Param& param : params) all.push_back(param.values);
    return all;
  }
};

}  // namespace strata::test
