// Tests device GEMMs with a fake cuBLASLt that only records what it was asked for.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include <strata/kernels/cublaslt_algorithms.h>
#include <strata/kernels/linear.h>
#include <strata/runtime/str.h>

#include "cuda/gemm/cublas_lt.h"
#include "cuda/gemm/device_gemm.h"
#include "cuda/gemm/gemm_algorithms.h"
#include "cuda/shared_memory.h"

namespace {

/// The requests to the fake library, and its answers.
struct Asked {
  int searches = 0;
  std::uint64_t workspace_limit = ~std::uint64_t{0};
  std::uint32_t reductions = ~0u;
  std::uint64_t algorithm = 0;  ///< the algorithm of the last GEMM
  const void* workspace = nullptr;
  std::size_t workspace_bytes = 0;
  cublasStatus_t refuses = CUBLAS_STATUS_SUCCESS;  ///< the answer to a check of a recorded algorithm
  std::size_t wants = 0;                           ///< workspace bytes that a recorded algorithm needs
  std::vector<cudaDataType_t> layouts;
  const void *a_scale = nullptr, *b_scale = nullptr, *bias = nullptr;
  cublasStatus_t without_addresses =
      CUBLAS_STATUS_SUCCESS;  ///< a search's answer to a descriptor that has none
  bool needs_addresses = false;
} asked;

template <class T>
T value_of(const void* from) {
  T value{};
  std::memcpy(&value, from, sizeof value);
  return value;
}
template <class Handle>
cublasStatus_t make(Handle* into) {
  alignas(16) static std::byte anything[4096];
  *into = reinterpret_cast<Handle>(anything);
  return CUBLAS_STATUS_SUCCESS;
}

strata::kernels::detail::CublasLt noting() {
  return {.create = [](cublasLtHandle_t* handle) { return make(handle); },
          .desc_create = [](cublasLtMatmulDesc_t* desc, cublasComputeType_t,
                            cudaDataType_t) { return make(desc); },
          .desc_set =
              [](cublasLtMatmulDesc_t, cublasLtMatmulDescAttributes_t what, const void* value, std::size_t) {
                if (what == CUBLASLT_MATMUL_DESC_A_SCALE_POINTER)
                  asked.a_scale = value_of<const void*>(value);
                if (what == CUBLASLT_MATMUL_DESC_B_SCALE_POINTER)
                  asked.b_scale = value_of<const void*>(value);
                if (what == CUBLASLT_MATMUL_DESC_BIAS_POINTER) asked.bias = value_of<const void*>(value);
                return CUBLAS_STATUS_SUCCESS;
              },
          .layout_create =
              [](cublasLtMatrixLayout_t* layout, cudaDataType_t type, std::uint64_t, std::uint64_t,
                 std::int64_t) {
                asked.layouts.push_back(type);
                return make(layout);
              },
          .preference_create = [](cublasLtMatmulPreference_t* preference) { return make(preference); },
          .preference_destroy = [](cublasLtMatmulPreference_t) { return CUBLAS_STATUS_SUCCESS; },
          .preference_set =
              [](cublasLtMatmulPreference_t, cublasLtMatmulPreferenceAttributes_t what, const void* value,
                 std::size_t) {
                if (what == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES)
                  asked.workspace_limit = value_of<std::uint64_t>(value);
                if (what == CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK)
                  asked.reductions = value_of<std::uint32_t>(value);
                return CUBLAS_STATUS_SUCCESS;
              },
          .heuristic =
              [](cublasLtHandle_t, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                 cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, cublasLtMatmulPreference_t, int,
                 cublasLtMatmulHeuristicResult_t results[], int* found) {
                ++asked.searches;
                if (asked.needs_addresses && asked.bias == nullptr && asked.a_scale == nullptr)
                  return *found = 0, asked.without_addresses;
                results[0].algo.data[0] = static_cast<std::uint64_t>(asked.searches);
                *found = 1;
                return CUBLAS_STATUS_SUCCESS;
              },
          .algo_check =
              [](cublasLtHandle_t, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                 cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, const cublasLtMatmulAlgo_t*,
                 cublasLtMatmulHeuristicResult_t* result) {
                result->state = CUBLAS_STATUS_SUCCESS;
                result->workspaceSize = asked.wants;
                return asked.refuses;
              },
          .matmul =
              [](cublasLtHandle_t, cublasLtMatmulDesc_t, const void*, const void*, cublasLtMatrixLayout_t,
                 const void*, cublasLtMatrixLayout_t, const void*, const void*, cublasLtMatrixLayout_t, void*,
                 cublasLtMatrixLayout_t, const cublasLtMatmulAlgo_t* algo, void* workspace,
                 std::size_t workspace_bytes, cudaStream_t) {
                asked.algorithm = algo->data[0];
                asked.workspace = workspace;
                asked.workspace_bytes = workspace_bytes;
                return CUBLAS_STATUS_SUCCESS;
              },
          .version = [] { return std::size_t{130100}; }};
}

}  // namespace

namespace strata::kernels::detail {

Result<const CublasLt*> cublas_lt() {
  static const CublasLt lt = noting();
  return &lt;
}

namespace {

// Every test uses values of k of its own, because plans stay cached from test to test.
Status multiply(std::int64_t k, BufferView workspace = {}) {
  alignas(256) static std::byte operand[4096];
  return device_gemm(
      {.m = 2, .n = 3, .k = k, .a = operand, .lda = k, .b = operand, .ldb = 3, .c = operand, .ldc = 3},
      nullptr, workspace, nullptr);
}

TEST(DeviceGemmTest, AlgorithmIsSearchedOncePerWorkspaceSize) {
  asked = {};
  alignas(256) std::byte scratch[512];
  ASSERT_TRUE(multiply(11, {scratch, sizeof scratch}).is_ok());
  EXPECT_EQ(asked.workspace_limit, sizeof scratch);
  EXPECT_EQ(asked.workspace, scratch);
  EXPECT_EQ(asked.workspace_bytes, sizeof scratch);
  EXPECT_EQ(asked.reductions, std::uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE});
  ASSERT_TRUE(multiply(11, {scratch, sizeof scratch}).is_ok());
  EXPECT_EQ(asked.searches, 1);
  ASSERT_TRUE(multiply(11).is_ok());  // another plan, without a workspace
  EXPECT_EQ(asked.searches, 2);
  EXPECT_EQ(asked.workspace_limit, 0u);
  EXPECT_EQ(asked.workspace, nullptr);
}

// cuBLASLt is column-major: its A is our B.
TEST(DeviceGemmTest, Fp8OperandsHaveTheirOwnTypesAndScales) {
  asked = {};
  alignas(256) static std::byte operand[4096];
  const float a_scale_inv = 1, b_scale_inv = 1;
  const Fp8GemmScales scales{DType::e4m3, &a_scale_inv, &b_scale_inv};
  const auto gemm = [&](const Fp8GemmScales* fp8, DType dtype) {
    return device_gemm({.trans_b = true,
                        .m = 16,
                        .n = 32,
                        .k = 48,
                        .a = operand,
                        .lda = 48,
                        .b = operand,
                        .ldb = 48,
                        .c = operand,
                        .ldc = 32,
                        .dtype = dtype,
                        .c_dtype = DType::bf16},
                       nullptr, {}, nullptr, fp8);
  };
  ASSERT_TRUE(gemm(&scales, DType::e5m2).is_ok());
  EXPECT_EQ(asked.layouts, (std::vector<cudaDataType_t>{CUDA_R_8F_E4M3, CUDA_R_8F_E5M2, CUDA_R_16BF}));
  EXPECT_EQ(asked.a_scale, &b_scale_inv);
  EXPECT_EQ(asked.b_scale, &a_scale_inv);
  ASSERT_TRUE(gemm(&scales, DType::e4m3).is_ok());
  ASSERT_TRUE(gemm(nullptr, DType::bf16).is_ok());
  EXPECT_EQ(asked.searches, 3);  // three plans
}

// Some versions find no algorithm if a bias or scale has no address yet.
TEST(DeviceGemmTest, SearchIsRepeatedWithPlaceholderAddresses) {
  alignas(256) static std::byte operand[4096];
  const float inverse = 1;
  const Fp8GemmScales scales{DType::e4m3, &inverse, &inverse};
  std::int64_t k = 64;
  for (const bool has_bias : {true, false})
    for (const cublasStatus_t answer : {CUBLAS_STATUS_SUCCESS, CUBLAS_STATUS_NOT_SUPPORTED}) {
      asked = {};
      asked.needs_addresses = true;
      asked.without_addresses = answer;
      k += 16;
      const Gemm gemm{.trans_b = true,
                      .m = 16,
                      .n = 32,
                      .k = k,
                      .a = operand,
                      .lda = k,
                      .b = operand,
                      .ldb = k,
                      .c = operand,
                      .ldc = 32,
                      .dtype = has_bias ? DType::bf16 : DType::e4m3,
                      .c_dtype = DType::bf16};
      const Status multiplied =
          device_gemm(gemm, has_bias ? operand : nullptr, {}, nullptr, has_bias ? nullptr : &scales);
      EXPECT_TRUE(multiplied.is_ok()) << multiplied.message();
      EXPECT_EQ(asked.searches, 2);
      EXPECT_EQ(asked.algorithm, 2u);
      EXPECT_EQ(has_bias ? asked.bias : asked.a_scale,
                has_bias ? static_cast<const void*>(operand) : &inverse);
    }
  asked = {};
  asked.needs_addresses = true;
  EXPECT_NE(multiply(41).message().find("the search for an algorithm"), std::string_view::npos);
}

TEST(SharedMemoryTest, OnlyInvalidValueMeansTooLittleSharedMemory) {
  EXPECT_TRUE(shared_memory_status(cudaSuccess, 1).is_ok());
  const Status refused = shared_memory_status(cudaErrorInvalidValue, 300000);
  EXPECT_EQ(refused.code(), Code::unsupported);
  EXPECT_NE(refused.message().find("300000 bytes of shared memory"), std::string_view::npos)
      << refused.message();
  for (const cudaError_t error :
       {cudaErrorIllegalAddress, cudaErrorInvalidDeviceFunction, cudaErrorNoKernelImageForDevice}) {
    const Status failed = shared_memory_status(error, 300000);
    EXPECT_EQ(failed.code(), Code::internal);
    EXPECT_EQ(failed.message().find("shared memory"), std::string_view::npos) << failed.message();
  }
}

GemmAlgorithm recorded_algorithm(std::int64_t k, std::uint64_t algorithm) {
  GemmAlgorithm choice;
  choice.of = {.m = 2, .n = 3, .k = k, .lda = k, .ldb = 3, .ldc = 3};
  choice.of.a_align = choice.of.b_align = choice.of.c_align = 256;
  choice.algorithm[0] = algorithm;
  return choice;
}

TEST(DeviceGemmTest, RecordedAlgorithmsAreReusedAndRecordedAgain) {
  asked = {};
  ASSERT_TRUE(use_cuda_gemm_algorithms(to_text({recorded_algorithm(21, 0xABCDEF0123456789)})).is_ok());
  ASSERT_TRUE(multiply(21).is_ok());
  EXPECT_EQ(asked.searches, 0);
  EXPECT_EQ(asked.algorithm, 0xABCDEF0123456789);
  ASSERT_TRUE(multiply(22).is_ok());
  EXPECT_EQ(asked.searches, 1);
  const auto all = parse_gemm_algorithms(cuda_gemm_algorithms());
  ASSERT_TRUE(all.has_value());
  for (const GemmAlgorithm& want : {recorded_algorithm(21, 0xABCDEF0123456789), recorded_algorithm(22, 1)})
    EXPECT_EQ(std::count(all->begin(), all->end(), want), 1) << want.of.k;
}

TEST(DeviceGemmTest, RejectedRecordedAlgorithmIsAnErrorThatNamesTheGemm) {
  asked = {};
  ASSERT_TRUE(
      use_cuda_gemm_algorithms(to_text({recorded_algorithm(31, 5), recorded_algorithm(32, 5)})).is_ok());
  asked.refuses = CUBLAS_STATUS_NOT_SUPPORTED;
  const Status refused = multiply(31);
  EXPECT_NE(refused.message().find("[2, 31] by [31, 3]"), std::string::npos) << refused.message();
  asked.refuses = CUBLAS_STATUS_SUCCESS;
  asked.wants = 1;
  EXPECT_FALSE(multiply(32).is_ok());
  asked.wants = 0;
  EXPECT_TRUE(multiply(32).is_ok());
}

TEST(GemmAlgorithmsTest, RoundTripThroughText) {
  GemmAlgorithm choice;
  choice.of = {true, false, true, DType::e5m2, DType::e4m3, DType::f32, 1,   2,
               3,    4,     5,    6,           16,          32,         256, std::uint64_t{32} << 20};
  for (std::size_t i = 0; i < choice.algorithm.size(); ++i)
    choice.algorithm[i] = ~std::uint64_t{0} >> (8 * i);
  const std::vector<GemmAlgorithm> choices = {recorded_algorithm(7, 0), choice};
  const auto again = parse_gemm_algorithms(to_text(choices));
  ASSERT_TRUE(again.has_value()) << again.status().message();
  EXPECT_EQ(*again, choices);
  EXPECT_EQ(to_text({}), "");
  EXPECT_TRUE(parse_gemm_algorithms("")->empty());
  EXPECT_EQ(*parse_gemm_algorithms("# a title\n" + to_text(choices)), choices);
}

// The format of lines before the dtypes of A and B could differ.
TEST(GemmAlgorithmsTest, SingleDtypeAppliesToBothOperands) {
  const std::string text = to_text({recorded_algorithm(7, 3)});
  EXPECT_NE(text.find("\n0 0 0 f32 f32 2 3 7 "), std::string::npos) << text;
  EXPECT_EQ(parse_gemm_algorithms(text)->front().of.b_dtype, DType::f32);
}

TEST(GemmAlgorithmsTest, MalformedLinesAreRejectedByNumber) {
  const std::string good = to_text({recorded_algorithm(7, 3)});
  const std::size_t first = good.find('\n') + 1;
  for (std::size_t cut = first + 1; cut + 2 < good.size();
       ++cut) {  // without its last digit, the number is still valid
    const auto parsed = parse_gemm_algorithms(good.substr(0, cut));
    ASSERT_FALSE(parsed.has_value()) << cut;
    EXPECT_EQ(parsed.status().code(), Code::invalid);
    EXPECT_NE(parsed.status().message().find("line 2"), std::string::npos) << parsed.status().message();
  }
  for (const auto& [from, to] :
       {std::pair{"f32", "f64"}, {"0 0 0", "0 2 0"}, {" 256", " -56"}, {" 7 ", "  7 "}}) {
    std::string bad = good;
    bad.replace(bad.find(from, first), std::strlen(from), to);
    EXPECT_FALSE(parse_gemm_algorithms(bad).has_value()) << bad;
  }
  const Status used = use_cuda_gemm_algorithms(good + "nonsense\n");
  EXPECT_NE(used.message().find("line 3 is not a GEMM"), std::string::npos) << used.message();
}

TEST(GemmAlgorithmsTest, RandomBytesAreRefusedOrRead) {
  std::uint64_t state = 1;
  const std::string good = to_text({recorded_algorithm(7, 3), recorded_algorithm(8, 4)});
  for (int round = 0; round < 20000; ++round) {
    std::string text = good;
    for (int edit = 0; edit < 3; ++edit) {
      state = state * 6364136223846793005 + 1442695040888963407;
      text[(state >> 33) % text.size()] = static_cast<char>(state >> 20);
    }
    (void)parse_gemm_algorithms(text).has_value();
  }
}

}  // namespace
}  // namespace strata::kernels::detail
