#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <strata/engine/engine.h>

namespace strata::test {

using StateTensors = std::map<std::string, std::vector<float>, std::less<>>;

/// Returns all states of `payload`, by tensor.
inline StateTensors states_of(Engine& engine, Payload payload) {
  StateTensors tensors;
  must(engine.visit(payload, [&](const StatePiece& piece, std::span<const float> values) {
    std::vector<float>& tensor = tensors[std::string(piece.name)];
    tensor.insert(tensor.end(), values.begin(), values.end());
    return Status::ok();
  }));
  return tensors;
}

inline FillState fill_from(const StateTensors& tensors) {
  return [&tensors](const StatePiece& piece, std::span<float> values) {
    const std::vector<float>& tensor = tensors.find(piece.name)->second;
    std::copy_n(tensor.begin() + piece.offset, values.size(), values.begin());
    return Status::ok();
  };
}

}  // namespace strata::test
