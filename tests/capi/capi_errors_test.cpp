// Calls that make no sense: each is refused with a reason, and the session goes on.
#include <gmock/gmock.h>

#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <thread>

#include "capi/c_trainer.h"

namespace strata {
namespace {

using test::CTrainer;
using testing::HasSubstr;

class CapiErrorsTest : public ::testing::Test {
 protected:
  /// The message of a call that must have failed with `expected`.
  static std::string refused(strata_status status, strata_status expected = STRATA_INVALID) {
    EXPECT_EQ(status, expected) << strata_status_name(status) << ": " << strata_last_error();
    return strata_last_error();
  }
  CTrainer trainer_;
};

TEST_F(CapiErrorsTest, AllProblemsOfTheOptionsAreNamedAtOnce) {
  strata_session_options options = CTrainer::default_options();
  options.optimizer = static_cast<strata_optimizer>(9);
  options.states = static_cast<strata_state_format>(-1);
  options.placement = STRATA_PLACE_NVME;
  options.threads = -2;
  options.ranks = 2;
  strata_session session = 7;
  EXPECT_THAT(refused(strata_session_create(&options, &session)),
              testing::AllOf(HasSubstr("optimizer is 9"), HasSubstr("states is -1"),
                             HasSubstr("there is no folder in nvme_dirs"), HasSubstr("threads is -2"),
                             HasSubstr("rank 0 of 2")));
  EXPECT_EQ(session, 0u);
  EXPECT_THAT(refused(strata_session_create(nullptr, &session)), HasSubstr("strata_session_options is null"));
  options = CTrainer::default_options();
  EXPECT_THAT(refused(strata_session_create(&options, nullptr)), HasSubstr("session is null"));
}

TEST_F(CapiErrorsTest, StructsOfOtherVersionsAreAcceptedIfTheyAskForNothingUnknown) {
  struct Newer {
    strata_session_options options = CTrainer::default_options();
    std::uint64_t more = 0;
  } newer;
  newer.options.struct_size = sizeof newer;
  ASSERT_EQ(strata_session_create(&newer.options, &trainer_.session), STRATA_OK) << strata_last_error();
  newer.more = 1;
  strata_session second = 0;
  EXPECT_THAT(refused(strata_session_create(&newer.options, &second), STRATA_UNSUPPORTED),
              HasSubstr("newer than this library"));
  strata_session_options older = CTrainer::default_options();
  older.struct_size = offsetof(strata_session_options, threads);
  older.threads = -5;  // does not exist there
  ASSERT_EQ(strata_session_create(&older, &second), STRATA_OK) << strata_last_error();
  EXPECT_EQ(strata_session_close(second), STRATA_OK);
  for (const std::size_t size : {std::size_t{0}, std::size_t{7}, std::size_t{1} << 60}) {
    older.struct_size = size;
    EXPECT_THAT(refused(strata_session_create(&older, &second)), HasSubstr("struct_size is "));
  }
}

TEST_F(CapiErrorsTest, ParametersAreCheckedWhenTheyAreAdded) {
  strata_session_options options = CTrainer::default_options();
  ASSERT_EQ(strata_session_create(&options, &trainer_.session), STRATA_OK);
  const std::int64_t dims[3] = {1 << 30, 1 << 30, 1 << 30}, none[1] = {0};
  strata_param param{sizeof(strata_param), "w", STRATA_F32, 3, dims, 0, 0};
  const auto add = [&] { return strata_session_add(trainer_.session, &param); };
  EXPECT_THAT(refused(add()), HasSubstr("parameter 'w' is too large"));
  param.dims = none;
  param.n_dims = 1;
  EXPECT_THAT(refused(add()), HasSubstr("has the extent 0"));
  param.n_dims = 9;
  EXPECT_THAT(refused(add()), HasSubstr("has 9 dimensions"));
  param.dims = nullptr;
  param.n_dims = 1;
  EXPECT_THAT(refused(add()), HasSubstr("has no dims"));
  param.dtype = static_cast<strata_dtype>(17);
  EXPECT_THAT(refused(add()), HasSubstr("has the dtype 17"));
  param.name = nullptr;
  EXPECT_THAT(refused(add()), HasSubstr("the name of parameter 0 is null"));
  EXPECT_THAT(refused(strata_session_seal(trainer_.session, nullptr, 0)),
              HasSubstr("there are no parameters"));
}

TEST_F(CapiErrorsTest, CallsComeInTheirOrder) {
  trainer_.create();
  EXPECT_THAT(refused(trainer_.step()), HasSubstr("not sealed yet"));
  const std::vector<void*> addresses = trainer_.addresses();
  EXPECT_THAT(refused(strata_session_seal(trainer_.session, addresses.data(), 2)),
              HasSubstr("2 addresses for 3 parameters"));
  ASSERT_EQ(trainer_.seal(), STRATA_OK) << strata_last_error();
  EXPECT_THAT(refused(trainer_.seal()), HasSubstr("already sealed"));
  EXPECT_THAT(refused(trainer_.add(trainer_.params[0])), HasSubstr("the session is sealed"));
}

TEST_F(CapiErrorsTest, WhatDoesNotFitIsRefusedAndMayBeRetriedElsewhere) {
  strata_session_options options = CTrainer::default_options();
  options.pinned_bytes = 4096;
  trainer_.create(options);
  EXPECT_THAT(refused(trainer_.seal(), STRATA_DOES_NOT_FIT), HasSubstr("pinned"));
  strata_plan plan{};
  plan.struct_size = sizeof plan;
  EXPECT_EQ(strata_session_plan(trainer_.session, &plan), STRATA_DOES_NOT_FIT);
}

TEST_F(CapiErrorsTest, AStepIsCheckedBeforeItChangesAnything) {
  trainer_.start();
  const auto before = trainer_.values();
  std::vector<strata_update> updates = trainer_.updates();
  const auto step = [&] { return strata_session_step(trainer_.session, updates.data(), updates.size()); };
  updates[2].param = 3;
  EXPECT_THAT(refused(step()), HasSubstr("there is no parameter 3"));
  updates[2].param = std::int64_t{1} << 40;
  EXPECT_THAT(refused(step()), HasSubstr("there is no parameter 1099511627776"));
  updates = trainer_.updates();
  updates[2].gradient_dtype = static_cast<strata_dtype>(3);
  EXPECT_THAT(refused(step()), HasSubstr("has the dtype 3"));
  updates = trainer_.updates();
  updates[2].settings = nullptr;
  EXPECT_THAT(refused(step()), HasSubstr("parameter 2: strata_settings is null"));
  updates = trainer_.updates();
  updates[2].reserved = 1;
  EXPECT_THAT(refused(step()), HasSubstr("reserved is 1"));
  updates = trainer_.updates();
  updates[1].struct_size = sizeof(strata_update) - 8;
  EXPECT_THAT(refused(step()), HasSubstr("differs from that of updates[0]"));
  updates = trainer_.updates();
  trainer_.settings.lr = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THAT(refused(step()), HasSubstr("settings that are not valid"));
  trainer_.settings.lr = 0.01;
  EXPECT_THAT(refused(strata_session_step(trainer_.session, nullptr, 2)), HasSubstr("updates is null"));
  EXPECT_THAT(refused(strata_session_step(trainer_.session, updates.data(), SIZE_MAX)), HasSubstr("at most"));
  EXPECT_EQ(trainer_.values(), before);
  EXPECT_EQ(trainer_.step(), STRATA_OK) << strata_last_error();
}

TEST_F(CapiErrorsTest, HandlesOfNoSessionAreNoticed) {
  trainer_.start();
  const strata_session first = trainer_.session;
  ASSERT_EQ(strata_session_close(first), STRATA_OK);
  trainer_.start();  // takes the same entry of the table
  EXPECT_NE(trainer_.session, first);
  for (const strata_session stale : {first, strata_session{0}, strata_session{12345}, ~strata_session{0}}) {
    EXPECT_THAT(refused(strata_session_close(stale), STRATA_CLOSED), HasSubstr("belongs to no session"));
    EXPECT_EQ(strata_session_plan(stale, nullptr), STRATA_CLOSED);
    EXPECT_EQ(strata_session_step(stale, nullptr, 0), STRATA_CLOSED);
  }
  EXPECT_EQ(trainer_.step(), STRATA_OK);
}

TEST_F(CapiErrorsTest, MessagesBelongToTheirThread) {
  refused(strata_session_close(0), STRATA_CLOSED);
  std::thread([] { EXPECT_STREQ(strata_last_error(), ""); }).join();
  EXPECT_STRNE(strata_last_error(), "");
  trainer_.start();
  EXPECT_STREQ(strata_last_error(), "") << "the last call has not failed";
}

struct Reentry {
  strata_session session;
  strata_status status = STRATA_OK;
};
std::int32_t close_session(void* context, const strata_piece*, const float*) {
  auto& reentry = *static_cast<Reentry*>(context);
  reentry.status = strata_session_close(reentry.session);
  return 1;
}

TEST_F(CapiErrorsTest, ACallbackCannotCallItsSessionAndCanStop) {
  trainer_.start();
  Reentry reentry{trainer_.session};
  EXPECT_THAT(refused(strata_session_visit(trainer_.session, STRATA_FIRST_MOMENT, close_session, &reentry),
                      STRATA_CANCELLED),
              HasSubstr("the callback returned 1"));
  EXPECT_EQ(reentry.status, STRATA_INVALID);
  EXPECT_EQ(trainer_.step(), STRATA_OK);
}

std::int32_t stop_filling(void*, const strata_piece*, float*) { return 1; }

TEST_F(CapiErrorsTest, AfterAnInterruptedFillTheStatesBelongToNoStep) {
  trainer_.start();
  EXPECT_EQ(strata_session_fill(trainer_.session, STRATA_SECOND_MOMENT, stop_filling, nullptr),
            STRATA_CANCELLED);
  EXPECT_THAT(refused(trainer_.step(), STRATA_CANCELLED), HasSubstr("do not belong to any step"));
}

TEST_F(CapiErrorsTest, StateAccessIsChecked) {
  strata_session_options options = CTrainer::default_options();
  options.optimizer = STRATA_LION;
  trainer_.start(options);
  EXPECT_THAT(refused(strata_session_visit(trainer_.session, STRATA_SECOND_MOMENT, close_session, nullptr),
                      STRATA_UNSUPPORTED),
              HasSubstr("holds no v"));
  EXPECT_THAT(
      refused(strata_session_visit(trainer_.session, static_cast<strata_state>(3), close_session, nullptr)),
      HasSubstr("the state is 3"));
  EXPECT_THAT(refused(strata_session_visit(trainer_.session, STRATA_PARAM, nullptr, nullptr)),
              HasSubstr("visit is null"));
  ASSERT_EQ(strata_session_bind(trainer_.session, nullptr, 0), STRATA_OK);
  EXPECT_THAT(refused(strata_session_visit(trainer_.session, STRATA_PARAM, close_session, nullptr)),
              HasSubstr("their addresses are not known"));
  const std::int64_t counts[3] = {1, 2, 3};
  EXPECT_THAT(refused(strata_session_set_steps(trainer_.session, 2, counts, 3)),
              HasSubstr("in 3 of 2 steps"));
  EXPECT_THAT(refused(strata_session_set_steps(trainer_.session, 3, counts, 2)), HasSubstr("2 counts for 3"));
  EXPECT_THAT(refused(strata_session_save(trainer_.session, "", 0)), HasSubstr("dir is empty"));
}

TEST_F(CapiErrorsTest, DiscardingIsCheckedBeforeAnythingIsForgotten) {
  strata_session_options options = CTrainer::default_options();
  options.holds = STRATA_HOLDS_PARAMS;
  trainer_.start(options);
  const strata_update update = trainer_.updates()[0];
  ASSERT_EQ(strata_session_accumulate(trainer_.session, 0, update.gradient, STRATA_F32, nullptr), STRATA_OK);
  const std::int64_t params[2] = {0, 99};
  EXPECT_THAT(refused(strata_session_discard(trainer_.session, params, 2)),
              HasSubstr("no parameter 99: 3 are registered"));
  const float* gradient = nullptr;
  EXPECT_EQ(strata_session_gradient(trainer_.session, 0, &gradient), STRATA_OK) << strata_last_error();
  ASSERT_EQ(strata_session_discard(trainer_.session, params, 1), STRATA_OK);
  EXPECT_THAT(refused(strata_session_gradient(trainer_.session, 0, &gradient)),
              HasSubstr("no accumulated gradient"));
}

/// Bytes of mappings that fork() does not copy.
std::uint64_t bytes_not_copied() {
  std::ifstream smaps("/proc/self/smaps");
  std::uint64_t kib = 0, sum = 0;
  for (std::string line; std::getline(smaps, line);) {
    if (line.starts_with("Size:")) kib = std::stoull(line.substr(5));
    if (line.starts_with("VmFlags:") && (line + " ").find(" dc ") != std::string::npos) sum += kib << 10;
  }
  return sum;
}

// gtest's death tests would fork, too, but this is what a DataLoader does.
TEST_F(CapiErrorsTest, AForkedChildIsRefusedAndTheParentGoesOn) {
  const std::uint64_t before = bytes_not_copied();
  trainer_.start();
  strata_plan plan{};
  plan.struct_size = sizeof plan;
  ASSERT_EQ(strata_session_plan(trainer_.session, &plan), STRATA_OK);
  EXPECT_GE(bytes_not_copied(), before + plan.pinned_bytes);
  const pid_t child = ::fork();
  if (child == 0) {
    const bool refused = trainer_.step() == STRATA_UNSUPPORTED &&
                         std::string(strata_last_error()).find("was forked from") != std::string::npos &&
                         strata_session_close(trainer_.session) == STRATA_UNSUPPORTED;
    strata_session session = 0;
    const strata_session_options options = CTrainer::default_options();
    ::_exit(refused && strata_session_create(&options, &session) == STRATA_UNSUPPORTED ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  EXPECT_EQ(trainer_.step(), STRATA_OK) << strata_last_error();
}

TEST_F(CapiErrorsTest, ThreadsWaitForEachOther) {
  trainer_.start();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 20; ++i) EXPECT_EQ(trainer_.step(), STRATA_OK) << strata_last_error();
    });
  for (std::thread& thread : threads) thread.join();
  std::int64_t steps = 0;
  ASSERT_EQ(strata_session_steps(trainer_.session, &steps, nullptr, 0), STRATA_OK);
  EXPECT_EQ(steps, 80);
}

TEST_F(CapiErrorsTest, ClosingWhileOthersCallIsSafe) {
  trainer_.start();
  std::thread other([&] {
    strata_status status = STRATA_OK;
    while (status == STRATA_OK) status = trainer_.step();
    EXPECT_EQ(status, STRATA_CLOSED) << strata_last_error();
  });
  ASSERT_EQ(trainer_.step(), STRATA_OK);
  EXPECT_EQ(strata_session_close(trainer_.session), STRATA_OK);
  other.join();
}

TEST_F(CapiErrorsTest, ArraysAreChecked) {
  std::vector<float> values(10), m(10), v(10);
  strata_arrays arrays{sizeof(strata_arrays), 10,      STRATA_F32, STRATA_F32,
                       values.data(),         nullptr, m.data(),   v.data(),
                       values.data()};
  const auto update = [&] { return strata_arrays_update(&arrays, STRATA_ADAMW, &trainer_.settings, 1); };
  ASSERT_EQ(update(), STRATA_OK) << strata_last_error();
  arrays.v = nullptr;
  EXPECT_THAT(refused(update()), HasSubstr("v is null"));
  arrays.v = v.data();
  arrays.dtype = STRATA_BF16;
  EXPECT_THAT(refused(update()), HasSubstr("master is null"));
  arrays.dtype = STRATA_F32;
  arrays.n = -1;
  EXPECT_THAT(refused(update()), HasSubstr("n is -1"));
  arrays.n = 10;
  EXPECT_THAT(refused(strata_arrays_update(&arrays, STRATA_ADAMW, &trainer_.settings, 0)), HasSubstr("step"));
  EXPECT_THAT(refused(strata_arrays_update(&arrays, STRATA_ADAMW, nullptr, 1)), HasSubstr("is null"));
  EXPECT_THAT(refused(strata_arrays_update(&arrays, static_cast<strata_optimizer>(8), &trainer_.settings, 1)),
              HasSubstr("optimizer is 8"));
}

}  // namespace
}  // namespace strata
