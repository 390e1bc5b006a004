#include <strata/simd/isa.h>

#include <gtest/gtest.h>

#include "support/isas.h"

namespace strata::simd {
namespace {

TEST(IsaTest, AutoIsTheDetectedSet) { EXPECT_EQ(must(select_isa("auto")), detect_isa()); }

TEST(IsaTest, ScalarIsAlwaysThere) { EXPECT_EQ(must(select_isa("scalar")), CpuIsa::scalar); }

TEST(IsaTest, AnUnknownNameIsRefusedWithTheChoices) {
  const Status status = select_isa("avx3").status();
  EXPECT_EQ(status.code(), Code::invalid);
  EXPECT_NE(status.message().find("avx3"), std::string_view::npos);
  EXPECT_NE(status.message().find("sse42"), std::string_view::npos);
}

TEST(IsaTest, ASetTheCpuLacksIsRefused) {
  if (is_supported(CpuIsa::avx512)) GTEST_SKIP() << "this CPU has every set";
  EXPECT_EQ(select_isa("avx512").status().code(), Code::unsupported);
  EXPECT_EQ(use_isa(CpuIsa::avx512).code(), Code::unsupported);
}

// Only the sets that cmake/StrataSimd.cmake builds for this architecture are supported.
TEST(IsaTest, SupportedSetsAreThoseOfTheArchitecture) {
#if defined(__aarch64__)
  EXPECT_EQ(test::supported_isas(), (std::vector{CpuIsa::scalar, CpuIsa::neon}));
  EXPECT_EQ(detect_isa(), CpuIsa::neon);
  EXPECT_EQ(select_isa("avx2").status().code(), Code::unsupported);
#else
  EXPECT_FALSE(is_supported(CpuIsa::neon));
  EXPECT_EQ(select_isa("neon").status().code(), Code::unsupported);
  EXPECT_EQ(use_isa(CpuIsa::neon).code(), Code::unsupported);
#endif
}

TEST(IsaTest, UseIsaSetsTheActiveSet) {
  must(use_isa(CpuIsa::scalar));
  EXPECT_EQ(active_isa(), CpuIsa::scalar);
  must(use_isa(detect_isa()));
  EXPECT_EQ(active_isa(), detect_isa());
}

}  // namespace
}  // namespace strata::simd
