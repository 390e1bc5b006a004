#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tuple>

#include <strata/chunk/layout.h>
#include <strata/runtime/rng.h>
#include <strata/runtime/str.h>

namespace strata {
namespace {

using testing::HasSubstr;

std::vector<LayoutTensor> tensors_of(const std::vector<std::int64_t>& sizes) {
  std::vector<LayoutTensor> tensors;
  for (std::size_t i = 0; i < sizes.size(); ++i) tensors.push_back({str("t", i), sizes[i], {}});
  return tensors;
}

ChunkLayout layout_of(const std::vector<std::int64_t>& sizes, std::int64_t chunk_elems) {
  LayoutOptions options;
  options.chunk_elems = chunk_elems;
  return must(ChunkLayout::create(tensors_of(sizes), options));
}

TEST(LayoutTest, TensorsKeepTheOrderOfTheirFirstUse) {
  const ChunkLayout layout = layout_of({100, 4096, 5000, 1, 8192}, 16384);
  std::int64_t last = -1;
  for (std::int32_t t = 0; t < 5; ++t) {
    const std::int64_t place = layout.slice(t).chunk * std::int64_t{16384} + layout.slice(t).offset;
    EXPECT_GT(place, last);
    last = place;
  }
}

TEST(LayoutTest, SizesNearTheChunkSizeFillAChunkOrGetTheirOwn) {
  for (const std::int64_t size : {std::int64_t{1}, std::int64_t{8191}, std::int64_t{8192}}) {
    const ChunkLayout layout = layout_of({size}, 8192);
    EXPECT_EQ(layout.chunk(0).n_elems, 8192) << size;
    EXPECT_EQ(layout.chunk(0).used_elems, size);
  }
  EXPECT_EQ(layout_of({8193}, 8192).chunk(0).n_elems, 12288);
  EXPECT_EQ(layout_of({81920}, 8192).chunk(0).n_elems, 81920);
}

// The tensors of 4,096 elements are in chunks of 16,384, and those of the other group in one of 8,192.
TEST(LayoutTest, BesideFrozenTensorsAGroupThatDoesNotFillAChunkGetsASmallerOne) {
  std::vector<LayoutTensor> tensors = tensors_of({4096, 4096, 4096, 4096, 4096, 50000, 1, 4096});
  for (std::size_t t : {5u, 6u, 7u}) tensors[t].group.trainable = false;
  LayoutOptions options;
  options.chunk_elems = 16384;
  const ChunkLayout layout = must(ChunkLayout::create(tensors, options));
  const auto elems_of = [&](std::int32_t tensor) { return layout.chunk(layout.slice(tensor).chunk).n_elems; };
  EXPECT_EQ(elems_of(0), 16384);
  EXPECT_EQ(elems_of(4), 16384);
  EXPECT_EQ(elems_of(5), 53248);
  EXPECT_EQ(elems_of(6), 8192);
  EXPECT_EQ(layout.slice(6).chunk, layout.slice(7).chunk);
}

TEST(LayoutTest, AnOversizeTensorLeavesTheOpenChunkOpen) {
  const ChunkLayout layout = layout_of({4096, 20000, 4096}, 8192);
  EXPECT_EQ(layout.n_chunks(), 2u);
  EXPECT_EQ(layout.slice(0).chunk, layout.slice(2).chunk);
  EXPECT_EQ(layout.slice(1).offset, 0);
}

TEST(LayoutTest, NoTensorStraddlesAndSlicesAreAlignedAndDisjoint) {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    const Rng rng(seed, 0);
    std::vector<std::int64_t> sizes;
    for (std::uint64_t i = 0; i < 1 + rng.below(0, 30); ++i)
      sizes.push_back(1 + static_cast<std::int64_t>(rng.below(i + 1, 40000)));
    const ChunkLayout layout = layout_of(sizes, 4096 * static_cast<std::int64_t>(rng.below(100, 6)));
    std::vector<std::vector<bool>> taken(layout.n_chunks());
    for (std::size_t t = 0; t < sizes.size(); ++t) {
      const Slice& slice = layout.slice(static_cast<std::int32_t>(t));
      ASSERT_EQ(slice.offset % ChunkLayout::kSliceAlign, 0) << "seed " << seed;
      ASSERT_LE(slice.offset + slice.n_elems, layout.chunk(slice.chunk).n_elems) << "seed " << seed;
      taken[slice.chunk].resize(static_cast<std::size_t>(layout.chunk(slice.chunk).n_elems));
      for (std::int64_t i = slice.offset; i < slice.offset + slice.n_elems; ++i) {
        ASSERT_FALSE(taken[slice.chunk][static_cast<std::size_t>(i)]) << "seed " << seed;
        taken[slice.chunk][static_cast<std::size_t>(i)] = true;
      }
    }
  }
}

// A tensor of blocks is a slice a chunk, and where chunks are read in order, so are its values, without those
// of other tensors between them.
TEST(LayoutTest, BlocksOfATensorAreInChunksThatFollowEachOther) {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    const Rng rng(seed, 0);
    std::vector<LayoutTensor> tensors;
    for (std::uint64_t i = 0; i < 1 + rng.below(0, 12); ++i) {
      const auto n = 1 + static_cast<std::int64_t>(rng.below(3 * i + 1, 60000));
      const auto block = 4096 * static_cast<std::int64_t>(rng.below(3 * i + 2, 4));
      tensors.push_back({"t" + std::to_string(i), n, {}, false, block});
    }
    const std::int64_t chunk_elems = 4096 * static_cast<std::int64_t>(rng.below(100, 8));
    const ChunkLayout layout = must(ChunkLayout::create(tensors, {.chunk_elems = chunk_elems}));
    std::vector<std::int64_t> next(tensors.size(), 0);
    std::int32_t last = -1;
    for (ChunkId chunk = 0; chunk < layout.n_chunks(); ++chunk) {
      std::int64_t end = 0;
      for (const Slice& slice : layout.chunk(chunk).slices) {
        std::int64_t& expected = next[static_cast<std::size_t>(slice.tensor)];
        ASSERT_EQ(slice.first, expected) << "seed " << seed;
        ASSERT_TRUE(expected == 0 || last == slice.tensor) << "seed " << seed;
        ASSERT_TRUE(slice.offset >= end && slice.offset % ChunkLayout::kSliceAlign == 0) << "seed " << seed;
        ASSERT_EQ(layout.slice(slice.tensor, slice.end() - 1).chunk, chunk) << "seed " << seed;
        end = slice.offset + slice.n_elems;
        expected = slice.end();
        last = slice.tensor;
        const LayoutTensor& tensor = tensors[static_cast<std::size_t>(slice.tensor)];
        if (slice.end() < tensor.n_elems) {
          ASSERT_TRUE(tensor.block_elems > 0 && slice.end() % tensor.block_elems == 0) << "seed " << seed;
        }
      }
      ASSERT_LE(end, layout.chunk(chunk).n_elems) << "seed " << seed;
    }
    for (std::size_t t = 0; t < tensors.size(); ++t)
      ASSERT_EQ(next[t], tensors[t].n_elems) << "seed " << seed;
  }
  const std::vector<LayoutTensor> odd = {{"odd", 9000, {}, false, 100}};
  EXPECT_THAT(ChunkLayout::create(odd, {}).status().message(),
              HasSubstr("tensor odd has blocks of 100 elements; they must be a multiple of 4096"));
}

TEST(LayoutTest, GroupsNeverShareAChunk) {
  std::vector<LayoutTensor> tensors = tensors_of({10, 10, 10, 10});
  tensors[1].group.trainable = tensors[3].group.trainable = false;
  LayoutOptions options;
  options.chunk_elems = 16384;
  const ChunkLayout layout = must(ChunkLayout::create(tensors, options));
  EXPECT_EQ(layout.n_chunks(), 2u);
  EXPECT_EQ(layout.slice(0).chunk, layout.slice(2).chunk);
  EXPECT_EQ(layout.slice(1).chunk, layout.slice(3).chunk);
  EXPECT_NE(layout.slice(0).chunk, layout.slice(1).chunk);
}

TEST(LayoutTest, FrozenChunksHaveParametersAndOptionallyMasters) {
  for (const auto& [compute, param, rest] :
       {std::tuple{DType::f32, 4, 0}, std::tuple{DType::bf16, 2, 2}, std::tuple{DType::f16, 2, 4}})
    for (const bool masters : {true, false}) {
      const GroupKey group{.compute = compute, .trainable = false, .frozen_masters = masters};
      const auto bytes = [&](Payload payload) {
        return static_cast<int>(bytes_of(group, payload, 4096) / 4096);
      };
      EXPECT_EQ(bytes(Payload::param), param);
      EXPECT_EQ(bytes(Payload::master), masters ? rest : 0);
      for (const Payload none : {Payload::m, Payload::v, Payload::grad, Payload::accum})
        EXPECT_EQ(bytes(none), 0);
    }
}

TEST(LayoutTest, ShardsOfAllRanksAreEqualAndCoverEveryChunk) {
  for (std::int32_t world : {1, 2, 3, 8}) {
    std::int64_t expected_begin = 0;
    for (std::int32_t rank = 0; rank < world; ++rank) {
      LayoutOptions options;
      options.sharding = {.ranks = world, .part = rank, .shards = world};
      options.chunk_elems = 4096 * world;
      const ChunkLayout layout = must(ChunkLayout::create(tensors_of({50000}), options));
      const auto [begin, end] = layout.range(0, Payload::m);
      EXPECT_EQ(layout.summed(0), layout.range(0, Payload::accum));
      EXPECT_EQ(begin, expected_begin);
      EXPECT_EQ(end - begin, layout.chunk(0).n_elems / world);
      EXPECT_EQ((end - begin) % ChunkLayout::kSliceAlign, 0);
      expected_begin = end;
      EXPECT_LE(end, layout.chunk(0).n_elems);
    }
    EXPECT_EQ(expected_begin, must(ChunkLayout::create(tensors_of({50000}), {.chunk_elems = 4096 * world,
                                                                             .sharding = {.ranks = world}}))
                                  .chunk(0)
                                  .n_elems);
  }
}

TEST(LayoutTest, TheSearchStaysWithinItsBoundAndExplainsItsChoice) {
  LayoutOptions options;
  options.max_chunk_elems = 8192;
  options.half_rate_bytes = 1e9;  // prefers chunks as large as allowed
  const ChunkLayout layout =
      must(ChunkLayout::create(tensors_of(std::vector<std::int64_t>(64, 4096)), options));
  EXPECT_EQ(layout.chunk_elems(), 8192);
  EXPECT_THAT(layout.explanation(), HasSubstr("32 chunks of 8192 elements"));
  EXPECT_THAT(layout.explanation(), HasSubstr("lowest waste and transfer overhead of"));
  EXPECT_THAT(layout.explanation(), HasSubstr("0.0 % unused"));
}

TEST(LayoutTest, TheSearchTradesWasteAgainstTransferEfficiency) {
  LayoutOptions options;
  const std::vector<LayoutTensor> tensors = tensors_of(std::vector<std::int64_t>(7, 3 * 4096));
  options.half_rate_bytes = 1;  // transfer efficiency hardly matters, so nothing is wasted
  const ChunkLayout snug = must(ChunkLayout::create(tensors, options));
  EXPECT_EQ(snug.wasted_elems(), 0);
  options.half_rate_bytes = 1e5;
  EXPECT_GT(must(ChunkLayout::create(tensors, options)).chunk_elems(), snug.chunk_elems());
}

TEST(LayoutTest, WrongOptionsAreRefusedWithTheNumbers) {
  LayoutOptions options;
  options.chunk_elems = 5000;
  EXPECT_THAT(std::string(ChunkLayout::create(tensors_of({1}), options).status().message()),
              HasSubstr("5000"));
  options.chunk_elems = 4096;
  options.sharding.ranks = 2;
  EXPECT_EQ(ChunkLayout::create(tensors_of({1}), options).status().code(), Code::invalid);
  options.sharding.part = 2;
  EXPECT_THAT(std::string(ChunkLayout::create(tensors_of({1}), options).status().message()),
              HasSubstr("part 2 is out of range for 2 ranks"));
  EXPECT_THAT(std::string(ChunkLayout::create(tensors_of({1, 0}), {}).status().message()),
              HasSubstr("t1 has 0 elements"));
  EXPECT_EQ(ChunkLayout::create({}, {}).status().code(), Code::invalid);
}

}  // namespace
}  // namespace strata
