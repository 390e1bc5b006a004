#include "text/nfc.h"

#include <string>

#include <gtest/gtest.h>

namespace strata {
namespace {

using detail::to_nfc;

TEST(NfcTest, ComposedTextIsUnchanged) {
  for (const std::string text :
       {"", "plain", "caf\u00e9", "\u4eca\u5929\u597d\u3002", "\ud55c\uae00", "\U0001F600"})
    EXPECT_FALSE(to_nfc(text).has_value()) << text;
}

TEST(NfcTest, PairsAreComposed) {
  EXPECT_EQ(to_nfc("cafe\u0301 n\u0303o"), "caf\u00e9 \u00f1o");
  EXPECT_EQ(to_nfc("\u1112\u1161\u11ab"), "\ud55c");
  EXPECT_EQ(to_nfc("\ud558\u11ab"), "\ud55c");
}

TEST(NfcTest, SingletonsAreReplaced) { EXPECT_EQ(to_nfc("\u212b\u2126\u037e"), "\u00c5\u03a9;"); }

TEST(NfcTest, MarksAreSortedBeforeTheyCompose) {
  EXPECT_EQ(to_nfc("q\u0307\u0323"), "q\u0323\u0307");
  EXPECT_EQ(to_nfc("d\u0307\u0323"), "\u1e0d\u0307");
}

TEST(NfcTest, ExcludedCompositionsStayApart) { EXPECT_EQ(to_nfc("\ufb1d"), "\u05d9\u05b4"); }

TEST(NfcTest, BytesThatAreNotUtf8StayAndSeparate) {
  EXPECT_EQ(to_nfc("\xff"
                   "e\u0301\xc3"),
            "\xff\u00e9\xc3");
  EXPECT_FALSE(to_nfc("e\xff\u0301").has_value() && to_nfc("e\xff\u0301") != "e\xff\u0301");
  EXPECT_EQ(to_nfc(std::string("\0e\u0301\0", 5)), std::string("\0\u00e9\0", 4));
}

TEST(NfcTest, ManyMarksAreNotSortedInQuadraticTime) {
  std::string text = "e";
  for (int i = 0; i < 200'000; ++i) text += "\u0301\u0316";
  EXPECT_EQ(to_nfc(text)->substr(0, 2), "\u00e9");
}

}  // namespace
}  // namespace strata
