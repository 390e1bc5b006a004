#include <strata/runtime/error_list.h>
#include <strata/runtime/status.h>

#include <gtest/gtest.h>

namespace strata {
namespace {

Result<int> half_of_even(int n) {
  if (n % 2 != 0) return Status::error(Code::invalid, "odd");
  return n / 2;
}
Result<int> quarter(int n) {
  STRATA_TRY_ASSIGN(const int half, half_of_even(n));
  STRATA_TRY_ASSIGN(const int rest, half_of_even(half));
  return rest;
}

TEST(StatusTest, TryAssignReturnsTheFirstError) {
  EXPECT_EQ(quarter(8).value(), 2);
  EXPECT_EQ(quarter(6).status().code(), Code::invalid);
}

TEST(StatusTest, AnnotateKeepsTheCodeAndNamesWhatWasBeingDone) {
  const Status status = Status::error(Code::io_error, "short").annotate("reading chunk 3");
  EXPECT_EQ(status.code(), Code::io_error);
  EXPECT_EQ(status.message(), "reading chunk 3: short");
  EXPECT_TRUE(Status::ok().annotate("anything").is_ok());
}

TEST(StatusTest, ControlBytesOfAMessageAreEscaped) {
  EXPECT_EQ(Status::error(Code::invalid, "key '\x1b[31m\x7f\r'\n\tnext").message(),
            "key '\\x1b[31m\\x7f\\x0d'\n\tnext");
}

TEST(StatusTest, AListOfErrorsHasTheCodeOfTheFirstAndALineForEach) {
  ErrorList errors;
  errors.add(Status::ok());
  EXPECT_TRUE(errors.status().is_ok());
  errors.add(Status::error(Code::not_found, "a"));
  errors.add(Status::error(Code::invalid, "b"));
  EXPECT_EQ(errors.status(), Status::error(Code::not_found, "a\nb"));
}

TEST(StatusTest, MustThrowsTheStatus) {
  EXPECT_EQ(must(quarter(4)), 1);
  EXPECT_THROW(must(quarter(3)), Error);
}

}  // namespace
}  // namespace strata
