// The bytes before the tensors, and the formats of values.
#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include <strata/runtime/rng.h>
#include <strata/runtime/status.h>

#include <strata/runtime/io/gguf/encoding.h>
#include <strata/runtime/io/gguf/layout.h>
#include "runtime/io/gguf_file.h"

namespace strata {
namespace {

using nlohmann::json;

TEST(GgufLayoutTest, MetadataReadsBackAsItWasAdded) {
  GgufMetadata metadata;
  metadata.add_u32("count", 4000000000);
  metadata.add_f32("epsilon", 1e-5f);
  metadata.add_bool("on", true);
  metadata.add_text("text", std::string("a\0\xC3\xA4", 4));
  metadata.add_bools("flags", {true, false, true});
  metadata.add_i32s("types", std::vector<std::int32_t>{-1, 6});
  metadata.add_f32s("scores", std::vector<float>{-0.5f});
  metadata.add_texts("tokens", std::vector<std::string>{"", "b"});
  const test::GgufFile file(gguf_header(metadata, {}));
  EXPECT_EQ(file.version, 3u);
  EXPECT_EQ(file.metadata, (json{{"count", 4000000000},
                                 {"epsilon", 1e-5f},
                                 {"on", true},
                                 {"text", std::string("a\0\xC3\xA4", 4)},
                                 {"flags", {true, false, true}},
                                 {"types", {-1, 6}},
                                 {"scores", {-0.5f}},
                                 {"tokens", {"", "b"}}}));
}

TEST(GgufLayoutTest, TensorsBeginAtMultiplesOf32AfterEachOther) {
  const std::vector<GgufTensor> tensors = {{"a", {3, 5}, GgufFormat::f32},
                                           {"b", {7}, GgufFormat::f32},
                                           {"c", {2, 64}, GgufFormat::q8_0},
                                           {"d", {1, 3}, GgufFormat::bf16}};
  const std::string header = gguf_header({}, tensors);
  const test::GgufFile file(header);
  EXPECT_EQ(header.size() % 32, 0u);
  EXPECT_EQ(file.data_begin, header.size());
  EXPECT_EQ(file.names, (std::vector<std::string>{"a", "b", "c", "d"}));
  EXPECT_EQ(file.tensors.at("a").dims, (std::vector<std::uint64_t>{5, 3}));
  EXPECT_EQ(file.tensors.at("c").type, 8u);
  EXPECT_EQ(file.tensors.at("b").offset - header.size(), 64u);        // 60 bytes
  EXPECT_EQ(file.tensors.at("c").offset - header.size(), 64u + 32);   // 28 bytes
  EXPECT_EQ(file.tensors.at("d").offset - header.size(), 96u + 160);  // 4 blocks of 34 bytes
}

// Values of one block of q8_0, and what they become.
struct EncodedBlock {
  float scale = 0;
  std::vector<int> multiples;
};
EncodedBlock encoded(std::vector<float> values) {
  values.resize(32);
  std::vector<std::byte> bytes(34);
  must(encode_gguf(values, GgufFormat::q8_0, bytes));
  std::uint16_t scale = 0;
  std::memcpy(&scale, bytes.data(), 2);
  EncodedBlock block{f16_to_f32(scale), {}};
  for (std::size_t i = 2; i < bytes.size(); ++i)
    block.multiples.push_back(static_cast<std::int8_t>(bytes[i]));
  return block;
}

TEST(GgufQ8Test, TheLargestMagnitudeIs127AndHalvesAreRoundedAwayFromZero) {
  const EncodedBlock block = encoded({-127, 0.5f, 1.5f, 2.5f, -0.5f, -2.5f, 0.49f, 126.5f});
  EXPECT_EQ(block.scale, 1);
  const std::vector<int> first(block.multiples.begin(), block.multiples.begin() + 9);
  EXPECT_EQ(first, (std::vector<int>{-127, 1, 2, 3, -1, -3, 0, 127, 0}));
}

TEST(GgufQ8Test, ABlockOfZerosAndOneOfTheSmallestNumbersAreZero) {
  for (const float x : {0.0f, std::numeric_limits<float>::denorm_min(), 1e-38f}) {
    const EncodedBlock block = encoded({x, -x});
    EXPECT_EQ(block.scale, 0);
    if (x == 0) {
      EXPECT_EQ(block.multiples, std::vector<int>(32, 0));
    }
  }
}

TEST(GgufQ8Test, AValueIsOffByHalfAStepAndTheRoundingOfTheScale) {
  const Rng rng(7, 1);
  std::vector<float> values(32 * 50), decoded(values.size());
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = rng.normal(i) * std::exp2(static_cast<float>(i / 32) / 3.0f - 12.0f);
  std::vector<std::byte> bytes(50 * 34);
  must(encode_gguf(values, GgufFormat::q8_0, bytes));
  must(decode_gguf(bytes, GgufFormat::q8_0, decoded));
  for (std::size_t block = 0; block < 50; ++block) {
    float largest = 0;
    for (std::size_t i = 32 * block; i < 32 * block + 32; ++i)
      largest = std::max(largest, std::abs(values[i]));
    const float step = largest / 127;
    for (std::size_t i = 32 * block; i < 32 * block + 32; ++i)
      EXPECT_LE(std::abs(values[i] - decoded[i]), step / 2 + largest * 0x1p-11f + 0x1p-18f) << i;
  }
}

TEST(GgufQ8Test, OtherSizesThanWholeBlocksAreRefused) {
  const std::vector<float> values(33);
  std::vector<std::byte> bytes(68);
  EXPECT_EQ(encode_gguf(values, GgufFormat::q8_0, bytes).code(), Code::invalid);
}

}  // namespace
}  // namespace strata
