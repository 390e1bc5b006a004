#pragma once

#include <strata/model/sampling.h>

#include "args.h"

namespace strata::cli {

/// What --temperature, --top-k and the other options of sampling say.
inline SamplingOptions sampling_of(const Args& args) {
  return {.temperature = args.temperature,
          .top_k = args.top_k,
          .top_p = args.top_p,
          .min_p = args.min_p,
          .presence_penalty = args.presence_penalty,
          .frequency_penalty = args.frequency_penalty,
          .repetition_penalty = args.repetition_penalty};
}

}  // namespace strata::cli
