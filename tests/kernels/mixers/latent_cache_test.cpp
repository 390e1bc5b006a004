#include <strata/kernels/mixers/latent_cache.h>

#include <gmock/gmock.h>

#include "support/op_test.h"

namespace strata::kernels {
namespace {

using test::Tensor;
using ::testing::HasSubstr;

constexpr std::int64_t kSequences = 3, kCapacity = 11, kRank = 6;

class LatentCacheTest : public ::testing::TestWithParam<LatentHeads> {
 protected:
  const LatentHeads h = GetParam();
  const std::int64_t width = kRank + h.rotated;
  Tensor cache = Tensor::unwritten({kSequences, kCapacity, width});

  /// Element `i` of what is stored of a token, all different.
  static float element(std::int64_t slot, std::int64_t position, std::int64_t i) {
    return static_cast<float>(1000 * slot + 50 * position) + static_cast<float>(i) / 64;
  }
  std::vector<float> store(std::vector<std::int32_t> positions, std::vector<std::int32_t> slots) {
    const auto rows = static_cast<std::int64_t>(positions.size());
    std::vector<float> latent, qkv;
    for (std::size_t r = 0; r < positions.size(); ++r) {
      for (std::int64_t i = 0; i < kRank; ++i) latent.push_back(element(slots[r], positions[r], i));
      for (std::int64_t i = 0; i < 3 * h.q_width(); ++i) {
        const std::int64_t in_key = i - h.q_width();
        qkv.push_back(in_key >= 0 && in_key < h.rotated ? element(slots[r], positions[r], kRank + in_key)
                                                        : std::nanf(""));
      }
    }
    Tensor of_latent({rows, kRank}, latent), of_qkv({rows, 3 * h.q_width()}, qkv),
        out = Tensor::unwritten({kSequences * kCapacity, kRank});
    cached_latents_host({of_latent.view(), of_qkv.view(), test::view(positions), test::view(slots),
                         cache.view(), out.view(), h},
                        *test::pool());
    return out.values();
  }
};

TEST_P(LatentCacheTest, ACallGetsTheLatentRowsThatItsTokensCanSee) {
  store({0, 1, 0}, {0, 0, 2});
  const std::vector<float> got =
      store({2, 1, 7}, {0, 2, -1});  // sequence 1 has no token, and one row is unused
  for (std::int64_t slot = 0; slot < kSequences; ++slot)
    for (std::int64_t position = 0; position < kCapacity; ++position)
      for (std::int64_t i = 0; i < kRank; ++i) {
        const bool is_seen = (slot == 0 && position <= 2) || (slot == 2 && position <= 1);
        ASSERT_EQ(got[static_cast<std::size_t>((slot * kCapacity + position) * kRank + i)],
                  is_seen ? element(slot, position, i) : 0.0f)
            << slot << ", " << position;
      }
}

TEST_P(LatentCacheTest, KeysAndValuesAreThoseOfLatentQkv) {
  store({0, 1, 2, 0}, {1, 1, 1, 0});
  std::vector<std::int32_t> positions = {2}, slots = {1};
  const std::int64_t all = kSequences * kCapacity, d = h.head_dim();
  Tensor kv({all, h.kv_width()}, test::Values(5).floats(all * h.kv_width())),
      keys = Tensor::unwritten({kSequences, h.heads, kCapacity, d}),
      values = Tensor::unwritten({kSequences, h.heads, kCapacity, d});
  latent_keys_values_host(
      {kv.view(), test::view(positions), test::view(slots), cache.view(), keys.view(), values.view(), h},
      *test::pool());
  const std::vector<float> of_cache = cache.values(), of_keys = keys.values(), of_values = values.values();
  std::vector<float> rotated;
  for (std::int64_t at = 0; at < all; ++at)
    for (std::int64_t i = 0; i < h.rotated; ++i)
      rotated.push_back(of_cache[static_cast<std::size_t>(at * width + kRank + i)]);
  Tensor q({all, h.q_width()}, test::Values(6).floats(all * h.q_width())), key({all, h.rotated}, rotated),
      qkv = Tensor::unwritten({all, 3 * h.q_width()});
  latent_qkv_forward_host({q.view(), kv.view(), key.view(), qkv.view(), h}, *test::pool());
  const std::vector<float> want = qkv.values();
  for (std::int64_t slot = 0; slot < kSequences; ++slot)
    for (std::int64_t head = 0; head < h.heads; ++head)
      for (std::int64_t position = 0; position < kCapacity; ++position)
        for (std::int64_t i = 0; i < d; ++i) {
          const auto at = static_cast<std::size_t>(((slot * h.heads + head) * kCapacity + position) * d + i);
          if (slot != 1 || position > 2) {
            ASSERT_TRUE(std::isnan(of_keys[at]) && std::isnan(of_values[at])) << "written, but not seen";
            continue;
          }
          const std::int64_t row = (slot * kCapacity + position) * 3 * h.q_width() + head * d + i;
          ASSERT_EQ(of_keys[at], want[static_cast<std::size_t>(row + h.q_width())]);
          ASSERT_EQ(of_values[at], want[static_cast<std::size_t>(row + 2 * h.q_width())]);
        }
}

TEST_P(LatentCacheTest, WithoutKeysAndValuesLatentQkvHasZeros) {
  Tensor q({3, h.q_width()}, test::Values(1).floats(3 * h.q_width())),
      zeros({3, h.kv_width()}, std::vector<float>(static_cast<std::size_t>(3 * h.kv_width()))),
      key({3, h.rotated}, test::Values(2).floats(3 * h.rotated)),
      got = Tensor::unwritten({3, 3 * h.q_width()}), want = Tensor::unwritten({3, 3 * h.q_width()});
  latent_qkv_forward_host({q.view(), {}, key.view(), got.view(), h}, *test::pool());
  latent_qkv_forward_host({q.view(), zeros.view(), key.view(), want.view(), h}, *test::pool());
  EXPECT_EQ(got.values(), want.values());
}

INSTANTIATE_TEST_SUITE_P(Heads, LatentCacheTest,
                         ::testing::Values(LatentHeads{3, 12, 8, 16}, LatentHeads{2, 5, 2, 7}));

TEST(LatentCacheCheckTest, WhatDoesNotFitIsRefused) {
  const LatentHeads h{2, 4, 2, 4};
  Tensor latent = Tensor::unwritten({2, kRank}), qkv = Tensor::unwritten({2, 3 * h.q_width()}),
         cache = Tensor::unwritten({1, 4, kRank + 3}), out = Tensor::unwritten({4, kRank});
  std::vector<std::int32_t> rows = {0, 1};
  test::InlineBackend backend;
  Stream stream = must(backend.create_stream(StreamRole::compute));
  const Status status = cached_latents_async(
      backend, stream,
      {latent.view(), qkv.view(), test::view(rows), test::view(rows), cache.view(), out.view(), h});
  EXPECT_EQ(status.code(), Code::invalid);
  EXPECT_THAT(std::string(status.message()), HasSubstr("cache"));
}

}  // namespace
}  // namespace strata::kernels
