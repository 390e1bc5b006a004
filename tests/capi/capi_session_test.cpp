// Uses the C interface as a trainer does, from the first call to the last.
#include <gmock/gmock.h>

#include <cstring>
#include <filesystem>

#include "capi/c_trainer.h"
#include "support/temp_dir.h"

namespace strata {
namespace {

using test::CTrainer;

/// The same parameters, updated without a session.
class Arrays {
 public:
  explicit Arrays(CTrainer& trainer) : trainer_(trainer) {
    for (CTrainer::Param& param : trainer.params) {
      masters_.emplace_back(param.values.size());
      m_.emplace_back(param.values.size());
      v_.emplace_back(param.values.size());
    }
    for (std::size_t p = 0; p < masters_.size(); ++p) {
      const strata_arrays arrays = at(p);
      EXPECT_EQ(strata_arrays_init(&arrays, STRATA_ADAMW), STRATA_OK) << strata_last_error();
    }
  }
  void step(std::int64_t step) {
    for (std::size_t p = 0; p < masters_.size(); ++p) {
      const strata_arrays arrays = at(p);
      EXPECT_EQ(strata_arrays_update(&arrays, STRATA_ADAMW, &trainer_.settings, step), STRATA_OK)
          << strata_last_error();
    }
  }

 private:
  strata_arrays at(std::size_t p) {
    CTrainer::Param& param = trainer_.params[p];
    return {
        sizeof(strata_arrays), CTrainer::kElems,    param.dtype,
        param.dtype,           param.values.data(), param.dtype == STRATA_F32 ? nullptr : masters_[p].data(),
        m_[p].data(),          v_[p].data(),        param.gradient.data()};
  }
  CTrainer& trainer_;
  std::vector<std::vector<float>> masters_, m_, v_;
};

TEST(CapiSessionTest, StepsHaveTheBitsOfPlainArrays) {
  const test::TempDir dir;
  const char* const dirs[1] = {dir.path().c_str()};
  for (const auto placement : {STRATA_PLACE_PINNED, STRATA_PLACE_NVME}) {
    strata_session_options options = CTrainer::default_options();
    options.placement = placement;
    options.nvme_dirs = dirs;
    options.n_nvme_dirs = 1;
    CTrainer trainer, plain;
    trainer.start(options);
    Arrays arrays(plain);
    for (std::int64_t step = 1; step <= 3; ++step) {
      ASSERT_EQ(trainer.step(), STRATA_OK) << strata_last_error();
      arrays.step(step);
    }
    EXPECT_EQ(trainer.values(), plain.values());
    EXPECT_NE(trainer.values(), CTrainer().values());
    strata_stats stats{};
    stats.struct_size = sizeof stats;
    ASSERT_EQ(strata_session_stats(trainer.session, &stats), STRATA_OK);
    strata_plan plan{};
    plan.struct_size = sizeof plan;
    ASSERT_EQ(strata_session_plan(trainer.session, &plan), STRATA_OK);
    EXPECT_EQ(stats.peak_pinned_bytes, plan.pinned_bytes);
    EXPECT_EQ(stats.peak_nvme_bytes, plan.nvme_bytes);
    EXPECT_EQ(plan.nvme_bytes > 0, placement == STRATA_PLACE_NVME);
    EXPECT_EQ(stats.nvme_written_bytes > 0, placement == STRATA_PLACE_NVME);
    EXPECT_EQ(plan.n_params, 3 * CTrainer::kElems);
  }
}

TEST(CapiSessionTest, AParameterWithoutAGradientKeepsItsStepCount) {
  CTrainer trainer;
  trainer.start();
  ASSERT_EQ(trainer.step(), STRATA_OK);
  const std::vector<strata_update> updates = trainer.updates();
  ASSERT_EQ(strata_session_step(trainer.session, &updates[1], 1), STRATA_OK) << strata_last_error();
  std::int64_t steps = 0, of_params[3] = {};
  ASSERT_EQ(strata_session_steps(trainer.session, &steps, of_params, 3), STRATA_OK);
  EXPECT_EQ(steps, 2);
  EXPECT_THAT(of_params, testing::ElementsAre(1, 2, 1));
}

std::int32_t add_piece(void* context, const strata_piece* piece, const float* values) {
  auto& all = *static_cast<std::vector<std::vector<float>>*>(context);
  all.resize(static_cast<std::size_t>(piece->param) + 1);
  EXPECT_EQ(static_cast<std::int64_t>(all.back().size()), piece->offset);
  all.back().insert(all.back().end(), values, values + piece->n);
  EXPECT_EQ(piece->n_elems, CTrainer::kElems);
  EXPECT_EQ(piece->name, "param." + std::to_string(piece->param));
  return 0;
}
std::int32_t take_piece(void* context, const strata_piece* piece, float* values) {
  const auto& all = *static_cast<const std::vector<std::vector<float>>*>(context);
  const float* const from = all[static_cast<std::size_t>(piece->param)].data() + piece->offset;
  std::copy(from, from + piece->n, values);
  return 0;
}

TEST(CapiSessionTest, StatesGoThroughCallbacksToAnotherSession) {
  CTrainer trainer, other;
  trainer.start();
  strata_session_options nothing_planned = CTrainer::default_options();
  nothing_planned.chunk_elems = 8192;
  other.start(nothing_planned);
  for (int i = 0; i < 2; ++i) ASSERT_EQ(trainer.step(), STRATA_OK);
  for (const auto state : {STRATA_PARAM, STRATA_FIRST_MOMENT, STRATA_SECOND_MOMENT}) {
    std::vector<std::vector<float>> values;
    ASSERT_EQ(strata_session_visit(trainer.session, state, add_piece, &values), STRATA_OK)
        << strata_last_error();
    ASSERT_EQ(values.size(), 3u);
    ASSERT_EQ(strata_session_fill(other.session, state, take_piece, &values), STRATA_OK)
        << strata_last_error();
  }
  const std::int64_t counts[3] = {2, 2, 2};
  ASSERT_EQ(strata_session_set_steps(other.session, 2, counts, 3), STRATA_OK) << strata_last_error();
  EXPECT_EQ(other.values(), trainer.values());
  ASSERT_EQ(trainer.step(), STRATA_OK);
  ASSERT_EQ(other.step(), STRATA_OK);
  EXPECT_EQ(other.values(), trainer.values());
}

TEST(CapiSessionTest, ACheckpointResumesToTheSameBits) {
  const test::TempDir dir;
  CTrainer trainer, resumed;
  trainer.start();
  ASSERT_EQ(trainer.step(), STRATA_OK);
  ASSERT_EQ(strata_session_save(trainer.session, dir.path().c_str(), 1), STRATA_OK) << strata_last_error();
  ASSERT_EQ(trainer.step(), STRATA_OK);
  ASSERT_EQ(strata_session_save(trainer.session, dir.path().c_str(), 1), STRATA_OK) << strata_last_error();
  EXPECT_FALSE(std::filesystem::exists(dir.path() + "/step-00000001")) << "one was to be kept";
  ASSERT_EQ(trainer.step(), STRATA_OK);

  resumed.start();
  EXPECT_EQ(strata_session_load(resumed.session, (dir.path() + "/step-00000001").c_str()), STRATA_NOT_FOUND);
  ASSERT_EQ(strata_session_load(resumed.session, (dir.path() + "/step-00000002").c_str()), STRATA_OK)
      << strata_last_error();
  ASSERT_EQ(resumed.step(), STRATA_OK);
  EXPECT_EQ(resumed.values(), trainer.values());
}

TEST(CapiSessionTest, RenamedParametersAreSavedAndLoadedUnderTheirNewNames) {
  const test::TempDir dir;
  CTrainer trainer, other;
  const char* names[] = {"model.embed", "model.head", "model.scale"};
  trainer.start();
  ASSERT_EQ(trainer.step(), STRATA_OK);
  ASSERT_EQ(strata_session_rename(trainer.session, names, 3), STRATA_OK) << strata_last_error();
  ASSERT_EQ(strata_session_save(trainer.session, dir.path().c_str(), 0), STRATA_OK) << strata_last_error();

  other.start();
  const std::string saved = dir.path() + "/step-00000001";
  EXPECT_EQ(strata_session_load(other.session, saved.c_str()), STRATA_INVALID);
  EXPECT_THAT(strata_last_error(), ::testing::HasSubstr("param.0 is missing"));
  const char* twice[] = {"a", "b", "a"};
  EXPECT_EQ(strata_session_rename(other.session, twice, 3), STRATA_INVALID);
  EXPECT_THAT(strata_last_error(), ::testing::HasSubstr("two parameters have the name 'a'"));
  const char* null[] = {"a", nullptr, "c"};
  EXPECT_EQ(strata_session_rename(other.session, null, 3), STRATA_INVALID);
  EXPECT_THAT(strata_last_error(), ::testing::HasSubstr("the name of parameter 1 is null"));
  EXPECT_EQ(strata_session_rename(other.session, names, 2), STRATA_INVALID);
  EXPECT_THAT(strata_last_error(), ::testing::HasSubstr("2 names for 3 parameters"));
  ASSERT_EQ(strata_session_rename(other.session, names, 3), STRATA_OK) << strata_last_error();
  ASSERT_EQ(strata_session_load(other.session, saved.c_str()), STRATA_OK) << strata_last_error();
  EXPECT_EQ(other.values(), trainer.values());
}

// Parameters are read, and gradients handed over, one by one; both are overwritten at once.
TEST(CapiSessionTest, ASessionThatHoldsTheParametersHasTheSameBits) {
  CTrainer held, plain;
  strata_session_options options = CTrainer::default_options();
  options.holds = STRATA_HOLDS_PARAMS;
  held.start(options);
  plain.start();
  double all = 0;
  for (int step = 0; step < 3; ++step) {
    ASSERT_EQ(plain.step(), STRATA_OK);
    std::vector<strata_update> updates = held.updates();
    for (strata_update& update : updates) {
      double squares = 0;
      ASSERT_EQ(strata_session_accumulate(held.session, update.param, update.gradient, update.gradient_dtype,
                                          &squares),
                STRATA_OK)
          << strata_last_error();
      EXPECT_GT(squares, 0);
      if (step == 0) all += squares;
      update.values = nullptr;
      update.gradient = nullptr;
    }
    double norm = 0;
    ASSERT_EQ(strata_session_norm(held.session, &norm), STRATA_OK);
    EXPECT_NEAR(norm * norm, all, 1e-9 * all);
    ASSERT_EQ(strata_session_step(held.session, updates.data(), updates.size()), STRATA_OK)
        << strata_last_error();
  }
  for (std::size_t p = 0; p < held.params.size(); ++p) {
    const auto number = static_cast<std::int64_t>(p);
    std::vector<std::uint32_t> read(CTrainer::kElems);
    void* const into[1] = {read.data()};
    ASSERT_EQ(strata_session_prefetch(held.session, &number, 1), STRATA_OK);
    ASSERT_EQ(strata_session_read(held.session, &number, into, 1), STRATA_OK) << strata_last_error();
    const std::size_t bytes = CTrainer::kElems * (p == 0 ? 4 : 2);
    EXPECT_EQ(std::memcmp(read.data(), plain.params[p].values.data(), bytes), 0) << p;
  }
  EXPECT_EQ(held.values(), CTrainer().values()) << "the trainer's own memory is not written";
}

TEST(CapiSessionTest, NoFileIsLeftAndAllMemoryIsGivenBack) {
  const test::TempDir dir;
  const char* const dirs[1] = {dir.path().c_str()};
  strata_session_options options = CTrainer::default_options();
  options.placement = STRATA_PLACE_NVME;
  options.nvme_dirs = dirs;
  options.n_nvme_dirs = 1;
  const auto descriptors = [] {
    std::size_t n = 0;
    for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) ++n;
    return n;
  };
  std::size_t before = 0;
  for (int i = 0; i < 20; ++i) {
    if (i == 2) before = descriptors();  // the first ones also create what the process keeps
    CTrainer trainer;
    trainer.start(options);
    ASSERT_EQ(trainer.step(), STRATA_OK);
    EXPECT_TRUE(std::filesystem::is_empty(dir.path()));
  }
  EXPECT_EQ(descriptors(), before);
}

}  // namespace
}  // namespace strata
