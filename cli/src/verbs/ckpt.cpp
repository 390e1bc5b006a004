#include <algorithm>
#include <filesystem>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <strata/runtime/config/json.h>
#include <strata/runtime/plural.h>
#include <strata/runtime/str.h>
#include <strata/runtime/units.h>
#include <strata/session/checkpoint.h>
#include <strata/train/tools/average_run.h>
#include <strata/train/folder_lock.h>
#include <strata/config/load_config.h>
#include <strata/train/resume.h>
#include <strata/train/run_folder.h>
#include <strata/config/run_checkpoints.h>
#include <strata/config/run_layout.h>

#include "exit_code.h"
#include "print.h"
#include "verbs/verbs.h"

namespace strata::cli {
namespace {

/// Checkpoints of a run, or of a folder that has nothing else.
struct Place {
  std::string path;  ///< that was named
  std::string dir;   ///< where the checkpoints are
  bool is_run = false;
  std::string run = {};  ///< whose checkpoints they are, though only their folder was named; empty: no run's
  std::vector<CheckpointInfo> found;
};

Result<LoadedConfig> load_run(const Args& args, const std::string& run,
                              const std::vector<std::string>& more = {}) {
  ConfigRequest request = args;
  request.items = {str(run, "/", kResolvedConfig)};
  request.items.insert(request.items.end(), more.begin(), more.end());
  request.use = ModelUse::saved;
  return load_config(request);
}

// The run whose own checkpoints are in `dir`, whichever way that is named; empty if there is none.
std::string run_around(Io& io, const std::string& dir) {
  std::error_code error;
  const std::filesystem::path here = std::filesystem::canonical(dir, error);
  const std::string parent = here.parent_path().string();
  return !error && here.filename() == "checkpoints" && is_run_folder(io, parent) ? parent : "";
}

Result<Place> open_place(const Args& args) {
  Io& io = posix_io();
  Place place{args.items.front(), args.items.front(), is_run_folder(io, args.items.front()), {}, {}};
  if (!io.exists(place.path)) return Status::error(Code::not_found, str("there is no folder ", place.path));
  if (place.is_run) {
    STRATA_TRY_ASSIGN(const LoadedConfig loaded, load_run(args, place.path));
    place.dir = checkpoint_dir(loaded.config, place.path);
  }
  place.run = place.is_run ? place.path : run_around(io, place.path);
  STRATA_TRY_ASSIGN(place.found, describe_checkpoints(io, place.dir));
  if (place.found.empty())
    return Status::error(Code::not_found, str(place.path, " has no checkpoint in ", place.dir));
  return place;
}

std::string steps_text(const std::vector<CheckpointInfo>& checkpoints) {
  std::vector<std::int64_t> steps;
  for (const CheckpointInfo& checkpoint : checkpoints) steps.push_back(checkpoint.step);
  return fmt::format("{}", fmt::join(steps, ", "));
}

// The checkpoints of the steps that were named, or all. All steps that do not exist are named at once.
Result<std::vector<CheckpointInfo>> chosen(const Args& args, const Place& place) {
  if (args.checkpoints.empty()) return place.found;
  const std::set<std::int64_t> wanted(args.checkpoints.begin(), args.checkpoints.end());
  std::vector<CheckpointInfo> found;
  for (const CheckpointInfo& checkpoint : place.found)
    if (wanted.contains(checkpoint.step)) found.push_back(checkpoint);
  if (found.size() == wanted.size()) return found;
  std::vector<std::int64_t> missing;
  for (const std::int64_t step : wanted)
    if (std::none_of(found.begin(), found.end(), [&](const CheckpointInfo& c) { return c.step == step; }))
      missing.push_back(step);
  return Status::error(Code::not_found, fmt::format("{} has no checkpoint of step {}; it has {}", place.path,
                                                    fmt::join(missing, ", "), steps_text(place.found)));
}

std::string state_of(const CheckpointInfo& checkpoint) {
  return checkpoint.status.is_ok() ? "whole" : str("damaged: ", checkpoint.status.message());
}

Status list(const Args& args) {
  STRATA_TRY_ASSIGN(const Place place, open_place(args));
  std::uint64_t bytes = 0;
  if (!args.json) print(args.out, fmt::format("{:>10}  {:>10}  {}\n", "step", "bytes", "state"));
  for (const CheckpointInfo& checkpoint : place.found) {
    bytes += checkpoint.bytes;
    if (args.json)
      print(args.out,
            fmt::format("{{\"step\": {}, \"path\": {}, \"bytes\": {}, \"is_whole\": {}}}\n", checkpoint.step,
                        json_string(checkpoint.path), checkpoint.bytes, checkpoint.status.is_ok()));
    else
      print(args.out, fmt::format("{:>10}  {:>10}  {}\n", checkpoint.step, format_bytes(checkpoint.bytes),
                                  state_of(checkpoint)));
  }
  if (!args.json)
    print(args.out,
          str(plural(place.found.size(), "checkpoint"), ", ", format_bytes(bytes), " in ", place.dir, "\n"));
  return {};
}

Status prune(const Args& args) {
  Io& io = posix_io();
  std::unique_ptr<FolderLock> lock, dir_lock;
  STRATA_TRY_ASSIGN(Place place, open_place(args));
  if (!args.dry_run) {  // a run saves and removes checkpoints itself
    STRATA_TRY_ASSIGN(lock, FolderLock::acquire(io, place.run.empty() ? place.path : place.run));
    if (place.is_run) {
      STRATA_TRY_ASSIGN(const LoadedConfig loaded, load_run(args, place.path));
      STRATA_TRY_ASSIGN(dir_lock, lock_checkpoint_dir(loaded.config.checkpoint.dir, place.path, io));
    }
    STRATA_TRY(clear_drafts(io, place.dir));
    STRATA_TRY_ASSIGN(place.found, describe_checkpoints(io, place.dir));
  }
  const std::vector<CheckpointInfo> pruned = checkpoints_to_prune(place.found, args.keep, args.every);
  std::uint64_t bytes = 0;
  for (const CheckpointInfo& checkpoint : pruned) {
    if (!args.dry_run) STRATA_TRY(remove_checkpoint(io, checkpoint));
    bytes += checkpoint.bytes;
    print(args.out, fmt::format("{} step {}: {}, {}\n", args.dry_run ? "would remove" : "removed",
                                checkpoint.step, format_bytes(checkpoint.bytes), state_of(checkpoint)));
  }
  const std::size_t left = place.found.size() - pruned.size();
  print(args.out, str(args.dry_run ? "would remove " : "removed ", plural(pruned.size(), "checkpoint"), ", ",
                      format_bytes(bytes), "; ", plural(left, "checkpoint"),
                      args.dry_run ? " would stay\n" : " left\n"));
  return {};
}

// Reads every byte, and reports every damaged checkpoint.
Status verify_checkpoints(const Args& args) {
  Io& io = posix_io();
  STRATA_TRY_ASSIGN(const Place place, open_place(args));
  STRATA_TRY_ASSIGN(const std::vector<CheckpointInfo> wanted, chosen(args, place));
  std::string problems;
  for (const CheckpointInfo& checkpoint : wanted) {
    Status status = checkpoint.status;
    if (status.is_ok()) {
      STRATA_TRY_ASSIGN(const Manifest manifest, read_manifest(io, checkpoint.path));
      status = check_digests(io, checkpoint.path, manifest);
    }
    if (status.is_ok())
      print(args.out, str("step ", checkpoint.step, ": ok, ", format_bytes(checkpoint.bytes), " read\n"));
    else
      problems +=
          str(problems.empty() ? "" : "\n", "step ", checkpoint.step, " is damaged: ", status.message());
  }
  return problems.empty() ? Status::ok() : Status::error(Code::corrupt, problems);
}

// The last ones that are whole, or those of the steps that were named.
Result<std::vector<std::string>> to_average(const Args& args, const Place& place) {
  if (args.checkpoints.empty() == (args.last == 0))
    return Status::error(Code::invalid,
                         "name either the number of the last checkpoints, --last N, or their steps, "
                         "--checkpoint STEP");
  STRATA_TRY_ASSIGN(const std::vector<CheckpointInfo> wanted, chosen(args, place));
  std::vector<std::string> folders;
  for (const CheckpointInfo& checkpoint : wanted) {
    if (checkpoint.status.is_ok())
      folders.push_back(checkpoint.path);
    else if (args.last == 0)
      return checkpoint.status.annotate(str("step ", checkpoint.step));
  }
  const auto last = static_cast<std::size_t>(args.last);
  if (folders.size() < last)
    return Status::error(Code::invalid, str("--last ", args.last, ": ", place.path, " has ",
                                            plural(folders.size(), "whole checkpoint")));
  if (last > 0) folders.erase(folders.begin(), folders.end() - static_cast<std::ptrdiff_t>(last));
  return folders;
}

Status average(const Args& args) {
  STRATA_TRY_ASSIGN(const Place place, open_place(args));
  if (!place.is_run)
    return Status::error(Code::invalid, str(place.path, " is no run, whose configuration is needed"));
  if (args.out_dir.empty()) return Status::error(Code::invalid, "name the run folder to make: --out DIR");
  STRATA_TRY_ASSIGN(const std::vector<std::string> folders, to_average(args, place));
  STRATA_TRY_ASSIGN(const LoadedConfig loaded, load_run(args, place.path, {"checkpoint.dir="}));
  STRATA_TRY_ASSIGN(const std::string made,
                    average_run(posix_io(), place.path, loaded, folders, args.out_dir));
  print(args.out, str("wrote ", made, ", the mean of ", plural(folders.size(), "checkpoint"), ":\n"));
  for (const std::string& folder : folders) print(args.out, str("  ", folder, "\n"));
  print(args.out,
        str("continue with it: strata eval ", args.out_dir, ", strata export ", args.out_dir, "\n"));
  return {};
}

}  // namespace

int run_ckpt(const Args& args) {
  const Status status = args.action == "ls"       ? list(args)
                        : args.action == "prune"  ? prune(args)
                        : args.action == "verify" ? verify_checkpoints(args)
                                                  : average(args);
  return status.is_ok() ? static_cast<int>(kExitOk) : print_error(args, str("ckpt ", args.action), status);
}

}  // namespace strata::cli
