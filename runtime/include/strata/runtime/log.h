#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>

#include <strata/runtime/status.h>
#include <strata/runtime/str.h>

namespace strata {

enum class LogLevel : std::uint8_t { debug, info, warn, error, off };
/// Accepts "debug", "info", "warn", "error", "off". Errors: `invalid`, listing them.
Result<LogLevel> parse_log_level(std::string_view text);

/// Log lines for a person, on stderr unless a sink is given: "strata warn: text". Thread-safe; lines are
/// never interleaved. Progress and results are not logged.
class Log {
 public:
  /// Receives one line without a line end; never called concurrently.
  using Sink = std::function<void(LogLevel level, std::string_view line)>;

  static Result<std::unique_ptr<Log>> create(LogLevel level, Sink sink = {});
  ~Log();
  Log(const Log&) = delete;
  Log& operator=(const Log&) = delete;

  bool enabled(LogLevel level) const noexcept { return level >= level_ && level != LogLevel::off; }
  /// Drops the line if its level is not enabled or the sink fails.
  void write(LogLevel level, std::string_view line) noexcept;

  /// Concatenates the parts, or skips the formatting if the level is off: `log.warn("chunk ", id, " is
  /// slow")`.
  template <class... Parts>
  void debug(const Parts&... parts) {
    join(LogLevel::debug, parts...);
  }
  template <class... Parts>
  void info(const Parts&... parts) {
    join(LogLevel::info, parts...);
  }
  template <class... Parts>
  void warn(const Parts&... parts) {
    join(LogLevel::warn, parts...);
  }
  template <class... Parts>
  void error(const Parts&... parts) {
    join(LogLevel::error, parts...);
  }

 private:
  struct Impl;
  Log(LogLevel level, std::unique_ptr<Impl> impl);
  template <class... Parts>
  void join(LogLevel level, const Parts&... parts) {
    if (enabled(level)) write(level, str(parts...));
  }

  LogLevel level_;
  std::unique_ptr<Impl> impl_;
};

}  // namespace strata
