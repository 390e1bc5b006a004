#include <strata/graph/passes.h>

#include <array>
#include <map>
#include <utility>

#include <strata/graph/ops.h>
#include <strata/kernels/fp8.h>
#include <strata/runtime/assert.h>
#include <strata/runtime/str.h>

namespace strata {
namespace {

class Fp8Products {
 public:
  explicit Fp8Products(Program program)
      : program_(std::move(program)), from_(std::exchange(program_.code, {})) {}

  Program run() && {
    find_layouts();
    for (Instr& instr : from_) {
      if (!fits(instr)) {
        program_.code.push_back(std::move(instr));
        continue;
      }
      // One after the other: the order of arguments would be the compiler's.
      const bool forward = instr.op == Op::linear, by_weight = instr.op == Op::linear_backward_weight;
      const Codes a = cast(instr, 0, !forward);
      const Codes b = by_weight ? cast(instr, 1, false) : weight(instr, forward);
      multiply(instr, by_weight ? transposed(a) : a, forward ? b : transposed(b),
               forward ? instr.in[2] : kNoValue);
    }
    return std::move(program_);
  }

 private:
  struct Layouts {
    bool rows = false, columns = false;
  };
  struct Codes {
    ValueId rows = kNoValue, columns = kNoValue, inverse = kNoValue;
  };
  static Codes transposed(const Codes& codes) { return {codes.columns, kNoValue, codes.inverse}; }

  // A product of a block, which is most of the work, whose operands a GPU multiplies in eight bits. Forward
  // and backward of a linear layer have the same sides.
  bool fits(const Instr& instr) const {
    if (instr.op != Op::linear && instr.op != Op::linear_backward_input &&
        instr.op != Op::linear_backward_weight)
      return false;
    if (!program_.regions[static_cast<std::size_t>(instr.region)].recompute || instr.attrs.f32_out)
      return false;
    for (int operand = 0; operand < 2; ++operand) {
      const ValueInfo& info = program_.value(instr.in[static_cast<std::size_t>(operand)]);
      if (info.dtype != DType::bf16 && info.dtype != DType::f16) return false;
      for (const std::int64_t side : {info.shape.dim(0), info.shape.dim(1)})
        if (side == 0 || side % kernels::kFp8Multiple != 0) return false;
    }
    return true;
  }

  // One cast makes all that is read of an operand: both passes over it are the same.
  void find_layouts() {
    for (const Instr& instr : from_) {
      if (!fits(instr)) continue;
      const bool by_columns = instr.op == Op::linear_backward_weight;
      (by_columns ? read_[instr.in[0]].columns : read_[instr.in[0]].rows) = true;
      if (by_columns) read_[instr.in[1]].columns = true;
    }
  }

  Codes cast(const Instr& reader, std::size_t operand, bool gradient) {
    const ValueId x = reader.in[operand];
    const auto known = casts_.find(x);
    if (known != casts_.end()) return known->second;
    return casts_[x] = emit_cast(reader, x, read_.at(x), gradient);
  }
  // A parameter is cast where it is read: it may have gone in between.
  Codes weight(const Instr& reader, bool forward) {
    return emit_cast(reader, reader.in[1], {forward, !forward}, false);
  }

  Codes emit_cast(const Instr& reader, ValueId x, Layouts layouts, bool gradient) {
    Instr made{Op::fp8_cast, {x}, {}, {}, 0, reader.region, reader.backward};
    made.attrs.e5m2 = gradient;
    made.attrs.by_rows = layouts.rows;
    made.attrs.by_columns = layouts.columns;
    const auto specs = op_def(made.op).infer(std::array{&program_.value(x)}, made.attrs);
    STRATA_ASSERT(specs.has_value(), "the cast of ", program_.value(x).name, ": ", specs.status().message());
    Codes codes;
    for (const OutputSpec& spec : *specs)
      made.out.push_back(
          program_.add_value({str(program_.value(x).name, ".", spec.name), spec.shape, spec.dtype,
                              spec.workspace ? ValueKind::workspace : ValueKind::activation, -1}));
    std::size_t next = 0;
    if (layouts.rows) codes.rows = made.out[next++];
    if (layouts.columns) codes.columns = made.out[next++];
    codes.inverse = made.out[next];
    program_.code.push_back(std::move(made));
    return codes;
  }

  void multiply(const Instr& linear, const Codes& a, const Codes& b, ValueId bias) {
    Instr made = linear;
    made.op = Op::fp8_gemm;
    made.in = {a.rows, a.inverse, b.rows, b.inverse, bias};
    made.attrs.kept = program_.value(linear.in[0]).dtype;
    program_.code.push_back(std::move(made));
  }

  Program program_;
  std::vector<Instr> from_;
  std::map<ValueId, Layouts> read_;  // of activations and their gradients
  std::map<ValueId, Codes> casts_;
};

}  // namespace

Program use_fp8(Program program) { return Fp8Products(std::move(program)).run(); }

}  // namespace strata
