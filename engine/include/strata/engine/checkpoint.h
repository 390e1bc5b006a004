#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <strata/engine/engine.h>
#include <strata/runtime/io.h>
#include <strata/runtime/safetensors.h>

namespace strata {

/// One file of a checkpoint, as its manifest describes it. Digests are XXH3-128 in hex.
struct CheckpointFile {
  std::string name;
  std::uint64_t bytes = 0;
  std::string digest;                          ///< of the whole file
  std::map<std::string, std::string> tensors;  ///< of each tensor's bytes, by name
  friend bool operator==(const CheckpointFile&, const CheckpointFile&) = default;
};

/// What a checkpoint says of itself. `run` is the caller's: whatever must be equal, or known, when training
/// goes on.
struct Manifest {
  static constexpr int kVersion = 2;
  std::int64_t step = 0;
  LossScale loss_scale;  ///< of a run that computes in f16
  std::vector<CheckpointFile> files;
  std::map<std::string, std::string> run;
};
/// With a digest of all the rest.
std::string to_json(const Manifest& manifest);
/// Strict: the digest, this version, counts and names within limits, plain file names, each file once, no key
/// that is not known. Errors: `corrupt`, `unsupported` (another version).
Result<Manifest> manifest_from_json(const std::string& text);

/// Writes `<dir>/step-N` (param, m and v as safetensors in any order of the layout, and the manifest): into a
/// hidden folder beside it (a draft), each file synced, then renamed, then the parent synced. Returns the
/// folder. Drafts of saves that were cut short are removed first, so that they cannot fill the disk, and
/// after the commit the oldest beyond `keep` (0: all stay). One process at a time saves into `dir`: callers
/// hold a lock. Errors: `no_space`, `io_error`; the checkpoints that were there are intact.
Result<std::string> save_checkpoint(Engine& engine, Io& io, const std::string& dir,
                                    std::map<std::string, std::string> run, int keep);

/// Removes what saves that were cut short left in `dir`, and puts back a whole checkpoint that one had set
/// aside. Touches no other name. Nothing to do where there is no `dir`. The caller holds the lock.
Status clear_drafts(Io& io, const std::string& dir);
/// Removes all checkpoints and drafts of `dir`, and `dir` itself where nothing else is left in it.
Status remove_checkpoints(Io& io, const std::string& dir);

/// The newest folder of `dir` whose manifest is whole and whose files have their sizes; by step, never by
/// time. Errors: `not_found` where there is none at all, `corrupt` naming each that was looked at and what is
/// wrong with it.
Result<std::string> newest_checkpoint(Io& io, const std::string& dir);
/// The same for all of them, newest first: load_checkpoint looks closer than this, and may refuse one.
Result<std::vector<std::string>> complete_checkpoints(Io& io, const std::string& dir);
/// Errors: those of manifest_from_json; `corrupt` where a folder named step-N holds another step.
Result<Manifest> read_manifest(Io& io, const std::string& folder);

/// A checkpoint's tensors of one payload. What is handed out is what was digested: no byte is read twice. One
/// thread.
class CheckpointTensors {
 public:
  /// Errors: `corrupt` where the manifest does not have the payload; those of SafetensorsFile::open.
  static Result<std::unique_ptr<CheckpointTensors>> open(Io& io, const std::string& folder,
                                                         const Manifest& manifest, Payload payload);
  const SafetensorsFile& file() const noexcept { return *file_; }
  const std::string& path() const noexcept { return path_; }
  /// The next elements of a tensor, which is read from its first to its last: with the last its digest is
  /// checked. Errors: `corrupt` naming the tensor and both digests, `not_found`, `invalid` out of order.
  Status read(const StatePiece& piece, std::span<float> values);
  /// A whole tensor.
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

/// Checks every name and shape, all problems at once, then fills the engine, each tensor checked by the read
/// that fills it, and sets its step. Placement, chunk size and budgets may differ from the run that saved it.
/// Errors: `corrupt`, `invalid` (another model), `not_found`, `io_error`. One that is met while tensors are
/// filled leaves the engine without states until others are loaded.
Result<Manifest> load_checkpoint(Engine& engine, Io& io, const std::string& folder);

}  // namespace strata
