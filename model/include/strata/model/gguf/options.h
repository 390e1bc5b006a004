#pragma once

#include <string>

#include <strata/model/gguf/format.h>
#include <strata/model/tokenizer_config.h>

namespace strata {

/// What an export as a GGUF file is told beside the model.
struct GgufExport {
  GgufFormat format = GgufFormat::f32;      ///< of the matrices; vectors, norms and positions stay f32
  std::string name = {};                    ///< of the model, for people
  TokenizerConfig tokenizer_config = {};    ///< of the folder the model came from: BOS, EOS, padding
  GenerationConfig generation_config = {};  ///< the same where that has none; then the end of text
  std::string chat_template = {};           ///< Jinja; empty: none
};

}  // namespace strata
