#pragma once

#include <string>
#include <vector>

#include <strata/simd/norm.h>
#include <strata/cpuopt/optimizer_facts.h>
#include <strata/cpuopt/update.h>
#include <strata/runtime/convert.h>
#include <strata/runtime/str.h>

#include "support/numeric.h"

namespace strata::cpuopt::test {

using namespace strata::test;

/// Every optimizer, and the variants of those with momentum.
inline std::vector<OptimizerParams> every_optimizer() {
  std::vector<OptimizerParams> all;
  for (const Optimizer optimizer : all_optimizers()) {
    OptimizerParams params{
        .optimizer = optimizer, .lr = 3e-3, .eps = 1e-8, .weight_decay = 0.1, .grad_factor = 0.37};
    all.push_back(params);
    if (!facts_of(optimizer).momentum) continue;
    params.momentum = 0.9;
    all.push_back(params);
    params.nesterov = true;
    all.push_back(params);
  }
  return all;
}
inline std::string name_of(const OptimizerParams& p) {
  return str(to_string(p.optimizer), p.momentum > 0 ? "_momentum" : "", p.nesterov ? "_nesterov" : "");
}

/// A tensor with its optimizer states in one layout and format, `skew` elements after an aligned address.
class StoredTensor {
 public:
  StoredTensor(const OptimizerParams& params, MasterLayout layout, StateFormat states,
               std::span<const float> masters, std::size_t skew = 0)
      : params_(params), layout_(layout), states_(states), n_(std::ssize(masters)), skew_(skew) {
    const std::size_t n = masters.size() + skew;
    param_.resize(n * param_bytes(layout) + kLine);
    master_.resize(n * master_bytes(layout));
    const MomentSet moments = moments_of(params);
    const std::int64_t blocks = (n_ + kMomentBlock - 1) / kMomentBlock;
    for (auto& [kind, on] : {std::pair{&m_, moments.first}, std::pair{&v_, moments.second}})
      if (on) {
        kind->values.resize(n * moment_value_bytes(states));
        if (states == StateFormat::int8) kind->scales.resize(static_cast<std::size_t>(blocks));
      }
    split_masters(masters, layout, block().param, block().master);
  }

  UpdateBlock block() {
    UpdateBlock b{.layout = layout_, .states = states_};
    // Without skew, aligned to a cache line, so that kernels may use non-temporal stores; otherwise not.
    const std::size_t past = reinterpret_cast<std::uintptr_t>(param_.data()) % kLine;
    b.param = param_.data() + (kLine - past) % kLine + skew_ * param_bytes(layout_);
    b.master = master_.data() + skew_ * master_bytes(layout_);
    const auto moment = [&](Stored& stored) {
      return Moment{
          stored.values.empty() ? nullptr : stored.values.data() + skew_ * moment_value_bytes(states_),
          stored.scales.empty() ? nullptr : stored.scales.data()};
    };
    b.m = moment(m_);
    b.v = moment(v_);
    return b;
  }

  /// Runs only lamb's first pass.
  void lamb_moments(std::int64_t step, std::span<const float> g) {
    OptimizerParams params = params_;
    params.step = step;
    UpdateBlock whole = block();
    whole.g = g.data();
    std::vector<double> masters(static_cast<std::size_t>(norm_partial_count(n_))), directions(masters.size());
    lamb_moments_block(make_update_step(params), whole, n_, {}, masters.data(), directions.data());
  }
  /// Runs one step in parts of `part` elements (a multiple of 4096), with gradients of dtype `grad`.
  void step(std::int64_t step, std::span<const float> g, DType grad, std::int64_t part) {
    std::vector<std::byte> raw(g.size() * size_of(grad) + skew_ * size_of(grad));
    const std::span<std::byte> raw_g = std::span(raw).subspan(skew_ * size_of(grad));
    must(narrow_from_f32(g, grad, raw_g));
    OptimizerParams params = params_;
    params.step = step;
    UpdateBlock whole = block();
    whole.grad = grad;
    whole.g = raw_g.data();
    step_parts(make_update_step(params), whole, part, rounding_noise(17, 3, step, 0));
  }

  std::vector<float> masters() {
    std::vector<float> out(static_cast<std::size_t>(n_));
    join_masters(layout_, block().param, block().master, out);
    return out;
  }
  /// The parameters that the model reads.
  std::vector<float> params() {
    std::vector<float> out(static_cast<std::size_t>(n_));
    const DType dtype = layout_ == MasterLayout::f32          ? DType::f32
                        : layout_ == MasterLayout::f16_shadow ? DType::f16
                                                              : DType::bf16;
    must(widen_to_f32(dtype, {static_cast<const std::byte*>(block().param), out.size() * size_of(dtype)},
                      out));
    return out;
  }
  std::vector<float> moment(MomentKind kind) {
    const Moment stored = kind == MomentKind::first ? block().m : block().v;
    if (stored.values == nullptr) return {};
    std::vector<float> out(static_cast<std::size_t>(n_));
    decode_moment(states_, kind, stored, out);
    return out;
  }
  /// Number of differing bits of masters, parameters and moments.
  std::size_t differing_bits_from(StoredTensor& other) {
    return differing_bits(masters(), other.masters()) + differing_bits(params(), other.params()) +
           differing_bits(moment(MomentKind::first), other.moment(MomentKind::first)) +
           differing_bits(moment(MomentKind::second), other.moment(MomentKind::second));
  }
  std::size_t state_bytes() const { return param_.size() - kLine + master_.size() + m_.bytes() + v_.bytes(); }

 private:
  static constexpr std::size_t kLine = 64;
  struct Stored {
    std::vector<std::byte> values;
    std::vector<float> scales;
    std::size_t bytes() const { return values.size() + scales.size() * sizeof(float); }
  };

  void step_parts(const UpdateStep& step, const UpdateBlock& whole, std::int64_t part, RoundingNoise noise) {
    const bool by_tensor = params_.optimizer == Optimizer::lamb;
    std::vector<double> masters(static_cast<std::size_t>(norm_partial_count(n_))), directions(masters.size());
    for (std::int64_t at = 0; at < n_; at += part) {
      const std::int64_t n = std::min(part, n_ - at);
      const std::int64_t partial = at / kNormPartialElems;
      if (by_tensor)
        lamb_moments_block(step, whole.at(at), n, noise, masters.data() + partial,
                           directions.data() + partial);
      else
        update_block(step, whole.at(at), n, noise);
    }
    if (!by_tensor) return;
    const float trust = lamb_trust_ratio(tree_sum(masters), tree_sum(directions));
    for (std::int64_t at = 0; at < n_; at += part)
      lamb_apply_block(step, trust, whole.at(at), std::min(part, n_ - at));
  }

  OptimizerParams params_;
  MasterLayout layout_;
  StateFormat states_;
  std::int64_t n_;
  std::size_t skew_;
  std::vector<std::byte> param_, master_;
  Stored m_, v_;
};

}  // namespace strata::cpuopt::test
