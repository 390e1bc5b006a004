#pragma once

#include <cstdint>
#include <string>

#include <strata/runtime/io/io.h>
#include <strata/runtime/status.h>

// The text files of a model: those of strata/text/model_files.h and config.json, of a Hugging Face folder or
// of a GGUF file.

namespace strata {

/// Whether there is such a file, on disk or in a GGUF file.
bool model_file_exists(Io& io, const std::string& path);
/// Its text. Errors: those of read_tokenizer_file().
Result<std::string> read_model_file(Io& io, const std::string& path, std::uint64_t limit_bytes);

}  // namespace strata
