// A checkpoint's manifest: one that parses must be the same after writing and parsing it again.
#include <strata/session/checkpoint.h>

#include "fuzz.h"

STRATA_FUZZ_TARGET(input) {
  const auto manifest = strata::manifest_from_json(std::string(input));
  if (!manifest) return;
  const std::string written = strata::to_json(*manifest);
  const auto again = strata::manifest_from_json(written);
  STRATA_ASSERT(again.has_value(), "what was written is refused", again.status().to_string());
  STRATA_ASSERT(strata::to_json(*again) == written, "what was written reads as another");
}
