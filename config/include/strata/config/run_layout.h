#pragma once

#include <string>
#include <string_view>

#include <strata/runtime/io/io.h>
#include <strata/runtime/status.h>
#include <strata/text/text_markers.h>

// The names in a run folder that more than one module knows.

namespace strata {

/// The configuration of a run with every `auto` resolved.
inline constexpr const char* kResolvedConfig = kRunConfigFile;

/// The chat template that a run's conversations are written with.
inline constexpr const char* kChatTemplateFile = "chat_template.jinja";

/// The algorithms that GPU GEMMs used: gemm_algorithms_text().
inline constexpr const char* kGemmAlgorithmsFile = "gemm_algorithms.txt";

/// Files of a Hugging Face folder that a run initialized from it copies to its own folder `base`. The run can
/// then be continued and exported after the original folder was removed.
inline constexpr const char* kBaseFiles[] = {"config.json", "tokenizer_config.json",
                                             "special_tokens_map.json", "generation_config.json"};

/// The record of what a run leaves alone of the folder that it began with: other_parts_json().
inline constexpr const char* kOtherPartsFile = "base/other_parts.json";

/// TensorBoard's files, whose names end so that no other program's are taken for them.
inline constexpr const char* kEventsFolder = "tensorboard";
inline constexpr std::string_view kEventsPrefix = "events.out.tfevents.", kEventsSuffix = ".strata";

/// When the lanes of each rank worked and waited in the steps of log.trace: trace.json of rank 0.
inline constexpr std::string_view kRankTracePrefix = "trace-rank-", kRankTraceSuffix = ".json";
std::string trace_file(int rank);

/// A file by which ranks find that they see the same folder.
inline constexpr std::string_view kRanksPrefix = ".ranks-";

/// The answers of an iteration that a checkpoint is in the midst of, before checkpoints had them:
/// rollouts-N.bin.
/// Answers of all iterations, if log.rollouts is set.
inline constexpr const char* kRolloutsFile = "rollouts.jsonl";
inline constexpr std::string_view kRolloutsPrefix = "rollouts-", kRolloutsSuffix = ".bin";

/// Whether `path` contains a run.
bool is_run_folder(Io& io, const std::string& path);
/// Errors: `not_found` if `path` contains no run that can be read, with how one is started.
Status check_is_run(Io& io, const std::string& path);
/// Whether a run has begun to write into the folder: what has the names of a run there is then a run's.
bool has_begun(Io& io, const std::string& path);

/// The folder's lock, and what it holds once a run has begun to write into the folder, even if it was killed
/// at once.
inline constexpr const char* kLockFile = ".lock";
inline constexpr std::string_view kBegunMark = "a run of strata\n";
inline constexpr const char* kTraceFile = "trace.json";
inline constexpr const char* kMetricsFile = "metrics.jsonl";

}  // namespace strata
