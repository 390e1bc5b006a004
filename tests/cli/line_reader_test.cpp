#include "terminal/line_reader.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <string_view>

#include <gtest/gtest.h>

namespace strata::cli {
namespace {

using Got = LineReader::Got;

class LineReaderTest : public ::testing::Test {
 protected:
  ~LineReaderTest() override {
    ::close(ends_[0]);
    end();
  }
  void send(std::string_view text) {
    EXPECT_EQ(::write(ends_[1], text.data(), text.size()), static_cast<ssize_t>(text.size()));
  }
  void end() {
    if (ends_[1] >= 0) ::close(ends_[1]);
    ends_[1] = -1;
  }
  Got next(bool waits = false) { return must(reader_.next(waits, line_)); }

  static std::array<int, 2> make_pipe() {
    std::array<int, 2> ends{};
    EXPECT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
    return ends;
  }

  std::array<int, 2> ends_ = make_pipe();
  LineReader reader_{ends_[0], 8};
  std::string line_;
};

TEST_F(LineReaderTest, ALineIsTakenOnceItIsWhole) {
  EXPECT_EQ(next(), Got::nothing);
  send("one\ntw");
  EXPECT_EQ(next(), Got::line);
  EXPECT_EQ(line_, "one");
  EXPECT_EQ(next(), Got::nothing);
  send("o\n\n");
  EXPECT_EQ(next(true), Got::line);
  EXPECT_EQ(line_, "two");
  EXPECT_EQ(next(), Got::line);
  EXPECT_EQ(line_, "");
  EXPECT_EQ(reader_.line_number(), 3U);
}

TEST_F(LineReaderTest, TheTextAfterTheLastLineFeedIsALine) {
  send("a\nb");
  end();
  EXPECT_EQ(next(true), Got::line);
  EXPECT_EQ(next(true), Got::line);
  EXPECT_EQ(line_, "b");
  EXPECT_EQ(next(true), Got::end);
  EXPECT_EQ(next(), Got::end);
  EXPECT_EQ(reader_.line_number(), 2U);
}

TEST_F(LineReaderTest, ALineThatIsTooLongIsSkipped) {
  send("12345678\n123456789\n");
  EXPECT_EQ(next(), Got::line);
  EXPECT_EQ(next(), Got::too_long);
  for (int i = 0; i < 5; ++i) {
    send("0123456789");
    EXPECT_EQ(next(), Got::nothing);
  }
  send("\nend\n");
  EXPECT_EQ(next(), Got::too_long);
  EXPECT_EQ(next(), Got::line);
  EXPECT_EQ(line_, "end");
  EXPECT_EQ(reader_.line_number(), 4U);
}

}  // namespace
}  // namespace strata::cli
