#include <strata/kernels/mixers/divided_columns.h>

#include <numeric>

#include <gmock/gmock.h>

#include "elementwise/column_place.h"
#include "support/op_test.h"

namespace strata::kernels {
namespace {

using test::Tensor;

class DividedColumnsTest : public ::testing::TestWithParam<DividedColumns> {};

TEST_P(DividedColumnsTest, EveryColumnIsInItsPartAndComesBack) {
  const DividedColumns c = GetParam();
  const std::int64_t rows = 37;
  for (const DType dtype : {DType::f32, DType::bf16}) {
    std::vector<float> values(static_cast<std::size_t>(rows * c.all()));
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 251);
    Tensor x({rows, c.all()}, values, dtype), first = Tensor::unwritten({rows, c.of_first()}, dtype),
                                              second = Tensor::unwritten({rows, c.of_second()}, dtype),
                                              back = Tensor::unwritten({rows, c.all()}, dtype);
    divide_columns_host({x.view(), first.view(), second.view(), c}, *test::pool());
    const std::vector<float> one = first.values(), other = second.values();
    std::size_t i = 0, j = 0;
    for (std::int64_t row = 0; row < rows; ++row)
      for (std::int64_t column = 0; column < c.all(); ++column) {
        const std::int64_t in_group = column % (c.first + c.second);
        const bool is_second = column < c.groups * (c.first + c.second) && in_group >= c.first;
        const float want = values[static_cast<std::size_t>(row * c.all() + column)];
        ASSERT_EQ(is_second ? other[j++] : one[i++], want) << "row " << row << ", column " << column;
      }
    unite_columns_host({first.view(), second.view(), back.view(), c}, *test::pool());
    EXPECT_EQ(back.values(), x.values());
  }
}

// The arithmetic of the device's kernel.
TEST_P(DividedColumnsTest, AColumnOfTheDeviceIsWhereTheHostPutsIt) {
  const DividedColumns c = GetParam();
  std::vector<float> values(static_cast<std::size_t>(c.all()));
  std::iota(values.begin(), values.end(), 0.0f);
  Tensor x({1, c.all()}, values), first = Tensor::unwritten({1, c.of_first()}),
                                  second = Tensor::unwritten({1, c.of_second()});
  divide_columns_host({x.view(), first.view(), second.view(), c}, *test::pool());
  for (std::int64_t column = 0; column < c.all(); ++column) {
    const detail::ColumnPlace place = detail::place_of(c, column);
    const std::vector<float> part = (place.is_second ? second : first).values();
    EXPECT_EQ(part[static_cast<std::size_t>(place.column)], static_cast<float>(column));
  }
}

INSTANTIATE_TEST_SUITE_P(Columns, DividedColumnsTest,
                         ::testing::Values(DividedColumns{1, 5, 3, 0}, DividedColumns{4, 3, 3, 7},
                                           DividedColumns{2, 64, 64, 128}, DividedColumns{3, 0, 2, 1}),
                         [](const auto& test) {
                           const DividedColumns& c = test.param;
                           return str(c.groups, "x", c.first, "and", c.second, "plus", c.tail);
                         });

TEST(DividedColumnsErrors, NameBothSizes) {
  Tensor x({2, 9}, std::vector<float>(18)), first = Tensor::unwritten({2, 5}),
                                            second = Tensor::unwritten({2, 3});
  test::InlineBackend backend;
  Stream stream = must(backend.create_stream(StreamRole::compute));
  const Status status =
      divide_columns_async(backend, stream, {x.view(), first.view(), second.view(), {1, 5, 3, 0}});
  EXPECT_THAT(status.message(),
              ::testing::AllOf(::testing::HasSubstr("x is f32 [2, 9]"), ::testing::HasSubstr("2 rows of 8")));
}

}  // namespace
}  // namespace strata::kernels
