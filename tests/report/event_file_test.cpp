// Files of events, byte by byte; that TensorBoard reads them is for a claim to show.
#include <gtest/gtest.h>

#include <strata/report/event_file.h>

#include "report/event_reader.h"
#include "support/temp_dir.h"

namespace strata {
namespace {

TEST(EventFile, HasAHeadAndAnEventPerStep) {
  const test::TempDir dir;
  {
    const auto events = must(EventFile::create(posix_io(), dir.file("events.out.tfevents.1"), 1.5));
    events->scalar("loss", 2);
    must(events->write(7, 2.5));
    must(events->write(300, 3.5));
  }
  const std::vector<std::string> records = test::event_records(dir.file("events.out.tfevents.1"));
  ASSERT_EQ(records.size(), 3u);
  EXPECT_EQ(records[0], std::string("\x09\0\0\0\0\0\0\xf8\x3f\x1a\x0d"
                                    "brain.Event:2",
                                    24));
  EXPECT_EQ(records[1],
            std::string("\x09\0\0\0\0\0\0\x04\x40\x10\x07\x2a\x0d\x0a\x0b\x0a\x04loss\x15\0\0\0\x40", 26));
  EXPECT_EQ(records[2].substr(9, 3), std::string("\x10\xac\x02")) << "a step of two bytes";
  EXPECT_EQ(records[2].size(), 14u) << "the values of an event are not those of the next";
}

TEST(EventFile, AHistogramHasTheIntervalsAndWhatFollowsFromThem) {
  const test::TempDir dir;
  {
    const auto events = must(EventFile::create(posix_io(), dir.file("events"), 1));
    const double limits[] = {1, 2, 4, 8}, counts[] = {0, 3, 1, 0};
    events->histogram("norms", limits, counts);
    must(events->write(9, 2));
  }
  const auto histograms = test::event_histograms(dir.file("events"));
  ASSERT_TRUE(histograms.contains("norms"));
  const test::EventHistogram& histogram = histograms.at("norms").at(9);
  EXPECT_EQ(histogram.limits, (std::vector<double>{1, 2, 4, 8}));
  EXPECT_EQ(histogram.counts, (std::vector<double>{0, 3, 1, 0}));
  EXPECT_EQ(histogram.n, 4);
  EXPECT_EQ(histogram.min, 1) << "where the first value can be";
  EXPECT_EQ(histogram.max, 4);
  EXPECT_EQ(histogram.sum, 3 * 2 + 4);
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
  EXPECT_EQ(test::event_records(dir.file("events")).size(), 4u);
}

}  // namespace
}  // namespace strata
