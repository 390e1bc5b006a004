#pragma once

#include <vector>

#include <strata/offload/nvme_store.h>

#include "execution_context.h"

namespace strata {

/// The store's classes for what goes to the slow tier: a slot each, and a spare one of each size.
std::vector<SlotClass> activation_classes(const LoweredProgram& program);
/// Bytes of their slots.
std::size_t activation_store_bytes(const LoweredProgram& program);

/// Activations that go on from pinned memory to the slow tier and come back. A write is submitted once the
/// copy to the host is done, a read once its memory is free, whichever call finds it so; the host waits for
/// them where the program ends the move, and so it is as far ahead of the device as the moves are long. One
/// thread; allocates nothing after construction.
class ActivationStore {
 public:
  explicit ActivationStore(ExecutionContext& context);

  /// Queues a store_begin or load_begin that may be submitted after `ready`, or ends it. Errors: of the
  /// store, naming the activation.
  Status begin(const LoweredInstr& instr, const Event& ready);
  Status end(const LoweredInstr& instr);
  /// Submits what can be.
  Status pump();
  /// After a failure: waits for what is under way and forgets it all.
  void release() noexcept;

 private:
  struct Request {
    std::int32_t stored = -1;  // index into the program's list
    bool is_write = false;
    Event ready;
    BufferView memory;
  };
  Status submit_next();
  Status wait(std::int32_t stored);
  std::uint64_t id_of(std::int32_t stored) const;
  const LoweredProgram::Offload::Stored& info(std::int32_t stored) const;

  ExecutionContext& context_;
  std::vector<std::int32_t> stored_of_move_;
  std::vector<std::uint32_t> class_of_;  // by stored: of the store
  std::vector<Ticket> tickets_;          // likewise: of its last request
  std::vector<Request> queue_;           // not submitted yet, oldest first
};

}  // namespace strata
