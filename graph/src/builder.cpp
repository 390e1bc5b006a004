#include <strata/graph/builder.h>

#include <algorithm>

#include <strata/graph/ops.h>
#include <strata/runtime/str.h>

namespace strata {
namespace {

Attrs attention_attrs(Heads heads, const ScoreOptions& scores) {
  return {.heads = heads.query,
          .kv_heads = heads.key,
          .alibi = scores.alibi,
          .window = scores.window,
          .softcap = scores.softcap,
          .scale = scores.scale};
}

}  // namespace

Value Builder::param(std::string name, Shape shape, ParamOptions options) {
  if (!error_.is_ok()) return {};
  for (const ParamInfo& other : program_.params)
    if (other.name == name) {
      error_ = Status::error(Code::invalid, str("parameter ", name, " is declared twice"));
      return {};
    }
  if (shape.n_elems() <= 0) {
    error_ = Status::error(Code::invalid,
                           str("parameter ", name, " has no elements: its shape is ", to_string(shape)));
    return {};
  }
  const auto index = static_cast<std::int32_t>(program_.params.size());
  const ValueId id = program_.add_value({name, shape, compute_, ValueKind::param, index});
  program_.params.push_back(
      {std::move(name), shape, options.trainable, options.decay, options.init, id, kNoValue});
  return {id};
}

Value Builder::input(std::string name, Shape shape, DType dtype) {
  if (!error_.is_ok()) return {};
  if (shape.n_elems() <= 0 || program_.find(name) != kNoValue) {
    error_ = Status::error(
        Code::invalid, str("input ", name, " of shape ", to_string(shape), " is empty or declared twice"));
    return {};
  }
  const ValueId id = program_.add_value({std::move(name), shape, dtype, ValueKind::input, -1});
  program_.inputs.push_back(id);
  return {id};
}

Value Builder::state(std::string name, Shape shape) {
  if (!error_.is_ok()) return {};
  if (shape.n_elems() <= 0 || program_.find(name) != kNoValue) {
    error_ = Status::error(
        Code::invalid, str("state ", name, " of shape ", to_string(shape), " is empty or declared twice"));
    return {};
  }
  const ValueId id = program_.add_value({std::move(name), shape, DType::f32, ValueKind::state, -1});
  program_.states.push_back(id);
  return {id};
}

void Builder::region(std::string name, bool recompute) {
  program_.regions.push_back({std::move(name), recompute});
}

Value Builder::op(Op op, std::initializer_list<Value> in, Attrs attrs) {
  if (!error_.is_ok()) return {};
  Instr instr;
  instr.op = op;
  instr.attrs = attrs;
  instr.region = static_cast<std::int32_t>(program_.regions.size() - 1);
  std::vector<const ValueInfo*> infos;
  for (const Value value : in) {
    instr.in.push_back(value.id);
    infos.push_back(value.id == kNoValue ? nullptr : &program_.value(value.id));
  }
  auto outputs = op_def(op).infer_outputs(infos, attrs);
  if (!outputs.has_value()) {
    error_ = outputs.status().annotate(
        str(program_.regions.back().name, program_.regions.back().name.empty() ? "" : ".", op_def(op).name));
    return {};
  }
  for (const OutputSpec& out : *outputs)
    instr.out.push_back(
        program_.add_value({str(program_.regions.back().name, ".", op_def(op).name, ".", out.name), out.shape,
                            out.dtype, out.workspace ? ValueKind::workspace : ValueKind::activation, -1}));
  const ValueId first = instr.out.front();
  program_.code.push_back(std::move(instr));
  return {first};
}

Value Builder::embedding(Value ids, Value table, int offset) {
  return op(Op::embedding, {ids, table}, {.offset = offset});
}
Value Builder::layernorm(Value x, Value weight, Value bias, float eps) {
  return op(Op::layernorm, {x, weight, bias}, {.eps = eps});
}
Value Builder::linear(Value x, Value weight, Value bias) { return op(Op::linear, {x, weight, bias}); }
Value Builder::linear_f32(Value x, Value weight) {
  return op(Op::linear, {x, weight, {}}, {.f32_out = true});
}
Value Builder::gelu(Value x) { return op(Op::gelu, {x}); }
Value Builder::relu(Value x) { return op(Op::relu, {x}); }
Value Builder::swiglu(Value gate_up) { return op(Op::swiglu, {gate_up}); }
Value Builder::geglu(Value gate_up) { return op(Op::swiglu, {gate_up}, {.gelu = true}); }
Value Builder::scale(Value x, float factor) { return op(Op::scale, {x}, {.scale = factor}); }
Value Builder::softcap(Value x, float cap) { return op(Op::softcap, {x}, {.softcap = cap}); }
Value Builder::rmsnorm(Value x, Value weight, float eps, float offset) {
  return op(Op::rmsnorm, {x, weight}, {.eps = eps, .weight_offset = offset});
}
Value Builder::qk_norm(Value qkv, Value q_weight, Value k_weight, Heads heads, float eps, float offset) {
  return op(Op::qk_norm, {qkv, q_weight, k_weight},
            {.heads = heads.query, .kv_heads = heads.key, .eps = eps, .weight_offset = offset});
}
Value Builder::positions(std::int64_t tokens, int seq, Value doc_start) {
  return op(Op::positions, {doc_start}, {.seq = seq, .rows = static_cast<std::int32_t>(tokens)});
}
Value Builder::rope_table(int positions, int rotary_dim, const kernels::RopeFrequencies& frequencies) {
  return op(Op::rope_table, {}, {.seq = positions, .rotary_dim = rotary_dim, .frequencies = frequencies});
}
Value Builder::rope(Value qkv, Value positions, Value table, Heads heads, bool interleaved) {
  return op(Op::rope, {qkv, positions, table},
            {.heads = heads.query, .kv_heads = heads.key, .interleaved = interleaved});
}
Value Builder::attention(Value qkv, Heads heads, int seq, const ScoreOptions& scores, Value doc_start) {
  Attrs attrs = attention_attrs(heads, scores);
  attrs.seq = seq;
  return op(Op::attention, {qkv, doc_start}, attrs);
}
Value Builder::cached_attention(Value qkv, Value positions, Value slots, Value keys, Value values,
                                Heads heads, const ScoreOptions& scores) {
  return op(Op::cached_attention, {qkv, positions, slots, keys, values}, attention_attrs(heads, scores));
}
// Gathering rows by index is an embedding lookup, so this uses the same kernel.
Value Builder::select_rows(Value x, Value rows) { return op(Op::embedding, {rows, x}); }
Value Builder::add(Value a, Value b) { return op(Op::add, {a, b}); }
Value Builder::cross_entropy(Value logits, Value targets, Value divisor) {
  return op(Op::cross_entropy, {logits, targets, divisor});
}
Value Builder::linear_cross_entropy(Value x, Value weight, Value targets, Value divisor, float softcap) {
  return op(Op::linear_cross_entropy, {x, weight, targets, divisor}, {.softcap = softcap});
}

Result<Program> Builder::finish(std::initializer_list<std::pair<std::string, Value>> outputs) {
  if (!error_.is_ok()) return error_;
  Program program = std::move(program_);
  program_ = Program{};
  for (const auto& [name, value] : outputs) {
    if (value.id == kNoValue) return Status::error(Code::invalid, str("output ", name, " is not a value"));
    if (program.value(value.id).kind != ValueKind::activation || program.find(name) != kNoValue ||
        std::find(program.outputs.begin(), program.outputs.end(), value.id) != program.outputs.end())
      return Status::error(
          Code::invalid,
          str("output ", name, " is not the result of an instruction, or its name or value is already used"));
    program.values[static_cast<std::size_t>(value.id)].name = name;
    program.outputs.push_back(value.id);
  }
  STRATA_TRY(verify(program));
  return program;
}

}  // namespace strata
