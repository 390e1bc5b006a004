#pragma once

#include <vector>

#include <strata/engine/run_plan.h>
#include <strata/offload/nvme_store.h>
#include <strata/session/state_context.h>

#include "execute/program_memory.h"

namespace strata::detail {

/// Moves activations from pinned memory to the slow tier and back. A write is submitted by the first call
/// after the copy to the host is done, a read by the first call after its memory is free. The host waits for
/// a request where the program ends the move, so the host gets no farther ahead of the device than moves are
/// long. Not thread-safe; allocates nothing after construction.
class ActivationStore {
 public:
  /// All references outlive the object. `program` is the one that trains.
  ActivationStore(StateContext& context, const ProgramMemory& memory, const LoweredProgram& program);

  /// begin() queues a store_begin or load_begin, to be submitted after `ready`; end() completes it. Errors:
  /// those of the store, naming the activation.
  Status begin(const LoweredInstr& instr, const Event& ready);
  Status end(const LoweredInstr& instr);
  /// Submits the requests that are ready.
  Status pump();
  /// After a failure: waits for requests that are running, and forgets all.
  void release() noexcept;

 private:
  struct Request {
    std::int32_t stored = -1;  // index into the program's list of stored activations
    bool is_write = false;
    Event ready;
    BufferView memory;
  };
  Status submit_next();
  Status wait(std::int32_t stored);
  std::uint64_t id_of(std::int32_t stored) const;
  const LoweredProgram::Offload::Stored& info(std::int32_t stored) const;

  StateContext& context_;
  const ProgramMemory& memory_;
  const LoweredProgram& program_;
  std::vector<std::int32_t> stored_of_move_;
  std::vector<std::uint32_t> class_of_;  // the class of each stored activation in the store
  std::vector<IoTicket> tickets_;        // the last request of each stored activation
  std::vector<Request> queue_;           // not submitted yet, oldest first
};

}  // namespace strata::detail
