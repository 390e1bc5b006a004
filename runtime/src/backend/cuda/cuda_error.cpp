#include "backend/cuda/cuda_error.h"

#include <cstring>

#include <strata/runtime/str.h>

namespace strata::detail {

Status cuda_failure(cudaError_t error, const char* call, const char* file, int line) {
  (void)cudaGetLastError();
  const char* const slash = std::strrchr(file, '/');
  const Code code = error == cudaErrorMemoryAllocation ? Code::out_of_memory : Code::internal;
  return Status::error(code, str(cudaGetErrorName(error), " (", cudaGetErrorString(error), ") from ", call,
                                 " at ", slash != nullptr ? slash + 1 : file, ":", line));
}

bool cuda_error_is_sticky(cudaError_t error) noexcept {
  switch (error) {
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorContained:
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchTimeout:
    case cudaErrorAssert:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorLaunchFailure:
    case cudaErrorTensorMemoryLeak:
    case cudaErrorMpsClientTerminated:
    case cudaErrorExternalDevice:
      return true;
    default:
      return false;
  }
}

}  // namespace strata::detail
