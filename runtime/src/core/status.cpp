#include <strata/runtime/status.h>

#include <algorithm>

namespace strata {
namespace {

bool is_control(char c) noexcept {
  return (static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t') || c == 0x7f;
}

std::string without_control_bytes(std::string text) {
  if (std::none_of(text.begin(), text.end(), is_control)) return text;
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string shown;
  for (const char c : text) {
    if (!is_control(c)) {
      shown += c;
      continue;
    }
    const auto byte = static_cast<unsigned char>(c);
    shown += {'\\', 'x', kDigits[byte >> 4], kDigits[byte & 15]};
  }
  return shown;
}

}  // namespace

std::string_view to_string(Code code) noexcept {
  switch (code) {
    case Code::ok:
      return "ok";
    case Code::invalid:
      return "invalid";
    case Code::not_found:
      return "not_found";
    case Code::does_not_fit:
      return "does_not_fit";
    case Code::out_of_memory:
      return "out_of_memory";
    case Code::io_error:
      return "io_error";
    case Code::no_space:
      return "no_space";
    case Code::corrupt:
      return "corrupt";
    case Code::unsupported:
      return "unsupported";
    case Code::cancelled:
      return "cancelled";
    case Code::timeout:
      return "timeout";
    case Code::diverged:
      return "diverged";
    case Code::lost_peer:
      return "lost_peer";
    case Code::internal:
      return "internal";
  }
  return "unknown";
}

// Messages quote file names, keys and values from outside; none of their bytes may control a terminal.
Status Status::error(Code code, std::string message) {
  Status status;
  message = without_control_bytes(std::move(message));
  status.state_ = std::make_shared<const State>(State{code, std::move(message)});
  return status;
}

Status Status::heap_exhausted() noexcept {
  // Short enough to be stored in the string, and shared by a pointer that owns nothing.
  static const State state{Code::out_of_memory, "no heap memory"};
  Status status;
  status.state_ = std::shared_ptr<const State>(std::shared_ptr<const State>(), &state);
  return status;
}

std::string Status::to_string() const {
  return std::string(strata::to_string(code())) + ": " + std::string(message());
}

Status Status::annotate(std::string_view doing) const& {
  if (is_ok()) return *this;
  return error(code(), std::string(doing) + ": " + std::string(message()));
}
Status Status::annotate(std::string_view doing) && { return std::as_const(*this).annotate(doing); }

Error::Error(Status status) : status_(std::move(status)), text_(status_.to_string()) {}

void detail::throw_error(Status status) { throw Error(std::move(status)); }

}  // namespace strata
