#pragma once

#include <string>

#include <strata/runtime/io/io.h>
#include <strata/runtime/status.h>

#include "args.h"

namespace strata::cli {

/// `strata data inspect` of files that are not packed, or of a configuration: the first record of each as a
/// model is trained on it.
Result<std::string> inspect_records(const Args& args, Io& io);

}  // namespace strata::cli
