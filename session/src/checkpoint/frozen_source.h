#pragma once

#include <span>
#include <string>
#include <string_view>

#include <strata/session/checkpoint.h>

namespace strata::detail {

/// Reads the tensors that a checkpoint leaves out, and compares their digests with those of its manifest.
class LeftOutTensors {
 public:
  /// Both outlive the object.
  LeftOutTensors(const Manifest& manifest, const FrozenSource& source)
      : manifest_(manifest), source_(source) {}
  bool has(Payload payload, std::string_view name) const {
    return payload == Payload::param && manifest_.frozen.contains(name);
  }
  /// Errors: `invalid` if there are such tensors and no source.
  Status check_source(const std::string& folder) const;
  Status read(const StatePiece& piece, std::span<float> values) const { return source_.read(piece, values); }
  /// The same, tensor by tensor in pieces from the first element to the last, with which the digest is
  /// checked.
  Status read_in_order(const StatePiece& piece, std::span<float> values);
  Status check(std::string_view name, const Digest& digest) const {
    return check_frozen(manifest_, name, digest, source_.name);
  }

 private:
  const Manifest& manifest_;
  const FrozenSource& source_;
  BlockDigester digester_;
};

}  // namespace strata::detail
