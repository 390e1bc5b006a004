#include "handle_table.h"

#include <sys/types.h>
#include <unistd.h>

#include <strata/runtime/str.h>

namespace strata::capi {

Status check_process() {
  static const pid_t process = ::getpid();
  if (process == ::getpid()) return {};
  return Status::error(Code::unsupported,
                       str("process ", ::getpid(), " was forked from ", process,
                           ", which uses strata: threads and memory of sessions are not copied. Start "
                           "processes that use strata by spawn (exec)"));
}

}  // namespace strata::capi
