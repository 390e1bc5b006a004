#include <strata/kernels/experts/router_losses.h>

#include <numeric>
#include <utility>

#include <gmock/gmock.h>

#include "support/op_test.h"
#include "support/reference/mixture.h"

namespace strata::kernels {
namespace {

using test::Tensor;
using test::Values;
using test::reference::Vec;

/// The logits of a few layers and how often their experts are chosen.
struct LossProblem {
  const char* name;
  std::int64_t layers, tokens, experts;
  std::vector<std::vector<float>> logits = make_logits();
  std::vector<std::vector<std::int32_t>> offsets = make_offsets();

  std::vector<std::vector<float>> make_logits() const {
    std::vector<std::vector<float>> all;
    for (std::int64_t layer = 0; layer < layers; ++layer)
      all.push_back(Values(static_cast<std::uint64_t>(layer) + 1).floats(tokens * experts, 4.0));
    return all;
  }
  std::vector<std::vector<std::int32_t>> make_offsets() const {
    std::vector<std::vector<std::int32_t>> all;
    for (std::int64_t layer = 0; layer < layers; ++layer) {
      std::vector<std::int32_t> of(static_cast<std::size_t>(experts) + 1, 0);
      for (const std::int32_t e : Values(static_cast<std::uint64_t>(layer) + 9).below(2 * tokens, experts))
        ++of[static_cast<std::size_t>(e) + 1];
      std::partial_sum(of.begin(), of.end(), of.begin());
      all.push_back(of);
    }
    return all;
  }
  std::int64_t rows() const { return layers * tokens; }
  std::int64_t n_sums() const { return 2 * experts + 1; }

  Tensor sums(int threads = 2) {
    Tensor sums({n_sums()}, std::vector<float>(static_cast<std::size_t>(n_sums())));
    test::Workspace space{router_sums_workspace_bytes(tokens, experts)};
    for (std::size_t layer = 0; layer < logits.size(); ++layer) {
      Tensor l({tokens, experts}, logits[layer]), next = Tensor::unwritten({n_sums()});
      router_sums_host({l.view(), test::view(offsets[layer]), layer > 0 ? sums.view() : TensorView{},
                        next.view(), space.view()},
                       *test::pool(threads));
      sums = next;
    }
    return sums;
  }
  std::vector<float> losses() {
    Tensor all = sums(), zero = Tensor::unwritten({1}), losses = Tensor::unwritten({2});
    router_losses_host({all.view(), zero.view(), losses.view(), rows()}, *test::pool());
    EXPECT_EQ(zero.values(), std::vector<float>{0.0f});
    return losses.values();
  }
  /// The losses in f64 of these logits.
  Vec reference_losses(const std::vector<Vec>& of) const {
    Vec sums(static_cast<std::size_t>(n_sums()));
    for (std::size_t layer = 0; layer < of.size(); ++layer)
      sums = test::reference::add(
          sums, test::reference::router_sums(of[layer], Vec(offsets[layer].begin(), offsets[layer].end()),
                                             static_cast<std::size_t>(experts)));
    return test::reference::router_losses(sums, static_cast<double>(rows()));
  }
  std::vector<Vec> wide_logits() const {
    std::vector<Vec> all;
    for (const std::vector<float>& layer : logits) all.push_back(test::widen(layer));
    return all;
  }
};
void PrintTo(const LossProblem& p, std::ostream* out) { *out << p.name; }

class RouterLossesTest : public ::testing::TestWithParam<LossProblem> {};

TEST_P(RouterLossesTest, FollowTheF64Reference) {
  LossProblem p = GetParam();
  EXPECT_LE(test::relative_error(p.losses(), p.reference_losses(p.wide_logits())), 2e-6);
}

TEST_P(RouterLossesTest, SumsHaveTheSameBitsOnAnyNumberOfThreads) {
  LossProblem p = GetParam();
  EXPECT_EQ(test::differing_bits(p.sums(3).values(), p.sums(1).values()), 0u);
}

// The counts are constants, and the gradient of each layer depends on those of all layers.
TEST_P(RouterLossesTest, TheGradientIsThatOfBothLossesTimesTheFactor) {
  LossProblem p = GetParam();
  constexpr float kAux = 0.5f, kZ = 0.25f, kFactor = 4.0f;
  Tensor sums = p.sums(), factor({1}, {kFactor}), dsums = Tensor::unwritten({p.n_sums()});
  router_losses_backward_host({sums.view(), factor.view(), dsums.view(), p.rows(), kAux, kZ}, *test::pool());
  for (std::size_t layer = 0; layer < p.logits.size(); ++layer) {
    Tensor l({p.tokens, p.experts}, p.logits[layer]), got = Tensor::unwritten({p.tokens, p.experts});
    router_sums_backward_host({l.view(), dsums.view(), got.view()}, *test::pool());
    std::vector<Vec> logits = p.wide_logits();
    std::vector<float> some;
    Vec want;
    for (std::size_t i = 0; i < p.logits[layer].size(); i += 7) {
      some.push_back(got.values()[i]);
      want.push_back(test::reference::slope(
          [&](double x) {
            const double at = std::exchange(logits[layer][i], x);
            const Vec losses = p.reference_losses(logits);
            logits[layer][i] = at;
            return static_cast<double>(kFactor) *
                   (static_cast<double>(kAux) * losses[0] + static_cast<double>(kZ) * losses[1]);
          },
          logits[layer][i]));
    }
    EXPECT_LE(test::relative_error(some, want), 2e-5);
  }
}

TEST_P(RouterLossesTest, ASixteenBitGradientIsTheF32GradientRoundedOnce) {
  const LossProblem& p = GetParam();
  Tensor l({p.tokens, p.experts}, p.logits[0]), dsums({p.n_sums()}, Values(3).floats(p.n_sums())),
      wide = Tensor::unwritten({p.tokens, p.experts});
  router_sums_backward_host({l.view(), dsums.view(), wide.view()}, *test::pool());
  for (const DType dtype : {DType::bf16, DType::f16}) {
    Tensor got = Tensor::unwritten({p.tokens, p.experts}, dtype);
    router_sums_backward_host({l.view(), dsums.view(), got.view()}, *test::pool());
    EXPECT_EQ(
        test::differing_bits(got.values(), Tensor({p.tokens, p.experts}, wide.values(), dtype).values()), 0u);
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, RouterLossesTest,
                         ::testing::ValuesIn(std::vector<LossProblem>{
                             {"two_layers", 2, 70, 8}, {"one", 1, 5, 1}, {"odd", 3, 130, 33}}),
                         [](const auto& each) { return std::string(each.param.name); });

TEST(RouterLossesCheckTest, WrongShapesAreRefusedWithBothNumbers) {
  test::InlineBackend backend;
  Stream stream = must(backend.create_stream(StreamRole::compute));
  Tensor l({5, 4}, std::vector<float>(20)), sums({9}, std::vector<float>(9)),
      other({7}, std::vector<float>(7)), two({2}, std::vector<float>(2)), one({1}, std::vector<float>(1));
  std::vector<std::int32_t> offsets(5);
  test::Workspace space{router_sums_workspace_bytes(5, 4)};
  EXPECT_THAT(std::string(router_sums_async(backend, stream,
                                            {l.view(), test::view(offsets), {}, other.view(), space.view()})
                              .message()),
              testing::HasSubstr("sums is f32 [7]; it must be f32 with 9 elements"));
  EXPECT_THAT(
      std::string(router_sums_async(backend, stream,
                                    {l.view(), test::view(offsets), {}, sums.view(), {space.view().data, 8}})
                      .message()),
      testing::HasSubstr("workspace has 8 bytes; it needs "));
  EXPECT_THAT(
      std::string(router_losses_async(backend, stream, {sums.view(), one.view(), two.view(), 0}).message()),
      testing::HasSubstr("there are 0 rows of logits"));
}

}  // namespace
}  // namespace strata::kernels
