// Files of events, byte by byte; that TensorBoard reads them is for a claim to show.
#include <gtest/gtest.h>

#include <cstring>

#include <strata/report/event_file.h>
#include <strata/runtime/io/crc32c.h>

#include "support/temp_dir.h"

namespace strata {
namespace {

std::uint32_t unmasked(std::uint32_t masked) {
  const std::uint32_t rotated = masked - 0xa282ead8u;
  return (rotated >> 17) | (rotated << 15);
}

std::vector<std::string> records_of(const std::string& file) {
  const std::string all = must(read_text(posix_io(), file, 1 << 20));
  std::vector<std::string> records;
  for (std::size_t at = 0; at < all.size();) {
    std::uint64_t size = 0;
    std::uint32_t of_size = 0, of_data = 0;
    std::memcpy(&size, all.data() + at, 8);
    std::memcpy(&of_size, all.data() + at + 8, 4);
    records.push_back(all.substr(at + 12, size));
    std::memcpy(&of_data, all.data() + at + 12 + size, 4);
    EXPECT_EQ(unmasked(of_size), crc32c(0, std::as_bytes(std::span(all).subspan(at, 8))));
    EXPECT_EQ(unmasked(of_data), crc32c(0, std::as_bytes(std::span(records.back()))));
    at += 16 + size;
  }
  return records;
}

TEST(EventFile, HasAHeadAndAnEventPerStep) {
  const test::TempDir dir;
  {
    const auto events = must(EventFile::create(posix_io(), dir.file("events.out.tfevents.1"), 1.5));
    events->scalar("loss", 2);
    must(events->write(7, 2.5));
    must(events->write(300, 3.5));
  }
  const std::vector<std::string> records = records_of(dir.file("events.out.tfevents.1"));
  ASSERT_EQ(records.size(), 3u);
  EXPECT_EQ(records[0], std::string("\x09\0\0\0\0\0\0\xf8\x3f\x1a\x0d"
                                    "brain.Event:2",
                                    24));
  EXPECT_EQ(records[1],
            std::string("\x09\0\0\0\0\0\0\x04\x40\x10\x07\x2a\x0d\x0a\x0b\x0a\x04loss\x15\0\0\0\x40", 26));
  EXPECT_EQ(records[2].substr(9, 3), std::string("\x10\xac\x02")) << "a step of two bytes";
  EXPECT_EQ(records[2].size(), 14u) << "the values of an event are not those of the next";
}

TEST(EventFile, GoesOnWhereItEnded) {
  const test::TempDir dir;
  for (int i = 0; i < 2; ++i) {
    const auto events = must(EventFile::create(posix_io(), dir.file("events"), 1));
    events->text("samples", "It is a truth");
    const double limits[] = {1, 2, 4}, counts[] = {0, 3, 1};
    events->histogram("norms", limits, counts);
    must(events->write(i, 2));
  }
  EXPECT_EQ(records_of(dir.file("events")).size(), 4u);
}

}  // namespace
}  // namespace strata
