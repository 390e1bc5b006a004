#include <strata/kernels/cached_attention.h>

#include <algorithm>

#include <gmock/gmock.h>

#include <strata/kernels/attention.h>

#include "gemm/gemm.h"
#include "support/op_test.h"
#include "support/isas.h"

namespace strata::kernels {
namespace {

using test::Tensor;
using test::reference::AttentionShape;

constexpr std::size_t kCapacity = 70;

/// One token: its sequence and its position there.
struct Row {
  std::size_t sequence, position;
};

/// Sequences of different lengths in one cache, and the attention of their tokens by the reference of
/// attention_forward.
class CachedAttentionTest : public ::testing::TestWithParam<AttentionShape> {
 protected:
  AttentionShape shape = GetParam();  // batch and seq unused
  const std::vector<std::size_t> lengths = {1, 37, 70};
  const CachedAttentionShape heads{static_cast<std::int64_t>(shape.heads),
                                   static_cast<std::int64_t>(shape.key_heads()),
                                   shape.alibi,
                                   static_cast<std::int64_t>(shape.window),
                                   static_cast<float>(shape.softcap),
                                   static_cast<float>(shape.scale)};
  const Shape cache{3, heads.kv_heads, kCapacity, static_cast<std::int64_t>(shape.head_dim)};
  DType dtype = DType::f32;
  Tensor keys = Tensor::unwritten(cache), values = Tensor::unwritten(cache);

  void store_in(DType stored) {
    dtype = stored;
    clear_cache();
  }
  void clear_cache() {
    keys = Tensor::unwritten(cache, dtype);
    values = Tensor::unwritten(cache, dtype);
  }
  /// As it is stored, that is, rounded.
  std::vector<float> qkv_of(const Row& row) const {
    const auto width = static_cast<std::int64_t>(shape.width());
    return Tensor({width}, test::Values(100003 * (1 + row.sequence * 100 + row.position)).floats(width, 2.0),
                  dtype)
        .values();
  }
  std::vector<float> run(const std::vector<Row>& rows, int threads = 2) {
    std::vector<float> qkv;
    std::vector<std::int32_t> positions, slots;
    for (const Row& row : rows) {
      const std::vector<float> one = qkv_of(row);
      qkv.insert(qkv.end(), one.begin(), one.end());
      positions.push_back(static_cast<std::int32_t>(row.position));
      slots.push_back(static_cast<std::int32_t>(row.sequence));
    }
    return call(qkv, positions, slots, threads);
  }
  std::vector<float> call(const std::vector<float>& qkv, std::vector<std::int32_t> positions,
                          std::vector<std::int32_t> slots, int threads = 2) {
    const auto n = static_cast<std::int64_t>(positions.size());
    Tensor in({n, static_cast<std::int64_t>(shape.width())}, qkv, dtype),
        out = Tensor::unwritten({n, static_cast<std::int64_t>(shape.h())}, dtype);
    Tensor sinks({static_cast<std::int64_t>(shape.sinks.size())}, {shape.sinks.begin(), shape.sinks.end()},
                 dtype);
    test::Workspace workspace(cached_attention_workspace_bytes(n, kCapacity, cache.dim(3), heads));
    cached_attention_host(
        {in.view(), test::view(positions), test::view(slots), keys.view(), values.view(), out.view(), heads,
         workspace.view(), shape.sinks.empty() ? TensorView{} : sinks.view()},
        *test::pool(threads));
    return out.values();
  }
  std::vector<float> one_by_one() {
    std::vector<float> all;
    for (std::size_t s = 0; s < lengths.size(); ++s)
      for (std::size_t position = 0; position < lengths[s]; ++position) {
        const std::vector<float> row = run({{s, position}});
        all.insert(all.end(), row.begin(), row.end());
      }
    return all;
  }
  test::reference::Vec reference_of(std::size_t sequence) const {
    AttentionShape plain = shape;
    plain.batch = 1;
    plain.seq = lengths[sequence];
    std::vector<float> qkv;
    for (std::size_t position = 0; position < plain.seq; ++position) {
      const std::vector<float> row = qkv_of({sequence, position});
      qkv.insert(qkv.end(), row.begin(), row.end());
    }
    return test::reference::attention_forward(test::widen(qkv), plain).out;
  }
};

TEST_P(CachedAttentionTest, TokenByTokenItEqualsPlainAttention) {
  for (const auto& [stored, tolerance] :
       {std::pair{DType::f32, 2e-6}, {DType::f16, 5e-4}, {DType::bf16, 4e-3}}) {
    store_in(stored);
    const std::vector<float> got = one_by_one();
    std::size_t at = 0;
    for (std::size_t s = 0; s < lengths.size(); ++s) {
      const std::size_t n = lengths[s] * shape.h();
      EXPECT_LE(test::relative_error(std::span(got).subspan(at, n), reference_of(s)), tolerance)
          << to_string(stored) << ", sequence " << s;
      at += n;
    }
  }
}

TEST_P(CachedAttentionTest, HowTokensAreGroupedChangesNoBit) {
  for (const DType stored : {DType::f32, DType::f16, DType::bf16}) {
    store_in(stored);
    const std::vector<float> alone = one_by_one();
    clear_cache();
    // One call has the tokens of all three sequences at positions p .. p + 8, the third sequence first.
    std::vector<std::size_t> begins = {0, lengths[0] * shape.h(), (lengths[0] + lengths[1]) * shape.h()};
    for (std::size_t position = 0; position < kCapacity; position += 9) {
      std::vector<Row> rows;
      std::vector<float> want;
      for (const std::size_t s : {2, 0, 1})
        for (std::size_t p = position; p < std::min(position + 9, lengths[s]); ++p) {
          rows.push_back({s, p});
          const auto from = alone.begin() + static_cast<std::ptrdiff_t>(begins[s] + p * shape.h());
          want.insert(want.end(), from, from + static_cast<std::ptrdiff_t>(shape.h()));
        }
      EXPECT_EQ(test::differing_bits(run(rows, 1 + static_cast<int>(position % 3)), want), 0u) << position;
    }
  }
}

TEST_P(CachedAttentionTest, EveryInstructionSetGivesTheSameBits) {
  for (const DType stored : {DType::f32, DType::f16, DType::bf16}) {
    store_in(stored);
    std::vector<float> first;
    for (const simd::CpuIsa isa : test::supported_isas()) {
      const test::IsaScope scope(isa);
      const std::vector<float> got = one_by_one();
      if (first.empty()) first = got;
      EXPECT_EQ(test::differing_bits(got, first), 0u);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, CachedAttentionTest,
                         ::testing::Values(AttentionShape{1, 1, 1, 1}, AttentionShape{1, 1, 3, 7},
                                           AttentionShape{1, 1, 2, 64}, AttentionShape{1, 1, 4, 24, true, 2},
                                           AttentionShape{1, 1, 6, 5, true, 1},
                                           AttentionShape{1, 1, 4, 8, true, 0, true},
                                           AttentionShape{1, 1, 6, 8, true, 3, true}));

INSTANTIATE_TEST_SUITE_P(
    WindowsCapsAndScales, CachedAttentionTest,
    ::testing::Values(
        AttentionShape{.batch = 1, .seq = 1, .heads = 4, .head_dim = 24, .kv_heads = 2, .window = 9},
        AttentionShape{.batch = 1, .seq = 1, .heads = 2, .head_dim = 8, .alibi = true, .window = 20},
        AttentionShape{.batch = 1, .seq = 1, .heads = 2, .head_dim = 8, .softcap = 1.5, .scale = 0.5},
        AttentionShape{
            .batch = 1, .seq = 1, .heads = 6, .head_dim = 5, .kv_heads = 1, .window = 33, .softcap = 20}));
INSTANTIATE_TEST_SUITE_P(
    Sinks, CachedAttentionTest,
    ::testing::Values(AttentionShape{.batch = 1,
                                     .seq = 1,
                                     .heads = 4,
                                     .head_dim = 24,
                                     .kv_heads = 2,
                                     .window = 9,
                                     .sinks = {-2, 0.5, 3, 20}},
                      AttentionShape{.batch = 1, .seq = 1, .heads = 2, .head_dim = 8, .sinks = {1, -0.25}}));

// Packed documents in one call of attention_forward have the bits of their tokens one by one over a cache,
// also where heads and documents have more than one chain.
struct LongCase {
  std::int64_t heads, kv_heads, d, window;
  float softcap;
  bool alibi, has_sinks;
  DType dtype;
};
void PrintTo(const LongCase& c, std::ostream* out) {
  *out << c.heads << " heads over " << c.kv_heads << " of " << c.d << ", window " << c.window << ", cap "
       << c.softcap << (c.alibi ? ", alibi" : "") << (c.has_sinks ? ", sinks, " : ", ") << to_string(c.dtype);
}
class PackedAndCachedTest : public ::testing::TestWithParam<LongCase> {};

TEST_P(PackedAndCachedTest, AttentionHasTheSameBits) {
  if (!detail::sums_by_chains()) GTEST_SKIP() << "sums depend on the shape on this CPU";
  const LongCase c = GetParam();
  // The third document begins within a block of the second one's rows, before a chain of that one ends.
  const std::vector<std::int64_t> lengths = {3, 254, 46, 65, 1, 531};
  const std::int64_t tokens = 900, width = (c.heads + 2 * c.kv_heads) * c.d, h = c.heads * c.d;
  std::vector<std::int32_t> starts, positions, slots;
  for (std::size_t s = 0; s < lengths.size(); ++s) {
    const auto start = static_cast<std::int32_t>(starts.size());
    for (std::int32_t i = 0; i < lengths[s]; ++i) {
      starts.push_back(start);
      positions.push_back(i);
      slots.push_back(static_cast<std::int32_t>(s));
    }
  }
  Tensor qkv({tokens, width}, test::Values(7).floats(tokens * width, 2.0), c.dtype);
  Tensor sinks({c.heads}, test::Values(8).floats(c.heads, 2.0), c.dtype);
  const TensorView sinks_view = c.has_sinks ? sinks.view() : TensorView{};
  Tensor packed = Tensor::unwritten({tokens, h}, c.dtype), lse = Tensor::unwritten({tokens * c.heads});
  const AttentionHeads heads{.heads = c.heads,
                             .kv_heads = c.kv_heads,
                             .seq = tokens,
                             .alibi = c.alibi,
                             .window = c.window,
                             .softcap = c.softcap};
  test::Workspace workspace(attention_forward_workspace_bytes(tokens, heads, c.dtype, c.d));
  attention_forward_host({.qkv = qkv.view(),
                          .out = packed.view(),
                          .lse = lse.view(),
                          .doc_start = test::view(starts),
                          .shape = heads,
                          .workspace = workspace.view(),
                          .sinks = sinks_view},
                         *test::pool());
  const Shape cache{std::ssize(lengths), c.kv_heads, 540, c.d};
  Tensor keys = Tensor::unwritten(cache, c.dtype), values = Tensor::unwritten(cache, c.dtype),
         one_by_one = Tensor::unwritten({tokens, h}, c.dtype);
  const CachedAttentionShape shape{
      .heads = c.heads, .kv_heads = c.kv_heads, .alibi = c.alibi, .window = c.window, .softcap = c.softcap};
  test::Workspace of_cache(cached_attention_workspace_bytes(tokens, 540, c.d, shape));
  cached_attention_host({qkv.view(), test::view(positions), test::view(slots), keys.view(), values.view(),
                         one_by_one.view(), shape, of_cache.view(), sinks_view},
                        *test::pool(3));
  EXPECT_EQ(test::differing_bits(one_by_one.values(), packed.values()), 0u);
}

INSTANTIATE_TEST_SUITE_P(Shapes, PackedAndCachedTest,
                         ::testing::Values(LongCase{1, 1, 16, 0, 0, false, false, DType::f32},
                                           LongCase{4, 2, 64, 0, 0, false, false, DType::f32},
                                           LongCase{4, 1, 64, 0, 0, false, true, DType::bf16},
                                           LongCase{2, 2, 80, 0, 0, true, false, DType::f32},
                                           LongCase{2, 1, 300, 0, 0, false, false, DType::f16},
                                           LongCase{3, 1, 40, 100, 0, false, true, DType::f32},
                                           LongCase{20, 2, 24, 257, 30, false, false, DType::f32}));

struct OneHead {
  std::vector<std::int32_t> positions{0, 1}, slots{0, 0};
  Tensor qkv{{2, 12}, test::Values(1).floats(24)}, out = Tensor::unwritten({2, 4});
  Tensor keys{{1, 1, 3, 4}, std::vector<float>(12)}, values{{1, 1, 3, 4}, std::vector<float>(12)};
  test::Workspace workspace{cached_attention_workspace_bytes(2, 3, 4, {})};
  CachedAttentionArgs args() {
    return {qkv.view(), test::view(positions), test::view(slots), keys.view(), values.view(), out.view(),
            {},         workspace.view()};
  }
};

TEST(CachedAttentionRowsTest, ARowWithoutATokenIsZeroAndStoresNothing) {
  OneHead one;
  one.slots = {-1, 0};
  one.positions = {99, 0};
  const std::vector<float> row = test::Values(1).floats(24);
  cached_attention_host(one.args(), *test::pool());
  const std::vector<float> out = one.out.values(), stored = one.values.values();
  EXPECT_EQ(std::count(out.begin(), out.begin() + 4, 0.0f), 4);
  EXPECT_EQ(std::vector<float>(out.begin() + 4, out.end()), std::vector<float>(row.begin() + 20, row.end()))
      << "the second row sees its own value alone";
  EXPECT_EQ(std::vector<float>(stored.begin(), stored.begin() + 4),
            std::vector<float>(row.begin() + 20, row.end()));
  EXPECT_EQ(std::count(stored.begin() + 4, stored.end(), 0.0f), 8);
}

TEST(CachedAttentionRowsDeathTest, APositionPastTheCacheIsNeverWritten) {
  OneHead one;
  one.positions = {0, 3};
  EXPECT_DEATH(cached_attention_host(one.args(), *test::pool()),
               "row 1 is position 3 of 3 of sequence 0 of 1");
}

TEST(CachedAttentionRowsTest, InconsistentShapesAreRefusedByName) {
  test::InlineBackend backend;
  Stream stream = must(backend.create_stream(StreamRole::compute));
  OneHead one;
  CachedAttentionArgs args = one.args();
  must(cached_attention_async(backend, stream, args));
  args.values.shape = {1, 1, 2, 4};
  EXPECT_THAT(std::string(cached_attention_async(backend, stream, args).message()),
              ::testing::HasSubstr("values is f32 [1, 1, 2, 4]; it must be f32 [1, 1, 3, 4]"));
  args = one.args();
  args.shape = {.heads = 3, .kv_heads = 2};
  EXPECT_THAT(std::string(cached_attention_async(backend, stream, args).message()),
              ::testing::HasSubstr("3 query heads must be a positive multiple of 2 key heads"));
}

}  // namespace
}  // namespace strata::kernels
