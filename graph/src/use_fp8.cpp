#include <strata/graph/passes.h>

#include <map>
#include <string>
#include <utility>

#include <strata/graph/op_attrs.h>
#include <strata/graph/op_list.h>
#include <strata/graph/ops.h>
#include <strata/kernels/fp8.h>
#include <strata/runtime/assert.h>

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
      const Fp8Gemm& gemm = *op_def(instr.op).fp8;
      const Matrix a = matrix(instr, 0, gemm.a);
      const Matrix b = matrix(instr, 1, gemm.b);
      multiply(instr, a, b, gemm.bias < 0 ? kNoValue : instr.in[static_cast<std::size_t>(gemm.bias)]);
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
  /// A quantized matrix in the layout in which a GEMM reads it.
  struct Matrix {
    ValueId values = kNoValue, scale_inv = kNoValue;
  };

  // Whether it is a GEMM of a block (most of the work) whose operands a GPU can multiply in 8 bits. The
  // forward and backward GEMMs of a linear layer have the same dimensions.
  bool fits(const Instr& instr) const {
    if (op_def(instr.op).fp8 == nullptr ||
        !program_.regions[static_cast<std::size_t>(instr.region)].recompute ||
        instr.attrs.as<LinearAttrs>().f32_out)
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
      find_layout(instr.in[0], op_def(instr.op).fp8->a);
      find_layout(instr.in[1], op_def(instr.op).fp8->b);
    }
  }
  void find_layout(ValueId x, const Fp8Operand& factor) {
    if (!factor.weight) (factor.transposed ? read_[x].columnwise : read_[x].rowwise) = true;
  }

  Matrix matrix(const Instr& reader, std::size_t operand, const Fp8Operand& factor) {
    const Quantized made = quantized(reader, reader.in[operand], factor);
    return {factor.transposed ? made.columnwise : made.rowwise, made.scale_inv};
  }
  // A parameter is cast at each reader, because it may have been evicted from the device in between.
  Quantized quantized(const Instr& reader, ValueId x, const Fp8Operand& factor) {
    if (factor.weight) return emit_cast(reader, x, {!factor.transposed, factor.transposed}, factor.gradient);
    const auto known = casts_.find(x);
    if (known != casts_.end()) return known->second;
    return casts_[x] = emit_cast(reader, x, read_.at(x), factor.gradient);
  }

  Quantized emit_cast(const Instr& reader, ValueId x, Layouts layouts, bool gradient) {
    const std::string name = program_.value(x).name;
    const Fp8CastAttrs attrs = {gradient, layouts.rowwise, layouts.columnwise};
    Instr made{Op::fp8_cast, {x}, {}, attrs, 0, reader.region, reader.backward};
    const auto specs = infer_outputs(program_, made);
    STRATA_ASSERT(specs.has_value(), "the cast of ", name, ": ", specs.status().message());
    for (const OutputSpec& spec : *specs) made.out.push_back(add_output(program_, name, spec));
    Quantized result;
    std::size_t next = 0;
    if (layouts.rowwise) result.rowwise = made.out[next++];
    if (layouts.columnwise) result.columnwise = made.out[next++];
    result.scale_inv = made.out[next];
    program_.code.push_back(std::move(made));
    return result;
  }

  void multiply(const Instr& gemm, const Matrix& a, const Matrix& b, ValueId bias) {
    Instr made = gemm;
    made.op = Op::fp8_gemm;
    made.in = {a.values, a.scale_inv, b.values, b.scale_inv, bias};
    made.attrs = Fp8GemmAttrs{.out_dtype = program_.value(gemm.in[0]).dtype, .gemm = *gemm.attrs.gemm()};
    program_.code.push_back(std::move(made));
  }

  Program program_;
  std::vector<Instr> from_;
  std::map<ValueId, Layouts> read_;  // the layouts in which each activation or gradient is read
  std::map<ValueId, Quantized> casts_;
};

}  // namespace

Program use_fp8(Program program) { return Fp8Rewriter(std::move(program)).run(); }

}  // namespace strata
