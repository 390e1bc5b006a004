#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <strata/runtime/io/io.h>
#include <strata/runtime/status.h>

namespace strata {

/// A tensor of a folder that is no part of its text model: of what reads images, or of what predicts further
/// tokens.
struct OtherTensor {
  std::string name, dtype;  ///< as the files have them
  std::vector<std::uint64_t> shape = {};
  std::uint64_t bytes = 0;
  std::string digest = {};  ///< XXH3-128 of the bytes in hex; empty: they were not read
  friend bool operator==(const OtherTensor&, const OtherTensor&) = default;
};

/// A file beside the weights that the text model does not own, as preprocessor_config.json.
struct OtherFile {
  std::string name;
  std::uint64_t bytes = 0;
  std::string digest = {};
  friend bool operator==(const OtherFile&, const OtherFile&) = default;
};

/// What a folder has besides its text model: a whole model's parts that read images, and layers that predict
/// further tokens. A run leaves it alone and keeps this record of it; an export copies it from the folder, if
/// it is still the same. Of matrices that are quantized there (in tiles of FP8, or as INT4), it has the
/// values in its own dtype, as of those of the text model.
struct OtherParts {
  std::string folder;  ///< an absolute path
  std::vector<OtherTensor> tensors = {};
  std::vector<OtherFile> files = {};
  friend bool operator==(const OtherParts&, const OtherParts&) = default;

  std::uint64_t tensor_bytes() const noexcept;
  /// How many matrices among them are quantized.
  std::size_t quantized_matrices() const;
};

/// Lists the tensors of other parts of a folder, of which it reads config.json and headers alone; nothing for
/// a folder of a text model that has no such tensors, and for a GGUF file. Errors: those of reading them.
Result<std::optional<OtherParts>> other_parts_of(Io& io, const std::string& folder);
/// Reads them, too, through a buffer of 1 MiB, and lists the files of a whole model, all with their digests.
Result<std::optional<OtherParts>> digest_other_parts(Io& io, const std::string& folder);

/// "3 tensors (1.2 GiB), whose names begin with model.visual. and model.layers.61.".
std::string describe(const OtherParts& parts);
/// What whoever uses a folder's text model leaves alone of it, in one sentence; empty if that is nothing, or
/// if the folder cannot be read: a run does not need it any more.
std::string left_alone_note(Io& io, const std::string& folder);

/// The record as JSON, and the other way round. Errors: `corrupt` with the key.
std::string other_parts_json(const OtherParts& parts);
Result<OtherParts> other_parts_from_json(const std::string& text);

}  // namespace strata
