#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <strata/engine/engine.h>
#include <strata/runtime/io.h>

namespace strata {

/// One file of a checkpoint, as its manifest describes it.
struct CheckpointFile {
  std::string name;
  std::uint64_t bytes = 0;
  std::string digest;  ///< XXH3-128, hex
  friend bool operator==(const CheckpointFile&, const CheckpointFile&) = default;
};

/// What a checkpoint says of itself. `run` is the caller's: whatever must be equal, or known, when training
/// goes on.
struct Manifest {
  static constexpr int kVersion = 1;
  std::int64_t step = 0;
  LossScale loss_scale;  ///< of a run that computes in f16
  std::vector<CheckpointFile> files;
  std::map<std::string, std::string> run;
};
std::string to_json(const Manifest& manifest);
/// Strict: a version, counts and names within limits, plain file names. Errors: `corrupt`, `unsupported`
/// (newer).
Result<Manifest> manifest_from_json(const std::string& text);

/// Writes `<dir>/step-N` (param, m and v as safetensors in any order of the layout, and the manifest): into a
/// hidden folder beside it, each file synced, then renamed, then the parent synced. Returns the folder. After
/// that, the oldest beyond `keep` (0: all stay) are removed, and what killed processes left half-written.
/// Errors: `no_space`, `io_error`; the checkpoints that were there are intact.
Result<std::string> save_checkpoint(Engine& engine, Io& io, const std::string& dir,
                                    std::map<std::string, std::string> run, int keep);

/// The newest folder of `dir` whose manifest is whole and whose files have their sizes; by step, never by
/// time. Errors: `not_found` where there is none at all, `corrupt` naming each that was looked at and what is
/// wrong with it.
Result<std::string> newest_checkpoint(Io& io, const std::string& dir);
/// The same for all of them, newest first: load_checkpoint looks closer than this, and may refuse one.
Result<std::vector<std::string>> whole_checkpoints(Io& io, const std::string& dir);
Result<Manifest> read_manifest(Io& io, const std::string& folder);

/// Checks every file's digest, every name and shape, all problems at once, and only then fills the engine and
/// sets its step. Placement, chunk size and budgets may differ from the run that saved it. Errors: `corrupt`,
/// `invalid` (another model), `not_found`, `io_error`.
Result<Manifest> load_checkpoint(Engine& engine, Io& io, const std::string& folder);

}  // namespace strata
