#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <strata/engine/batch_source.h>
#include <strata/graph/passes.h>
#include <strata/runtime/backend/backend.h>
#include <strata/session/session_options.h>
#include <strata/session/state_planning.h>
#include <strata/session/trainer_session.h>

namespace strata::test {

/// A trainer other than the engine: it computes a recorded program in memory of its own, and does with a
/// TrainerSession what a trainer does. The model's step is thus the engine's, and so must its bits be.
class ProgramTrainer {
 public:
  /// `program` computes gradients of one micro-batch in f32 or bf16. Of `options`, which are the engine's,
  /// clipping, accumulation and the optimizer are used. All references outlive the object.
  ProgramTrainer(const Program& program, const SessionOptions& options, TrainerHolds holds, Backend& backend,
                 ThreadPool& pool);

  /// The parameters, by their number in the session.
  std::vector<TrainerParam> params() const;
  std::vector<void*> addresses() const;

  struct Step {
    float loss = 0;
    double grad_norm = 0;
  };
  Step step(TrainerSession& session, BatchSource& source, double lr);

 private:
  struct Param {
    const ParamInfo* info = nullptr;
    Buffer values, gradient;
    // The sum of the step's gradients, if there are several and the trainer holds them.
    std::vector<float> sum;
    std::int32_t first_use = -1;   // instructions
    std::int32_t last_write = -1;  // the instruction that writes its gradient last; -1: it has none
    bool is_current = false;       // a copy of what the session holds
  };
  bool session_holds_params() const noexcept { return holds_ == TrainerHolds::params; }
  Buffer allocate(std::size_t bytes);
  void find_uses();
  void read_params(TrainerSession& session, const Instr& instr);
  void take_gradients(TrainerSession& session, std::int32_t instr, bool is_first);
  void run_micro_batch(TrainerSession& session, bool is_first);
  void launch(const Instr& instr);
  const void* gradient_of(const Param& param) const;
  double norm(const TrainerSession& session);
  std::vector<ParamUpdate> updates(double lr, double grad_factor);

  const Program& program_;
  const SessionOptions& options_;
  const TrainerHolds holds_;
  Backend& backend_;
  ThreadPool& pool_;
  Stream compute_;
  const MemoryPlan memory_;
  Buffer arena_;
  std::vector<Param> params_;
  std::vector<std::int32_t> order_;  // parameters by first use
  std::vector<std::size_t> place_;   // the index of each parameter in that order
  std::vector<std::byte*> address_;  // indexed by value
  std::vector<double> partials_;     // partials of the norm, parameter by parameter
  std::vector<std::size_t> first_partial_;
};

}  // namespace strata::test
