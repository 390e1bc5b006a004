#pragma once

#include <functional>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <strata/engine/engine.h>
#include <strata/runtime/io/io.h>
#include <strata/runtime/io/safetensors.h>

namespace strata {

/// One file of a checkpoint, as described in its manifest. Digests are XXH3-128 in hex.
struct CheckpointFile {
  std::string name;
  std::uint64_t bytes = 0;
  std::string digest;                          ///< of the whole file
  std::map<std::string, std::string> tensors;  ///< digest of each tensor's bytes, by name
  friend bool operator==(const CheckpointFile&, const CheckpointFile&) = default;
};

/// The contents of a checkpoint's manifest. `run` belongs to the caller: settings that must be equal, or
/// known, when training is resumed.
struct Manifest {
  static constexpr int kVersion = 2;
  std::int64_t step = 0;
  LossScale loss_scale;  ///< of a run that computes in f16
  std::vector<CheckpointFile> files;
  std::map<std::string, std::string> run;
};
/// Includes a digest of everything else.
std::string to_json(const Manifest& manifest);
/// Parses strictly: checks the digest, the version, that counts and names are within limits, that file names
/// are plain and listed once, and that no key is unknown. Errors: `corrupt`, `unsupported` (another version).
Result<Manifest> manifest_from_json(const std::string& text);

/// Writes `<dir>/step-N` (param, m and v as safetensors in layout order, and the manifest) and returns its
/// path. Everything is written into a hidden folder beside it (a draft); each file is synced, the folder is
/// renamed, and the parent is synced. Drafts of interrupted saves are removed first, so that they cannot fill
/// the disk. After the commit the oldest checkpoints beyond `keep` are removed (0: all are kept). Only one
/// process at a time may save into `dir`: callers hold a lock. Errors: `no_space`, `io_error`; earlier
/// checkpoints are then intact.
Result<std::string> save_checkpoint(Engine& engine, Io& io, const std::string& dir,
                                    std::map<std::string, std::string> run, int keep);

/// Removes what interrupted saves left in `dir`, and restores a complete checkpoint that one of them had
/// moved aside. Touches no other name. Does nothing if there is no `dir`. The caller holds the lock.
Status clear_drafts(Io& io, const std::string& dir);
/// Removes all checkpoints and drafts of `dir`, and `dir` itself if nothing else is left in it.
Status remove_checkpoints(Io& io, const std::string& dir);

/// Returns the newest folder of `dir`, by step and never by time, whose manifest is valid and whose files
/// have the right sizes. Errors: `not_found` if there is no checkpoint at all, `corrupt` naming each folder
/// that was examined and what is wrong with it.
Result<std::string> newest_checkpoint(Io& io, const std::string& dir);
/// Hears of a checkpoint that is passed over, and why.
using CheckpointWarning = std::function<void(std::string_view text)>;
/// Returns all such folders, newest first. `warn` hears of each damaged folder that is newer than the first
/// of them. load_checkpoint checks more than this and may still refuse one.
Result<std::vector<std::string>> complete_checkpoints(Io& io, const std::string& dir,
                                                      const CheckpointWarning& warn = {});
/// Errors: those of manifest_from_json; `corrupt` if a folder named step-N holds another step.
Result<Manifest> read_manifest(Io& io, const std::string& folder);

/// Reads the tensors of one payload of a checkpoint. The bytes returned are the bytes digested, and no byte
/// is read twice. Not thread-safe.
class CheckpointTensors {
 public:
  /// Errors: `corrupt` if the manifest does not list the payload; those of SafetensorsFile::open.
  static Result<std::unique_ptr<CheckpointTensors>> open(Io& io, const std::string& folder,
                                                         const Manifest& manifest, Payload payload);
  const SafetensorsFile& file() const noexcept { return *file_; }
  const std::string& path() const noexcept { return path_; }
  /// Reads the next elements of a tensor. A tensor is read from its first element to its last, and its digest
  /// is checked with the last one. Errors: `corrupt` naming the tensor and both digests, `not_found`,
  /// `invalid` if read out of order.
  Status read(const StatePiece& piece, std::span<float> values);
  /// Reads a whole tensor.
  Status read(std::string_view name, std::span<float> values);

 private:
  CheckpointTensors() = default;
  std::string path_;
  std::unique_ptr<SafetensorsFile> file_;
  std::map<std::string, std::string> digests_;
  std::string current_;  // the tensor that is being read
  std::int64_t next_ = 0;
  Digester digester_;
};

/// Checks every name and shape and reports all problems at once. Then it fills the engine, checking each
/// tensor's digest while reading it, and sets the engine's step. Placement, chunk size and budgets may differ
/// from those of the run that saved it. Errors: `corrupt`, `invalid` (another model), `not_found`,
/// `io_error`. After an error while tensors are filled, the engine has no valid states until others are
/// loaded.
Result<Manifest> load_checkpoint(Engine& engine, Io& io, const std::string& folder);

}  // namespace strata
