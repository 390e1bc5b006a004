// Activations through the C interface.
#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <thread>
#include <vector>

#include <strata.h>

#include "support/temp_dir.h"

namespace strata {
namespace {

using Bytes = std::vector<unsigned char>;

Bytes bytes_of(std::size_t n, unsigned seed) {
  Bytes bytes(n);
  for (std::size_t i = 0; i < n; ++i) bytes[i] = static_cast<unsigned char>(i * 31 + i / 251 + seed);
  return bytes;
}

class CapiActivationsTest : public testing::Test {
 protected:
  ~CapiActivationsTest() override {
    if (activations_ != 0) (void)strata_activations_close(activations_);
  }
  strata_activation_options options(std::uint64_t nvme_bytes = 0) const {
    strata_activation_options options{};
    options.struct_size = sizeof options;
    options.pinned_bytes = 256 << 10;
    options.page_bytes = 16 << 10;
    options.nvme_dirs = dirs_;
    options.n_nvme_dirs = 1;
    options.nvme_bytes = nvme_bytes;
    return options;
  }
  void make(const strata_activation_options& options) {
    ASSERT_EQ(strata_activations_create(&options, &activations_), STRATA_OK) << strata_last_error();
  }
  std::uint64_t put(const Bytes& bytes) {
    std::uint64_t id = 0;
    EXPECT_EQ(strata_activations_put(activations_, bytes.data(), bytes.size(), &id), STRATA_OK)
        << strata_last_error();
    return id;
  }
  Bytes get(std::uint64_t id, std::size_t n) {
    Bytes bytes(n);
    EXPECT_EQ(strata_activations_get(activations_, id, bytes.data(), n), STRATA_OK) << strata_last_error();
    return bytes;
  }
  strata_activation_stats stats() {
    strata_activation_stats stats{};
    stats.struct_size = sizeof stats;
    EXPECT_EQ(strata_activations_stats(activations_, &stats), STRATA_OK) << strata_last_error();
    return stats;
  }

  test::TempDir dir_;
  const char* const dirs_[1] = {dir_.path().c_str()};
  strata_activations activations_ = 0;
};

TEST_F(CapiActivationsTest, BytesComeBackFromRamAndNvme) {
  make(options());
  for (int step = 0; step < 3; ++step) {
    std::vector<std::uint64_t> ids;
    for (unsigned i = 0; i < 12; ++i) ids.push_back(put(bytes_of(100000 + i, i)));
    EXPECT_EQ(stats().n_activations, 12u);
    for (unsigned i = 12; i-- > 0;) {
      EXPECT_EQ(get(ids[i], 100000 + i), bytes_of(100000 + i, i));
      EXPECT_EQ(strata_activations_discard(activations_, ids[i]), STRATA_OK);
    }
  }
  strata_activation_stats found = stats();
  while (found.pinned_bytes > 0) found = stats();  // until writes that are in flight have ended
  EXPECT_EQ(found.n_activations, 0u);
  EXPECT_EQ(found.nvme_bytes, 0u);
  EXPECT_EQ(found.n_gets, 36u);
  EXPECT_GT(found.nvme_written_bytes, 0u);
  EXPECT_GT(found.peak_nvme_bytes, 800000u);
  EXPECT_LE(found.peak_pinned_bytes, std::uint64_t{256} << 10);
  EXPECT_TRUE(std::filesystem::is_empty(dir_.path()));
}

TEST_F(CapiActivationsTest, WhatIsWrongIsSaidByName) {
  strata_activation_options wrong = options();
  wrong.page_bytes = 100;
  wrong.nvme_dirs = nullptr;
  EXPECT_EQ(strata_activations_create(&wrong, &activations_), STRATA_INVALID);
  EXPECT_THAT(strata_last_error(), testing::HasSubstr("page_bytes is 100"));
  EXPECT_THAT(strata_last_error(), testing::HasSubstr("nvme_dirs is null, and n_nvme_dirs is 1"));
  wrong = options();
  wrong.struct_size = 3;
  EXPECT_EQ(strata_activations_create(&wrong, &activations_), STRATA_INVALID);
  wrong = options();
  wrong.pinned_bytes = 16 << 10;
  EXPECT_EQ(strata_activations_create(&wrong, &activations_), STRATA_INVALID);
  EXPECT_THAT(strata_last_error(), testing::HasSubstr("pinned_bytes is 16384"));
  wrong = options(100);
  EXPECT_EQ(strata_activations_create(&wrong, &activations_), STRATA_INVALID);
  EXPECT_THAT(strata_last_error(), testing::HasSubstr("nvme_bytes is 100"));
  EXPECT_EQ(activations_, 0u);

  make(options(128 << 10));
  const Bytes bytes = bytes_of(500000, 1);
  std::uint64_t id = 7;
  EXPECT_EQ(strata_activations_put(activations_, bytes.data(), bytes.size(), &id), STRATA_DOES_NOT_FIT);
  EXPECT_THAT(strata_last_error(),
              testing::HasSubstr("object 1 of 500000 bytes needs 507904 bytes, but 376832"));
  EXPECT_EQ(id, 0u);
  EXPECT_EQ(strata_activations_put(activations_, bytes.data(), 0, &id), STRATA_INVALID);
  EXPECT_EQ(strata_activations_discard(activations_, 99), STRATA_NOT_FOUND);
  Bytes into(10);
  EXPECT_EQ(strata_activations_get(activations_, 99, into.data(), into.size()), STRATA_NOT_FOUND);
  EXPECT_THAT(strata_last_error(), testing::HasSubstr("object 99"));
}

TEST_F(CapiActivationsTest, AHandleIsStaleAfterClose) {
  make(options());
  const std::uint64_t id = put(bytes_of(100, 1));
  Bytes into(100);
  ASSERT_EQ(strata_activations_close(activations_), STRATA_OK);
  EXPECT_EQ(strata_activations_get(activations_, id, into.data(), 100), STRATA_CLOSED);
  EXPECT_EQ(strata_activations_close(activations_), STRATA_CLOSED);
  const strata_activations old = activations_;
  make(options());
  EXPECT_EQ(strata_activations_get(old, id, into.data(), 100), STRATA_CLOSED);
}

TEST_F(CapiActivationsTest, HandlesOfSessionsAreOthers) {
  make(options());
  strata_session_options session_options{};
  session_options.struct_size = sizeof session_options;
  strata_session session = 0;
  ASSERT_EQ(strata_session_create(&session_options, &session), STRATA_OK) << strata_last_error();
  EXPECT_EQ(strata_activations_close(session), STRATA_CLOSED);
  EXPECT_EQ(strata_session_close(activations_), STRATA_CLOSED);
  EXPECT_EQ(strata_session_close(session), STRATA_OK);
}

TEST_F(CapiActivationsTest, AForkedChildIsRefused) {
  make(options());
  const std::uint64_t id = put(bytes_of(100, 1));
  const pid_t child = ::fork();
  if (child == 0) {
    unsigned char into[100];
    ::_exit(strata_activations_get(activations_, id, into, 100) == STRATA_UNSUPPORTED ? 0 : 1);
  }
  int status = 1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(get(id, 100), bytes_of(100, 1));
}

TEST_F(CapiActivationsTest, ClosingWaitsForNoOneAndBreaksNothing) {
  make(options());
  const std::uint64_t id = put(bytes_of(2000000, 1));
  std::thread reader([&] {
    Bytes into(2000000);
    while (strata_activations_get(activations_, id, into.data(), into.size()) == STRATA_OK)
      EXPECT_EQ(into, bytes_of(2000000, 1));
  });
  EXPECT_EQ(strata_activations_close(activations_), STRATA_OK);
  reader.join();
}

}  // namespace
}  // namespace strata
