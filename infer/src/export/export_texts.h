#pragma once

#include <cstdint>
#include <map>
#include <string>

#include <strata/model/hf/folder.h>
#include <strata/text/tokenizer.h>
#include <strata/runtime/io/io.h>

namespace strata::detail {

inline constexpr std::uint64_t kExportTextLimit = 256 << 20;  // bytes of a text file that is copied

/// The files of an exported folder besides the weights, by name: the tokenizer and chat template of the run,
/// and the files of its base that describe the same tokens. They say that a text ends where the run has
/// learned to end it, so that other programs stop there, too.
Result<std::map<std::string, std::string>> texts_beside(const Tokenizer& tokenizer, int seq,
                                                        const std::string& run, Io& io);

/// The same of a folder that is no run, as it has them.
Result<std::map<std::string, std::string>> texts_of_folder(const Tokenizer& tokenizer,
                                                           const std::string& folder, Io& io);

/// The ids in config.json for the same markers. `is_based`: the run began with a folder that describes its
/// tokens.
HfTokenIds token_ids_of(const TextMarkers& markers, bool is_based, bool scores);

}  // namespace strata::detail
