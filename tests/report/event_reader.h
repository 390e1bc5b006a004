#pragma once

#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include <strata/runtime/io/crc32c.h>
#include <strata/runtime/io/io.h>

namespace strata::test {

inline std::uint32_t unmasked(std::uint32_t masked) {
  const std::uint32_t rotated = masked - 0xa282ead8u;
  return (rotated >> 17) | (rotated << 15);
}

/// The records of a file of events, whose checksums are compared.
inline std::vector<std::string> event_records(const std::string& file) {
  const std::string all = must(read_text(posix_io(), file, 1 << 24));
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

/// The fields of a message of protocol buffers, in their order: numbers, or bytes.
struct MessageField {
  int number = 0;
  std::uint64_t value = 0;  ///< the bits, if the size is fixed
  std::string bytes;
  double real() const {
    double number_of_bits = 0;
    std::memcpy(&number_of_bits, &value, sizeof number_of_bits);
    return number_of_bits;
  }
  std::vector<double> reals() const {
    std::vector<double> all(bytes.size() / sizeof(double));
    std::memcpy(all.data(), bytes.data(), all.size() * sizeof(double));
    return all;
  }
};
inline std::vector<MessageField> message_fields(std::string_view message) {
  const auto varint = [&message] {
    std::uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
      const auto byte = static_cast<unsigned char>(message.front());
      message.remove_prefix(1);
      value |= std::uint64_t{byte & 0x7fu} << shift;
      if (byte < 0x80) return value;
    }
  };
  std::vector<MessageField> fields;
  while (!message.empty()) {
    const std::uint64_t key = varint();
    MessageField& field = fields.emplace_back();
    field.number = static_cast<int>(key >> 3);
    const std::size_t fixed = (key & 7) == 1 ? 8 : (key & 7) == 5 ? 4 : 0;
    if ((key & 7) == 0) field.value = varint();
    if ((key & 7) == 2) {
      const std::uint64_t size = varint();
      field.bytes = std::string(message.substr(0, size));
      message.remove_prefix(size);
    }
    std::memcpy(&field.value, message.data(), fixed);
    message.remove_prefix(fixed);
  }
  return fields;
}

struct EventHistogram {
  double min = 0, max = 0, n = 0, sum = 0;
  std::vector<double> limits, counts;
};
/// The histograms of a file of events, by tag and step.
inline std::map<std::string, std::map<std::int64_t, EventHistogram>> event_histograms(
    const std::string& file) {
  std::map<std::string, std::map<std::int64_t, EventHistogram>> found;
  for (const std::string& record : event_records(file)) {
    std::int64_t step = 0;
    for (const MessageField& of_event : message_fields(record)) {
      if (of_event.number == 2) step = static_cast<std::int64_t>(of_event.value);
      if (of_event.number != 5) continue;
      for (const MessageField& of_summary : message_fields(of_event.bytes)) {
        std::string tag;
        for (const MessageField& of_value : message_fields(of_summary.bytes)) {
          if (of_value.number == 1) tag = of_value.bytes;
          if (of_value.number != 5) continue;
          EventHistogram& histogram = found[tag][step];
          for (const MessageField& each : message_fields(of_value.bytes)) {
            if (each.number == 1) histogram.min = each.real();
            if (each.number == 2) histogram.max = each.real();
            if (each.number == 3) histogram.n = each.real();
            if (each.number == 4) histogram.sum = each.real();
            if (each.number == 6) histogram.limits = each.reals();
            if (each.number == 7) histogram.counts = each.reals();
          }
        }
      }
    }
  }
  return found;
}

}  // namespace strata::test
