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

class Fp8Rewriter {
 public:
  explicit Fp8Rewriter(Program program)
      : program_(std::move(program)), from_(std::exchange(program_.code, {})) {}

  Program run() && {
    find_layouts();
    for (Instr& instr : from_) {
      if (!fits(instr)) {
        program_.code.push_back(std::move(instr));
        continue;
      }
      // Separate statements, because the evaluation order of function arguments is unspecified.
      const bool forward = instr.op == Op::linear, by_weight = instr.op == Op::linear_backward_weight;
      const Quantized a = cast(instr, 0, !forward);
      const Quantized b = by_weight ? cast(instr, 1, false) : weight(instr, forward);
      multiply(instr, by_weight ? transposed(a) : a, forward ? b : transposed(b),
               forward ? instr.in[2] : kNoValue);
    }
    return std::move(program_);
  }

 private:
  struct Layouts {
    bool rowwise = false, columnwise = false;
  };
  struct Quantized {
    ValueId rowwise = kNoValue, columnwise = kNoValue, scale_inv = kNoValue;
  };
  static Quantized transposed(const Quantized& quantized) {
    return {quantized.columnwise, kNoValue, quantized.scale_inv};
  }

  // Whether it is a GEMM of a block (most of the work) whose operands a GPU can multiply in 8 bits. The
  // forward and backward GEMMs of a linear layer have the same dimensions.
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

  // Finds the layouts in which each operand is read: one cast writes all of them, since each needs the same
  // passes.
  void find_layouts() {
    for (const Instr& instr : from_) {
      if (!fits(instr)) continue;
      const bool columnwise = instr.op == Op::linear_backward_weight;
      (columnwise ? read_[instr.in[0]].columnwise : read_[instr.in[0]].rowwise) = true;
      if (columnwise) read_[instr.in[1]].columnwise = true;
    }
  }

  Quantized cast(const Instr& reader, std::size_t operand, bool gradient) {
    const ValueId x = reader.in[operand];
    const auto known = casts_.find(x);
    if (known != casts_.end()) return known->second;
    return casts_[x] = emit_cast(reader, x, read_.at(x), gradient);
  }
  // A parameter is cast at each reader, because it may have been evicted from the device in between.
  Quantized weight(const Instr& reader, bool forward) {
    return emit_cast(reader, reader.in[1], {forward, !forward}, false);
  }

  Quantized emit_cast(const Instr& reader, ValueId x, Layouts layouts, bool gradient) {
    Instr made{Op::fp8_cast, {x}, {}, {}, 0, reader.region, reader.backward};
    made.attrs.e5m2 = gradient;
    made.attrs.rowwise = layouts.rowwise;
    made.attrs.columnwise = layouts.columnwise;
    const auto specs = op_def(made.op).infer_outputs(std::array{&program_.value(x)}, made.attrs);
    STRATA_ASSERT(specs.has_value(), "the cast of ", program_.value(x).name, ": ", specs.status().message());
    Quantized quantized;
    for (const OutputSpec& spec : *specs)
      made.out.push_back(
          program_.add_value({str(program_.value(x).name, ".", spec.name), spec.shape, spec.dtype,
                              spec.workspace ? ValueKind::workspace : ValueKind::activation, -1}));
    std::size_t next = 0;
    if (layouts.rowwise) quantized.rowwise = made.out[next++];
    if (layouts.columnwise) quantized.columnwise = made.out[next++];
    quantized.scale_inv = made.out[next];
    program_.code.push_back(std::move(made));
    return quantized;
  }

  void multiply(const Instr& linear, const Quantized& a, const Quantized& b, ValueId bias) {
    Instr made = linear;
    made.op = Op::fp8_gemm;
    made.in = {a.rowwise, a.scale_inv, b.rowwise, b.scale_inv, bias};
    made.attrs.out_dtype = program_.value(linear.in[0]).dtype;
    program_.code.push_back(std::move(made));
  }

  Program program_;
  std::vector<Instr> from_;
  std::map<ValueId, Layouts> read_;  // by activation or gradient of one
  std::map<ValueId, Quantized> casts_;
};

}  // namespace

Program use_fp8(Program program) { return Fp8Rewriter(std::move(program)).run(); }

}  // namespace strata
