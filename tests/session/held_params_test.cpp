// A session that holds a trainer's parameters: what it reads, accumulates, updates later, and refuses.
#include <strata/session/trainer_session.h>

#include <gmock/gmock.h>

#include <array>
#include <cmath>

#include <strata/session/checkpoint.h>

#include "session/trainer_fixture.h"

namespace strata {
namespace {

using namespace test;
using testing::HasSubstr;

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

TEST_F(HeldParamsTest, NormsAreOfThisStepAlone) {
  create(options());
  must(session_->step(accumulate_all(1)));  // no chunk is updated yet
  EXPECT_EQ(session_->norm(), 0);
  const ParamUpdate update = trainer_.backward(3).front();
  must(session_->accumulate(update.param, update.gradient, update.gradient_dtype));
  EXPECT_GT(session_->norm(), 0);
  EXPECT_EQ(session_->norm(), std::sqrt(session_->square_sum(update.param)));
  EXPECT_EQ(session_->square_sum(0), 0);
}

// Gradients that were accumulated before states are loaded belong to another run.
TEST_F(HeldParamsTest, LoadingForgetsGradients) {
  create(options());
  const std::string folder =
      must(save_checkpoint(*session_, posix_io(), dir_.path() + "/checkpoints", {}, 0));
  (void)accumulate_all(1);
  must(load_checkpoint(*session_, posix_io(), folder));
  EXPECT_EQ(session_->norm(), 0);
  EXPECT_EQ(session_->gradient(0).status().code(), Code::invalid);
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

TEST_F(HeldParamsTest, WhatATrainerWritesBecomesTheMasterWhereItDiffers) {
  create(options());
  must(session_->step(accumulate_all(1)));
  constexpr std::int32_t kHalf = 1;
  std::vector<float> before, after;
  const std::vector<std::string> name = {kParams[kHalf].name};
  const auto collect = [](std::vector<float>& into) {
    return [&](const StatePiece&, std::span<const float> values) {
      into.insert(into.end(), values.begin(), values.end());
      return Status::ok();
    };
  };
  must(session_->visit_tensors(Payload::param, name, collect(before)));
  auto& values = trainer_.values[kHalf];
  must(session_->read(std::array{ParamCopy{kHalf, values.data()}}));
  const std::vector<std::byte> ones = Trainer::narrowed({1.0f}, DType::bf16);
  std::copy(ones.begin(), ones.end(), values.begin() + 2 * 70);  // element 70 becomes 1
  must(session_->write(std::array{ParamSource{kHalf, values.data()}}));
  must(session_->visit_tensors(Payload::param, name, collect(after)));
  before[70] = 1.0f;
  EXPECT_EQ(after, before) << "the others keep the bits that bf16 lacks";
  EXPECT_THAT(std::string(session_->write(std::array{ParamSource{kHalf, nullptr}}).message()),
              HasSubstr("from a null address"));
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
  const std::string folder =
      must(save_checkpoint(*session_, posix_io(), dir_.path() + "/checkpoints", {}, 0));
  EXPECT_TRUE(must(read_manifest(posix_io(), folder)).param_steps.empty())
      << "frozen ones have no steps to tell";
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
