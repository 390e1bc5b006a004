// A trainer that keeps its parameters and gradients gets the bits that the optimizer gives plain arrays,
// wherever the optimizer states live.
#include <strata/session/trainer_session.h>

#include <gmock/gmock.h>

#include <array>
#include <limits>

#include <strata/session/checkpoint.h>

#include "session/trainer_fixture.h"

namespace strata {
namespace {

using namespace test;
using testing::HasSubstr;

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

TEST_F(TrainerSessionTest, AMovingAverageIsRefused) {
  SessionOptions averaging = options();
  averaging.optimizer.ema_decay = 0.9;
  EXPECT_THAT(refusal({{"a", Shape{2}}}, averaging),
              HasSubstr("ema_decay is 0.9; a trainer's session keeps no"));
}

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

// The first step has no gradient of the first parameter.
TEST_F(TrainerSessionTest, LambUpdatesWhateverTheFirstParameterDoes) {
  const SessionOptions lamb = options(cpuopt::Optimizer::lamb);
  const auto plan = must(plan_trainer_states(kParams, lamb));
  Trainer trainer(lamb.optimizer), plain(lamb.optimizer);
  Reference reference(plain, StateFormat::fp32);
  const auto session = must(TrainerSession::create(*plan, environment(), trainer.addresses()));
  const auto before = trainer.values;
  must(session->step(trainer.backward(2)));
  reference.step(2);
  EXPECT_EQ(trainer.values, plain.values);
  EXPECT_NE(trainer.values[3], before[3]);
}

// A trainer has no folder of a base to read from.
TEST_F(TrainerSessionTest, ACheckpointThatLeavesOutFrozenTensorsIsRefusedWithoutTouchingTheStates) {
  const auto plan = must(plan_trainer_states(kParams, options()));
  Trainer trainer(options().optimizer);
  const auto session = must(TrainerSession::create(*plan, environment(), trainer.addresses()));
  must(session->step(trainer.backward(1)));
  const std::string folder = must(save_checkpoint(*session, posix_io(), dir_.path() + "/checkpoints", {}, 0));
  Manifest manifest = must(read_manifest(posix_io(), folder));
  manifest.frozen = {{"body", "aa"}};
  manifest.version = manifest.needed_version();
  must(write_text_atomically(posix_io(), folder + "/manifest.json", to_json(manifest)));
  const std::string digest = must(session->state_digest());
  const Status status = load_checkpoint(*session, posix_io(), folder).status();
  EXPECT_EQ(status.code(), Code::invalid);
  EXPECT_THAT(std::string(status.message()),
              testing::HasSubstr("of 1 frozen tensors, such as body, it has the digests"));
  EXPECT_EQ(must(session->state_digest()), digest);
}

// The states can be loaded again.
TEST_F(TrainerSessionTest, AfterAnInterruptedStepACheckpointGoesOn) {
  SessionOptions on_nvme = options();
  on_nvme.budgets = least_budgets(on_nvme);
  const auto plan = must(plan_trainer_states(kParams, on_nvme));
  Trainer trainer(on_nvme.optimizer), plain(on_nvme.optimizer);
  Reference reference(plain, StateFormat::fp32);
  const auto session = must(TrainerSession::create(*plan, environment(), trainer.addresses()));
  must(session->step(trainer.backward(1)));
  const std::string folder = must(save_checkpoint(*session, posix_io(), dir_.path() + "/checkpoints", {}, 0));
  io_.add({.call = IoCall::read, .nth = io_.calls(IoCall::read) + 2, .sticky = true, .code = Code::io_error});
  EXPECT_EQ(session->step(trainer.backward(2)).code(), Code::io_error);
  io_.clear();
  must(load_checkpoint(*session, posix_io(), folder));
  EXPECT_EQ(session->steps(), 1);
  reference.step(1);
  EXPECT_EQ(trainer.values, plain.values);
  must(session->step(trainer.backward(2)));
  reference.step(2);
  EXPECT_EQ(trainer.values, plain.values);
}

}  // namespace
}  // namespace strata
