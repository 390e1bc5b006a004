#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <memory>
#include <vector>

#include <strata/simd/norm.h>
#include <strata/cpuopt/update.h>
#include <strata/offload/nvme_store.h>
#include <strata/offload/placement_planner.h>
#include <strata/runtime/backend/host_backend.h>
#include <strata/runtime/convert.h>
#include <strata/session/state_planning.h>
#include <strata/session/trainer_session.h>

#include "support/fault_io.h"
#include "support/temp_dir.h"

namespace strata::test {

inline const std::vector<TrainerParam> kParams = {{"embedding", Shape{700, 16}, DType::f32},
                                                  {"half", Shape{129, 65}, DType::bf16},
                                                  {"scale", Shape{16}, DType::f32},
                                                  {"head", Shape{90000}, DType::f32},
                                                  {"small_half", Shape{3}, DType::f16}};

inline float gradient_value(std::int64_t step, std::size_t param, std::int64_t i) {
  return static_cast<float>((step * 7 + static_cast<std::int64_t>(param) * 5 + i * 3) % 23 - 11) / 64;
}

/// Memory of a trainer: parameters, gradients of one dtype, and settings by parameter.
struct Trainer {
  std::vector<std::vector<std::byte>> values, gradients;
  std::vector<DType> gradient_dtypes;
  std::vector<cpuopt::OptimizerParams> settings;

  explicit Trainer(cpuopt::OptimizerParams common) {
    for (std::size_t p = 0; p < kParams.size(); ++p) {
      std::vector<float> initial(elems(p));
      for (std::size_t i = 0; i < initial.size(); ++i)
        initial[i] = static_cast<float>((p * 31 + i) % 17) / 16 - 0.4f;
      values.push_back(narrowed(initial, kParams[p].dtype));
      gradient_dtypes.push_back(p == 3 ? DType::bf16 : kParams[p].dtype);
      common.lr = p % 2 == 0 ? 1e-2 : 3e-3;
      common.weight_decay = p == 2 ? 0 : 0.1;
      common.beta1 = p == 0 ? 0.8 : 0.9;
      settings.push_back(common);
    }
    gradients.resize(kParams.size());
  }
  static std::size_t elems(std::size_t p) { return static_cast<std::size_t>(kParams[p].shape.n_elems()); }
  static std::vector<std::byte> narrowed(const std::vector<float>& from, DType dtype) {
    std::vector<std::byte> bytes(from.size() * size_of(dtype));
    if (dtype == DType::f32)
      std::memcpy(bytes.data(), from.data(), bytes.size());
    else
      must(narrow_from_f32(from, dtype, bytes));
    return bytes;
  }
  // Step 2 has no gradient of two parameters.
  static bool has_gradient(std::int64_t step, std::size_t p) { return step != 2 || (p != 0 && p != 4); }

  std::vector<ParamUpdate> backward(std::int64_t step) {
    std::vector<ParamUpdate> updates;
    for (std::size_t p = kParams.size(); p-- > 0;) {
      if (!has_gradient(step, p)) continue;
      std::vector<float> gradient(elems(p));
      for (std::size_t i = 0; i < gradient.size(); ++i)
        gradient[i] = gradient_value(step, p, static_cast<std::int64_t>(i));
      gradients[p] = narrowed(gradient, gradient_dtypes[p]);
      settings[p].grad_factor = step == 3 ? 0.5 : 1;
      updates.push_back({static_cast<std::int32_t>(p), values[p].data(), gradients[p].data(),
                         gradient_dtypes[p], settings[p]});
    }
    return updates;
  }
  std::vector<void*> addresses() {
    std::vector<void*> all;
    for (auto& of : values) all.push_back(of.data());
    return all;
  }
};

/// The same with states in plain arrays.
class Reference {
 public:
  Reference(Trainer& trainer, StateFormat format) : trainer_(trainer), format_(format) {
    for (std::size_t p = 0; p < kParams.size(); ++p) {
      const std::size_t padded = (Trainer::elems(p) + 4095) / 4096 * 4096;
      m_.emplace_back(moment_bytes(format, static_cast<std::int64_t>(padded)));
      v_.emplace_back(m_.back().size());
      masters_.emplace_back(padded * sizeof(float));
      if (kParams[p].dtype == DType::f16) {
        std::vector<float> wide(Trainer::elems(p));
        must(widen_to_f32(DType::f16, trainer.values[p], wide));
        std::memcpy(masters_[p].data(), wide.data(), wide.size() * sizeof(float));
      }
    }
  }
  void step(std::int64_t step) {
    for (const ParamUpdate& update : trainer_.backward(step)) {
      const auto p = static_cast<std::size_t>(update.param);
      cpuopt::OptimizerParams settings = update.settings;
      settings.step = ++steps_[p];
      const auto n = static_cast<std::int64_t>(Trainer::elems(p));
      const std::int64_t padded = (n + 4095) / 4096 * 4096;
      cpuopt::UpdateBlock block;
      block.layout = cpuopt::master_layout(kParams[p].dtype);
      block.states = format_;
      block.grad = update.gradient_dtype;
      block.param = update.values;
      block.master = masters_[p].data();
      block.m = cpuopt::moment_at(format_, m_[p].data(), padded);
      block.v = cpuopt::moment_at(format_, v_[p].data(), padded);
      block.g = update.gradient;
      const cpuopt::UpdateStep constants = cpuopt::make_update_step(settings);
      const auto noise = cpuopt::rounding_noise(5, p, step, 0);
      if (settings.optimizer != cpuopt::Optimizer::lamb) {
        cpuopt::update_block(constants, block, n, noise);
        continue;
      }
      std::vector<double> masters(static_cast<std::size_t>(simd::norm_partial_count(n))), directions(masters);
      cpuopt::lamb_moments_block(constants, block, n, noise, masters.data(), directions.data());
      cpuopt::lamb_apply_block(
          constants, cpuopt::lamb_trust_ratio(simd::tree_sum(masters), simd::tree_sum(directions)), block, n);
    }
  }

 private:
  Trainer& trainer_;
  const StateFormat format_;
  std::vector<std::vector<std::byte>> m_, v_, masters_;
  std::map<std::size_t, std::int64_t> steps_;
};

class TrainerSessionTest : public ::testing::Test {
 protected:
  SessionOptions options(cpuopt::Optimizer optimizer = cpuopt::Optimizer::adamw) const {
    SessionOptions options;
    options.optimizer.optimizer = optimizer;
    options.chunk_elems = 16384;
    options.rounding_seed = 5;
    options.nvme.dirs = {dir_.path()};
    options.nvme.engine = IoEngine::threads;
    return options;
  }
  /// The budgets in which the working window has room, and no home.
  static TierBytes least_budgets(const SessionOptions& options, TrainerHolds holds = TrainerHolds::states) {
    const auto plan = must(plan_trainer_states(kParams, options, holds));
    return minimum_budgets(plan->layout, plan->trace, {.budgets = {0, 4096, kUnlimited}, .prefetch = 2});
  }
  SessionEnvironment environment() {
    SessionEnvironment environment{*backend_, *pool_, clock_};
    environment.open_store = [this](const NvmeOptions& nvme) -> Result<StorePtr<ObjectStore>> {
      if (nvme.classes.empty()) return StorePtr<ObjectStore>();
      return StorePtr<ObjectStore>(must(NvmeStore::create(io_, nvme)));
    };
    return environment;
  }
  static std::string refusal(const std::vector<TrainerParam>& params, const SessionOptions& options) {
    const auto plan = plan_trainer_states(params, options);
    return plan.has_value() ? "" : std::string(plan.status().message());
  }

  TempDir dir_;
  SteadyClock clock_;
  FaultIo io_{posix_io(), 1};
  std::unique_ptr<ThreadPool> pool_ = must(ThreadPool::create(2));
  std::unique_ptr<Backend> backend_ =
      must(create_host_backend({.schedule = StreamSchedule::latest_legal, .check = true}, *pool_, clock_));
};

}  // namespace strata::test
