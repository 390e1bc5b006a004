// The only file that includes spdlog.
#include <strata/runtime/log.h>

#include <array>
#include <exception>
#include <mutex>
#include <string>
#include <utility>

#include <spdlog/logger.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/sinks/stdout_sinks.h>

namespace strata {
namespace {

constexpr std::array<std::pair<std::string_view, LogLevel>, 5> kLevels = {{{"debug", LogLevel::debug},
                                                                           {"info", LogLevel::info},
                                                                           {"warn", LogLevel::warn},
                                                                           {"error", LogLevel::error},
                                                                           {"off", LogLevel::off}}};

spdlog::level::level_enum to_spdlog(LogLevel level) {
  switch (level) {
    case LogLevel::debug:
      return spdlog::level::debug;
    case LogLevel::info:
      return spdlog::level::info;
    case LogLevel::warn:
      return spdlog::level::warn;
    case LogLevel::error:
      return spdlog::level::err;
    case LogLevel::off:
      break;
  }
  return spdlog::level::off;
}

LogLevel from_spdlog(spdlog::level::level_enum level) {
  if (level <= spdlog::level::debug) return LogLevel::debug;
  if (level == spdlog::level::info) return LogLevel::info;
  return level == spdlog::level::warn ? LogLevel::warn : LogLevel::error;
}

class FunctionSink final : public spdlog::sinks::base_sink<std::mutex> {
 public:
  explicit FunctionSink(Log::Sink target) : target_(std::move(target)) {}

 protected:
  void sink_it_(const spdlog::details::log_msg& message) override {
    target_(from_spdlog(message.level), std::string_view(message.payload.data(), message.payload.size()));
  }
  void flush_() override {}

 private:
  Log::Sink target_;
};

}  // namespace

struct Log::Impl {
  spdlog::logger logger;
};

Result<LogLevel> parse_log_level(std::string_view text) {
  for (const auto& [name, level] : kLevels)
    if (name == text) return level;
  return Status::error(Code::invalid, str("'", text, "' is not one of debug, info, warn, error, off"));
}

Result<std::unique_ptr<Log>> Log::create(LogLevel level, Sink sink) {
  try {
    spdlog::sink_ptr target;
    if (sink)
      target = std::make_shared<FunctionSink>(std::move(sink));
    else
      target = std::make_shared<spdlog::sinks::stderr_sink_mt>();
    auto impl = std::make_unique<Impl>(Impl{spdlog::logger("strata", std::move(target))});
    impl->logger.set_pattern("%n %l: %v");
    impl->logger.set_level(to_spdlog(level));
    impl->logger.flush_on(spdlog::level::trace);
    impl->logger.set_error_handler([](const std::string&) {});  // a full or closed stderr must not stop a run
    return std::unique_ptr<Log>(new Log(level, std::move(impl)));
  } catch (const std::exception& error) {
    return Status::error(Code::internal, str("log: ", error.what()));
  }
}

Log::Log(LogLevel level, std::unique_ptr<Impl> impl) : level_(level), impl_(std::move(impl)) {}
Log::~Log() = default;

void Log::write(LogLevel level, std::string_view line) noexcept {
  if (!enabled(level)) return;
  try {
    impl_->logger.log(to_spdlog(level), spdlog::string_view_t(line.data(), line.size()));
  } catch (...) {  // spdlog passes its own failures to the handler above; this is bad_alloc
  }
}

}  // namespace strata
