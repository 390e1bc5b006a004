// Compares ops that rearrange columns of rows, which mixers of tokens need, on the GPU with the host's (see
// device_ops_test.cpp).

#include <string>

#include <gtest/gtest.h>

#include <strata/kernels/mixers/divided_columns.h>
#include <strata/kernels/mixers/latent_cache.h>
#include <strata/kernels/mixers/latent_heads.h>
#include <strata/kernels/mixers/scale_parts.h>

#include "support/device_fixture.h"

namespace strata::kernels {
namespace {

class DeviceMixersTest : public test::DeviceFixture<DType> {
 protected:
  DType dtype() const override { return GetParam(); }
};

TEST_P(DeviceMixersTest, LatentHeads) {
  for (const LatentHeads& h :
       {LatentHeads{3, 12, 8, 16}, LatentHeads{4, 5, 2, 7}, LatentHeads{2, 128, 64, 128}}) {
    const TensorView q = in({70, h.q_width()}, 1), dqkv = in({70, 3 * h.q_width()}, 4),
                     dy = in({70, h.out_width()}, 5);
    const auto written = [&](std::int64_t columns) { return unwritten({70, columns}, GetParam()); };
    expect_same_bits<LatentQkvForwardArgs>(
        "latent qkv", {q, in({70, h.kv_width()}, 2), in({70, h.rotated}, 3), written(3 * h.q_width()), h},
        &latent_qkv_forward_host, &latent_qkv_forward_async, {&LatentQkvForwardArgs::qkv});
    expect_same_bits<LatentQkvBackwardArgs>(
        "latent qkv backward", {dqkv, written(h.q_width()), written(h.kv_width()), written(h.rotated), h},
        &latent_qkv_backward_host, &latent_qkv_backward_async,
        {&LatentQkvBackwardArgs::dq, &LatentQkvBackwardArgs::dkv, &LatentQkvBackwardArgs::drotated_key});
    expect_same_bits<TrimHeadsForwardArgs>("trim heads", {q, written(h.out_width()), h},
                                           &trim_heads_forward_host, &trim_heads_forward_async,
                                           {&TrimHeadsForwardArgs::y});
    expect_same_bits<TrimHeadsBackwardArgs>("trim heads backward", {dy, written(h.q_width()), h},
                                            &trim_heads_backward_host, &trim_heads_backward_async,
                                            {&TrimHeadsBackwardArgs::dx});
  }
}

TEST_P(DeviceMixersTest, LatentCache) {
  constexpr std::int64_t kSequences = 3, kCapacity = 300, kRank = 40;
  for (const LatentHeads& h : {LatentHeads{3, 12, 8, 16}, LatentHeads{4, 5, 2, 7}}) {
    const TensorView positions = integers({280, 281, 17, 0, 3}), slots = integers({0, 0, 2, 1, -1}),
                     cache = in({kSequences, kCapacity, kRank + h.rotated}, 1);
    expect_same_bits<CachedLatentsArgs>("cached latents",
                                        {in({5, kRank}, 2), in({5, 3 * h.q_width()}, 3), positions, slots,
                                         cache, in({kSequences * kCapacity, kRank}, 4), h},
                                        &cached_latents_host, &cached_latents_async,
                                        {&CachedLatentsArgs::cache, &CachedLatentsArgs::latents});
    const Shape keys = {kSequences, h.heads, kCapacity, h.head_dim()};
    expect_same_bits<LatentKeysValuesArgs>(
        "latent keys and values",
        {in({kSequences * kCapacity, h.kv_width()}, 5), positions, slots, cache, in(keys, 6), in(keys, 7), h},
        &latent_keys_values_host, &latent_keys_values_async,
        {&LatentKeysValuesArgs::keys, &LatentKeysValuesArgs::values});
    expect_same_bits<LatentQkvForwardArgs>("latent qkv without keys and values",
                                           {in({70, h.q_width()}, 8),
                                            {},
                                            in({70, h.rotated}, 9),
                                            unwritten({70, 3 * h.q_width()}, GetParam()),
                                            h},
                                           &latent_qkv_forward_host, &latent_qkv_forward_async,
                                           {&LatentQkvForwardArgs::qkv});
  }
}

TEST_P(DeviceMixersTest, DividedColumns) {
  for (const DividedColumns& c :
       {DividedColumns{1, 5, 3, 0}, DividedColumns{4, 64, 64, 128}, DividedColumns{3, 3, 3, 7}}) {
    const TensorView x = in({70, c.all()}, 1), first = in({70, c.of_first()}, 2),
                     second = in({70, c.of_second()}, 3);
    expect_same_bits<DivideColumnsArgs>(
        "divide columns",
        {x, unwritten({70, c.of_first()}, GetParam()), unwritten({70, c.of_second()}, GetParam()), c},
        &divide_columns_host, &divide_columns_async, {&DivideColumnsArgs::first, &DivideColumnsArgs::second});
    expect_same_bits<UniteColumnsArgs>("unite columns",
                                       {first, second, unwritten({70, c.all()}, GetParam()), c},
                                       &unite_columns_host, &unite_columns_async, {&UniteColumnsArgs::x});
  }
}

TEST_P(DeviceMixersTest, ScaleParts) {
  const ColumnScales scales = {3, {64, 5, 300}, {0.3f, 1.0f, -2.5f}};
  expect_same_bits<ScalePartsArgs>("scale parts",
                                   {in({70, 369}, 1), unwritten({70, 369}, GetParam()), scales},
                                   &scale_parts_host, &scale_parts_async, {&ScalePartsArgs::y});
}

INSTANTIATE_TEST_SUITE_P(Stored, DeviceMixersTest, ::testing::Values(DType::f32, DType::bf16, DType::f16),
                         [](const auto& test) { return std::string(to_string(test.param)); });

}  // namespace
}  // namespace strata::kernels
