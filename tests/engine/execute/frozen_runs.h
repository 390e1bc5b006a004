#pragma once

#include <array>
#include <bit>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "engine/states.h"
#include "engine/tiny_run.h"

/// Runs of models of which parts are frozen, in every placement and step mode.
namespace strata::test::frozen {

enum class Tiers : std::uint8_t { device, ram, nvme, all_three, hybrid };
inline constexpr std::array kTiersTried = {Tiers::device, Tiers::ram, Tiers::nvme, Tiers::all_three,
                                           Tiers::hybrid};

inline std::optional<Tier> home_of(Tiers tiers, ChunkId chunk, std::size_t n_chunks, Payload payload) {
  switch (tiers) {
    case Tiers::device:
      return Tier::device;
    case Tiers::ram:
      return Tier::pinned;
    case Tiers::nvme:
      return Tier::nvme;
    case Tiers::hybrid:
      return chunk < n_chunks / 3 ? Tier::device : Tier::pinned;
    case Tiers::all_three:
      return chunk % 3 == 0                                                    ? Tier::device
             : chunk % 3 == 1 || (chunk % 2 == 0 && payload != Payload::param) ? Tier::nvme
                                                                               : Tier::pinned;
  }
  return {};
}

inline void assign_homes(Tiers tiers, const ChunkLayout& layout, Placement& placement) {
  for (ChunkId chunk = 0; chunk < layout.n_chunks(); ++chunk)
    for (const Payload payload : {Payload::param, Payload::master, Payload::m, Payload::v, Payload::accum})
      if (layout.has(chunk, payload))
        placement.homes[chunk][static_cast<std::size_t>(payload)] =
            home_of(tiers, chunk, layout.n_chunks(), payload);
}

struct RunRecord {
  std::vector<std::uint64_t> bits;  ///< loss and norm of every step, an evaluation, and a logit
  std::string digest;
  bool still = true;  ///< frozen tensors have not changed
  friend bool operator==(const RunRecord&, const RunRecord&) = default;
};

// Returns the present values of frozen tensors.
inline StateTensors frozen_of(TinyRun& run) {
  StateTensors frozen = states_of(*run.engine, Payload::param);
  for (const LayoutTensor& tensor : run.plan->tensors.specs)
    if (tensor.group.trainable) frozen.erase(tensor.name);
  return frozen;
}

// In f16 the gradients of one step overflow at first.
inline RunRecord record_run(TinyRun& run) {
  must(run.engine->initialize(5));
  const StateTensors frozen = frozen_of(run);
  CountingBatches batches(tiny_config().vocab);
  RunRecord record;
  for (int step = 0; step < 4; ++step) {
    if (run.plan->scales_loss() && step == 2) run.engine->set_loss_scale({.value = LossScale::kMax});
    StepReport report;
    must(run.engine->train_step(batches, 1e-2, report));
    record.bits.push_back(std::bit_cast<std::uint32_t>(report.loss));
    record.bits.push_back(std::bit_cast<std::uint64_t>(report.grad_norm));
    if (step == 1)
      record.bits.push_back(std::bit_cast<std::uint64_t>(must(run.engine->evaluate(batches, 1))));
  }
  const std::vector<std::int32_t> prompt(16, 3);
  record.bits.push_back(std::bit_cast<std::uint32_t>(must(run.engine->infer(prompt, 15))[7]));
  record.digest = must(run.engine->state_digest());
  record.still = !frozen.empty() && frozen_of(run) == frozen;
  EXPECT_EQ(run.engine->peak_bytes(), run.plan->planned_peak);
  return record;
}

inline RunRecord run_of(const ProgramSet& programs, SessionOptions options, Tiers tiers) {
  const TempDir dir;
  options.nvme.dirs = {dir.path()};
  options.nvme.engine = IoEngine::threads;
  const auto choose = [&](const ChunkLayout& layout, Placement& p) { assign_homes(tiers, layout, p); };
  const bool checked = (static_cast<int>(options.step_mode) + static_cast<int>(tiers)) % 2 == 0;
  TinyRun run(must(Engine::plan_with(programs, options, choose)), 2,
              checked ? HostBackendOptions{.schedule = StreamSchedule::latest_legal, .check = true}
                      : HostBackendOptions{});
  return record_run(run);
}

/// Every step mode and placement gives the bits of a serial step on the device.
inline void expect_same_bits(const ProgramSet& programs, SessionOptions options) {
  options.undo_bytes = kUnlimited;
  options.optimizer.weight_decay = 0.1;
  options.chunk_elems = 2 * ChunkLayout::kSliceAlign;
  options.step_mode = StepMode::serial;
  const RunRecord want = run_of(programs, options, Tiers::device);
  EXPECT_TRUE(want.still);
  for (const StepMode mode : kStepModes)
    for (const Tiers tiers : kTiersTried) {
      options.step_mode = mode;
      EXPECT_EQ(run_of(programs, options, tiers), want)
          << to_string(mode) << ", tiers " << static_cast<int>(tiers);
    }
}

}  // namespace strata::test::frozen
