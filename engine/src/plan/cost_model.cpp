#include "plan/cost_model.h"

#include <algorithm>
#include <cmath>

#include <strata/graph/op_attrs.h>
#include <strata/graph/ops.h>
#include <strata/session/pinned_layout.h>

namespace strata::detail {
namespace {

std::int64_t as_ns(double seconds) { return std::max<std::int64_t>(1, std::llround(seconds * 1e9)); }

// The smallest dimension of the matrices that a GEMM multiplies, which limits the reuse of what is read. All
// three are among those of its operands; a result may be narrower, like a log-sum-exp and a maximum of each
// row.
double smallest_dim(const LoweredInstr& instr) {
  double min_dim = 1e30;
  for (const Operand& operand : instr.in) {
    if (operand.location == Operand::Location::none || operand.shape.rank < 2) continue;
    for (int d = operand.shape.rank - 2; d < operand.shape.rank; ++d)
      min_dim = std::min(min_dim, static_cast<double>(operand.shape.dim(d)));
  }
  return min_dim;
}

/// What an op multiplies with the stacked matrices of some experts, if a router gives each as many rows.
struct ExpertWork {
  double side = 1e30;  ///< the smallest dimension of an expert's GEMM
  double bytes = 0;    ///< its rows and matrices have them
};
ExpertWork expert_work(const LoweredInstr& instr) {
  const std::int64_t rows = instr.in[0].shape.dim(0);
  const auto all_experts = static_cast<double>(instr.in[2].shape.dim(0) - 1);  // the offsets of their rows
  const auto* const quantized = instr.attrs.get_if<ExpertLinearQuantizedAttrs>();
  double experts = quantized != nullptr ? static_cast<double>(quantized->matrix.count) : 0;
  ExpertWork work{.side = static_cast<double>(rows) / all_experts};
  double row_bytes = 0;
  const auto count = [&](const Operand& operand) {
    if (operand.location == Operand::Location::none) return;
    const Shape& shape = operand.shape;
    const bool are_rows = shape.rank == 2 && shape.dim(0) == rows, are_matrices = shape.rank == 3;
    if (are_matrices) experts = static_cast<double>(shape.dim(0));
    if (are_rows) work.side = std::min(work.side, static_cast<double>(shape.dim(1)));
    if (are_matrices)
      work.side = std::min({work.side, static_cast<double>(shape.dim(1)), static_cast<double>(shape.dim(2))});
    (are_rows ? row_bytes : work.bytes) += static_cast<double>(operand.bytes());
  };
  // The result before, whose rows of other experts are kept, is the result's own memory.
  for (std::size_t i = 0; i < std::min<std::size_t>(instr.in.size(), 2); ++i) count(instr.in[i]);
  count(instr.out[0]);
  work.bytes += row_bytes * experts / all_experts;
  return work;
}

BlockedWork blocks_of(const LoweredInstr& instr) {
  const auto blocks = op_def(instr.op).blocks;
  if (blocks == nullptr) return {};
  std::vector<ValueInfo> values(instr.in.size());
  std::vector<const ValueInfo*> in(instr.in.size());
  for (std::size_t k = 0; k < in.size(); ++k) {
    if (instr.in[k].location == Operand::Location::none) continue;
    values[k].shape = instr.in[k].shape;
    values[k].dtype = instr.in[k].dtype;
    in[k] = &values[k];
  }
  return blocks(in, instr.attrs);
}

// The dtype by whose rate a GEMM is priced: that of the first matrix it reads whose elements do not have 16
// bits (8 bits count as e4m3, others as f32), or bf16 if all have.
DType gemm_dtype(const LoweredInstr& instr) {
  for (const Operand& operand : instr.in)
    if (operand.location != Operand::Location::none && operand.shape.rank >= 2 && size_of(operand.dtype) != 2)
      return size_of(operand.dtype) == 1 ? DType::e4m3 : DType::f32;
  return DType::bf16;
}

double attention_rate(const LoweredInstr& instr, bool backward, const MachineProfile& p) {
  struct Rates {
    double forward, backward;
    double of(bool is_backward) const { return is_backward && backward > 0 ? backward : forward; }
  };
  const Rates mma = {p.attention_flops_per_s, p.attention_backward_flops_per_s},
              wgmma = {p.wgmma_attention_flops_per_s, p.wgmma_attention_backward_flops_per_s},
              cudnn = {p.cudnn_attention_flops_per_s, p.cudnn_attention_backward_flops_per_s};
  const AttentionBackend backend = instr.attrs.as<AttentionAttrs>().backend;
  const double asked = backend == AttentionBackend::wgmma   ? wgmma.of(backward)
                       : backend == AttentionBackend::cudnn ? cudnn.of(backward)
                                                            : 0;
  return asked > 0 ? asked : mma.of(backward);
}

}  // namespace

double instruction_s(const LoweredInstr& instr, double flops, const MachineProfile& profile) {
  std::size_t bytes = 0;
  for (const auto* operands : {&instr.in, &instr.out})
    for (const Operand& operand : *operands) bytes += operand.bytes();
  if (instr.attrs.has_gemm_workspace()) bytes -= instr.out.back().bytes();  // reserved memory, hardly traffic
  double seconds = static_cast<double>(bytes) / profile.device_bytes_per_s;
  const OpKind kind = op_def(instr.op).kind;
  if (kind == OpKind::gemm) {
    double side = smallest_dim(instr), within_blocks = 0;
    if (const BlockedWork blocks = blocks_of(instr); blocks.rows > 0) {
      // The memory of a block is before the GEMMs' workspace; what passes through it is in row_bytes.
      const std::size_t of_block =
          instr.out[instr.out.size() - (instr.attrs.has_gemm_workspace() ? 2 : 1)].bytes();
      side = std::min(side, static_cast<double>(blocks.rows));
      seconds -= static_cast<double>(of_block) / profile.device_bytes_per_s;
      seconds = std::max(seconds, blocks.gemm_bytes / profile.device_bytes_per_s);
      within_blocks = blocks.row_bytes / profile.device_bytes_per_s;
    }
    seconds = std::max(seconds, flops / profile.gemm_flops_per_s(gemm_dtype(instr), side)) + within_blocks;
  } else if (kind == OpKind::expert_gemm) {
    const ExpertWork work = expert_work(instr);
    seconds = std::max(work.bytes / profile.device_bytes_per_s,
                       flops / profile.gemm_flops_per_s(gemm_dtype(instr), work.side));
  } else if (kind == OpKind::attention || kind == OpKind::attention_backward) {
    const bool backward = kind == OpKind::attention_backward;
    seconds = std::max(seconds, flops / attention_rate(instr, backward, profile));
  } else if (kind == OpKind::recurrent) {
    constexpr double kChunkRows = 64;
    seconds = std::max(seconds, flops / profile.gemm_flops_per_s(DType::f32, kChunkRows));
  }
  return std::max(seconds, profile.launch_s);
}

std::int64_t CostModel::instruction_ns(const LoweredInstr& instr, double flops) const {
  return as_ns(instruction_s(instr, flops, profile_));
}

std::int64_t CostModel::sweep_ns(std::size_t bytes, bool on_device) const {
  const bool in_ram = !on_device || profile_.device_is_host;
  return as_ns(static_cast<double>(bytes) /
               (in_ram ? profile_.host_bytes_per_s : profile_.device_bytes_per_s));
}

std::int64_t CostModel::update_ns(ChunkId chunk, bool on_device, UndoAction undo) const {
  const ChunkLayout& layout = plan_.layout;
  std::size_t states = 0;
  for (const Payload payload : kPersistentPayloads) states += layout.payload_bytes(chunk, payload);
  const std::size_t logged = updated_state_bytes(plan_, chunk, Tier::pinned);
  const std::size_t gradient = layout.payload_bytes(chunk, Payload::accum);
  // Saving writes the log from values that are in cache; a rollback reads the log and writes the states.
  const std::size_t log = undo == UndoAction::none ? 0 : undo == UndoAction::save ? logged : 2 * logged;
  const std::size_t update = undo == UndoAction::rollback ? 0 : gradient + 2 * states;
  if (on_device && !profile_.device_is_host) return sweep_ns(update, true);
  // AdamW in f32 is memory-bound, and its measured time is scaled by bytes. With moments in fewer bits the
  // update may be compute-bound, and its measured time is scaled by elements.
  const auto n = static_cast<double>(layout.range(chunk, Payload::param).size());
  const auto format = static_cast<std::size_t>(plan_.options.states);
  const double by_bytes = profile_.update_s_per_param[0] * static_cast<double>(update + log) /
                          MachineProfile::kAdamWBytesPerParam;
  const double by_format = format == 0 || update == 0 ? 0 : n * profile_.update_s_per_param[format];
  return as_ns(std::max(by_bytes, by_format));
}

}  // namespace strata::detail
