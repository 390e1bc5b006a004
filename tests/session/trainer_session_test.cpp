// A trainer that keeps its parameters and gradients gets the bits that the optimizer gives plain arrays,
// wherever the optimizer states live.
#include <strata/session/trainer_session.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>

#include <strata/cpuopt/norm.h>
#include <strata/cpuopt/update.h>
#include <strata/offload/nvme_store.h>
#include <strata/offload/placement_planner.h>
#include <strata/runtime/backend/host_backend.h>
#include <strata/runtime/convert.h>
#include <strata/session/checkpoint.h>
#include <strata/session/state_planning.h>

#include "support/fault_io.h"
#include "support/temp_dir.h"

namespace strata {
namespace {

using testing::HasSubstr;

const std::vector<TrainerParam> kParams = {{"embedding", Shape{700, 16}, DType::f32},
                                           {"half", Shape{129, 65}, DType::bf16},
                                           {"scale", Shape{16}, DType::f32},
                                           {"head", Shape{90000}, DType::f32},
                                           {"small_half", Shape{3}, DType::f16}};

float gradient_value(std::int64_t step, std::size_t param, std::int64_t i) {
  return static_cast<float>((step * 7 + static_cast<std::int64_t>(param) * 5 + i * 3) % 23 - 11) / 64;
}

/// Memory of a trainer: parameters, gradients of one dtype, and settings by parameter.
struct Trainer {
  std::vector<std::vector<std::byte>> values, gradients;
  std::vector<DType> gradient_dtypes;
  std::vector<cpuopt::OptimizerParams> settings;

  explicit Trainer(cpuopt::OptimizerParams common) {
    for (std::size_t p = 0; p < kParams.size(); ++p) {
      std::vector<float> initial(elems(p));
      for (std::size_t i = 0; i < initial.size(); ++i)
        initial[i] = static_cast<float>((p * 31 + i) % 17) / 16 - 0.4f;
      values.push_back(narrowed(initial, kParams[p].dtype));
      gradient_dtypes.push_back(p == 3 ? DType::bf16 : kParams[p].dtype);
      common.lr = p % 2 == 0 ? 1e-2 : 3e-3;
      common.weight_decay = p == 2 ? 0 : 0.1;
      common.beta1 = p == 0 ? 0.8 : 0.9;
      settings.push_back(common);
    }
    gradients.resize(kParams.size());
  }
  static std::size_t elems(std::size_t p) { return static_cast<std::size_t>(kParams[p].shape.n_elems()); }
  static std::vector<std::byte> narrowed(const std::vector<float>& from, DType dtype) {
    std::vector<std::byte> bytes(from.size() * size_of(dtype));
    if (dtype == DType::f32)
      std::memcpy(bytes.data(), from.data(), bytes.size());
    else
      must(narrow_from_f32(from, dtype, bytes));
    return bytes;
  }
  // Step 2 has no gradient of two parameters.
  static bool has_gradient(std::int64_t step, std::size_t p) { return step != 2 || (p != 0 && p != 4); }

  std::vector<ParamUpdate> backward(std::int64_t step) {
    std::vector<ParamUpdate> updates;
    for (std::size_t p = kParams.size(); p-- > 0;) {
      if (!has_gradient(step, p)) continue;
      std::vector<float> gradient(elems(p));
      for (std::size_t i = 0; i < gradient.size(); ++i)
        gradient[i] = gradient_value(step, p, static_cast<std::int64_t>(i));
      gradients[p] = narrowed(gradient, gradient_dtypes[p]);
      settings[p].grad_factor = step == 3 ? 0.5 : 1;
      updates.push_back({static_cast<std::int32_t>(p), values[p].data(), gradients[p].data(),
                         gradient_dtypes[p], settings[p]});
    }
    return updates;
  }
  std::vector<void*> addresses() {
    std::vector<void*> all;
    for (auto& of : values) all.push_back(of.data());
    return all;
  }
};

/// The same with states in plain arrays.
class Reference {
 public:
  Reference(Trainer& trainer, StateFormat format) : trainer_(trainer), format_(format) {
    for (std::size_t p = 0; p < kParams.size(); ++p) {
      const std::size_t padded = (Trainer::elems(p) + 4095) / 4096 * 4096;
      m_.emplace_back(moment_bytes(format, static_cast<std::int64_t>(padded)));
      v_.emplace_back(m_.back().size());
      masters_.emplace_back(padded * sizeof(float));
      if (kParams[p].dtype == DType::f16) {
        std::vector<float> wide(Trainer::elems(p));
        must(widen_to_f32(DType::f16, trainer.values[p], wide));
        std::memcpy(masters_[p].data(), wide.data(), wide.size() * sizeof(float));
      }
    }
  }
  void step(std::int64_t step) {
    for (const ParamUpdate& update : trainer_.backward(step)) {
      const auto p = static_cast<std::size_t>(update.param);
      cpuopt::OptimizerParams settings = update.settings;
      settings.step = ++steps_[p];
      const auto n = static_cast<std::int64_t>(Trainer::elems(p));
      const std::int64_t padded = (n + 4095) / 4096 * 4096;
      cpuopt::UpdateBlock block;
      block.layout = cpuopt::master_layout(kParams[p].dtype);
      block.states = format_;
      block.grad = update.gradient_dtype;
      block.param = update.values;
      block.master = masters_[p].data();
      block.m = cpuopt::moment_at(format_, m_[p].data(), padded);
      block.v = cpuopt::moment_at(format_, v_[p].data(), padded);
      block.g = update.gradient;
      const cpuopt::UpdateStep constants = cpuopt::make_update_step(settings);
      const auto noise = cpuopt::rounding_noise(5, p, step, 0);
      if (settings.optimizer != cpuopt::Optimizer::lamb) {
        cpuopt::update_block(constants, block, n, noise);
        continue;
      }
      std::vector<double> masters(static_cast<std::size_t>(cpuopt::norm_partial_count(n))),
          directions(masters);
      cpuopt::lamb_moments_block(constants, block, n, noise, masters.data(), directions.data());
      cpuopt::lamb_apply_block(
          constants, cpuopt::lamb_trust_ratio(cpuopt::tree_sum(masters), cpuopt::tree_sum(directions)), block,
          n);
    }
  }

 private:
  Trainer& trainer_;
  const StateFormat format_;
  std::vector<std::vector<std::byte>> m_, v_, masters_;
  std::map<std::size_t, std::int64_t> steps_;
};

class TrainerSessionTest : public ::testing::Test {
 protected:
  SessionOptions options(cpuopt::Optimizer optimizer = cpuopt::Optimizer::adamw) const {
    SessionOptions options;
    options.optimizer.optimizer = optimizer;
    options.chunk_elems = 16384;
    options.rounding_seed = 5;
    options.nvme.dirs = {dir_.path()};
    options.nvme.engine = IoEngine::threads;
    return options;
  }
  /// With which the working window has room, and no home.
  static TierBytes least_budgets(const SessionOptions& options, TrainerHolds holds = TrainerHolds::states) {
    const auto plan = must(plan_trainer_states(kParams, options, holds));
    return minimum_budgets(plan->layout, plan->trace, {.budgets = {0, 4096, kUnlimited}, .prefetch = 2});
  }
  SessionEnvironment environment() {
    SessionEnvironment environment{*backend_, *pool_, clock_};
    environment.open_store = [this](const NvmeOptions& nvme) -> Result<StorePtr<ObjectStore>> {
      if (nvme.classes.empty()) return StorePtr<ObjectStore>();
      return StorePtr<ObjectStore>(must(NvmeStore::create(io_, nvme)));
    };
    return environment;
  }
  static std::string refusal(const std::vector<TrainerParam>& params, const SessionOptions& options) {
    const auto plan = plan_trainer_states(params, options);
    return plan.has_value() ? "" : std::string(plan.status().message());
  }

  test::TempDir dir_;
  SteadyClock clock_;
  test::FaultIo io_{posix_io(), 1};
  std::unique_ptr<ThreadPool> pool_ = must(ThreadPool::create(2));
  std::unique_ptr<Backend> backend_ =
      must(create_host_backend({.schedule = StreamSchedule::latest_legal, .check = true}, *pool_, clock_));
};

enum class Homes : std::uint8_t { ram, both, nvme };
using Case = std::tuple<cpuopt::Optimizer, StateFormat, Homes>;
class OptimizerBitsTest : public TrainerSessionTest, public ::testing::WithParamInterface<Case> {};

TEST_P(OptimizerBitsTest, AreThoseOfPlainArrays) {
  const auto [optimizer, format, homes] = GetParam();
  SessionOptions asked = options(optimizer);
  asked.states = format;
  asked.optimizer.momentum = optimizer == cpuopt::Optimizer::sgd ? 0.9 : 0;
  if (homes == Homes::nvme) asked.policy = PlacementPolicy::nvme;
  if (homes == Homes::both) {  // room for the homes of few chunks beside the working window
    asked.budgets = least_budgets(asked);
    asked.budgets[index_of(Tier::pinned)] += 16384;
  }
  const auto plan = must(plan_trainer_states(kParams, asked));
  EXPECT_EQ(plan->planned_peak[index_of(Tier::nvme)] > 0, homes != Homes::ram);
  Trainer trainer(asked.optimizer), plain(asked.optimizer);
  Reference reference(plain, format);
  const auto session = must(TrainerSession::create(*plan, environment(), trainer.addresses()));
  for (std::int64_t step = 1; step <= 4; ++step) {
    must(session->step(trainer.backward(step)));
    reference.step(step);
    for (std::size_t p = 0; p < kParams.size(); ++p)
      EXPECT_EQ(trainer.values[p], plain.values[p]) << kParams[p].name << " after step " << step;
  }
  EXPECT_EQ(session->steps(), 4);
  EXPECT_THAT(session->param_steps(), testing::ElementsAre(3, 4, 4, 4, 3));
  EXPECT_EQ(session->peak_bytes(), plan->planned_peak);
}

// The session holds the parameters, too: they are read before each micro-batch, in the order of a forward and
// of a backward, and gradients are handed over one by one. Parameters and gradients are overwritten as soon
// as they may be.
TEST_P(OptimizerBitsTest, AreTheSameIfTheSessionHoldsTheParameters) {
  const auto [optimizer, format, homes] = GetParam();
  SessionOptions asked = options(optimizer);
  asked.states = format;
  asked.optimizer.momentum = optimizer == cpuopt::Optimizer::sgd ? 0.9 : 0;
  if (homes == Homes::nvme) asked.policy = PlacementPolicy::nvme;
  if (homes == Homes::both) {
    asked.budgets = least_budgets(asked, TrainerHolds::params);
    asked.budgets[index_of(Tier::pinned)] += 65536;
  }
  const auto plan = must(plan_trainer_states(kParams, asked, TrainerHolds::params));
  Trainer trainer(asked.optimizer), plain(asked.optimizer);
  Reference reference(plain, format);
  const auto session = must(TrainerSession::create(*plan, environment(), trainer.addresses()));
  const auto read = [&](std::size_t p) {
    must(session->prefetch(static_cast<std::int32_t>((p + 1) % kParams.size())));
    must(session->read(std::array{ParamCopy{static_cast<std::int32_t>(p), trainer.values[p].data()}}));
    EXPECT_EQ(trainer.values[p], plain.values[p]) << kParams[p].name << " after step " << session->steps();
    std::fill(trainer.values[p].begin(), trainer.values[p].end(), std::byte{0x7f});
  };
  for (std::int64_t step = 1; step <= 4; ++step) {
    for (std::size_t p = 0; p < kParams.size(); ++p) read(p);
    std::vector<ParamUpdate> updates = trainer.backward(step);
    for (ParamUpdate& update : updates) {
      read(static_cast<std::size_t>(update.param));
      must(session->accumulate(update.param, update.gradient, update.gradient_dtype));
      auto& gradient = trainer.gradients[static_cast<std::size_t>(update.param)];
      std::fill(gradient.begin(), gradient.end(), std::byte{0x7f});
      update.gradient = update.values = nullptr;
    }
    must(session->step(updates));
    reference.step(step);
  }
  for (std::size_t p = kParams.size(); p-- > 0;) read(p);
  EXPECT_EQ(session->peak_bytes(), plan->planned_peak);
  EXPECT_THAT(session->param_steps(), testing::ElementsAre(3, 4, 4, 4, 3));
}

INSTANTIATE_TEST_SUITE_P(
    All, OptimizerBitsTest,
    ::testing::Combine(::testing::ValuesIn(cpuopt::all_optimizers().begin(), cpuopt::all_optimizers().end()),
                       ::testing::Values(StateFormat::fp32, StateFormat::bf16, StateFormat::int8),
                       ::testing::Values(Homes::ram, Homes::both, Homes::nvme)));

TEST_F(TrainerSessionTest, AllProblemsOfParametersAreNamedAtOnce) {
  EXPECT_THAT(refusal({}, options()), HasSubstr("there are no parameters"));
  EXPECT_THAT(
      refusal({{"a", Shape{2}, DType::i32}, {"a", Shape{2}}, {"", Shape{2}}}, options()),
      testing::AllOf(HasSubstr("parameter 'a' is i32; it must be f32, bf16 or f16"),
                     HasSubstr("two parameters have the name 'a'"), HasSubstr("parameter 2 has no name")));
}

TEST_F(TrainerSessionTest, WhatDoesNotFitIsRefusedWithBudgetsThatDo) {
  SessionOptions small = options();
  small.budgets = {0, 65536, 0};
  const auto refused = plan_trainer_states(kParams, small);
  EXPECT_EQ(refused.status().code(), Code::does_not_fit);
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("pinned"));
}

TEST_F(TrainerSessionTest, AnUpdateThatIsRefusedChangesNothing) {
  const auto plan = must(plan_trainer_states(kParams, options()));
  Trainer trainer(options().optimizer);
  const auto session = must(TrainerSession::create(*plan, environment(), trainer.addresses()));
  const auto before = trainer.values;
  const auto message = [&](auto&& spoil) {
    std::vector<ParamUpdate> updates = trainer.backward(1);
    spoil(updates);
    const Status refused = session->step(updates);
    EXPECT_EQ(refused.code(), Code::invalid);
    return std::string(refused.message());
  };
  EXPECT_THAT(message([](auto& updates) { updates[1].param = 9; }),
              HasSubstr("no parameter 9: 5 are registered"));
  EXPECT_THAT(message([](auto& updates) { updates[1] = updates[0]; }),
              HasSubstr("parameter 'small_half' is updated twice"));
  EXPECT_THAT(message([](auto& updates) { updates[4].gradient = nullptr; }),
              HasSubstr("parameter 'embedding' has no gradient"));
  EXPECT_THAT(message([](auto& updates) { updates[0].gradient_dtype = DType::i32; }),
              HasSubstr("has a gradient of i32"));
  EXPECT_THAT(message([](auto& updates) { updates[2].settings.optimizer = cpuopt::Optimizer::lion; }),
              HasSubstr("is updated by lion"));
  EXPECT_THAT(
      message([](auto& updates) { updates[2].settings.lr = std::numeric_limits<double>::quiet_NaN(); }),
      HasSubstr("parameter 'scale' has settings that are not valid"));
  EXPECT_EQ(trainer.values, before);
  EXPECT_EQ(session->steps(), 0);
  must(session->step(trainer.backward(1)));
  EXPECT_NE(trainer.values, before);
}

TEST_F(TrainerSessionTest, AfterAFailedReadTheStatesBelongToNoStep) {
  SessionOptions on_nvme = options();
  on_nvme.budgets = least_budgets(on_nvme);
  const auto plan = must(plan_trainer_states(kParams, on_nvme));
  Trainer trainer(on_nvme.optimizer);
  const auto session = must(TrainerSession::create(*plan, environment(), trainer.addresses()));
  must(session->step(trainer.backward(1)));
  io_.add({.call = test::IoCall::read,
           .nth = io_.calls(test::IoCall::read) + 2,
           .sticky = true,
           .code = Code::io_error});
  for (int again = 0; again < 2; ++again) {
    const Status failed = session->step(trainer.backward(2));
    EXPECT_EQ(failed.code(), Code::io_error);
    EXPECT_THAT(std::string(failed.message()), HasSubstr("step 2 was interrupted"));
  }
}

// Saved in one placement and loaded in another, into a trainer with other values.
TEST_F(TrainerSessionTest, ACheckpointHasTheParametersAndAllCounts) {
  for (const auto format : {StateFormat::fp32, StateFormat::int8}) {
    SessionOptions in_ram = options();
    in_ram.states = format;
    SessionOptions on_nvme = in_ram;
    on_nvme.policy = PlacementPolicy::nvme;
    const auto plan = must(plan_trainer_states(kParams, in_ram)),
               other = must(plan_trainer_states(kParams, on_nvme));
    Trainer trainer(in_ram.optimizer), resumed(in_ram.optimizer);
    const auto session = must(TrainerSession::create(*plan, environment(), trainer.addresses()));
    for (std::int64_t step = 1; step <= 2; ++step) must(session->step(trainer.backward(step)));
    const std::string folder =
        must(save_checkpoint(*session, posix_io(), dir_.path() + "/checkpoints", {}, 0));
    const std::string digest = must(session->state_digest());
    must(session->step(trainer.backward(3)));

    const auto second = must(TrainerSession::create(*other, environment(), resumed.addresses()));
    must(load_checkpoint(*second, posix_io(), folder));
    EXPECT_EQ(must(second->state_digest()), digest);
    EXPECT_THAT(second->param_steps(), testing::ElementsAre(1, 2, 2, 2, 1));
    must(second->step(resumed.backward(3)));
    EXPECT_EQ(second->steps(), 3);
    EXPECT_EQ(resumed.values, trainer.values);
    EXPECT_EQ(must(second->state_digest()), must(session->state_digest()));
    must(posix_io().remove_all(dir_.path() + "/checkpoints"));
  }
}

TEST_F(TrainerSessionTest, ParametersAreOnlyAccessedWhereTheyAreSaidToBe) {
  const auto plan = must(plan_trainer_states(kParams, options()));
  Trainer trainer(options().optimizer);
  const auto session = must(TrainerSession::create(*plan, environment(), trainer.addresses()));
  std::vector<void*> addresses = trainer.addresses();
  addresses[2] = nullptr;
  EXPECT_THAT(std::string(session->bind(addresses).message()),
              HasSubstr("the address of parameter 'scale' is null"));
  EXPECT_THAT(std::string(session->bind(std::span(addresses).first(2)).message()),
              HasSubstr("2 addresses for 5 parameters"));
  must(session->bind({}));
  const Status saved = save_checkpoint(*session, posix_io(), dir_.path(), {}, 0).status();
  EXPECT_EQ(saved.code(), Code::invalid);
  EXPECT_THAT(std::string(saved.message()), HasSubstr("their addresses are not known"));
  EXPECT_EQ(session->state_digest().status().code(), Code::invalid);
  must(session->step(trainer.backward(1)));
}

/// A session that holds the parameters.
class HeldParamsTest : public TrainerSessionTest {
 protected:
  void create(const SessionOptions& options) {
    plan_ = must(plan_trainer_states(kParams, options, TrainerHolds::params));
    session_ = must(TrainerSession::create(*plan_, environment(), trainer_.addresses()));
  }
  /// Hands over the gradients of a step; returns its updates.
  std::vector<ParamUpdate> accumulate_all(std::int64_t step) {
    std::vector<ParamUpdate> updates = trainer_.backward(step);
    for (ParamUpdate& update : updates) {
      must(session_->accumulate(update.param, update.gradient, update.gradient_dtype));
      update.gradient = update.values = nullptr;
    }
    return updates;
  }
  Trainer trainer_{cpuopt::OptimizerParams{}};
  std::unique_ptr<const StatePlan> plan_;
  std::unique_ptr<TrainerSession> session_;
};

TEST_F(HeldParamsTest, GradientsAreAddedInOrderAndTheirNormIsThatOfPlainArrays) {
  create(options());
  std::vector<std::vector<float>> sums;
  for (std::size_t p = 0; p < kParams.size(); ++p) sums.emplace_back(Trainer::elems(p), 0.0f);
  for (std::int64_t micro_batch = 4; micro_batch < 7; ++micro_batch)
    for (const ParamUpdate& update : trainer_.backward(micro_batch)) {
      must(session_->accumulate(update.param, update.gradient, update.gradient_dtype));
      const auto p = static_cast<std::size_t>(update.param);
      for (std::size_t i = 0; i < sums[p].size(); ++i)
        sums[p][i] += gradient_value(micro_batch, p, static_cast<std::int64_t>(i));
    }
  double all = 0;
  for (std::size_t p = 0; p < sums.size(); ++p) {
    double squares = 0;
    for (const float g : sums[p]) squares += double{g} * double{g};
    EXPECT_NEAR(session_->square_sum(static_cast<std::int32_t>(p)), squares, 1e-12 * squares)
        << kParams[p].name;
    all += squares;
  }
  EXPECT_NEAR(session_->norm(), std::sqrt(all), 1e-12 * all);
  for (std::size_t p = 0; p < sums.size(); ++p) {
    const std::span<const float> gradient = must(session_->gradient(static_cast<std::int32_t>(p)));
    EXPECT_TRUE(std::equal(gradient.begin(), gradient.end(), sums[p].begin(), sums[p].end()))
        << kParams[p].name;
  }
  session_->discard();
  EXPECT_EQ(session_->norm(), 0);
  EXPECT_EQ(session_->square_sum(0), 0);
  EXPECT_THAT(std::string(session_->gradient(0).status().message()),
              HasSubstr("has no accumulated gradient"));
}

TEST_F(HeldParamsTest, StatesAreReadAfterPendingUpdates) {
  Trainer other(cpuopt::OptimizerParams{});
  const auto in_ram = must(plan_trainer_states(kParams, options()));
  const auto immediate = must(TrainerSession::create(*in_ram, environment(), other.addresses()));
  SessionOptions on_nvme = options();
  on_nvme.policy = PlacementPolicy::nvme;
  create(on_nvme);
  for (std::int64_t step = 1; step <= 3; ++step) {
    must(session_->step(accumulate_all(step)));
    must(immediate->step(other.backward(step)));
  }
  EXPECT_EQ(must(session_->state_digest()), must(immediate->state_digest()));
  const std::string folder =
      must(save_checkpoint(*session_, posix_io(), dir_.path() + "/checkpoints", {}, 0));
  must(session_->step(accumulate_all(4)));
  must(load_checkpoint(*session_, posix_io(), folder));
  EXPECT_EQ(must(session_->state_digest()), must(immediate->state_digest()));
  EXPECT_THAT(session_->param_steps(), testing::ElementsAre(2, 3, 3, 3, 2));
}

TEST_F(HeldParamsTest, WhatMakesNoSenseIsRefusedAndChangesNothing) {
  create(options());
  const std::string before = must(session_->state_digest());
  const auto message = [](const Status& status) {
    EXPECT_EQ(status.code(), Code::invalid);
    return std::string(status.message());
  };
  std::vector<ParamUpdate> updates = trainer_.backward(1);
  EXPECT_THAT(message(session_->step(updates)),
              HasSubstr("'small_half' is held by the session, but has values"));
  for (ParamUpdate& update : updates) update.values = nullptr;
  const void* const gradient = updates[1].gradient;
  must(session_->accumulate(updates[1].param, gradient, updates[1].gradient_dtype));
  EXPECT_THAT(message(session_->step(updates)),
              HasSubstr("'head' has a gradient beside the one that was accumulated"));
  updates[1].gradient = updates[2].gradient = nullptr;
  EXPECT_THAT(message(session_->step(updates)), HasSubstr("'scale' has no gradient"));
  EXPECT_THAT(message(session_->bind(trainer_.addresses())), HasSubstr("the session holds the parameters"));
  EXPECT_THAT(message(session_->accumulate(7, gradient, DType::f32)), HasSubstr("no parameter 7"));
  EXPECT_THAT(message(session_->accumulate(0, nullptr, DType::f32)),
              HasSubstr("'embedding' has no gradient"));
  EXPECT_THAT(message(session_->accumulate(0, gradient, DType::i32)), HasSubstr("gradient of i32"));
  EXPECT_THAT(message(session_->read(std::array{ParamCopy{1, nullptr}})), HasSubstr("to a null address"));
  EXPECT_EQ(must(session_->state_digest()), before);

  const auto plan = must(plan_trainer_states(kParams, options()));
  const auto states = must(TrainerSession::create(*plan, environment(), trainer_.addresses()));
  EXPECT_THAT(message(states->accumulate(0, gradient, DType::f32)),
              HasSubstr("only by a session that holds"));
  EXPECT_THAT(message(states->read(std::array{ParamCopy{0, trainer_.values[0].data()}})),
              HasSubstr("the trainer holds the parameters"));
}

TEST_F(HeldParamsTest, FrozenParametersAreHeldAndTakeTheirOwnSizeAlone) {
  std::vector<TrainerParam> params = kParams;
  for (const std::size_t frozen : {0, 1}) params[frozen].trainable = false;
  SessionOptions on_nvme = options();
  on_nvme.policy = PlacementPolicy::nvme;
  plan_ = must(plan_trainer_states(params, on_nvme, TrainerHolds::params));
  session_ = must(TrainerSession::create(*plan_, environment(), trainer_.addresses()));
  const auto before = trainer_.values;
  const Status refused = session_->accumulate(0, before[0].data(), DType::f32);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("'embedding' is not trained, but has a gradient"));
  std::vector<ParamUpdate> updates = trainer_.backward(1);
  for (ParamUpdate& update : updates) update.values = nullptr;
  EXPECT_THAT(std::string(session_->step(updates).message()),
              HasSubstr("is not trained, so it cannot be updated"));
  std::erase_if(updates, [](const ParamUpdate& update) { return update.param < 2; });
  must(session_->step(updates));
  for (std::int32_t p = 0; p < std::ssize(kParams); ++p) {
    auto& values = trainer_.values[static_cast<std::size_t>(p)];
    must(session_->read(std::array{ParamCopy{p, values.data()}}));
    EXPECT_EQ(values == before[static_cast<std::size_t>(p)], p < 2) << p;
  }
  const auto frozen_bytes = plan_->layout.payload_bytes(plan_->layout.slice(1).chunk, Payload::param);
  EXPECT_EQ(frozen_bytes,
            static_cast<std::size_t>(plan_->layout.chunk(plan_->layout.slice(1).chunk).n_elems) * 2);
  for (const Payload payload : {Payload::master, Payload::m, Payload::v, Payload::accum})
    EXPECT_FALSE(plan_->layout.has(plan_->layout.slice(1).chunk, payload));
  const auto alone = plan_trainer_states(params, on_nvme);
  EXPECT_THAT(std::string(alone.status().message()),
              HasSubstr("'half' is not trained, so that it has no states"));
}

TEST_F(HeldParamsTest, AReadThatFailedMayBeRepeated) {
  SessionOptions on_nvme = options();
  on_nvme.budgets = least_budgets(on_nvme, TrainerHolds::params);
  create(on_nvme);
  Trainer plain(cpuopt::OptimizerParams{});
  Reference reference(plain, StateFormat::fp32);
  must(session_->step(accumulate_all(1)));
  reference.step(1);
  io_.add({.call = test::IoCall::read,
           .nth = io_.calls(test::IoCall::read) + 2,
           .sticky = true,
           .code = Code::io_error});
  Status failed;
  for (int i = 0; i < 5 && failed.is_ok(); ++i)
    for (std::int32_t p = 0; p < std::ssize(kParams) && failed.is_ok(); ++p)
      failed = session_->read(std::array{ParamCopy{p, trainer_.values[static_cast<std::size_t>(p)].data()}});
  EXPECT_EQ(failed.code(), Code::io_error);
  io_.clear();
  for (std::int32_t p = 0; p < std::ssize(kParams); ++p) {
    auto& values = trainer_.values[static_cast<std::size_t>(p)];
    must(session_->read(std::array{ParamCopy{p, values.data()}}));
    EXPECT_EQ(values, plain.values[static_cast<std::size_t>(p)]) << p;
  }
}

}  // namespace
}  // namespace strata
