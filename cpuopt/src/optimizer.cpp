#include <strata/cpuopt/optimizer.h>
#include <strata/cpuopt/optimizer_facts.h>

#include <array>
#include <cmath>

#include <strata/runtime/rng.h>
#include <strata/runtime/str.h>

namespace strata::cpuopt {
namespace {

template <class... R>
constexpr std::array<OptimizerFacts, sizeof...(R)> facts_in(RuleList<R...>) {
  return {R::kFacts...};
}
constexpr std::array kFacts = facts_in(OptimizerRules());
constexpr std::array kAll = [] {
  std::array<Optimizer, kFacts.size()> all{};
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = kFacts[i].optimizer;
  return all;
}();
static_assert(
    [] {
      for (std::size_t i = 0; i < kAll.size(); ++i)
        if (static_cast<std::size_t>(kAll[i]) != i) return false;
      return kAll.back() == Optimizer::sgd;
    }(),
    "OptimizerRules has the rule of every optimizer, in the order of the enumeration, whose last one is sgd");

/// base^n by squaring: about log2(n) roundings, in an order that depends on n alone.
double power(double base, std::int64_t n) noexcept {
  double out = 1.0;
  for (; n > 0; n >>= 1, base *= base)
    if ((n & 1) != 0) out *= base;
  return out;
}

}  // namespace

const OptimizerFacts& facts_of(Optimizer optimizer) noexcept {
  return kFacts[static_cast<std::size_t>(optimizer)];
}
std::span<const Optimizer> all_optimizers() noexcept { return kAll; }
std::string_view to_string(Optimizer optimizer) noexcept { return facts_of(optimizer).name; }

Result<Optimizer> optimizer_named(std::string_view name) {
  std::string known;
  for (const OptimizerFacts& f : kFacts) {
    if (f.name == name) return f.optimizer;
    known += str(known.empty() ? "" : ", ", f.name);
  }
  return Status::error(Code::invalid, str("unknown optimizer '", name, "'; choose one of ", known));
}

Status validate(const OptimizerParams& p) {
  const OptimizerFacts& f = facts_of(p.optimizer);
  const auto bad = [&](const char* name, auto value, const char* takes) {
    return Status::error(Code::invalid, str(f.name, ": ", name, " is ", value, "; it must be ", takes));
  };
  // Checked in f32, as the step uses them: a decay that rounds to 1 is invalid. An eps of 0 is PyTorch's,
  // too.
  const auto decays = [](double x) { return x >= 0.0 && static_cast<float>(x) < 1.0f; };
  if (p.step < 1) return bad("step", p.step, "at least 1");
  if (f.betas && !decays(p.beta1)) return bad("beta1", p.beta1, "in [0, 1)");
  if (f.betas && !decays(p.beta2)) return bad("beta2", p.beta2, "in [0, 1)");
  if (f.eps && !(p.eps >= 0.0 && std::isfinite(p.eps)))
    return bad("eps", p.eps, "a finite number, 0 or more");
  if (f.momentum) {
    if (!decays(p.momentum)) return bad("momentum", p.momentum, "in [0, 1)");
    if (p.nesterov && p.momentum == 0.0) return bad("nesterov", "true", "false, or momentum must be above 0");
  }
  if (!decays(p.ema_decay)) return bad("ema_decay", p.ema_decay, "in [0, 1)");
  if (!std::isfinite(p.lr)) return bad("lr", p.lr, "a finite number");
  if (!std::isfinite(p.weight_decay)) return bad("weight_decay", p.weight_decay, "a finite number");
  if (!std::isfinite(p.grad_factor)) return bad("grad_factor", p.grad_factor, "a finite number");
  return Status::ok();
}

MomentSet moments_of(Optimizer optimizer, bool momentum) noexcept {
  const OptimizerFacts& f = facts_of(optimizer);
  return {f.moments.first || (f.momentum && momentum), f.moments.second};
}
MomentSet moments_of(const OptimizerParams& p) noexcept { return moments_of(p.optimizer, p.momentum > 0); }

UpdateScalars<float> update_scalars(const OptimizerParams& p) noexcept {
  const OptimizerFacts& f = facts_of(p.optimizer);
  const double bias1 = f.betas ? 1.0 - power(p.beta1, p.step) : 1.0;
  const double bias2 = f.betas ? 1.0 - power(p.beta2, p.step) : 1.0;
  return {.grad_factor = static_cast<float>(p.grad_factor),
          .momentum = static_cast<float>(p.momentum),
          .one_minus_beta1 = static_cast<float>(1.0 - p.beta1),
          .one_minus_beta2 = static_cast<float>(1.0 - p.beta2),
          .eps = static_cast<float>(p.eps),
          .weight_decay = static_cast<float>(p.weight_decay),
          .decay = static_cast<float>(p.lr * p.weight_decay),
          .step_size = static_cast<float>(p.lr),
          .corrected_step_size = static_cast<float>(p.lr / bias1),
          .inv_bias1 = static_cast<float>(1.0 / bias1),
          .inv_sqrt_bias2 = static_cast<float>(1.0 / std::sqrt(bias2))};
}

RoundingNoise rounding_noise(std::uint64_t seed, std::uint64_t tensor, std::int64_t step,
                             std::int64_t index) noexcept {
  const auto low = [](std::uint64_t x) { return static_cast<std::uint32_t>(x); };
  const auto part = static_cast<std::uint64_t>(index) >> 32;  // not 0 if the tensor has over 2^32 elements
  const auto words =
      philox({low(tensor), low(tensor >> 32) ^ low(part), low(static_cast<std::uint64_t>(step)),
              low(static_cast<std::uint64_t>(step) >> 32)},
             {low(seed), low(seed >> 32)});
  return {words[0], words[1]};
}

}  // namespace strata::cpuopt
