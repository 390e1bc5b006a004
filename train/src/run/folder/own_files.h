#pragma once

#include <span>
#include <string>
#include <string_view>

#include <strata/runtime/io/io.h>
#include <strata/text/text_markers.h>
#include <strata/config/run_layout.h>

namespace strata::detail {

inline constexpr const char* kBaseFolder = "base";

/// The files that strata writes into a run folder, except checkpoints, those of ranks, base/ and the lock.
/// The configuration, which makes a folder a run, comes first.
inline constexpr const char* kOwnFiles[] = {
    kResolvedConfig,   "plan.json",      "summary.json",      kTraceFile,
    "metrics.jsonl",   "samples.txt",    kRolloutsFile,       "tokenizer.json",
    kChatTemplateFile, kTextMarkersFile, kGemmAlgorithmsFile, "budget.request",
    "report.html",     "reference.bin",  "reference-val.bin", "trace-perfetto.json"};

/// Whether `name` is a file that an interrupted write_text_atomically() left: NAME.tmp- and 16 hex digits.
bool is_own_temp_file(std::string_view name);

/// The names in the folder that are those of a run's files, sorted. Errors: those of listing it.
Result<std::vector<std::string>> own_names_in(Io& io, const std::string& path);

/// Checks that a new run may be written to the folder at `path`: that all in it is of runs, or nothing at
/// all, such as empty files and folders, or the output of this process, or one of `inputs`, which the command
/// uses, or a folder that holds one. `is_run`: it contains one, beside
/// which there may be files of others, but no model. Errors: `invalid`, naming the first file of others.
Status check_no_other_files(Io& io, const std::string& path, bool is_run,
                            std::span<const std::string> inputs);

}  // namespace strata::detail
