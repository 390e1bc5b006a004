// Any bytes as text, for the tokenizers of four families: decoding returns the bytes, and encoding in parts
// split at last_safe_cut() returns the same ids.
#include <strata/text/tokenizer.h>

#include "fuzz.h"

STRATA_FUZZ_TARGET(input) {
  static const std::vector<strata::Tokenizer> tokenizers = [] {
    std::vector<strata::Tokenizer> out;
    for (const char* name : {"gpt2", "llama3", "qwen2", "glm4"})
      out.push_back(strata::must(strata::Tokenizer::load(
          strata::posix_io(), std::string(STRATA_SOURCE_DIR "/tests/text/tokenizers/") + name + ".json")));
    return out;
  }();
  for (const strata::Tokenizer& tokenizer : tokenizers) {
    const std::vector<std::int32_t> ids = tokenizer.encode(input);
    (void)tokenizer.encode(input, strata::SpecialTokens::recognised);
    const std::string back = strata::must(tokenizer.decode(ids));
    bool takes_spaces = false;
    for (const strata::AddedToken& token : tokenizer.spec().added)
      takes_spaces |= token.lstrip || token.rstrip;
    STRATA_ASSERT(takes_spaces || tokenizer.normalized(back) == tokenizer.normalized(input),
                  "it did not come back");
    const std::size_t cut = tokenizer.last_safe_cut(input);
    std::vector<std::int32_t> parts = tokenizer.encode(input.substr(0, cut));
    const std::vector<std::int32_t> rest = tokenizer.encode(input.substr(cut));
    parts.insert(parts.end(), rest.begin(), rest.end());
    STRATA_ASSERT(parts == ids, "a safe cut changed the tokens", cut);
  }
}
