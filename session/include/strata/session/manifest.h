#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include <strata/runtime/io/io.h>
#include <strata/session/loss_scale.h>

namespace strata {

/// One file of a checkpoint, as described in its manifest. Digests are in hex.
struct CheckpointFile {
  std::string name;
  std::uint64_t bytes = 0;
  /// The digest of the whole file: XXH3-128 of the digests of its header and of its tensors.
  std::string digest;
  std::map<std::string, std::string> tensors;  ///< digest of each tensor's bytes (BlockDigester), by name
  friend bool operator==(const CheckpointFile&, const CheckpointFile&) = default;
};

/// The contents of a checkpoint's manifest. `run` belongs to the caller: settings that must be equal, or
/// known, when training is resumed.
struct Manifest {
  static constexpr int kVersion = 3;
  static constexpr int kFrozen = 4;  ///< adds `frozen`, which older programs refuse by the version
  static constexpr int kNewest = 5;  ///< adds `trainees`
  static constexpr int kOldest = 2;  ///< still read: digests are the XXH3-128 of all bytes in a row
  static constexpr int kBlockDigests =
      3;  ///< from here on digests are of blocks, which ranks digest together
  int version = kVersion;
  std::int64_t step = 0;  ///< if there are several trainees, the step of the first one; so is the loss scale
  LossScale loss_scale;   ///< used by a run that computes in f16
  /// The progress of one of several trainees.
  struct Trainee {
    std::int64_t step = 0;
    LossScale loss_scale;
    friend bool operator==(const Trainee&, const Trainee&) = default;
  };
  std::map<std::string, Trainee> trainees;
  /// For parameters that were not updated in all steps: in how many they were.
  std::map<std::string, std::int64_t> param_steps;
  std::vector<CheckpointFile> files;
  /// The digest (BlockDigester) of the f32 values of each frozen tensor that the files leave out.
  std::map<std::string, std::string, std::less<>> frozen;
  std::map<std::string, std::string> run;

  /// The oldest version that can describe it.
  int needed_version() const noexcept {
    return !trainees.empty() ? kNewest : !frozen.empty() ? kFrozen : kVersion;
  }
};
/// Includes a digest of everything else.
std::string to_json(const Manifest& manifest);
/// Parses strictly: checks the digest, the version, that counts and names are within limits, that file names
/// are plain and listed once, that no tensor is both in a file and frozen, and that no key is unknown.
/// Errors: `corrupt`, `unsupported` (another version).
Result<Manifest> manifest_from_json(const std::string& text);

/// Reads the manifest of a checkpoint. Errors: those of manifest_from_json; `corrupt` if a folder named
/// step-N holds another step.
Result<Manifest> read_manifest(Io& io, const std::string& folder);

}  // namespace strata
