#include <strata/kernels/mixers/latent_heads.h>

#include <gmock/gmock.h>

#include "attention/latent_rows.h"
#include "support/op_test.h"

namespace strata::kernels {
namespace {

using test::Tensor;
using ::testing::HasSubstr;

class LatentHeadsTest : public ::testing::TestWithParam<LatentHeads> {
 protected:
  static constexpr std::int64_t kRows = 37;
  const LatentHeads h = GetParam();
  static std::vector<float> numbers(std::int64_t n, float first) {
    std::vector<float> values(static_cast<std::size_t>(n));
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = first + static_cast<float>(i % 1021) / 8;
    return values;
  }
};

// What each element of the result is, written as one thinks of it.
TEST_P(LatentHeadsTest, HeadsHaveWhatTurnsFirstAndValuesArePadded) {
  Tensor q({kRows, h.q_width()}, numbers(kRows * h.q_width(), 1)),
      kv({kRows, h.kv_width()}, numbers(kRows * h.kv_width(), 200)),
      key({kRows, h.rotated}, numbers(kRows * h.rotated, -300)),
      qkv = Tensor::unwritten({kRows, 3 * h.q_width()});
  latent_qkv_forward_host({q.view(), kv.view(), key.view(), qkv.view(), h}, *test::pool());
  const std::vector<float> of_q = q.values(), of_kv = kv.values(), of_key = key.values(), got = qkv.values();
  const std::int64_t d = h.head_dim(), in_kv = h.plain + h.value;
  std::size_t at = 0;
  for (std::int64_t t = 0; t < kRows; ++t)
    for (int part = 0; part < 3; ++part)
      for (std::int64_t head = 0; head < h.heads; ++head)
        for (std::int64_t i = 0; i < d; ++i, ++at) {
          const std::int64_t from_q =
              t * h.q_width() + head * d + (i < h.rotated ? h.plain + i : i - h.rotated);
          const std::int64_t from_kv = t * h.kv_width() + head * in_kv;
          const float want = part == 0 ? of_q[static_cast<std::size_t>(from_q)]
                             : part == 1 && i < h.rotated
                                 ? of_key[static_cast<std::size_t>(t * h.rotated + i)]
                             : part == 1   ? of_kv[static_cast<std::size_t>(from_kv + i - h.rotated)]
                             : i < h.value ? of_kv[static_cast<std::size_t>(from_kv + h.plain + i)]
                                           : 0.0f;
          ASSERT_EQ(got[at], want) << "row " << t << ", part " << part << ", head " << head << ", element "
                                   << i;
        }
}

// The derivative of a rearrangement is its transpose: <dy, f(x)> = <f'(dy), x>, with integers without an
// error.
TEST_P(LatentHeadsTest, TheDerivativeIsTheTranspose) {
  const auto integers = [](std::int64_t n, int seed) {
    std::vector<float> values(static_cast<std::size_t>(n));
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = static_cast<float>((i * 37 + static_cast<std::size_t>(seed)) % 9) - 4;
    return values;
  };
  const auto dot = [](const std::vector<float>& a, const std::vector<float>& b) {
    double sum = 0;
    for (std::size_t i = 0; i < a.size(); ++i) sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
    return sum;
  };
  Tensor q({kRows, h.q_width()}, integers(kRows * h.q_width(), 1)),
      kv({kRows, h.kv_width()}, integers(kRows * h.kv_width(), 2)),
      key({kRows, h.rotated}, integers(kRows * h.rotated, 3)),
      qkv = Tensor::unwritten({kRows, 3 * h.q_width()}),
      dqkv({kRows, 3 * h.q_width()}, integers(kRows * 3 * h.q_width(), 4)),
      dq = Tensor::unwritten({kRows, h.q_width()}), dkv = Tensor::unwritten({kRows, h.kv_width()}),
      dkey = Tensor::unwritten({kRows, h.rotated});
  latent_qkv_forward_host({q.view(), kv.view(), key.view(), qkv.view(), h}, *test::pool());
  latent_qkv_backward_host({dqkv.view(), dq.view(), dkv.view(), dkey.view(), h}, *test::pool(1));
  EXPECT_EQ(dot(dqkv.values(), qkv.values()),
            dot(dq.values(), q.values()) + dot(dkv.values(), kv.values()) + dot(dkey.values(), key.values()));
  Tensor y = Tensor::unwritten({kRows, h.out_width()}),
         dy({kRows, h.out_width()}, integers(kRows * h.out_width(), 5)),
         dx = Tensor::unwritten({kRows, h.q_width()});
  trim_heads_forward_host({q.view(), y.view(), h}, *test::pool());
  trim_heads_backward_host({dy.view(), dx.view(), h}, *test::pool());
  EXPECT_EQ(dot(dy.values(), y.values()), dot(dx.values(), q.values()));
}

// The arithmetic of the device's kernels.
TEST_P(LatentHeadsTest, ElementsOfTheDeviceAreThoseOfTheHost) {
  Tensor q({1, h.q_width()}, numbers(h.q_width(), 1)), kv({1, h.kv_width()}, numbers(h.kv_width(), 200)),
      key({1, h.rotated}, numbers(h.rotated, -300)),
      qkv = Tensor::unwritten({1, 3 * h.q_width()}), dqkv({1, 3 * h.q_width()}, numbers(3 * h.q_width(), 7)),
      dq = Tensor::unwritten({1, h.q_width()}), dkv = Tensor::unwritten({1, h.kv_width()}),
      dkey = Tensor::unwritten({1, h.rotated}), y = Tensor::unwritten({1, h.out_width()}),
      dx = Tensor::unwritten({1, h.q_width()});
  latent_qkv_forward_host({q.view(), kv.view(), key.view(), qkv.view(), h}, *test::pool());
  latent_qkv_backward_host({dqkv.view(), dq.view(), dkv.view(), dkey.view(), h}, *test::pool());
  trim_heads_forward_host({q.view(), y.view(), h}, *test::pool());
  trim_heads_backward_host({y.view(), dx.view(), h}, *test::pool());
  const auto elements = [](std::int64_t n, const auto& element) {
    std::vector<float> all;
    for (std::int64_t i = 0; i < n; ++i) all.push_back(element(i));
    return all;
  };
  const std::vector<float> of_q = q.values(), of_kv = kv.values(), of_key = key.values(),
                           of_d = dqkv.values(), of_y = y.values();
  EXPECT_EQ(qkv.values(), elements(3 * h.q_width(), [&](std::int64_t i) {
              return detail::latent_qkv_element(h, of_q.data(), of_kv.data(), of_key.data(), i);
            }));
  EXPECT_EQ(dq.values(), elements(h.q_width(), [&](std::int64_t i) {
              return detail::latent_dq_element(h, of_d.data(), i);
            }));
  EXPECT_EQ(dkv.values(), elements(h.kv_width(), [&](std::int64_t i) {
              return detail::latent_dkv_element(h, of_d.data(), i);
            }));
  EXPECT_EQ(dkey.values(), elements(h.rotated, [&](std::int64_t i) {
              return detail::latent_drotated_element(h, of_d.data(), i);
            }));
  EXPECT_EQ(y.values(), elements(h.out_width(),
                                 [&](std::int64_t i) { return detail::trimmed_element(h, of_q.data(), i); }));
  EXPECT_EQ(dx.values(), elements(h.q_width(), [&](std::int64_t i) {
              return detail::untrimmed_element(h, of_y.data(), i);
            }));
}

INSTANTIATE_TEST_SUITE_P(Heads, LatentHeadsTest,
                         ::testing::Values(LatentHeads{1, 1, 1, 1}, LatentHeads{3, 12, 8, 16},
                                           LatentHeads{4, 5, 2, 7}, LatentHeads{2, 128, 64, 128}),
                         [](const auto& test) {
                           const LatentHeads& h = test.param;
                           return str(h.heads, "x", h.plain, "and", h.rotated, "with", h.value);
                         });

TEST(LatentHeadsErrors, ValuesLongerThanAHeadAreRefused) {
  const LatentHeads h = {2, 4, 2, 7};
  Tensor x({3, h.q_width()}, std::vector<float>(36)), y = Tensor::unwritten({3, h.out_width()});
  test::InlineBackend backend;
  Stream stream = must(backend.create_stream(StreamRole::compute));
  EXPECT_THAT(trim_heads_forward_async(backend, stream, {x.view(), y.view(), h}).message(),
              HasSubstr("2 heads of 4 and 2 elements and values of 7"));
}

}  // namespace
}  // namespace strata::kernels
