#pragma once

#include <cstdint>
#include <string>

#include <strata/config/config_request.h>
#include <strata/config/checkpoint_choice.h>

namespace strata {

/// A model to export, and the folder or file to write it to. The first of `items` is a run, or a Hugging Face
/// folder or GGUF file; `adapter` may be merged into a folder.
struct ExportRequest : ConfigRequest {
  std::string out_dir = {};                     ///< the folder, or the file for format gguf, which is new
  std::string format = "auto";                  ///< hf, peft, merged, gguf; auto: what the run trained
  std::string dtype = "f32";                    ///< f32, bf16, f16; for gguf a GgufMix
  std::string max_shard_size = "5GB";           ///< the largest size of a file of weights
  bool ema = false;                             ///< the moving average of the parameters
  bool states = false;                          ///< also the states of the optimizer
  bool text_only = false;                       ///< not the other parts of a folder
  bool check = false;                           ///< reads back what was written
  std::int64_t checkpoint = kNewestCheckpoint;  ///< if a run is exported
};

}  // namespace strata
