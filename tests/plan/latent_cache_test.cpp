// What a KV cache of latent attention keeps of a token, and why.
#include <strata/plan/latent_cache.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <strata/config/load_config.h>
#include <strata/config/model_choice.h>
#include <strata/runtime/str.h>
#include <strata/runtime/units.h>

namespace strata {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

struct Choice {
  explicit Choice(const std::string& family, std::vector<std::string> more = {}) {
    more.insert(more.end(), {"model.family=" + family, "memory.backend=host", "memory.pinned=1GiB"});
    if (family == "deepseek_v3") more.push_back("model.experts=6");
    loaded = must(load_config({.items = std::move(more)}));
    decoder = with_derived_sizes(decoder_config(loaded.config));
  }
  Result<bool> made(std::string_view obstacle = {}) {
    return keeps_latent_rows(loaded, decoder, shape, DType::f32, obstacle);
  }
  std::uint64_t expanded() const { return cache_bytes(decoder, shape); }
  std::string why() const { return std::string(loaded.tree.entry("memory.latent_cache").why); }

  LoadedConfig loaded;
  DecoderConfig decoder;
  const CacheShape shape{.rows = 8, .sequences = 2, .context = 64};
};
std::string device(std::uint64_t bytes) { return str("memory.device=", bytes); }

TEST(LatentCacheChoice, KeysAndValuesAreKeptIfTheyTakeAtMostAQuarterOfTheDevice) {
  const std::uint64_t expanded = Choice("deepseek_v3").expanded();
  Choice enough("deepseek_v3", {device(4 * expanded)}), little("deepseek_v3", {device(4 * expanded - 1)});
  EXPECT_FALSE(must(enough.made()));
  EXPECT_EQ(enough.loaded.config.memory.latent_cache, "expanded");
  EXPECT_THAT(enough.why(), HasSubstr("at most a quarter of memory.device"));
  EXPECT_TRUE(must(little.made()));
  EXPECT_EQ(little.loaded.config.memory.latent_cache, "latent");
  CacheShape latent = little.shape;
  latent.latent = true;
  EXPECT_THAT(little.why(), AllOf(HasSubstr(format_bytes(expanded)),
                                  HasSubstr(format_bytes(cache_bytes(little.decoder, latent)))));
}

TEST(LatentCacheChoice, EitherCanBeAskedForAndWhatCannotBeSaysWhy) {
  EXPECT_TRUE(must(Choice("deepseek_v3", {"memory.latent_cache=latent", device(kGiB)}).made()));
  EXPECT_FALSE(must(Choice("deepseek_v3", {"memory.latent_cache=expanded", device(1000)}).made()));
  Choice obstacle("deepseek_v3", {device(1000)}), plain("llama", {device(1000)});
  EXPECT_FALSE(must(obstacle.made("ranks share it")));
  EXPECT_EQ(obstacle.why(), "ranks share it");
  EXPECT_FALSE(must(plain.made()));
  EXPECT_EQ(plain.why(), "no layer has latent attention");
  const auto refused = [](const std::string& family, std::string_view why) {
    return std::string(Choice(family, {"memory.latent_cache=latent"}).made(why).status().message());
  };
  EXPECT_THAT(refused("deepseek_v3", "ranks share it"),
              HasSubstr("memory.latent_cache = latent, but ranks share it"));
  EXPECT_THAT(refused("llama", ""), HasSubstr("no layer of the model has latent attention"));
}

}  // namespace
}  // namespace strata
