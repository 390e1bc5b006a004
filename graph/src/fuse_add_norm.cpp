#include <optional>

#include <strata/graph/op_list.h>
#include <strata/graph/ops.h>
#include <strata/graph/passes.h>

namespace strata {

Program fuse_add_norm(Program program) {
  std::vector<Instr> code;
  code.reserve(program.code.size());
  for (Instr& instr : program.code) {
    const std::optional<Op> fused = op_def(instr.op).fused_with_add;
    const bool fits = fused && !code.empty() && code.back().op == Op::add &&
                      code.back().out[0] == instr.in[0] && code.back().region == instr.region;
    if (fits) {
      const Instr add = std::move(code.back());
      code.pop_back();
      instr.op = *fused;
      instr.in.front() = add.in[1];
      instr.in.insert(instr.in.begin(), add.in[0]);
      instr.out.push_back(add.out[0]);
    }
    code.push_back(std::move(instr));
  }
  program.code = std::move(code);
  return program;
}

}  // namespace strata
