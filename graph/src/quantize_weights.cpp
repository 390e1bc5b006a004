#include <algorithm>
#include <map>

#include <strata/graph/op_attrs.h>
#include <strata/graph/op_list.h>
#include <strata/graph/ops.h>
#include <strata/graph/passes.h>
#include <strata/runtime/assert.h>
#include <strata/runtime/str.h>

namespace strata {
namespace {

bool is_plain_linear(const Instr& instr) {
  return instr.op == Op::linear && !instr.attrs.as<LinearAttrs>().f32_out;
}

/// How many operands of instructions the parameter is, of how many linear layers it is the matrix, of how
/// many of their adapters' norms, and of how many linear layers of experts it has the matrices.
struct Readers {
  std::int64_t all = 0, linear = 0, norms = 0, experts = 0;
};
Readers readers_of(const Program& program, ValueId value) {
  Readers readers;
  for (const Instr& instr : program.code) {
    readers.all += std::count(instr.in.begin(), instr.in.end(), value);
    readers.linear += is_plain_linear(instr) && instr.in[1] == value ? 1 : 0;
    readers.norms += instr.op == Op::dora_norm && instr.in[0] == value ? 1 : 0;
    readers.experts += instr.op == Op::expert_linear && instr.in[1] == value ? 1 : 0;
  }
  return readers;
}

/// The matrix, or those of experts, of a parameter of rank 2, or 3.
kernels::QuantizedMatrix matrix_of(const ParamInfo& info, const WeightParts& parts,
                                   kernels::WeightFormat format) {
  if (info.shape.rank == 3)
    return {format, info.shape.dim(2), parts.rows, info.shape.dim(0), kernels::QuantizedMatrix::kExpertAlign};
  return {format, info.shape.dim(1), parts.rows};
}

std::string problem_of(const Program& program, const ParamInfo* param, const WeightParts& parts,
                       kernels::WeightFormat format) {
  if (param == nullptr) return "is no parameter";
  if (param->trainable) return str("is trained; in ", to_string(format), " it cannot be");
  const Readers readers = readers_of(program, param->value);
  const bool is_one = param->shape.rank == 2 && readers.linear > 0 &&
                      readers.linear + readers.norms == readers.all,
             are_experts = param->shape.rank == 3 && readers.experts > 0 && readers.experts == readers.all;
  if (!is_one && !are_experts)
    return str(to_string(param->shape), " is not the matrix of linear layers, or of experts, alone");
  const std::int64_t rows = param->shape.dim(are_experts ? 1 : 0),
                     of_parts = matrix_of(*param, parts, format).rows();
  if (rows != of_parts) return str(to_string(param->shape), " has ", rows, " rows, its parts ", of_parts);
  return {};
}

void quantize_linear(Program& program, Instr& instr, const kernels::QuantizedMatrix& matrix) {
  instr.op = Op::linear_quantized;
  instr.attrs = LinearQuantizedAttrs{matrix};
  instr.out.push_back(
      add_output(program, program.value(instr.out[0]).name, must(infer_outputs(program, instr)).back()));
}
// Both have a workspace, of another size.
void quantize_experts(Program& program, Instr& instr, const kernels::QuantizedMatrix& matrix) {
  instr.op = Op::expert_linear_quantized;
  instr.attrs = ExpertLinearQuantizedAttrs{matrix};
  program.values[static_cast<std::size_t>(instr.out[1])].shape =
      must(infer_outputs(program, instr)).back().shape;
}
// The workspace then has a panel of the matrix, too.
void quantize_norm(Program& program, Instr& instr, const kernels::QuantizedMatrix& matrix) {
  instr.attrs.as<DoraNormAttrs>().matrix = matrix;
  program.values[static_cast<std::size_t>(instr.out[1])].shape =
      must(infer_outputs(program, instr)).back().shape;
}

}  // namespace

Result<Program> quantize_weights(Program program, kernels::WeightFormat format,
                                 std::span<const WeightParts> weights) {
  STRATA_ASSERT(format != kernels::WeightFormat::full);
  std::string problems;
  std::map<ValueId, kernels::QuantizedMatrix> quantized;
  for (const WeightParts& parts : weights) {
    const auto found = std::find_if(program.params.begin(), program.params.end(),
                                    [&](const ParamInfo& info) { return info.name == parts.weight; });
    ParamInfo* const param = found == program.params.end() ? nullptr : &*found;
    if (const std::string problem = problem_of(program, param, parts, format); !problem.empty()) {
      problems += str("\n  ", parts.weight, " ", problem);
      continue;
    }
    const kernels::QuantizedMatrix matrix = matrix_of(*param, parts, format);
    quantized.emplace(param->value, matrix);
    param->quantized = matrix;
    param->shape = {matrix.bytes()};
    ValueInfo& value = program.values[static_cast<std::size_t>(param->value)];
    value.shape = param->shape;
    value.dtype = DType::u8;
  }
  if (!problems.empty()) return Status::error(Code::invalid, str("matrices cannot be quantized:", problems));
  for (Instr& instr : program.code) {
    if (const auto found = is_plain_linear(instr) ? quantized.find(instr.in[1]) : quantized.end();
        found != quantized.end())
      quantize_linear(program, instr, found->second);
    if (const auto found = instr.op == Op::expert_linear ? quantized.find(instr.in[1]) : quantized.end();
        found != quantized.end())
      quantize_experts(program, instr, found->second);
    if (const auto found = instr.op == Op::dora_norm ? quantized.find(instr.in[0]) : quantized.end();
        found != quantized.end())
      quantize_norm(program, instr, found->second);
  }
  STRATA_TRY(verify(program));
  return program;
}

}  // namespace strata
