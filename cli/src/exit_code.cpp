#include "exit_code.h"

namespace strata::cli {

int exit_code(const Status& status) noexcept {
  switch (status.code()) {
    case Code::ok:
      return kExitOk;
    case Code::invalid:
    case Code::not_found:
    case Code::unsupported:
      return kExitUsage;
    case Code::does_not_fit:
    case Code::out_of_memory:
      return kExitFit;
    case Code::diverged:
      return kExitDiverged;
    case Code::io_error:
    case Code::no_space:
    case Code::corrupt:
    case Code::timeout:
      return kExitIo;
    case Code::lost_peer:
      return kExitLostPeer;
    case Code::cancelled:
      return kExitStopped;
    case Code::internal:
      break;
  }
  return kExitInternal;
}

}  // namespace strata::cli
