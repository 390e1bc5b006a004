#pragma once

#include <functional>

#include "engine/states.h"
#include "engine/tiny_run.h"

namespace strata::test {

/// Random values large enough that every part of the model matters.
inline Status random_values(const StatePiece& piece, std::span<float> values) {
  const Rng rng(std::hash<std::string_view>{}(piece.name), 3);
  const float mean = piece.name.ends_with("norm.weight") ? 1.0f : 0.0f;
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = mean + 0.25f * rng.normal(static_cast<std::uint64_t>(piece.offset) + i);
  return Status::ok();
}

struct FirstGradients {
  StateTensors params, gradients;
};

/// Returns the gradients of the first micro-batch, with parameters filled by `fill`. With beta1 = 0, no
/// clipping and one micro-batch, the first moment after the first step is the gradient itself.
inline FirstGradients first_gradients(const ProgramSet& programs, const FillState& fill) {
  SessionOptions options;
  options.clip = 0;
  options.optimizer.beta1 = 0;
  TinyRun run(must(Engine::plan(programs, options)));
  must(run.engine->initialize(1));
  must(run.engine->fill(Payload::param, fill));
  FirstGradients first;
  first.params = states_of(*run.engine, Payload::param);
  run.train(1);
  first.gradients = states_of(*run.engine, Payload::m);
  return first;
}

}  // namespace strata::test
