// A tokenizer.json. A tokenizer that loads must encode any text, decode to the same bytes, and be the same
// after writing and loading it again.
#include <fmt/format.h>

#include <strata/text/tokenizer.h>

#include "fuzz.h"

namespace {

/// Every tokenizer needs the 256 byte tokens, which would make inputs long and slow, so "@":0 is replaced by
/// them. The alphabet is written out here, so that a mistake in the module's own one is found.
std::string with_bytes(std::string_view input) {
  static const std::string bytes = [] {
    std::string out;
    for (unsigned b = 0, next = 0x100; b < 256; ++b) {
      const bool printable = (b > 0x20 && b < 0x7F) || (b > 0xA0 && b != 0xAD);
      out += fmt::format("{}\"\\u{:04x}\":{}", b == 0 ? "" : ",", printable ? b : next++, b);
    }
    return out;
  }();
  std::string out(input);
  if (const std::size_t at = out.find("\"@\":0"); at != std::string::npos) out.replace(at, 5, bytes);
  return out;
}

}  // namespace

STRATA_FUZZ_TARGET(input) {
  const auto loaded = strata::Tokenizer::from_json(with_bytes(input));
  if (!loaded) {
    STRATA_ASSERT(!loaded.status().message().empty(), "refused without a reason");
    return;
  }
  const strata::Tokenizer& tokenizer = *loaded;
  for (const auto special : {strata::SpecialTokens::as_text, strata::SpecialTokens::recognised}) {
    const auto ids = tokenizer.encode(input, special, strata::AddSpecialTokens::yes);
    const auto text = tokenizer.decode(ids);
    STRATA_ASSERT(text.has_value(), "an id that encode() gave is unknown to decode()");
  }
  if (tokenizer.spec().added.empty()) {
    const auto text = tokenizer.decode(tokenizer.encode(input));
    STRATA_ASSERT(*text == tokenizer.normalized(input), "the text did not come back");
  }
  const auto again = strata::Tokenizer::from_json(tokenizer.to_json());
  STRATA_ASSERT(again.has_value(), "what was written is refused", again.status().to_string());
  STRATA_ASSERT(again->digest() == tokenizer.digest(), "what was written reads as another");
}
