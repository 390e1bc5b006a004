#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace strata {

// samples.txt of a run: for each sample the line "--- step 200 ---", the text, and an empty line. A line of
// the text that looks like such a heading, also behind backslashes, has another backslash before it.

struct TextSample {
  std::int64_t step = 0;
  std::string text;
};
/// The part of the file that a sample adds.
std::string sample_block(std::int64_t step, std::string_view text);
std::vector<TextSample> read_samples(std::string_view file);
/// The part of the file up to the samples of `last_step`. Samples are in the order of their steps.
std::string_view samples_up_to(std::string_view file, std::int64_t last_step);

}  // namespace strata
