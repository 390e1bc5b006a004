#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include <strata/runtime/io/io.h>
#include <strata/runtime/status.h>

namespace strata {

/// Writes a file of events that TensorBoard reads (tfevents: records of protocol buffers with checksums, as
/// tensorflow/core/util/event.proto and summary.proto have them). An event is written with one write and is
/// complete on disk or not there. Once its buffers have grown to the largest event, adding one allocates
/// nothing. Not thread-safe.
class EventFile {
 public:
  /// `wall_s`: seconds since 1970. Errors: those of Io::open() and writing.
  static Result<std::unique_ptr<EventFile>> create(Io& io, const std::string& path, double wall_s);

  /// The values of the next event.
  void scalar(std::string_view tag, double value);
  void text(std::string_view tag, std::string_view value);
  /// How many values are in each of a sequence of intervals: `limits` are their upper ends, ascending.
  void histogram(std::string_view tag, std::span<const double> limits, std::span<const double> counts);
  /// Writes the event with these values. Errors: those of writing.
  Status write(std::int64_t step, double wall_s);

 private:
  explicit EventFile(std::unique_ptr<File> file) : file_(std::move(file)) {}
  Status write_record(std::string_view data);

  std::unique_ptr<File> file_;
  std::string summary_, value_, inner_, event_, record_;  // reused
};

}  // namespace strata
