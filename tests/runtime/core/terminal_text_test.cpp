// Tests what a terminal may show of a text from elsewhere.
#include <strata/runtime/terminal_text.h>

#include <string>

#include <gtest/gtest.h>

namespace strata {
namespace {

constexpr const char* kInstead = "\ufffd";

TEST(TerminalTextTest, OrdinaryTextIsShownAsItIs) {
  for (const std::string text : {"", "plain\n\ttext", "caf\u00e9 \u6771\u4eac \U0001F600", "\u05e9\u200f!"})
    EXPECT_EQ(terminal_text(text), text);
  EXPECT_EQ(terminal_text("a\r\nb"), "a\nb");
}

TEST(TerminalTextTest, WhatATerminalObeysIsReplaced) {
  for (const std::string text :
       {"\x1b", "\a", "\b", "\r", "\x7f", "\u009b", "\u0085", "\u202e", "\u2066", "\u2028"})
    EXPECT_EQ(terminal_text("a" + text + "b"), "a" + std::string(kInstead) + "b") << text;
  EXPECT_EQ(terminal_text("\x1b]0;title\x07"), std::string(kInstead) + "]0;title" + kInstead);
  EXPECT_EQ(terminal_text(std::string(1, '\0')), kInstead);
}

TEST(TerminalTextTest, BytesThatAreNoUtf8AreReplacedOneByOne) {
  EXPECT_EQ(terminal_text("a\xff"), std::string("a") + kInstead);
  EXPECT_EQ(terminal_text("\xe2\x82"), std::string(kInstead) + kInstead);
  EXPECT_EQ(terminal_text("\xc0\x9b"
                          "b"),
            std::string(kInstead) + kInstead + "b")
      << "an overlong escape";
  EXPECT_EQ(terminal_text("\xed\xa0\x80"), std::string(kInstead) + kInstead + kInstead) << "a surrogate";
}

}  // namespace
}  // namespace strata
