// Calls that need no session, and those that are refused.
#include <cstdio>
#include <functional>
#include <vector>

#include "capi/failures/scenario.h"

namespace strata::test {
namespace {

struct Rows {
  int n = 0;
};
std::int32_t count_row(void* context, const strata_ds_row* row) {
  static_cast<Rows*>(context)->n += row->key != nullptr ? 1 : 0;
  return 0;
}

constexpr const char* kConfig =
    R"({"train_batch_size": 32, "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "betas": [0.9, 0.99]}},
        "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "nvme", "nvme_path": "/somewhere/else"}},
        "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 9}}, "a key that nobody knows": 1})";

}  // namespace

int run_without_sessions(const FailureAt& failure) {
  int problems = 0;
  // `expected` without a failure, and when the call is made again.
  const auto check = [&](const char* name, strata_status expected,
                         const std::function<strata_status()>& make) {
    for (int attempt = 0; attempt < 2; ++attempt) {
      strata_status status = STRATA_OK;
      {
        const CallScope scope;
        status = make();
      }
      if (status == expected) return;
      if (attempt == 0 && status == STRATA_OUT_OF_MEMORY && failure.kind != Failure::none &&
          *strata_last_error() != 0)
        continue;
      std::fprintf(stderr, "  %s: %s, not %s: '%s'\n", name, strata_status_name(status),
                   strata_status_name(expected), strata_last_error());
      ++problems;
    }
  };
  std::vector<float> param(1000, 1.0f), m(1000), v(1000), gradient(1000, 0.5f);
  const strata_arrays arrays{sizeof arrays, 1000,     STRATA_F32, STRATA_F32,     param.data(),
                             nullptr,       m.data(), v.data(),   gradient.data()};
  const strata_settings settings{sizeof settings, 0.01, 0.9, 0.999, 1e-8, 0.1, 0, 0, 0, 1};
  check("arrays_init", STRATA_OK, [&] { return strata_arrays_init(&arrays, STRATA_ADAMW); });
  check("arrays_update", STRATA_OK,
        [&] { return strata_arrays_update(&arrays, STRATA_ADAMW, &settings, 1); });
  check("arrays_update of step 0", STRATA_INVALID,
        [&] { return strata_arrays_update(&arrays, STRATA_ADAMW, &settings, 0); });
  check("ds_config_convert", STRATA_UNSUPPORTED, [&] {
    Rows rows;
    return strata_ds_config_convert(kConfig, count_row, &rows);
  });
  check("ds_config_convert of no JSON", STRATA_INVALID, [&] {
    Rows rows;
    return strata_ds_config_convert("{\"a\": [1, 2", count_row, &rows);
  });
  strata_session session = 0;
  strata_session_options options{};
  options.struct_size = sizeof options;
  options.optimizer = 77;
  options.threads = -1;
  check("create with wrong options", STRATA_INVALID,
        [&] { return strata_session_create(&options, &session); });
  check("close of no session", STRATA_CLOSED, [] { return strata_session_close(12345); });
  options.optimizer = STRATA_ADAMW;
  options.threads = 1;
  check("create", STRATA_OK, [&] { return strata_session_create(&options, &session); });
  check("step before sealing", STRATA_INVALID, [&] { return strata_session_step(session, nullptr, 0); });
  check("plan without parameters", STRATA_INVALID, [&] {
    strata_plan plan{};
    plan.struct_size = sizeof plan;
    return strata_session_plan(session, &plan);
  });
  check("close", STRATA_OK, [&] { return strata_session_close(session); });
  return problems;
}

}  // namespace strata::test
