#include <gtest/gtest.h>

#include "optimizer_cases.h"

// Compares a hundred steps of every optimizer with its formula in double precision.
namespace strata::cpuopt::test {
namespace {

constexpr std::int64_t kOracleElems = 1021;

struct Oracle {
  std::vector<double> p, m, v;
};

double norm(const std::vector<double>& x) {
  double sum = 0;
  for (const double value : x) sum += value * value;
  return std::sqrt(sum);
}

// The formulas of the papers (which math/rules.h cites), over the whole tensor.
void step(const OptimizerParams& o, const std::vector<float>& gradient, Oracle& s) {
  const double t = static_cast<double>(o.step);
  std::vector<double> direction(s.p.size());
  for (std::size_t i = 0; i < s.p.size(); ++i) {
    double g = static_cast<double>(gradient[i]) * o.grad_factor;
    double &p = s.p[i], &m = s.m[i], &v = s.v[i];
    const auto adam = [&](double grad) {
      m = o.beta1 * m + (1 - o.beta1) * grad;
      v = o.beta2 * v + (1 - o.beta2) * grad * grad;
      return (m / (1 - std::pow(o.beta1, t))) / (std::sqrt(v / (1 - std::pow(o.beta2, t))) + o.eps);
    };
    switch (o.optimizer) {
      case Optimizer::adamw:
        p = p - o.lr * o.weight_decay * p - o.lr * adam(g);
        break;
      case Optimizer::adam:
        p -= o.lr * adam(g + o.weight_decay * p);
        break;
      case Optimizer::lion: {
        const double c = o.beta1 * m + (1 - o.beta1) * g;
        m = o.beta2 * m + (1 - o.beta2) * g;
        p -= o.lr * ((c > 0) - (c < 0) + o.weight_decay * p);
        break;
      }
      case Optimizer::lamb:
        direction[i] = adam(g) + o.weight_decay * p;
        break;
      case Optimizer::adagrad:
        g += o.weight_decay * p;
        v += g * g;
        p -= o.lr * g / (std::sqrt(v) + o.eps);
        break;
      case Optimizer::sgd:
        g += o.weight_decay * p;
        m = o.momentum * m + g;
        p -= o.lr * (o.nesterov ? g + o.momentum * m : o.momentum > 0 ? m : g);
        break;
    }
  }
  if (o.optimizer != Optimizer::lamb) return;
  const double trust = norm(s.p) / norm(direction);
  for (std::size_t i = 0; i < s.p.size(); ++i) s.p[i] -= o.lr * trust * direction[i];
}

class OptimizerOracle : public ::testing::TestWithParam<OptimizerParams> {};

TEST_P(OptimizerOracle, AHundredStepsStayWithinRounding) {
  OptimizerParams params = GetParam();
  const std::vector<float> start = Values(1).floats(kOracleElems);
  StoredTensor tensor(params, MasterLayout::f32, StateFormat::fp32, start);
  Oracle oracle{widen(start), std::vector<double>(kOracleElems), std::vector<double>(kOracleElems)};
  for (params.step = 1; params.step <= 100; ++params.step) {
    const std::vector<float> g =
        Values(100 + static_cast<std::uint64_t>(params.step)).floats(kOracleElems, 0.1);
    step(params, g, oracle);
    tensor.step(params.step, g, DType::f32, kOracleElems);
  }
  EXPECT_LE(relative_error(tensor.masters(), oracle.p), 1e-6);
  const MomentSet moments = moments_of(params);
  if (moments.first) {
    EXPECT_LE(relative_error(tensor.moment(MomentKind::first), oracle.m), 1e-6);
  }
  if (moments.second) {
    EXPECT_LE(relative_error(tensor.moment(MomentKind::second), oracle.v), 1e-6);
  }
  EXPECT_GT(relative_error(start, oracle.p), 1e-3) << "nothing moved";
}

INSTANTIATE_TEST_SUITE_P(All, OptimizerOracle, ::testing::ValuesIn(every_optimizer()),
                         [](const auto& test) { return name_of(test.param); });

// The identity of a run has the settings that the facts name: one that is missing there could change on
// resume.
TEST(OptimizerFactsTest, AStepDependsOnExactlyTheHyperParametersThatTheFactsName) {
  const auto after = [](const OptimizerParams& params) {
    StoredTensor tensor(params, MasterLayout::f32, StateFormat::fp32, Values(1).floats(kOracleElems));
    for (const std::int64_t step : {1, 2, 3})
      tensor.step(step, Values(100 + static_cast<std::uint64_t>(step)).floats(kOracleElems, 0.1), DType::f32,
                  kOracleElems);
    return tensor.masters();
  };
  for (const Optimizer optimizer : all_optimizers()) {
    const OptimizerFacts& facts = facts_of(optimizer);
    const OptimizerParams plain{.optimizer = optimizer, .weight_decay = 0.1};
    const auto depends = [&](auto change) {
      OptimizerParams changed = plain;
      change(changed);
      return after(changed) != after(plain);
    };
    EXPECT_EQ(depends([](OptimizerParams& p) { p.beta1 = 0.5; }), facts.betas) << facts.name;
    EXPECT_EQ(depends([](OptimizerParams& p) { p.beta2 = 0.5; }), facts.betas) << facts.name;
    EXPECT_EQ(depends([](OptimizerParams& p) { p.eps = 0.1; }), facts.eps) << facts.name;
    EXPECT_EQ(depends([](OptimizerParams& p) { p.momentum = 0.5; }), facts.momentum) << facts.name;
  }
}

TEST(LambTest, TheTrustRatioIsOneIfANormIsZero) {
  EXPECT_EQ(lamb_trust_ratio(0.0, 4.0), 1.0f);
  EXPECT_EQ(lamb_trust_ratio(4.0, 0.0), 1.0f);
  EXPECT_EQ(lamb_trust_ratio(9.0, 4.0), 1.5f);
}

TEST(OptimizerParamsTest, OutOfRangeParametersAreRefusedByNameIfTheOptimizerReadsThem) {
  const auto message = [](OptimizerParams params, auto change) {
    change(params);
    return std::string(validate(params).message());
  };
  const OptimizerParams adamw{}, sgd{.optimizer = Optimizer::sgd}, lion{.optimizer = Optimizer::lion};
  EXPECT_NE(message(adamw, [](auto& p) { p.step = 0; }).find("adamw: step is 0"), std::string::npos);
  EXPECT_NE(message(adamw, [](auto& p) { p.beta1 = 1.0; }).find("beta1 is 1"), std::string::npos);
  EXPECT_NE(message(lion, [](auto& p) { p.beta2 = -0.5; }).find("lion: beta2 is -0.5"), std::string::npos);
  EXPECT_NE(message(adamw, [](auto& p) { p.eps = -1.0; }).find("eps is -1"), std::string::npos);
  EXPECT_NE(message(sgd, [](auto& p) { p.momentum = 1.5; }).find("sgd: momentum is 1.5"), std::string::npos);
  EXPECT_NE(message(sgd, [](auto& p) { p.nesterov = true; }).find("nesterov"), std::string::npos);
  EXPECT_NE(message(sgd, [](auto& p) { p.lr = std::nan(""); }).find("lr is nan"), std::string::npos);
  EXPECT_TRUE(validate({.optimizer = Optimizer::sgd, .beta1 = 7, .eps = -1}).is_ok()) << "sgd reads neither";
  EXPECT_TRUE(validate({.optimizer = Optimizer::adamw, .eps = 0}).is_ok()) << "as in PyTorch";
}

TEST(OptimizerParamsTest, AnUnknownOptimizerIsRefusedWithTheKnownNames) {
  const Status status = optimizer_named("adamax").status();
  EXPECT_EQ(status.code(), Code::invalid);
  EXPECT_NE(status.message().find("'adamax'"), std::string::npos);
  for (const Optimizer optimizer : all_optimizers()) {
    EXPECT_NE(status.message().find(to_string(optimizer)), std::string::npos);
    EXPECT_EQ(must(optimizer_named(to_string(optimizer))), optimizer);
  }
}

}  // namespace
}  // namespace strata::cpuopt::test
