#pragma once

#include <bit>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include <strata/offload/placement_planner.h>
#include <strata/parallel/agree.h>
#include <strata/parallel/world.h>

#include "engine/states.h"
#include "engine/tiny_run.h"

namespace strata::test {

/// The results of a run: of one rank, or put together from what every rank holds.
struct RankOutcome {
  std::vector<std::uint64_t> bits;             ///< loss and norm of every step, and how it ended
  std::map<std::string, StateTensors> states;  ///< keyed by payload
  std::vector<float> losses, evaluated;
  GroupCounters counters;  ///< the counters of rank 0
  int clipped = 0, skipped = 0, overflow_retries = 0, speculated = 0, rolled_back = 0;
  Status status;  ///< the first that is not ok
};

/// How one rank trains; called on its thread.
using RankBody = std::function<Status(Engine&, RankOutcome&)>;

// A small model whose chunks are many enough for eight ranks.
inline DecoderConfig rank_model() {
  return {.family = "gpt2", .layers = 3, .hidden = 64, .heads = 2, .ffn = 192, .vocab = 50, .seq = 16};
}

/// A run of `ranks` ranks as threads on one host backend.
struct RankRun {
  std::function<Result<std::unique_ptr<const RunPlan>>(std::int32_t rank)> plan;
  std::int32_t ranks = 1;
  HostBackendOptions backend = {.schedule = StreamSchedule::latest_legal, .check = true};
  int threads = 2;

  RankOutcome run(const RankBody& body) const {
    SteadyClock clock;
    const auto pool = must(ThreadPool::create(threads));
    const auto device = must(create_host_backend(backend, *pool, clock));
    auto worlds = must(create_thread_worlds(ranks));
    std::vector<RankOutcome> outcomes(static_cast<std::size_t>(ranks));
    std::vector<std::thread> running;
    for (std::int32_t rank = 0; rank < ranks; ++rank)
      running.emplace_back([&, rank] {
        const auto r = static_cast<std::size_t>(rank);
        const auto planned = plan(rank);
        outcomes[r].status = planned.status();
        if (planned.has_value()) {
          const auto engine = Engine::create(**planned, {.backend = *device,
                                                         .pool = *pool,
                                                         .clock = clock,
                                                         .io = posix_io(),
                                                         .world = ranks > 1 ? worlds[r].get() : nullptr});
          outcomes[r].status = engine.has_value() ? body(**engine, outcomes[r]) : engine.status();
          if (engine.has_value()) outcomes[r].counters = (*engine)->group_counters();
        }
        if (!outcomes[r].status.is_ok()) worlds[r].reset();  // so that the others do not wait for this rank
      });
    for (std::thread& thread : running) thread.join();
    return put_together(std::move(outcomes));
  }

 private:
  // A state's elements come from the ranks that hold them, which must agree.
  static RankOutcome put_together(std::vector<RankOutcome> outcomes) {
    RankOutcome all = std::move(outcomes.front());
    for (std::size_t r = 1; r < outcomes.size(); ++r) {
      RankOutcome& other = outcomes[r];
      // The error of a rank that failed says more than that it has gone.
      if (all.status.is_ok() || all.status.code() == Code::cancelled || all.status.code() == Code::lost_peer)
        if (!other.status.is_ok()) all.status = other.status;
      EXPECT_EQ(all.bits, other.bits) << "ranks 0 and " << r << " disagree";
      EXPECT_EQ(all.evaluated, other.evaluated);
      for (auto& [payload, tensors] : other.states)
        for (auto& [name, values] : tensors) {
          std::vector<float>& into = all.states[payload][name];
          if (into.size() < values.size()) into.resize(values.size(), kAbsent);
          for (std::size_t i = 0; i < values.size(); ++i) {
            if (same_bits(values[i], kAbsent)) continue;
            EXPECT_TRUE(same_bits(into[i], kAbsent) || same_bits(into[i], values[i]))
                << payload << " " << name << "[" << i << "] differs between ranks";
            into[i] = values[i];
          }
        }
    }
    return all;
  }

 public:
  /// Stands for an element that a rank does not hold: a NaN that no computation returns.
  static constexpr float kAbsent = std::bit_cast<float>(0x7fabcdefu);
  static bool same_bits(float a, float b) {
    return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b);
  }
};

/// Adds all states that this rank holds.
inline Status collect_states(Engine& engine, RankOutcome& outcome) {
  for (const Payload payload : engine.state_plan().states())
    STRATA_TRY(engine.visit(payload, [&](const StatePiece& piece, std::span<const float> values) {
      std::vector<float>& tensor = outcome.states[std::string(to_string(payload))][std::string(piece.name)];
      tensor.resize(static_cast<std::size_t>(piece.n_elems), RankRun::kAbsent);
      std::copy(values.begin(), values.end(), tensor.begin() + piece.offset);
      return Status::ok();
    }));
  return {};
}

/// Compares losses, norms and states bit by bit.
inline void expect_same_bits(const RankOutcome& got, const RankOutcome& want, const std::string& what) {
  EXPECT_EQ(got.bits, want.bits) << what;
  EXPECT_EQ(got.evaluated, want.evaluated) << what;
  ASSERT_EQ(got.states.size(), want.states.size()) << what;
  for (const auto& [payload, tensors] : want.states)
    for (const auto& [name, values] : tensors) {
      const auto& found = got.states.at(payload).at(name);
      ASSERT_EQ(found.size(), values.size()) << what << " " << payload << " " << name;
      std::size_t differ = 0;
      for (std::size_t i = 0; i < values.size(); ++i)
        differ += RankRun::same_bits(found[i], values[i]) ? 0 : 1;
      EXPECT_EQ(differ, 0u) << what << ": " << payload << " of " << name << " of " << values.size();
    }
}

}  // namespace strata::test
