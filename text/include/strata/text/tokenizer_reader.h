#pragma once

#include <string>
#include <string_view>

#include <strata/text/tokenizer.h>
#include <strata/runtime/status.h>

namespace strata {

/// The splits that a tokenizer trained for a model of `family` has: those that transformers will give it.
SplitRule own_split(std::string_view family) noexcept;

/// Whether AutoTokenizer of transformers 5 encodes as `tokenizer` does in a folder whose config.json has
/// `family` and whose tokenizer_config.json has `tokenizer_class` (empty: none). Some classes take only the
/// vocabulary of tokenizer.json and split as their family does; beside a config.json of qwen2 they are chosen
/// whatever tokenizer_config.json says. Errors: `unsupported` with the class and both splits.
Status check_tokenizer_reader(const Tokenizer& tokenizer, std::string_view family,
                              const std::string& tokenizer_class);

}  // namespace strata
