#include "execute/activation_store.h"

#include <algorithm>

#include <strata/graph/op_attrs.h>
#include <strata/graph/op_list.h>
#include <strata/runtime/str.h>
#include <strata/runtime/trace/stall_meter.h>

#include "execute/activation_slots.h"

namespace strata::detail {
ActivationStore::ActivationStore(StateContext& context, const ProgramMemory& memory,
                                 const LoweredProgram& program)
    : context_(context), memory_(memory), program_(program), class_of_(activation_slots(program).class_of) {
  const std::uint32_t first = first_driver_class(context.plan());
  for (std::uint32_t& slot_class : class_of_) slot_class += first;
  stored_of_move_.assign(static_cast<std::size_t>(program.offload.n), -1);
  for (std::size_t i = 0; i < class_of_.size(); ++i)
    stored_of_move_[static_cast<std::size_t>(program.offload.stored[i].move)] = static_cast<std::int32_t>(i);
  tickets_.resize(class_of_.size());
  queue_.reserve(class_of_.size());
}

const LoweredProgram::Offload::Stored& ActivationStore::info(std::int32_t stored) const {
  return program_.offload.stored[static_cast<std::size_t>(stored)];
}
std::uint64_t ActivationStore::id_of(std::int32_t stored) const {
  return first_driver_object(context_.plan()) + static_cast<std::uint64_t>(stored);
}

Status ActivationStore::begin(const LoweredInstr& instr, const Event& ready) {
  const std::int32_t stored = stored_of_move_[static_cast<std::size_t>(instr.attrs.as<MoveAttrs>().number)];
  const bool is_write = instr.op == Op::store_begin;
  std::byte* const memory = memory_.host(is_write ? instr.in[0] : instr.out[0]);
  queue_.push_back({stored, is_write, ready, {memory, info(stored).slot_bytes}});
  return {};
}

Status ActivationStore::submit_next() {
  const Request request = queue_.front();
  queue_.erase(queue_.begin());
  STRATA_TRY(context_.backend().host_access({request.memory.data, request.memory.bytes, !request.is_write}));
  if (context_.store() == nullptr) return {};
  const HostWaitScope waits(context_.backend().stall_meter(), StallCause::nvme);  // for a free request
  const auto of = static_cast<std::size_t>(request.stored);
  auto ticket = request.is_write ? context_.store()->write_async(id_of(request.stored), class_of_[of],
                                                                 request.memory, WriteMode::replace)
                                 : context_.store()->read_async(id_of(request.stored), request.memory);
  if (!ticket.has_value()) return ticket.status().annotate(str("activation ", info(request.stored).name));
  tickets_[of] = *ticket;
  return {};
}

Status ActivationStore::pump() {
  while (!queue_.empty() && context_.backend().is_complete(queue_.front().ready)) STRATA_TRY(submit_next());
  return {};
}

Status ActivationStore::wait(std::int32_t stored) {
  if (context_.store() == nullptr) return {};
  const HostWaitScope waits(context_.backend().stall_meter(), StallCause::nvme);
  return context_.store()->wait(tickets_[static_cast<std::size_t>(stored)]);
}

Status ActivationStore::end(const LoweredInstr& instr) {
  const std::int32_t stored = stored_of_move_[static_cast<std::size_t>(instr.attrs.as<MoveAttrs>().number)];
  const auto waits_for_it = [&](const Request& request) { return request.stored == stored; };
  while (std::any_of(queue_.begin(), queue_.end(), waits_for_it)) {
    STRATA_TRY(context_.backend().wait(queue_.front().ready));
    STRATA_TRY(submit_next());
  }
  const bool is_write = instr.op == Op::store_end;
  if (const Status status = wait(stored); !status.is_ok())
    return status.annotate(str(is_write ? "storing activation " : "loading activation ", info(stored).name));
  if (!is_write && context_.store() != nullptr) context_.store()->discard(id_of(stored));
  return {};
}

void ActivationStore::release() noexcept {
  queue_.clear();
  for (std::size_t i = 0; i < tickets_.size() && context_.store() != nullptr; ++i) {
    // If the store has given up on a request, it may still be running.
    const auto stored = static_cast<std::int32_t>(i);
    if (wait(stored).code() != Code::timeout) context_.store()->discard(id_of(stored));
    tickets_[i] = {};
  }
}

}  // namespace strata::detail
