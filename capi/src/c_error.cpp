#include <string>

#include "c_call.h"
#include "c_values.h"

namespace strata::capi {
namespace {

struct Message {
  std::string text;
  bool is_lost = false;  // there was no memory for it
};
Message& message() noexcept {
  thread_local Message last;
  return last;
}

}  // namespace

// Allocates nothing but the message.
strata_status report(strata_status status, std::string_view text) noexcept {
  Message& last = message();
  try {
    last.text = text;
    last.is_lost = false;
  } catch (const std::bad_alloc&) {
    last.is_lost = true;
  }
  return status;
}

strata_status report(const Status& status) noexcept {
  return report(status_of(status.code()), status.is_ok() ? std::string_view() : status.message());
}

const char* last_error() noexcept {
  const Message& last = message();
  return last.is_lost ? "there was no memory for the reason" : last.text.c_str();
}

}  // namespace strata::capi

using namespace strata;

const char* strata_last_error(void) { return capi::last_error(); }

const char* strata_version(void) { return STRATA_VERSION; }

uint32_t strata_abi_version(void) { return STRATA_ABI_VERSION; }

const char* strata_status_name(strata_status status) {
  if (status == STRATA_CLOSED) return "closed";
  for (int code = 0; code <= static_cast<int>(Code::internal); ++code)
    if (capi::status_of(static_cast<Code>(code)) == status) return to_string(static_cast<Code>(code)).data();
  return "unknown";
}
