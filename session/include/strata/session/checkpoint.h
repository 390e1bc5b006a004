#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>

#include <strata/runtime/io/digest.h>
#include <strata/runtime/io/io.h>
#include <strata/runtime/io/safetensors.h>
#include <strata/session/checkpoint_folders.h>
#include <strata/session/manifest.h>
#include <strata/session/session.h>

namespace strata {

/// The state that a run needs besides the states of its parameters, as bytes by name, in a checkpoint's
/// task.safetensors.
using TaskState = std::map<std::string, std::string>;

/// Writes `<dir>/step-N` (param, m, v and ema, as far as the run has them, as safetensors in the order in
/// which the model declares them, `task` unless it is empty, and the manifest) and returns its path. Of the
/// tensors of Session::left_out() it holds the digests alone. With several ranks, all of them call it, each
/// writes its part, and the bytes are those that one rank would write; errors are the same on all. Everything
/// is written into a hidden folder beside it (a draft); each file is synced, the folder is renamed, and the
/// parent is synced. Drafts of interrupted saves are removed first, so that they cannot fill the disk. After
/// the commit the oldest checkpoints beyond `keep` are removed (0: all are kept). Only one process at a time
/// may save into `dir`: callers hold a lock. Errors: `no_space`, `io_error`; earlier checkpoints are then
/// intact.
Result<std::string> save_checkpoint(Session& session, Io& io, const std::string& dir,
                                    std::map<std::string, std::string> run, int keep,
                                    const TaskState& task = {});
/// The task state of a checkpoint; empty if it has none. Errors: `corrupt` if its digest is not the
/// manifest's.
Result<TaskState> read_task_state(Io& io, const std::string& folder, const Manifest& manifest);

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
  /// Reads any elements of a tensor; no digest is checked.
  Status read_part(const StatePiece& piece, std::span<float> values) const;
  /// Errors: `corrupt` if `digest` is not that of the tensor (BlockDigester).
  Status check(std::string_view name, const Digest& digest) const;

 private:
  CheckpointTensors() = default;
  Result<const SafetensorsEntry*> find(std::string_view name) const;
  std::string path_;
  std::unique_ptr<SafetensorsFile> file_;
  std::map<std::string, std::string> digests_;
  std::string current_;  // the tensor that is being read
  std::int64_t next_ = 0;
  bool in_blocks_ = true;  // digests are those of BlockDigester, else of Digester
  BlockDigester block_digester_;
  Digester digester_;
};

/// Writes `<dir>/step-N`, a checkpoint of manifest.step, without a session, and returns its path: `write`
/// writes the safetensors file of each of `payloads` to the path that it is given. The files that `manifest`
/// lists are replaced by these and by that of `task`. The folder must not exist; if it fails, it is removed.
/// Errors: `invalid`, `corrupt`, `io_error`, `no_space`, those of `write`.
using WritePayloadFile = std::function<Status(Payload payload, const std::string& path)>;
Result<std::string> write_checkpoint(Io& io, const std::string& dir, Manifest manifest,
                                     std::span<const Payload> payloads, const WritePayloadFile& write,
                                     const TaskState& task = {});
/// Reads all tensors of all files. Errors: `corrupt`, naming the first file whose digest is not that of the
/// manifest.
Status check_digests(Io& io, const std::string& folder, const Manifest& manifest);
/// The path of a payload's file in a checkpoint.
std::string payload_file(const std::string& folder, Payload payload);

/// The values of the frozen tensors that a checkpoint leaves out.
struct FrozenSource {
  std::string name;  ///< names where they are read from, for messages
  FillState read;    ///< not set: there is none
};
/// Errors: `invalid`, with both digests, if `digest` (BlockDigester) is not the one that `manifest` has for
/// the frozen tensor `name`, which was read from `source`.
Status check_frozen(const Manifest& manifest, std::string_view name, const Digest& digest,
                    const std::string& source);

/// If there are several ranks, all of them call it, and errors are the same on all. Checks every name and
/// shape and reports all problems at once. Then it fills the session, checking each tensor's digest while
/// reading it, and sets the session's step. Placement, chunk size and budgets may differ from those of the
/// run that saved it. A moving average that the checkpoint lacks begins with its parameters. What the
/// checkpoint leaves out is read from `frozen`, and its digests are checked, too. A session that trains
/// nothing may lack tensors whose names begin with one of `other_models`. Errors: `corrupt`, `invalid`
/// (another model, another source or none), `not_found`, `io_error`. After an error while tensors are filled,
/// the session has no valid states until others are loaded.
Result<Manifest> load_checkpoint(Session& session, Io& io, const std::string& folder,
                                 const FrozenSource& frozen = {},
                                 std::span<const std::string_view> other_models = {});

}  // namespace strata
