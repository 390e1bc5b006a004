#pragma once

#include <string>
#include <string_view>

#include <strata/runtime/status.h>

namespace strata {

/// Where the parameters or activations of a name are to be along an axis of the mesh.
struct ShardAnnotation {
  /// Glob over names of parameters, and of activations: "<region>/<op>", or "<parameter>/<op>" if one is
  /// read.
  std::string pattern;
  int dim = -1;  ///< that is split; -1: they are whole on every rank
  /// Parameters only: they are split where they are stored, and gathered by the instructions that read them.
  bool gathered = false;
  bool optional = false;  ///< it may match nothing, if another one matches
  friend bool operator==(const ShardAnnotation&, const ShardAnnotation&) = default;
};
/// Reads "layers.*.qkv.weight 0:tp", "PATTERN gather-0:tp" or "PATTERN whole:tp". `axis` gets the name.
/// Errors: `invalid`.
Result<ShardAnnotation> parse_annotation(std::string_view text, std::string& axis);

}  // namespace strata
