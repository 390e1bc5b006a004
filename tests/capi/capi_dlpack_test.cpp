// Tensors as DLPack describes them, with this test's own copy of its structs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include <strata.h>

namespace strata {
namespace {

struct DLTensor {
  void* data;
  std::int32_t device_type, device_id, ndim;
  std::uint8_t code, bits;
  std::uint16_t lanes;
  std::int64_t *shape, *strides;
  std::uint64_t byte_offset;
};
struct DLManagedTensor {
  DLTensor dl_tensor;
  void* manager_ctx;
  void (*deleter)(DLManagedTensor*);
};
struct DLManagedTensorVersioned {
  std::uint32_t major, minor;
  void* manager_ctx;
  void (*deleter)(DLManagedTensorVersioned*);
  std::uint64_t flags;
  DLTensor dl_tensor;
};

class CapiDlpackTest : public ::testing::Test {
 protected:
  strata_status describe() {
    DLManagedTensor managed{tensor, nullptr, nullptr};
    return strata_tensor_from_dlpack(&managed, 0, &found);
  }
  void expect_refused(strata_status status, const char* text) {
    EXPECT_EQ(describe(), status);
    EXPECT_THAT(strata_last_error(), ::testing::HasSubstr(text));
  }
  std::vector<float> values = std::vector<float>(24);
  std::int64_t shape[3] = {2, 3, 4}, strides[3] = {12, 4, 1};
  DLTensor tensor{values.data(), 1, 0, 3, 2, 32, 1, shape, nullptr, 0};
  strata_tensor found{sizeof(strata_tensor), nullptr, 0, 0, nullptr, 0, 0, 0};
};

TEST_F(CapiDlpackTest, ATensorIsDescribed) {
  ASSERT_EQ(describe(), STRATA_OK) << strata_last_error();
  EXPECT_EQ(found.data, values.data());
  EXPECT_EQ(found.dtype, STRATA_F32);
  EXPECT_EQ(found.n_dims, 3);
  EXPECT_EQ(found.dims, shape);
  EXPECT_EQ(found.n_elems, 24);
  EXPECT_EQ(found.is_read_only, 0);
  tensor.strides = strides;
  tensor.byte_offset = 8;
  tensor.code = 4;
  tensor.bits = 16;
  tensor.device_type = 3;  // pinned memory
  ASSERT_EQ(describe(), STRATA_OK) << strata_last_error();
  EXPECT_EQ(found.data, values.data() + 2);
  EXPECT_EQ(found.dtype, STRATA_BF16);
  shape[0] = 1;
  strides[0] = 77;  // the stride of one element means nothing
  EXPECT_EQ(describe(), STRATA_OK) << strata_last_error();
  shape[1] = 0;
  tensor.data = nullptr;
  ASSERT_EQ(describe(), STRATA_OK) << strata_last_error();
  EXPECT_EQ(found.n_elems, 0);
  tensor.ndim = 0;
  tensor.shape = nullptr;
  tensor.data = values.data();
  ASSERT_EQ(describe(), STRATA_OK) << strata_last_error();
  EXPECT_EQ(found.n_elems, 1);
}

TEST_F(CapiDlpackTest, VersionsAndReadOnlyMemoryAreKnown) {
  DLManagedTensorVersioned managed{1, 3, nullptr, nullptr, 1, tensor};
  ASSERT_EQ(strata_tensor_from_dlpack(&managed, 1, &found), STRATA_OK) << strata_last_error();
  EXPECT_EQ(found.is_read_only, 1);
  managed.major = 2;
  EXPECT_EQ(strata_tensor_from_dlpack(&managed, 1, &found), STRATA_UNSUPPORTED);
  EXPECT_THAT(strata_last_error(), ::testing::HasSubstr("version 2.3; only 1.x is known"));
  EXPECT_EQ(strata_tensor_from_dlpack(nullptr, 1, &found), STRATA_INVALID);
}

TEST_F(CapiDlpackTest, WhatCannotBeUsedIsRefused) {
  const DLTensor right = tensor;
  tensor.device_type = 2;
  expect_refused(STRATA_UNSUPPORTED, "on a device of type 2");
  tensor = right;
  tensor.bits = 64;
  expect_refused(STRATA_UNSUPPORTED, "type code 2 with 64 bits and 1 lanes");
  tensor = right;
  tensor.lanes = 4;
  expect_refused(STRATA_UNSUPPORTED, "4 lanes");
  tensor = right;
  strides[1] = 5;
  tensor.strides = strides;
  expect_refused(STRATA_UNSUPPORTED, "stride 5 in dimension 1; row-major order without gaps needs 4");
  tensor = right;
  shape[2] = -1;
  expect_refused(STRATA_INVALID, "dimension 2 of the DLPack tensor is -1");
  shape[2] = std::numeric_limits<std::int64_t>::max();
  expect_refused(STRATA_INVALID, "more than 2^63 elements");
  shape[2] = 4;
  tensor.ndim = 65;
  expect_refused(STRATA_INVALID, "has 65 dimensions");
  tensor = right;
  tensor.shape = nullptr;
  expect_refused(STRATA_INVALID, "the dims of the DLPack tensor are null");
  tensor = right;
  tensor.data = nullptr;
  expect_refused(STRATA_INVALID, "the data of the DLPack tensor is null");
}

}  // namespace
}  // namespace strata
