#pragma once

#include <memory>
#include <string>

#include <strata/runtime/status.h>

#include "nccl/nccl_api.h"

namespace strata::detail {

/// Loads NCCL for the life of the process; `library` is a path, or a name that the dynamic linker looks for.
/// Errors: `unsupported`, naming what the library lacks: the file, a function, or its version.
Result<std::shared_ptr<const NcclApi>> load_nccl(const std::string& library);

/// "2.28.9".
std::string nccl_version_text(int version);

}  // namespace strata::detail
