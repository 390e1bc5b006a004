#include "pass_runner.h"

#include <algorithm>

#include <strata/cpuopt/gradient.h>
#include <strata/cpuopt/norm.h>
#include <strata/graph/launch.h>
#include <strata/graph/ops.h>
#include <strata/runtime/assert.h>
#include <strata/runtime/profiler_range.h>

#include "device_work.h"

namespace strata {

PassRunner::PassRunner(Machine& machine, Commit& commit, Speculation& speculation)
    : machine_(machine), commit_(commit), speculation_(speculation), moves_(machine) {
  std::size_t most = 0;
  for (const LoweredProgram* program : machine.plan.programs())
    for (const LoweredInstr& instr : program->code) {
      most = std::max(most, instr.params.size());
      STRATA_ASSERT(instr.in.size() <= kMaxOperands && instr.out.size() <= kMaxOperands,
                    "an instruction with ", instr.in.size(), " inputs");
    }
  params_.resize(most);
  open_grads_.resize(machine.plan.layout.n_chunks());
}

Status PassRunner::run(const Pass& pass) {
  ChunkManager& chunks = *machine_.chunks;
  const auto length = static_cast<std::int32_t>(pass.program.code.size());
  auto ready = pass.schedule.ready.begin();
  for (std::int32_t i = 0; i < length; ++i) {
    const LoweredInstr& instr = pass.program.code[static_cast<std::size_t>(i)];
    chunks.set_position(pass.k * length + i);
    STRATA_TRY(make_current(instr));
    for (std::size_t p = 0; p < instr.params.size(); ++p) {
      STRATA_TRY_ASSIGN(params_[p], chunks.pin({instr.params[p], Payload::param}, Tier::device, Intent::read,
                                               machine_.compute));
    }
    for (const GradTouch& touch : instr.grads)
      if (touch.first) {
        STRATA_TRY_ASSIGN(open_grads_[touch.chunk], chunks.pin({touch.chunk, Payload::grad}, Tier::device,
                                                               Intent::overwrite, machine_.compute));
      }
    STRATA_TRY(launch(instr));
    for (std::size_t p = 0; p < instr.params.size(); ++p) params_[p] = ChunkPin();
    for (const GradTouch& touch : instr.grads)
      if (touch.last) {
        open_grads_[touch.chunk] = ChunkPin();
        if (pass.lands) STRATA_TRY(land(touch.chunk, pass));
      }
    if (pass.last) {
      for (; ready != pass.schedule.ready.end() && ready->first <= i; ++ready)
        STRATA_TRY(speculation_.update(ready->second));
      if (!instr.grads.empty()) STRATA_TRY(commit_.fetch_early());
    }
    STRATA_TRY(look_ahead(pass.schedule, pass.k * length + i));
    STRATA_TRY(chunks.pump());
    STRATA_TRY(moves_.pump());
    STRATA_TRY(chunks.status());
  }
  return Status::ok();
}

// What the step before left to be done of the chunks that are read; all of it before gradients land.
Status PassRunner::make_current(const LoweredInstr& instr) {
  if (!commit_.is_pending()) return Status::ok();
  for (const ChunkId chunk : instr.params) STRATA_TRY(commit_.advance_to(chunk));
  return instr.grads.empty() ? Status::ok() : commit_.advance_to_end();
}

void PassRunner::release() noexcept {
  for (ChunkPin& pin : params_) pin = ChunkPin();
  for (ChunkPin& pin : open_grads_) pin = ChunkPin();
  for (Stream* stream : {&machine_.compute, &machine_.h2d, &machine_.d2h, &machine_.cpu})
    (void)machine_.backend.synchronize(*stream);  // a sticky error meets whoever uses the stream next
  moves_.release();
  machine_.chunks->abort_pending();  // so that no drop waits for anything, and none fails
  for (ChunkId chunk = 0; chunk < machine_.plan.layout.n_chunks(); ++chunk)
    (void)machine_.chunks->drop({chunk, Payload::grad});
}

void PassRunner::abandon() noexcept {
  release();
  for (ChunkId chunk = 0; chunk < machine_.plan.layout.n_chunks(); ++chunk)
    (void)machine_.chunks->drop({chunk, Payload::accum});
}

TensorView PassRunner::bind(const LoweredInstr& instr, const Operand& operand) const {
  switch (operand.where) {
    case Operand::Where::none:
      return {nullptr, operand.shape, operand.dtype};
    case Operand::Where::arena:
      return {machine_.arena(operand), operand.shape, operand.dtype};
    case Operand::Where::state:
      return {machine_.state(operand), operand.shape, operand.dtype};
    case Operand::Where::host:
      return {machine_.host(operand), operand.shape, operand.dtype};
    case Operand::Where::grad:
      return {open_grads_[operand.chunk].view().data + operand.offset, operand.shape, operand.dtype};
    case Operand::Where::param: {
      for (std::size_t p = 0; p < instr.params.size(); ++p)
        if (instr.params[p] == operand.chunk)
          return {params_[p].view().data + operand.offset, operand.shape, operand.dtype};
      return {nullptr, operand.shape, operand.dtype};  // named for its shape alone
    }
  }
  return {};
}

namespace {

void compute_nothing(const std::int64_t&, ThreadPool&) {}

}  // namespace

Status PassRunner::launch(const LoweredInstr& instr) {
  if (is_move(instr.op)) return moves_.run(instr);
  const double rate = machine_.plan.options.paced_flops_per_s;
  if (rate > 0 || machine_.prices) {
    // At least 1: what is not paced ends when its thread comes to it, and all that follows would be late.
    const auto ns = rate > 0 ? std::max<std::int64_t>(1, static_cast<std::int64_t>(instr.flops / rate * 1e9))
                             : machine_.prices->instruction_ns(instr);
    return machine_.backend.host_call_async(HostCall(op_def(instr.op).name, &compute_nothing, ns).paced(ns),
                                            machine_.compute);
  }
  const ProfilerRange range(op_def(instr.op).name);
  std::array<TensorView, kMaxOperands> in, out;
  for (std::size_t i = 0; i < instr.in.size(); ++i) in[i] = bind(instr, instr.in[i]);
  for (std::size_t i = 0; i < instr.out.size(); ++i) out[i] = bind(instr, instr.out[i]);
  return strata::launch(
      {instr.op, instr.attrs, instr.accumulate, {in.data(), instr.in.size()}, {out.data(), instr.out.size()}},
      machine_.backend, machine_.compute);
}

// Keeps the next `prefetch` parameter chunks on their way to the device, and twice as many on their way to
// RAM.
Status PassRunner::look_ahead(const PassSchedule& schedule, std::int32_t position) {
  const std::size_t depth = *machine_.plan.options.prefetch;
  if (depth == 0) return Status::ok();
  while (here_ < schedule.params.size() && schedule.params[here_].first <= position) ++here_;
  const std::size_t end = std::min(here_ + depth, schedule.params.size());
  const std::size_t far_end = std::min(here_ + 2 * depth, schedule.params.size());
  ChunkManager& chunks = *machine_.chunks;
  for (std::size_t next = end; next < far_end; ++next) {
    const PayloadKey key{schedule.params[next].second, Payload::param};
    if (chunks.placement().home(key) != Tier::nvme || chunks.state(key, Tier::device) != Residency::absent)
      continue;
    STRATA_TRY_ASSIGN(const bool begun, chunks.prefetch(key, Tier::pinned));
    if (!begun) break;
  }
  for (std::size_t next = here_; next < end; ++next) {
    STRATA_TRY(commit_.advance_to(schedule.params[next].second));
    STRATA_TRY_ASSIGN(const bool begun,
                      chunks.prefetch({schedule.params[next].second, Payload::param}, Tier::device));
    if (!begun) break;
  }
  return Status::ok();
}

// --- landing: a micro-batch's gradient joins the step's ---

Status PassRunner::land(ChunkId chunk, const Pass& pass) {
  return machine_.plan.placement.home({chunk, Payload::accum}) == Tier::device ? land_on_device(chunk, pass)
                                                                               : land_in_ram(chunk, pass);
}

// The first micro-batch's gradient is the sum so far, in its place if it has the sum's dtype.
Status PassRunner::land_on_device(ChunkId chunk, const Pass& pass) {
  ChunkManager& chunks = *machine_.chunks;
  Stream& stream = machine_.compute;
  const PayloadKey grad_key{chunk, Payload::grad}, sum_key{chunk, Payload::accum};
  if (pass.k == 0 && sums_as_it_lands(chunk)) {
    STRATA_TRY(chunks.transfer(grad_key, sum_key, Tier::device));
  } else {
    STRATA_TRY_ASSIGN(const ChunkPin grad, chunks.pin(grad_key, Tier::device, Intent::read, stream));
    STRATA_TRY_ASSIGN(
        const ChunkPin sum,
        chunks.pin(sum_key, Tier::device, pass.k == 0 ? Intent::overwrite : Intent::update, stream));
    STRATA_TRY(accumulate(chunk, sum, grad, pass.k == 0, stream));
  }
  STRATA_TRY(chunks.drop(grad_key));
  if (!pass.last) return Status::ok();
  STRATA_TRY_ASSIGN(const ChunkPin sum, chunks.pin(sum_key, Tier::device, Intent::read, stream));
  return take_leaves(chunk, sum, stream);
}

// The first micro-batch's gradient is the sum so far and lands in its place, if it has the sum's dtype; the
// others land beside it and are added by the CPU, in micro-batch order.
Status PassRunner::land_in_ram(ChunkId chunk, const Pass& pass) {
  ChunkManager& chunks = *machine_.chunks;
  const PayloadKey grad_key{chunk, Payload::grad}, sum_key{chunk, Payload::accum};
  if (pass.k == 0 && sums_as_it_lands(chunk)) {
    STRATA_TRY_ASSIGN(const ChunkPin grad, chunks.pin(grad_key, Tier::device, Intent::read, machine_.d2h));
    STRATA_TRY_ASSIGN(const ChunkPin sum, chunks.pin(sum_key, Tier::pinned, Intent::overwrite, machine_.d2h));
    STRATA_TRY(machine_.backend.copy_async(sum.view(), grad.view(), machine_.d2h));
  } else {
    STRATA_TRY_ASSIGN(const ChunkPin grad, chunks.pin(grad_key, Tier::pinned, Intent::read, machine_.cpu));
    STRATA_TRY_ASSIGN(
        const ChunkPin sum,
        chunks.pin(sum_key, Tier::pinned, pass.k == 0 ? Intent::overwrite : Intent::update, machine_.cpu));
    STRATA_TRY(accumulate(chunk, sum, grad, pass.k == 0, machine_.cpu));
  }
  STRATA_TRY(chunks.drop(grad_key));
  if (pass.last) {
    STRATA_TRY_ASSIGN(const ChunkPin sum, chunks.pin(sum_key, Tier::pinned, Intent::read, machine_.cpu));
    STRATA_TRY(take_leaves(chunk, sum, machine_.cpu));
  }
  return chunks.write_back(sum_key);
}

namespace {

struct AccumulateState {
  float* sum;
  const std::byte* grad;
  DType dtype;  // of grad
  bool first;   // the sum so far is nothing
  const Block* blocks;
  std::int64_t n_blocks;
};
void run_accumulate(const AccumulateState& s, ThreadPool& pool) {
  pool.parallel_for(s.n_blocks, [&](std::int64_t i) {
    const Block& b = s.blocks[i];
    cpuopt::accumulate({s.sum + b.offset, static_cast<std::size_t>(b.n)}, s.dtype,
                       s.grad + static_cast<std::size_t>(b.offset) * size_of(s.dtype), s.first);
  });
}

struct LeavesState {
  const std::byte* sum;
  DType dtype;
  double* leaves;
  const Block* blocks;
  std::int64_t n_blocks;
};
void run_leaves(const LeavesState& s, ThreadPool& pool) {
  pool.parallel_for(s.n_blocks, [&](std::int64_t i) {
    const Block& b = s.blocks[i];
    cpuopt::square_sum_partials(s.dtype, s.sum + static_cast<std::size_t>(b.offset) * size_of(s.dtype), b.n,
                                s.leaves + b.leaf);
  });
}

}  // namespace

// Of a simulation the device's work is priced as the CPU's is.
bool PassRunner::is_device(const Stream& stream) const {
  return &stream == &machine_.compute && !machine_.prices;
}

bool PassRunner::sums_as_it_lands(ChunkId chunk) const {
  const GroupKey& group = machine_.plan.layout.group_of(chunk);
  return group.accum == group.grad;
}

Status PassRunner::accumulate(ChunkId chunk, const ChunkPin& sum, const ChunkPin& grad, bool first,
                              Stream& stream) {
  if (is_device(stream)) return accumulate_on_device(machine_, chunk, sum.view(), grad.view(), first);
  const std::vector<Block>& blocks = machine_.tables.blocks[chunk];
  HostCall call("accumulate", &run_accumulate,
                AccumulateState{reinterpret_cast<float*>(sum.view().data), grad.view().data,
                                machine_.plan.layout.group_of(chunk).grad, first, blocks.data(),
                                static_cast<std::int64_t>(blocks.size())});
  call.reads(grad.view().data, grad.view().bytes).writes(sum.view().data, sum.view().bytes);
  if (machine_.prices)
    call.paced(machine_.prices->sweep_ns(grad.view().bytes + (first ? 1 : 2) * sum.view().bytes,
                                         stream.role() == StreamRole::compute));
  return machine_.backend.host_call_async(call, stream);
}

Status PassRunner::take_leaves(ChunkId chunk, const ChunkPin& sum, Stream& stream) {
  if (is_device(stream)) return take_leaves_on_device(machine_, chunk, sum.view());
  const std::vector<Block>& blocks = machine_.tables.blocks[chunk];
  HostCall call("norm leaves", &run_leaves,
                LeavesState{sum.view().data, machine_.plan.layout.group_of(chunk).accum, machine_.leaves(),
                            blocks.data(), static_cast<std::int64_t>(blocks.size())});
  call.reads(sum.view().data, sum.view().bytes);
  if (machine_.prices)
    call.paced(machine_.prices->sweep_ns(sum.view().bytes, stream.role() == StreamRole::compute));
  // Its leaves lie between those of other chunks; what matters is that the host waits before it adds them up.
  for (const Block& block : blocks) {
    if (call.accesses().size() + 1 >= HostCall::kMaxAccesses) break;
    call.writes(machine_.leaves() + block.leaf,
                sizeof(double) * static_cast<std::size_t>(cpuopt::norm_partial_count(block.n)));
  }
  return machine_.backend.host_call_async(call, stream);
}

}  // namespace strata
