// Regular expressions over names of modules, with the results of Python's re.
#include "adapter/module_pattern.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace strata::detail {
namespace {

using testing::HasSubstr;

constexpr const char *kQuery = "model.layers.3.self_attn.q_proj", *kUp = "model.layers.12.mlp.up_proj",
                     *kHead = "lm_head";

bool matches(const char* pattern, const char* name) {
  return must(ModulePattern::parse(pattern)).matches(name);
}

std::string refusal(std::string_view pattern) {
  return std::string(ModulePattern::parse(pattern).status().message());
}

TEST(ModulePatternTest, MatchesWholeNamesAsPythonDoes) {
  const struct {
    const char* pattern;
    bool query, up, head;
  } kCases[] = {{R"(.*\.q_proj)", true, false, false},
                {R"(q_proj)", false, false, false},
                {R"(.*(q|v|up)_proj$)", true, true, false},
                {R"(model\.layers\.(\d|1[0-5])\..*)", true, true, false},
                {R"(model\.layers\.[0-9]\.(self_attn|mlp)\.[a-z]+_proj)", true, false, false},
                {R"(^(?!.*mlp).*(?:q_proj|up_proj|lm_head)$)", true, false, true},
                {R"((?=.*attn)\w+(\.\w+){4})", true, false, false},
                {R"(.*\.\d{2,3}\..*)", false, true, false},
                {R"([^.]+)", false, false, true},
                {R"(.*?\.(?P<layer>[^.]*)\.12\..+?)", false, true, false},
                {R"((model\.)?(layers\.\d+\.)*.*head)", false, false, true},
                {R"(.*\bmlp\b.*)", false, true, false},
                {R"(lm_[\w-]{4}|)", false, false, true}};
  for (const auto& each : kCases) {
    EXPECT_EQ(matches(each.pattern, kQuery), each.query) << each.pattern;
    EXPECT_EQ(matches(each.pattern, kUp), each.up) << each.pattern;
    EXPECT_EQ(matches(each.pattern, kHead), each.head) << each.pattern;
  }
}

TEST(ModulePatternTest, WhatPythonRefusesIsRefused) {
  EXPECT_THAT(refusal("(q_proj"), HasSubstr("'(q_proj' has a '(' without its ')' at character 7"));
  EXPECT_THAT(refusal("q_proj)"), HasSubstr("an unbalanced ')'"));
  EXPECT_THAT(refusal("[a-"), HasSubstr("a '[' without its ']'"));
  EXPECT_THAT(refusal("[z-a]"), HasSubstr("a range of characters that goes down"));
  EXPECT_THAT(refusal("*q"), HasSubstr("a repetition of nothing"));
  EXPECT_THAT(refusal("a**"), HasSubstr("a repetition of a repetition"));
  EXPECT_THAT(refusal("a{3,2}"), HasSubstr("the repetition {3,2}"));
  EXPECT_THAT(refusal("a\\"), HasSubstr("a '\\' without a character"));
}

TEST(ModulePatternTest, TheRestOfPythonsSyntaxIsRefusedByName) {
  for (const auto& [pattern, what] :
       {std::pair{"(?<=x)y", "a lookbehind"}, std::pair{"(?i)Q", "flags"}, std::pair{R"((a)\1)", "'\\1'"},
        std::pair{"(?P=a)", "a group of a kind"}, std::pair{"a*+", "a possessive repetition"},
        std::pair{"(?=a(?!b))", "a lookahead in a lookahead"}}) {
    EXPECT_EQ(ModulePattern::parse(pattern).status().code(), Code::unsupported) << pattern;
    EXPECT_THAT(refusal(pattern), HasSubstr(what)) << pattern;
  }
}

// A backtracking engine would need 2^60 steps for the first, and the stack of a recursive one the others.
TEST(ModulePatternTest, PatternsOfStrangersEndAndTakeBoundedMemory) {
  const std::string many(60, 'a'), deep(100'000, '('), long_name(100'000, 'a');
  EXPECT_FALSE(matches("(a*)*(a|a)*(a+)+b", many.c_str()));
  EXPECT_THAT(refusal(deep), HasSubstr("more than 50 groups in each other"));
  EXPECT_THAT(refusal("((a{1000}){1000}){1000}"), HasSubstr("more than 4000 states"));
  EXPECT_THAT(refusal("((){1000}){1000}"), HasSubstr("more than 4000 states"));
  EXPECT_TRUE(matches("(a|b)*", long_name.c_str()));
}

}  // namespace
}  // namespace strata::detail
