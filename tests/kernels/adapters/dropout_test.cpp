#include <strata/kernels/adapters/dropout.h>

#include <cmath>

#include <gmock/gmock.h>

#include <strata/runtime/backend/host_backend.h>
#include <strata/runtime/rng.h>

#include "elementwise/dropout_math.h"
#include "support/op_test.h"

namespace strata::kernels {
namespace {

using test::Tensor;

using Keys = std::vector<std::int32_t>;

Keys keys_of(std::size_t rows) {
  Keys keys;
  const Rng rng(4, 2);
  for (std::size_t i = 0; i < 2 * rows; ++i) keys.push_back(static_cast<std::int32_t>(rng.u32(i)));
  return keys;
}
TensorView view_of(Keys& keys) {
  return {reinterpret_cast<std::byte*>(keys.data()), {std::ssize(keys) / 2, 2}, DType::i32};
}

std::vector<float> dropped(Tensor& x, Keys& keys, float p, std::uint32_t stream) {
  Tensor y = Tensor::unwritten(x.view().shape, x.view().dtype);
  dropout_host({x.view(), view_of(keys), y.view(), p, stream}, *test::pool());
  return y.values();
}

TEST(DropoutTest, TheBitsAreThoseOfPhilox) {
  const auto words = detail::dropout_words(11, 22, 33, 44);
  const auto want = philox({33, 0, 44, 0}, {11, 22});
  for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(words.word[i], want[i]);
}

// As torch.nn.functional.dropout: within three standard deviations of the share, and without a bias by
// column.
TEST(DropoutTest, TheShareThatIsDroppedIsPAndTheRestIsScaled) {
  constexpr std::int64_t rows = 500, n = 203;
  Tensor x(Shape{rows, n}, std::vector<float>(rows * n, 2.0f), DType::f32);
  Keys keys = keys_of(rows);
  for (const float p : {0.0f, 0.05f, 0.5f, 0.9f}) {
    const std::vector<float> y = dropped(x, keys, p, 3);
    std::int64_t zeros = 0, first_column = 0;
    for (std::size_t i = 0; i < y.size(); ++i) {
      if (y[i] != 0) {
        EXPECT_FLOAT_EQ(y[i], 2 / (1 - p));
      }
      zeros += y[i] == 0 ? 1 : 0;
      first_column += i % n == 0 && y[i] == 0 ? 1 : 0;
    }
    const auto within = [&](std::int64_t found, std::int64_t of) {
      const double share = static_cast<double>(p), mean = share * static_cast<double>(of);
      return std::abs(static_cast<double>(found) - mean) <= 3 * std::sqrt(mean * (1 - share));
    };
    EXPECT_TRUE(within(zeros, rows * n)) << zeros << " " << p;
    EXPECT_TRUE(within(first_column, rows)) << first_column << " " << p;
  }
}

TEST(DropoutTest, ARowsElementsDependOnItsKeyAndOnTheStreamAlone) {
  Tensor x(Shape{6, 37}, test::Values(1).floats(6 * 37), DType::f32);
  Keys keys = keys_of(6);
  const std::vector<float> all = dropped(x, keys, 0.5f, 1);
  const std::vector<float> of_x = x.values();
  Tensor last(Shape{1, 37}, {of_x.end() - 37, of_x.end()}, DType::f32);
  Keys key(keys.end() - 2, keys.end());
  EXPECT_EQ(dropped(last, key, 0.5f, 1), std::vector<float>(all.end() - 37, all.end()));
  EXPECT_NE(dropped(last, key, 0.5f, 2), std::vector<float>(all.end() - 37, all.end()));
}

TEST(DropoutTest, AnOutputMayBeItsInputInEveryDtype) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    Tensor x(Shape{5, 30}, test::Values(2).floats(150), dtype);
    Keys keys = keys_of(5);
    const std::vector<float> want = dropped(x, keys, 0.3f, 7);
    dropout_host({x.view(), view_of(keys), x.view(), 0.3f, 7}, *test::pool());
    EXPECT_EQ(x.values(), want) << to_string(dtype);
  }
}

}  // namespace
}  // namespace strata::kernels
