#include <strata/cpuopt/adamw.h>

#include <strata/cpuopt/update.h>
#include <strata/runtime/str.h>

namespace strata::cpuopt {
namespace {

struct Named {
  const char* what;
  std::size_t n;
};

Status check_lengths(std::size_t n, std::initializer_list<Named> others) {
  std::string problems;
  for (const Named& other : others)
    if (other.n != n) problems += str(problems.empty() ? "" : ", ", other.n, " ", other.what);
  if (problems.empty()) return Status::ok();
  return Status::error(Code::invalid, str("adamw: ", n, " parameters, but ", problems));
}

Status run(OptimizerParams params, std::size_t n, const UpdateBlock& block,
           std::initializer_list<Named> others) {
  params.optimizer = Optimizer::adamw;
  STRATA_TRY(validate(params));
  STRATA_TRY(check_lengths(n, others));
  update_block(make_update_step(params), block, static_cast<std::int64_t>(n), {});
  return Status::ok();
}

template <class G>
Status update_f32_master(const OptimizerParams& params, std::span<float> p, std::span<const G> g,
                         std::span<float> m, std::span<float> v) {
  return run(params, p.size(),
             {.grad = dtype_of<G>,
              .param = p.data(),
              .m = {m.data(), nullptr},
              .v = {v.data(), nullptr},
              .g = g.data()},
             {{"gradients", g.size()}, {"first moments", m.size()}, {"second moments", v.size()}});
}

template <class T>
Status update_shadowed_master(const OptimizerParams& params, std::span<float> p, std::span<const T> g,
                              std::span<float> m, std::span<float> v, std::span<T> shadow) {
  constexpr bool kBf16 = dtype_of<T> == DType::bf16;
  return run(params, p.size(),
             {.layout = kBf16 ? MasterLayout::bf16_shadow : MasterLayout::f16_shadow,
              .grad = dtype_of<T>,
              .param = shadow.data(),
              .master = p.data(),
              .m = {m.data(), nullptr},
              .v = {v.data(), nullptr},
              .g = g.data()},
             {{"gradients", g.size()},
              {"first moments", m.size()},
              {"second moments", v.size()},
              {"shadow values", shadow.size()}});
}

}  // namespace

Status adamw_update(const OptimizerParams& params, std::span<float> p, std::span<const float> g,
                    std::span<float> m, std::span<float> v) {
  return update_f32_master(params, p, g, m, v);
}
Status adamw_update(const OptimizerParams& params, std::span<float> p, std::span<const bf16> g,
                    std::span<float> m, std::span<float> v) {
  return update_f32_master(params, p, g, m, v);
}
Status adamw_update(const OptimizerParams& params, std::span<float> p, std::span<const f16> g,
                    std::span<float> m, std::span<float> v) {
  return update_f32_master(params, p, g, m, v);
}
Status adamw_update(const OptimizerParams& params, std::span<float> p, std::span<const bf16> g,
                    std::span<float> m, std::span<float> v, std::span<bf16> shadow) {
  return update_shadowed_master(params, p, g, m, v, shadow);
}
Status adamw_update(const OptimizerParams& params, std::span<float> p, std::span<const f16> g,
                    std::span<float> m, std::span<float> v, std::span<f16> shadow) {
  return update_shadowed_master(params, p, g, m, v, shadow);
}
Status adamw_update(const OptimizerParams& params, std::span<bf16> high, std::span<std::uint16_t> low,
                    std::span<const bf16> g, std::span<float> m, std::span<float> v) {
  return run(params, high.size(),
             {.layout = MasterLayout::bf16_split,
              .grad = DType::bf16,
              .param = high.data(),
              .master = low.data(),
              .m = {m.data(), nullptr},
              .v = {v.data(), nullptr},
              .g = g.data()},
             {{"lower halves", low.size()},
              {"gradients", g.size()},
              {"first moments", m.size()},
              {"second moments", v.size()}});
}

}  // namespace strata::cpuopt
