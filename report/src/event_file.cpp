#include <strata/report/event_file.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include <strata/runtime/terminal_text.h>
#include <strata/runtime/io/crc32c.h>

namespace strata {
namespace {

static_assert(std::endian::native == std::endian::little);

// The wire format of protocol buffers.
enum class Wire : std::uint8_t { varint = 0, fixed64 = 1, bytes = 2, fixed32 = 5 };

void put_varint(std::string& to, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) to += static_cast<char>(value | 0x80);
  to += static_cast<char>(value);
}
void put_key(std::string& to, int field, Wire wire) {
  put_varint(to, static_cast<std::uint64_t>(field) << 3 | static_cast<std::uint64_t>(wire));
}
template <class T>
void put_raw(std::string& to, T value) {
  char bytes[sizeof value];
  std::memcpy(bytes, &value, sizeof value);
  to.append(bytes, sizeof value);
}
void put_number(std::string& to, int field, std::uint64_t value) {
  put_key(to, field, Wire::varint);
  put_varint(to, value);
}
void put_double(std::string& to, int field, double value) {
  put_key(to, field, Wire::fixed64);
  put_raw(to, value);
}
void put_bytes(std::string& to, int field, std::string_view bytes) {
  put_key(to, field, Wire::bytes);
  put_varint(to, bytes.size());
  to += bytes;
}
void put_doubles(std::string& to, int field, std::span<const double> values) {
  put_key(to, field, Wire::bytes);
  put_varint(to, values.size_bytes());
  for (const double value : values) put_raw(to, value);
}

// Fields of the messages.
namespace event {
constexpr int kWallTime = 1, kStep = 2, kFileVersion = 3, kSummary = 5;
}  // namespace event
namespace summary {
constexpr int kValue = 1;
}  // namespace summary
namespace value {
constexpr int kTag = 1, kSimpleValue = 2, kHistogram = 5, kTensor = 8, kMetadata = 9;
}  // namespace value
namespace histo {
constexpr int kMin = 1, kMax = 2, kNum = 3, kSum = 4, kSumSquares = 5, kBucketLimit = 6, kBucket = 7;
}  // namespace histo
namespace tensor {
constexpr int kDtype = 1, kShape = 2, kStringValue = 8;
constexpr std::uint64_t kString = 7;
}  // namespace tensor

// A checksum of data that contain checksums would be a weak one, so it is rotated.
std::uint32_t masked_crc(std::string_view data) {
  const std::uint32_t crc = crc32c(0, std::as_bytes(std::span(data)));
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

}  // namespace

Result<std::unique_ptr<EventFile>> EventFile::create(Io& io, const std::string& path, double wall_s) {
  STRATA_TRY_ASSIGN(std::unique_ptr<File> file, io.open(path, OpenMode::append));
  std::unique_ptr<EventFile> made(new EventFile(std::move(file)));
  std::string first;
  put_double(first, event::kWallTime, wall_s);
  put_bytes(first, event::kFileVersion, "brain.Event:2");
  STRATA_TRY(made->write_record(first));
  return made;
}

void EventFile::scalar(std::string_view tag, double number) {
  value_.clear();
  put_bytes(value_, value::kTag, tag);
  put_key(value_, value::kSimpleValue, Wire::fixed32);
  put_raw(value_, static_cast<float>(number));
  put_bytes(summary_, summary::kValue, value_);
}

void EventFile::text(std::string_view tag, std::string_view words) {
  value_.clear();
  put_bytes(value_, value::kTag, tag);
  inner_.clear();
  put_number(inner_, tensor::kDtype, tensor::kString);
  constexpr std::string_view kOneElement("\x12\x02\x08\x01", 4);  // a dimension of size 1
  put_bytes(inner_, tensor::kShape, kOneElement);
  put_bytes(inner_, tensor::kStringValue, terminal_text(words));  // readers leave out what is no UTF-8
  put_bytes(value_, value::kTensor, inner_);
  constexpr std::string_view kPlugin("\x0a\x06\x0a\x04text", 8);  // plugin_data { plugin_name: "text" }
  put_bytes(value_, value::kMetadata, kPlugin);
  put_bytes(summary_, summary::kValue, value_);
}

void EventFile::histogram(std::string_view tag, std::span<const double> limits,
                          std::span<const double> counts) {
  double n = 0, sum = 0, squares = 0, low = 0, high = 0;
  bool any = false;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    if (counts[i] <= 0) continue;
    if (!std::exchange(any, true)) low = i == 0 ? limits[0] : limits[i - 1];
    high = limits[i];
    n += counts[i];
    sum += counts[i] * limits[i];
    squares += counts[i] * limits[i] * limits[i];
  }
  inner_.clear();
  put_double(inner_, histo::kMin, low);
  put_double(inner_, histo::kMax, high);
  put_double(inner_, histo::kNum, n);
  put_double(inner_, histo::kSum, sum);
  put_double(inner_, histo::kSumSquares, squares);
  put_doubles(inner_, histo::kBucketLimit, limits);
  put_doubles(inner_, histo::kBucket, counts);
  value_.clear();
  put_bytes(value_, value::kTag, tag);
  put_bytes(value_, value::kHistogram, inner_);
  put_bytes(summary_, summary::kValue, value_);
}

Status EventFile::write(std::int64_t step, double wall_s) {
  event_.clear();
  put_double(event_, event::kWallTime, wall_s);
  put_number(event_, event::kStep, static_cast<std::uint64_t>(step));
  put_bytes(event_, event::kSummary, summary_);
  summary_.clear();
  return write_record(event_);
}

Status EventFile::write_record(std::string_view data) {
  record_.clear();
  put_raw(record_, std::uint64_t{data.size()});
  put_raw(record_, masked_crc(record_));
  record_ += data;
  put_raw(record_, masked_crc(data));
  return write_all(*file_, 0, std::as_bytes(std::span(record_)));  // appended: the offset does not matter
}

}  // namespace strata
