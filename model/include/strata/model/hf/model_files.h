#pragma once

#include <cstdint>
#include <string>

#include <strata/runtime/io/io.h>
#include <strata/runtime/status.h>

// The text files of a model: of a Hugging Face folder, or of a GGUF file, whose metadata say what those files
// would. "m.gguf/config.json" is what m.gguf has in its place; tokenizer.json, tokenizer_config.json (with
// the chat template) and generation_config.json likewise.

namespace strata {

/// Whether there is such a file, on disk or in a GGUF file.
bool model_file_exists(Io& io, const std::string& path);
/// Its text. Errors: those of read_text(); of a GGUF file `corrupt` with the offset or the key, and
/// `unsupported` with the key.
Result<std::string> read_model_file(Io& io, const std::string& path, std::uint64_t limit_bytes);

}  // namespace strata
