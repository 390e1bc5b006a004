#include <strata/runtime/error_list.h>

namespace strata {

void ErrorList::add(const Status& status) {
  if (status.is_ok()) return;
  if (empty())
    code_ = status.code();
  else
    text_ += '\n';
  text_ += status.message();
}

Status ErrorList::status() const { return empty() ? Status::ok() : Status::error(code_, text_); }

}  // namespace strata
