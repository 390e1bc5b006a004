#include <strata/runtime/plural.h>
#include <strata/runtime/units.h>

#include <gtest/gtest.h>

namespace strata {
namespace {

TEST(UnitsTest, BytesAcceptBinaryAndDecimalUnits) {
  EXPECT_EQ(must(parse_bytes("32MiB")), 32 * kMiB);
  EXPECT_EQ(must(parse_bytes("1.5 GiB")), 1536 * kMiB);
  EXPECT_EQ(must(parse_bytes("64KB")), 64000u);
  EXPECT_EQ(must(parse_bytes("4096")), 4096u);
}

TEST(UnitsTest, BadBytesNameTheTextAndTheKnownUnits) {
  const Status status = parse_bytes("3 parsecs").status();
  EXPECT_EQ(status.code(), Code::invalid);
  EXPECT_NE(status.message().find("parsecs"), std::string_view::npos);
  EXPECT_NE(status.message().find("mib"), std::string_view::npos);
  EXPECT_FALSE(parse_bytes("-1").has_value());
  EXPECT_FALSE(parse_bytes("").has_value());
  EXPECT_FALSE(parse_bytes("1e300").has_value());
}

TEST(UnitsTest, FormattedBytesAreShort) {
  EXPECT_EQ(format_bytes(512), "512 B");
  EXPECT_EQ(format_bytes(32 * kMiB), "32.0 MiB");
}

TEST(UnitsTest, CountsHaveTheirNounsInTheRightNumber) {
  EXPECT_EQ(plural(1, "micro-batch"), "1 micro-batch");
  EXPECT_EQ(plural(2, "micro-batch"), "2 micro-batches");
  EXPECT_EQ(plural(std::size_t{0}, "home payload"), "0 home payloads");
}

TEST(UnitsTest, SecondsAcceptUnits) {
  EXPECT_DOUBLE_EQ(must(parse_seconds("90s")), 90);
  EXPECT_DOUBLE_EQ(must(parse_seconds("5min")), 300);
  EXPECT_DOUBLE_EQ(must(parse_seconds("250ms")), 0.25);
}

}  // namespace
}  // namespace strata
