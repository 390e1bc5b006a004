#pragma once

#include <string>
#include <vector>

#include <strata/model/decoder_config.h>
#include <strata/model/gguf/options.h>
#include <strata/model/hf/folder.h>
#include <strata/text/tokenizer.h>
#include <strata/runtime/io/io.h>
#include <strata/runtime/status.h>

// Export of a model as one GGUF file, which llama.cpp and programs built on it load.

namespace strata {

/// Writes one GGUF file (version 3) that llama.cpp loads: the metadata and tensor names of the family's
/// architecture there, rows of queries and keys in the order of its rotary embedding, Gemma's norm weights
/// with their 1 added, and the tokenizer. The file is written beside `path`, synced and renamed; `path` must
/// not exist. Holds one parameter and some MiB a thread at a time. Returns notes for the user: what llama.cpp
/// does differently, and which formats were replaced. Errors: `unsupported` for a family, setting or
/// tokenizer that llama.cpp has no place for, all problems at once; `invalid` if the tokenizer has more
/// tokens than the model; those of export_hf().
Result<std::vector<std::string>> export_gguf(Io& io, const std::string& path, const DecoderConfig& config,
                                             const Tokenizer& tokenizer, const ParamSource& source,
                                             const GgufExport& options);
/// Reads the file back and compares every byte with what an export of the same arguments writes. Errors:
/// `corrupt` with the offset.
Status check_gguf_export(Io& io, const std::string& path, const DecoderConfig& config,
                         const Tokenizer& tokenizer, const ParamSource& source, const GgufExport& options);

}  // namespace strata
