#pragma once

#include <map>
#include <string>

#include <strata/runtime/io/io.h>
#include <strata/batches/training_data.h>

namespace strata {

/// The contents, by file name, of the files that a run keeps besides its configuration, so that it does not
/// depend on the folders it was started from: its tokenizer, its chat template and, for a new run that starts
/// from a Hugging Face folder, the settings in that folder.
Result<std::map<std::string, std::string>> run_files(const TrainConfig& config,
                                                     const TrainingData& training_data, bool resumes, Io& io);

}  // namespace strata
