#pragma once

#include <string>

#include <strata/runtime/io/io.h>
#include <strata/runtime/status.h>

namespace strata {

/// Explains why a folder is no model that strata can read, and what to do: a PEFT adapter, pickled PyTorch
/// weights, GGUF. Ok if it is none of these. Errors: `unsupported`.
Status explain_hf_folder(Io& io, const std::string& path);
/// Explains that data of such a name, OWNER/NAME, are downloaded first; ok for any other path. Errors:
/// `not_found`.
Status explain_missing_data(Io& io, const std::string& path);

}  // namespace strata
