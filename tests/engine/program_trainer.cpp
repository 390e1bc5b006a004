#include "engine/program_trainer.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include <strata/simd/gradient.h>
#include <strata/simd/norm.h>
#include <strata/graph/launch.h>
#include <strata/graph/ops.h>

namespace strata::test {
namespace {

// Parameters to fetch before they are needed.
constexpr std::size_t kPrefetch = 2;

std::size_t index(std::int32_t of) { return static_cast<std::size_t>(of); }

}  // namespace

ProgramTrainer::ProgramTrainer(const Program& program, const SessionOptions& options, TrainerHolds holds,
                               Backend& backend, ThreadPool& pool)
    : program_(program),
      options_(options),
      holds_(holds),
      backend_(backend),
      pool_(pool),
      compute_(must(backend.create_stream(StreamRole::compute))),
      memory_(plan_memory(program)),
      arena_(allocate(memory_.arena_bytes)),
      params_(program.params.size()),
      address_(program.values.size(), nullptr) {
  for (std::size_t id = 0; id < address_.size(); ++id)
    if (memory_.offset[id] != MemoryPlan::kUnplaced) address_[id] = arena_.view().data + memory_.offset[id];
  std::size_t n_partials = 0;
  for (std::size_t p = 0; p < params_.size(); ++p) {
    Param& param = params_[p];
    param.info = &program.params[p];
    param.values = allocate(program.value(param.info->value).bytes());
    address_[index(param.info->value)] = param.values.view().data;
    first_partial_.push_back(n_partials);
    n_partials += static_cast<std::size_t>(simd::norm_partial_count(param.info->shape.n_elems()));
    if (param.info->grad == kNoValue) continue;
    param.gradient = allocate(program.value(param.info->grad).bytes());
    address_[index(param.info->grad)] = param.gradient.view().data;
    if (!session_holds_params() && options.grad_accum > 1)
      param.sum.resize(index(static_cast<std::int32_t>(param.info->shape.n_elems())));
  }
  partials_.resize(n_partials);
  find_uses();
}

Buffer ProgramTrainer::allocate(std::size_t bytes) {
  return must(backend_.allocate(MemoryKind::device, std::max<std::size_t>(bytes, 1)));
}

void ProgramTrainer::find_uses() {
  for (std::size_t i = 0; i < program_.code.size(); ++i) {
    for (const ValueId id : program_.code[i].in)
      if (id != kNoValue && program_.value(id).kind == ValueKind::param) {
        Param& param = params_[index(program_.value(id).param)];
        if (param.first_use < 0) param.first_use = static_cast<std::int32_t>(i);
      }
    for (const ValueId id : program_.code[i].out)
      if (id != kNoValue && program_.value(id).kind == ValueKind::grad)
        params_[index(program_.value(id).param)].last_write = static_cast<std::int32_t>(i);
  }
  order_.resize(params_.size());
  std::iota(order_.begin(), order_.end(), 0);
  std::stable_sort(order_.begin(), order_.end(), [&](std::int32_t a, std::int32_t b) {
    return params_[index(a)].first_use < params_[index(b)].first_use;
  });
  place_.resize(params_.size());
  for (std::size_t i = 0; i < order_.size(); ++i) place_[index(order_[i])] = i;
}

std::vector<TrainerParam> ProgramTrainer::params() const {
  std::vector<TrainerParam> all;
  for (const Param& param : params_)
    all.push_back({param.info->name, param.info->shape, program_.value(param.info->value).dtype,
                   param.info->trainable});
  return all;
}

std::vector<void*> ProgramTrainer::addresses() const {
  std::vector<void*> all;
  for (const Param& param : params_) all.push_back(param.values.view().data);
  return all;
}

void ProgramTrainer::read_params(TrainerSession& session, const Instr& instr) {
  for (const ValueId id : instr.in) {
    if (id == kNoValue || program_.value(id).kind != ValueKind::param) continue;
    const std::int32_t number = program_.value(id).param;
    Param& param = params_[index(number)];
    if (std::exchange(param.is_current, true)) continue;
    must(session.read(std::vector<ParamCopy>{{number, param.values.view().data}}));
    const std::size_t next = place_[index(number)] + 1;
    for (std::size_t i = next; i < std::min(next + kPrefetch, order_.size()); ++i)
      must(session.prefetch(order_[i]));
  }
}

void ProgramTrainer::take_gradients(TrainerSession& session, std::int32_t instr, bool is_first) {
  for (const ValueId id : program_.code[index(instr)].out) {
    if (id == kNoValue || program_.value(id).kind != ValueKind::grad) continue;
    const std::int32_t number = program_.value(id).param;
    Param& param = params_[index(number)];
    if (param.last_write != instr) continue;
    const BufferView gradient = param.gradient.view();
    const DType dtype = program_.value(id).dtype;
    if (!session_holds_params() && param.sum.empty()) continue;  // the step reads it where it is
    must(backend_.synchronize(compute_));
    must(backend_.host_access({gradient.data, gradient.bytes, false}));
    if (session_holds_params())
      must(session.accumulate(number, gradient.data, dtype));
    else
      simd::accumulate(param.sum, dtype, gradient.data, is_first);
  }
}

void ProgramTrainer::launch(const Instr& instr) {
  std::vector<TensorView> in, out;
  const auto view = [&](ValueId id) {
    if (id == kNoValue) return TensorView{};
    const ValueInfo& value = program_.value(id);
    return TensorView{address_[index(id)], value.shape, value.dtype};
  };
  for (const ValueId id : instr.in) in.push_back(view(id));
  for (const ValueId id : instr.out) out.push_back(view(id));
  must(strata::launch({instr.op, instr.attrs, instr.accumulate, in, out}, backend_, compute_));
}

void ProgramTrainer::run_micro_batch(TrainerSession& session, bool is_first) {
  for (std::size_t i = 0; i < program_.code.size(); ++i) {
    if (session_holds_params()) read_params(session, program_.code[i]);
    launch(program_.code[i]);
    take_gradients(session, static_cast<std::int32_t>(i), is_first);
  }
  must(backend_.synchronize(compute_));
}

const void* ProgramTrainer::gradient_of(const Param& param) const {
  return param.sum.empty() ? static_cast<const void*>(param.gradient.view().data) : param.sum.data();
}

double ProgramTrainer::norm(const TrainerSession& session) {
  if (session_holds_params()) return session.norm();
  struct Block {
    const Param* param;
    DType dtype;
    std::int64_t begin, n;
    double* into;
  };
  constexpr std::int64_t kAtOnce = 16 * simd::kNormPartialElems;
  std::vector<Block> blocks;
  for (std::size_t p = 0; p < params_.size(); ++p) {
    const Param& param = params_[p];
    if (param.last_write < 0) continue;
    const DType dtype = param.sum.empty() ? program_.value(param.info->grad).dtype : DType::f32;
    const std::int64_t n = param.info->shape.n_elems();
    for (std::int64_t at = 0; at < n; at += kAtOnce)
      blocks.push_back({&param, dtype, at, std::min(kAtOnce, n - at),
                        partials_.data() + first_partial_[p] + at / simd::kNormPartialElems});
  }
  pool_.parallel_for(std::ssize(blocks), [&](std::int64_t i) {
    const Block& block = blocks[static_cast<std::size_t>(i)];
    simd::square_sum_partials(block.dtype,
                              static_cast<const std::byte*>(gradient_of(*block.param)) +
                                  static_cast<std::size_t>(block.begin) * size_of(block.dtype),
                              block.n, block.into);
  });
  return std::sqrt(simd::tree_sum(std::span<const double>(partials_)));
}

std::vector<ParamUpdate> ProgramTrainer::updates(double lr, double grad_factor) {
  std::vector<ParamUpdate> all;
  for (std::size_t p = 0; p < params_.size(); ++p) {
    const Param& param = params_[p];
    if (param.last_write < 0) continue;
    ParamUpdate update{static_cast<std::int32_t>(p)};
    if (!session_holds_params()) {
      update.values = param.values.view().data;
      update.gradient = gradient_of(param);
      update.gradient_dtype = param.sum.empty() ? program_.value(param.info->grad).dtype : DType::f32;
    }
    update.settings = options_.optimizer;
    update.settings.lr = lr;
    update.settings.grad_factor = grad_factor;
    if (!param.info->decay) update.settings.weight_decay = 0;
    all.push_back(update);
  }
  return all;
}

ProgramTrainer::Step ProgramTrainer::step(TrainerSession& session, BatchSource& source, double lr) {
  const std::int32_t n = options_.grad_accum;
  const std::int64_t first = session.steps() * n;
  const float divisor = static_cast<float>(static_cast<double>(source.n_counted(first, n)) / n);
  Step result;
  for (std::int32_t k = 0; k < n; ++k) {
    std::vector<BatchInput> inputs;
    for (const ValueId id : program_.inputs) {
      const BufferView view{address_[index(id)], program_.value(id).bytes()};
      must(backend_.host_access({view.data, view.bytes, true}));
      inputs.push_back(
          {program_.value(id).name, {reinterpret_cast<std::int32_t*>(view.data), view.bytes / 4}});
    }
    must(source.fill(first + k, BatchView{inputs}));
    if (const ValueId id = program_.find("divisor"); id != kNoValue)
      std::memcpy(address_[index(id)], &divisor, sizeof divisor);
    run_micro_batch(session, k == 0);
    const std::byte* const loss = address_[index(program_.find("loss"))];
    must(backend_.host_access({loss, sizeof(float), false}));
    float value = 0;
    std::memcpy(&value, loss, sizeof value);
    result.loss += value;
  }
  result.loss /= static_cast<float>(n);
  result.grad_norm = norm(session) / n;
  const double clip_factor = options_.clip > 0 ? std::min(1.0, options_.clip / (result.grad_norm + 1e-6)) : 1;
  must(session.step(updates(lr, clip_factor / n)));
  for (Param& param : params_) param.is_current = false;
  return result;
}

}  // namespace strata::test
