#include "yaml_document.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace strata {
namespace {

using detail::parse_yaml;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string json_of(const std::string& yaml) {
  const auto parsed = parse_yaml(yaml);
  return parsed.has_value() ? parsed->dump() : std::string(parsed.status().message());
}

TEST(YamlDocumentTest, ScalarsHaveTheirTypes) {
  EXPECT_EQ(
      json_of("a: 1\nb: -2.5\nc: 2e-5\nd: true\ne: no\nf: ~\ng:\nh: text # comment\ni: '1'\nj: \"yes\"\n"),
      R"({"a":1,"b":-2.5,"c":2e-05,"d":true,"e":false,"f":null,"g":null,"h":"text","i":"1","j":"yes"})");
  EXPECT_EQ(json_of("a: .inf\nb: nan\nc: 1.2.3\nd: 007x\ne: +3\n"),
            R"({"a":".inf","b":"nan","c":"1.2.3","d":"007x","e":3})");
}

TEST(YamlDocumentTest, ListsMappingsBlocksAndAnchorsAreRead) {
  EXPECT_EQ(json_of("a:\n  - x\n  - k: 1\n    l: [2, {m: 3}]\nb: |\n  one\n  two\nc: &n {d: 1}\ne: *n\n"),
            R"({"a":["x",{"k":1,"l":[2,{"m":3}]}],"b":"one\ntwo\n","c":{"d":1},"e":{"d":1}})");
}

TEST(YamlDocumentTest, WhatIsNotOneMappingIsRefusedWithItsLine) {
  EXPECT_EQ(json_of(""), "line 1: the file is empty");
  EXPECT_THAT(json_of("- a\n- b\n"), HasSubstr("no mapping"));
  EXPECT_EQ(json_of("a: 1\nb: 2\na: 3\n"), "line 3: the key 'a' is there twice");
  EXPECT_THAT(json_of("a: 1\n b: 2\n"), StartsWith("line 2: "));
  EXPECT_THAT(json_of("a: 1\n---\nb: 2\n"), HasSubstr("a second document"));
  EXPECT_THAT(json_of("a: !!python/object:x 1\n"), HasSubstr("line 1: the tag"));
  EXPECT_THAT(json_of("a: &x {k: 1}\nb:\n  <<: *x\n"), HasSubstr("line 3: merge keys"));
  EXPECT_THAT(json_of("a: *x\n"), HasSubstr("line 1: *x has no anchor before it"));
  EXPECT_THAT(json_of("a: [1, 2\n"), StartsWith("line 2: "));
}

TEST(YamlDocumentTest, AliasesDoNotMultiplyASmallFile) {
  std::string yaml = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n";
  for (int i = 1; i < 9; ++i) {
    yaml += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [";
    for (int k = 0; k < 10; ++k) yaml += (k > 0 ? ", *a" : "*a") + std::to_string(i - 1);
    yaml += "]\n";
  }
  EXPECT_THAT(json_of(yaml), HasSubstr("more than 100000 values"));
  EXPECT_THAT(json_of("a: " + std::string(1000, '[') + "\n"), HasSubstr("nested deeper than 64"));
}

TEST(YamlDocumentTest, TheDepthOfAnAliasCounts) {
  std::string yaml = "a0: &a0 " + std::string(30, '[') + std::string(30, ']') + "\n";
  yaml += "a1: &a1 " + std::string(30, '[') + "*a0" + std::string(30, ']') + "\n";
  EXPECT_THAT(json_of(yaml), StartsWith("{\"a0\":[["));
  yaml += "a2: [[[[[*a1]]]]]\n";
  EXPECT_EQ(json_of(yaml), "line 3: *a1 is nested 59 deep at depth 6; at most 64 are read");
}

}  // namespace
}  // namespace strata
