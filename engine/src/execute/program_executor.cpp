#include "execute/program_executor.h"

#include <algorithm>

#include <strata/cpuopt/gradient.h>
#include <strata/cpuopt/norm.h>
#include <strata/graph/launch.h>
#include <strata/graph/ops.h>
#include <strata/runtime/assert.h>
#include <strata/runtime/trace/profiler_range.h>

#include "execute/device_work.h"

namespace strata {

ProgramExecutor::ProgramExecutor(ExecutionContext& context, Commit& commit, Speculation& speculation)
    : context_(context), commit_(commit), speculation_(speculation), moves_(context) {
  std::size_t max_params = 0;
  for (const LoweredProgram* program : context.plan.programs())
    for (const LoweredInstr& instr : program->code) {
      max_params = std::max(max_params, instr.params.size());
      STRATA_ASSERT(instr.in.size() <= kMaxOperands && instr.out.size() <= kMaxOperands,
                    "an instruction with ", instr.in.size(), " inputs");
    }
  params_.resize(max_params);
  open_grads_.resize(context.plan.layout.n_chunks());
}

Status ProgramExecutor::run(const Pass& pass) {
  ChunkManager& chunks = *context_.chunks;
  const auto length = static_cast<std::int32_t>(pass.program.code.size());
  auto ready = pass.schedule.ready.begin();
  for (std::int32_t i = 0; i < length; ++i) {
    const LoweredInstr& instr = pass.program.code[static_cast<std::size_t>(i)];
    context_.use_schedule.set_position(pass.k * length + i);
    STRATA_TRY(make_current(instr));
    for (std::size_t p = 0; p < instr.params.size(); ++p) {
      STRATA_TRY_ASSIGN(params_[p], chunks.pin({instr.params[p], Payload::param}, Tier::device, Intent::read,
                                               context_.compute));
    }
    for (const GradWrite& touch : instr.grads)
      if (touch.first) {
        STRATA_TRY_ASSIGN(open_grads_[touch.chunk], chunks.pin({touch.chunk, Payload::grad}, Tier::device,
                                                               Intent::overwrite, context_.compute));
      }
    STRATA_TRY(launch(instr));
    for (std::size_t p = 0; p < instr.params.size(); ++p) params_[p] = ChunkPin();
    for (const GradWrite& touch : instr.grads)
      if (touch.last) {
        open_grads_[touch.chunk] = ChunkPin();
        if (pass.accumulates) STRATA_TRY(accumulate_gradient(touch.chunk, pass));
      }
    if (pass.last) {
      for (; ready != pass.schedule.ready.end() && ready->first <= i; ++ready)
        STRATA_TRY(speculation_.update(ready->second));
      if (!instr.grads.empty()) STRATA_TRY(commit_.prefetch_states());
    }
    STRATA_TRY(prefetch_params(pass.schedule, pass.k * length + i));
    STRATA_TRY(chunks.write_backs().pump());
    STRATA_TRY(moves_.pump());
    STRATA_TRY(chunks.status());
  }
  return Status::ok();
}

// Updates the chunks that the instruction reads, if the previous step's update of them is pending; before the
// first gradient is written, updates all that is pending.
Status ProgramExecutor::make_current(const LoweredInstr& instr) {
  if (!commit_.is_pending()) return Status::ok();
  for (const ChunkId chunk : instr.params) STRATA_TRY(commit_.advance_to(chunk));
  return instr.grads.empty() ? Status::ok() : commit_.advance_to_end();
}

void ProgramExecutor::release() noexcept {
  for (ChunkPin& pin : params_) pin = ChunkPin();
  for (ChunkPin& pin : open_grads_) pin = ChunkPin();
  for (Stream* stream : {&context_.compute, &context_.h2d, &context_.d2h, &context_.cpu})
    // An error is sticky, and is reported at the stream's next use.
    (void)context_.backend.synchronize(*stream);
  moves_.release();
  context_.chunks->abort_pending();  // so that drops need not wait and cannot fail
  for (ChunkId chunk = 0; chunk < context_.plan.layout.n_chunks(); ++chunk)
    (void)context_.chunks->drop({chunk, Payload::grad});
}

void ProgramExecutor::abandon() noexcept {
  release();
  for (ChunkId chunk = 0; chunk < context_.plan.layout.n_chunks(); ++chunk)
    (void)context_.chunks->drop({chunk, Payload::accum});
}

TensorView ProgramExecutor::bind(const LoweredInstr& instr, const Operand& operand) const {
  switch (operand.location) {
    case Operand::Location::none:
      return {nullptr, operand.shape, operand.dtype};
    case Operand::Location::arena:
      return {context_.arena(operand), operand.shape, operand.dtype};
    case Operand::Location::state:
      return {context_.state(operand), operand.shape, operand.dtype};
    case Operand::Location::host:
      return {context_.host(operand), operand.shape, operand.dtype};
    case Operand::Location::grad:
      return {open_grads_[operand.chunk].view().data + operand.offset, operand.shape, operand.dtype};
    case Operand::Location::param: {
      for (std::size_t p = 0; p < instr.params.size(); ++p)
        if (instr.params[p] == operand.chunk)
          return {params_[p].view().data + operand.offset, operand.shape, operand.dtype};
      return {nullptr, operand.shape, operand.dtype};  // only its shape is needed
    }
  }
  return {};
}

namespace {

void compute_nothing(const std::int64_t&, ThreadPool&) {}

}  // namespace

Status ProgramExecutor::launch(const LoweredInstr& instr) {
  if (is_move(instr.op)) return moves_.run(instr);
  const double rate = context_.plan.options.paced_flops_per_s;
  if (rate > 0 || context_.cost_model) {
    // At least 1 ns: a call without pacing would end when its thread gets to it, and delay everything after
    // it.
    const auto ns = rate > 0 ? std::max<std::int64_t>(1, static_cast<std::int64_t>(instr.flops / rate * 1e9))
                             : context_.cost_model->instruction_ns(instr);
    return context_.backend.host_call_async(HostCall(op_name(instr.op), &compute_nothing, ns).paced(ns),
                                            context_.compute);
  }
  const ProfilerRange range(op_name(instr.op));
  std::array<TensorView, kMaxOperands> in, out;
  for (std::size_t i = 0; i < instr.in.size(); ++i) in[i] = bind(instr, instr.in[i]);
  for (std::size_t i = 0; i < instr.out.size(); ++i) out[i] = bind(instr, instr.out[i]);
  return strata::launch(
      {instr.op, instr.attrs, instr.accumulate, {in.data(), instr.in.size()}, {out.data(), instr.out.size()}},
      context_.backend, context_.compute);
}

// Keeps the next `prefetch` parameter chunks in flight to the device, and as many after them in flight to
// RAM.
Status ProgramExecutor::prefetch_params(const ProgramSchedule& schedule, std::int32_t position) {
  const std::size_t depth = *context_.plan.options.prefetch;
  if (depth == 0) return Status::ok();
  while (here_ < schedule.params.size() && schedule.params[here_].first <= position) ++here_;
  const std::size_t end = std::min(here_ + depth, schedule.params.size());
  const std::size_t far_end = std::min(here_ + 2 * depth, schedule.params.size());
  ChunkManager& chunks = *context_.chunks;
  for (std::size_t next = end; next < far_end; ++next) {
    const PayloadKey key{schedule.params[next].second, Payload::param};
    if (context_.plan.placement.home(key) != Tier::nvme ||
        chunks.residency().state(key, Tier::device) != Residency::absent)
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

// --- accumulation of a micro-batch's gradient into the step's gradient ---

Status ProgramExecutor::accumulate_gradient(ChunkId chunk, const Pass& pass) {
  return context_.plan.placement.home({chunk, Payload::accum}) == Tier::device
             ? accumulate_gradient_on_device(chunk, pass)
             : accumulate_gradient_in_ram(chunk, pass);
}

// The first micro-batch's gradient becomes the sum, in place if it has the sum's dtype.
Status ProgramExecutor::accumulate_gradient_on_device(ChunkId chunk, const Pass& pass) {
  ChunkManager& chunks = *context_.chunks;
  Stream& stream = context_.compute;
  const PayloadKey grad_key{chunk, Payload::grad}, sum_key{chunk, Payload::accum};
  if (pass.k == 0 && sum_has_grad_dtype(chunk)) {
    STRATA_TRY(chunks.transfer(grad_key, sum_key, Tier::device));
  } else {
    STRATA_TRY_ASSIGN(const ChunkPin grad, chunks.pin(grad_key, Tier::device, Intent::read, stream));
    STRATA_TRY_ASSIGN(
        const ChunkPin sum,
        chunks.pin(sum_key, Tier::device, pass.k == 0 ? Intent::overwrite : Intent::update, stream));
    STRATA_TRY(queue_accumulate(chunk, sum, grad, pass.k == 0, stream));
  }
  STRATA_TRY(chunks.drop(grad_key));
  if (!pass.last) return Status::ok();
  STRATA_TRY_ASSIGN(const ChunkPin sum, chunks.pin(sum_key, Tier::device, Intent::read, stream));
  return queue_norm_partials(chunk, sum, stream);
}

// The first micro-batch's gradient is copied straight to the sum's place if it has the sum's dtype. Others
// are copied beside the sum and added by the CPU, in micro-batch order.
Status ProgramExecutor::accumulate_gradient_in_ram(ChunkId chunk, const Pass& pass) {
  ChunkManager& chunks = *context_.chunks;
  const PayloadKey grad_key{chunk, Payload::grad}, sum_key{chunk, Payload::accum};
  if (pass.k == 0 && sum_has_grad_dtype(chunk)) {
    STRATA_TRY_ASSIGN(const ChunkPin grad, chunks.pin(grad_key, Tier::device, Intent::read, context_.d2h));
    STRATA_TRY_ASSIGN(const ChunkPin sum, chunks.pin(sum_key, Tier::pinned, Intent::overwrite, context_.d2h));
    STRATA_TRY(context_.backend.copy_async(sum.view(), grad.view(), context_.d2h));
  } else {
    STRATA_TRY_ASSIGN(const ChunkPin grad, chunks.pin(grad_key, Tier::pinned, Intent::read, context_.cpu));
    STRATA_TRY_ASSIGN(
        const ChunkPin sum,
        chunks.pin(sum_key, Tier::pinned, pass.k == 0 ? Intent::overwrite : Intent::update, context_.cpu));
    STRATA_TRY(queue_accumulate(chunk, sum, grad, pass.k == 0, context_.cpu));
  }
  STRATA_TRY(chunks.drop(grad_key));
  if (pass.last) {
    STRATA_TRY_ASSIGN(const ChunkPin sum, chunks.pin(sum_key, Tier::pinned, Intent::read, context_.cpu));
    STRATA_TRY(queue_norm_partials(chunk, sum, context_.cpu));
  }
  return chunks.write_back(sum_key);
}

namespace {

struct AccumulateState {
  float* sum;
  const std::byte* grad;
  DType dtype;  // of grad
  bool first;   // overwrite the sum
  const TensorBlock* blocks;
  std::int64_t n_blocks;
};
void run_accumulate(const AccumulateState& s, ThreadPool& pool) {
  pool.parallel_for(s.n_blocks, [&](std::int64_t i) {
    const TensorBlock& b = s.blocks[i];
    cpuopt::accumulate({s.sum + b.offset, static_cast<std::size_t>(b.n)}, s.dtype,
                       s.grad + static_cast<std::size_t>(b.offset) * size_of(s.dtype), s.first);
  });
}

struct NormPartialsState {
  const std::byte* sum;
  DType dtype;
  double* norm_partials;
  const TensorBlock* blocks;
  std::int64_t n_blocks;
};
void run_norm_partials(const NormPartialsState& s, ThreadPool& pool) {
  pool.parallel_for(s.n_blocks, [&](std::int64_t i) {
    const TensorBlock& b = s.blocks[i];
    cpuopt::square_sum_partials(s.dtype, s.sum + static_cast<std::size_t>(b.offset) * size_of(s.dtype), b.n,
                                s.norm_partials + b.first_partial);
  });
}

}  // namespace

// In a simulation, work on the device is a host call with a cost, like that of the CPU.
bool ProgramExecutor::runs_on_device(const Stream& stream) const {
  return &stream == &context_.compute && !context_.cost_model;
}

bool ProgramExecutor::sum_has_grad_dtype(ChunkId chunk) const {
  const GroupKey& group = context_.plan.layout.group_of(chunk);
  return group.accum == group.grad;
}

Status ProgramExecutor::queue_accumulate(ChunkId chunk, const ChunkPin& sum, const ChunkPin& grad, bool first,
                                         Stream& stream) {
  if (runs_on_device(stream)) return queue_device_accumulate(context_, chunk, sum.view(), grad.view(), first);
  const std::vector<TensorBlock>& blocks = context_.tables.blocks[chunk];
  HostCall call("accumulate", &run_accumulate,
                AccumulateState{reinterpret_cast<float*>(sum.view().data), grad.view().data,
                                context_.plan.layout.group_of(chunk).grad, first, blocks.data(),
                                static_cast<std::int64_t>(blocks.size())});
  call.reads(grad.view().data, grad.view().bytes).writes(sum.view().data, sum.view().bytes);
  if (context_.cost_model)
    call.paced(context_.cost_model->sweep_ns(grad.view().bytes + (first ? 1 : 2) * sum.view().bytes,
                                             stream.role() == StreamRole::compute));
  return context_.backend.host_call_async(call, stream);
}

Status ProgramExecutor::queue_norm_partials(ChunkId chunk, const ChunkPin& sum, Stream& stream) {
  if (runs_on_device(stream)) return queue_device_norm_partials(context_, chunk, sum.view());
  const std::vector<TensorBlock>& blocks = context_.tables.blocks[chunk];
  HostCall call(
      "norm partials", &run_norm_partials,
      NormPartialsState{sum.view().data, context_.plan.layout.group_of(chunk).accum, context_.norm_partials(),
                        blocks.data(), static_cast<std::int64_t>(blocks.size())});
  call.reads(sum.view().data, sum.view().bytes);
  if (context_.cost_model)
    call.paced(context_.cost_model->sweep_ns(sum.view().bytes, stream.role() == StreamRole::compute));
  // These partials are interleaved with those of other chunks, and there may be too many ranges to declare.
  // What matters is that the host waits before it adds them up.
  for (const TensorBlock& block : blocks) {
    if (call.accesses().size() + 1 >= HostCall::kMaxAccesses) break;
    call.writes(context_.norm_partials() + block.first_partial,
                sizeof(double) * static_cast<std::size_t>(cpuopt::norm_partial_count(block.n)));
  }
  return context_.backend.host_call_async(call, stream);
}

}  // namespace strata
