#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <strata/text/documents.h>
#include <strata/runtime/io/io.h>
#include <strata/batches/token_data.h>

namespace strata {

/// The first record of a file as a model is trained on it.
struct ShownRecord {
  struct Run {
    bool is_trained = false;  ///< in the loss
    std::string text;         ///< the tokens' bytes
  };
  struct Part {
    std::string name;  ///< "" or, of a pair, "chosen" and "rejected", or "prompt"
    std::vector<std::int32_t> ids;
    std::vector<bool> loss_mask;
    std::vector<Run> runs;  ///< all of its text
    std::uint64_t n_trained() const noexcept;
  };
  std::string form;     ///< describes the file, as runs do
  bool is_cut = false;  ///< a text is one document, of which only the beginning is here
  std::vector<Part> parts;
};

/// `as_prompt`: the record asks, and answers are sampled; else it is read for `use`. Errors: those of reading
/// and encoding the record.
Result<ShownRecord> first_record(Io& io, const TextCodec& codec, const std::string& file, bool as_prompt,
                                 RecordUse use = RecordUse::any);

/// A token as text, and its id: "'<|im_end|>' (151645)".
std::string shown_token(const Tokenizer& tokenizer, std::int32_t id);

}  // namespace strata
