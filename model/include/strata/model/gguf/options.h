#pragma once

#include <cstdint>
#include <string>

#include <strata/runtime/io/gguf/format.h>
#include <strata/runtime/threads/thread_pool.h>

namespace strata {

/// Options of an export as a GGUF file beside the model.
struct GgufExport {
  GgufMix format = GgufMix::f32;   ///< the formats of the matrices; vectors, norms and positions stay f32
  std::string name = {};           ///< the name of the model, for people
  std::int32_t end = -1;           ///< ends a text, if it is another than the tokenizer's markers say
  std::string chat_template = {};  ///< Jinja; empty: none
  ThreadPool* pool = nullptr;      ///< encodes rows; null: the calling thread does
};

}  // namespace strata
